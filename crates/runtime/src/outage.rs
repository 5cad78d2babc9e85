//! Logging of something that stays broken: one warning, then a summary a minute, then one line when it works again.

use std::{
    fmt::Display,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Shortest time between two lines of one outage.
const SUMMARY: Duration = Duration::from_secs(60);

/// Keeps track of the outage of one thing.
#[derive(Debug)]
pub struct Outage {
    what: &'static str,
    current: Mutex<Option<Current>>,
}

#[derive(Debug)]
struct Current {
    since: Instant,
    said: Instant,
    failures: u64,
}

impl Outage {
    /// Of `what`, as it reads before "fails".
    #[must_use]
    pub fn new(what: &'static str) -> Self {
        Self { what, current: Mutex::new(None) }
    }

    /// It failed. Logs at most one line a minute.
    pub fn failed(&self, error: &dyn Display) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let Some(outage) = &mut *current else {
            *current = Some(Current { since: now, said: now, failures: 1 });
            tracing::warn!(%error, "{} fails", self.what);
            return;
        };
        outage.failures += 1;
        if now.duration_since(outage.said) >= SUMMARY {
            outage.said = now;
            let seconds = now.duration_since(outage.since).as_secs();
            tracing::warn!(%error, failures = outage.failures, seconds, "{} still fails", self.what);
        }
    }

    /// It worked. Logs the end of an outage.
    pub fn worked(&self) {
        let ended = self.current.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(outage) = ended {
            let seconds = outage.since.elapsed().as_secs();
            tracing::info!(failures = outage.failures, seconds, "{} works again", self.what);
        }
    }
}
