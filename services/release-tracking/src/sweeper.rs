//! The sweeper: what has been silent becomes `unreported`, what is old goes.

use std::{sync::Arc, time::Duration};

use tokio::task::JoinSet;
use transponder_core::{Release, Timestamp};
use transponder_runtime::{Clock, Shutdown, clock::JumpGuard};

use crate::{
    change::{Unknown, What},
    config::Config,
    state::{Lifetime, State},
    store,
    tracker::Tracker,
};

/// Releases that are marked together, in one commit.
const SILENT: u32 = 256;
/// Records that are removed in one commit: others' changes wait no longer than that takes.
const EXPIRED: u32 = 500;
/// After a start, reports that were waiting for us may still be on their way: the edge tries at least every 5 min.
const GRACE: Duration = Duration::from_secs(360);

/// Sweeps until shutdown.
pub(crate) struct Sweeper {
    tracker: Tracker,
    clock: Arc<dyn Clock>,
    guard: JumpGuard,
    grace_ends: Duration,
    silence: Duration,
    keep_open: Duration,
    keep_ended: Duration,
    interval: Duration,
    stopped: bool,
}

impl Sweeper {
    pub(crate) fn new(tracker: Tracker, config: &Config) -> Self {
        let clock = tracker.clock.clone();
        Self {
            guard: JumpGuard::new(clock.as_ref()),
            grace_ends: clock.monotonic() + config.silence.min(GRACE),
            tracker,
            clock,
            silence: config.silence,
            keep_open: config.keep_open,
            keep_ended: config.keep_ended,
            interval: config.sweep_interval,
            stopped: false,
        }
    }

    pub(crate) async fn run(mut self, shutdown: Shutdown) {
        while shutdown.or(tokio::time::sleep(self.interval)).await.is_some() {
            // Reads and writes that fail make the service not ready; the next sweep tries again.
            if let Err(error) = self.sweep().await {
                tracing::warn!(%error, "sweep failed");
            }
        }
    }

    async fn sweep(&mut self) -> Result<(), store::Error> {
        self.tracker.metrics.count(&self.tracker.store.tally().await?);
        let Some(now) = self.guard.trusted(self.clock.as_ref()) else {
            if !std::mem::replace(&mut self.stopped, true) {
                tracing::error!(
                    "the wall clock has jumped by more than an hour: nothing is swept until it is right again"
                );
            }
            return Ok(());
        };
        if std::mem::replace(&mut self.stopped, false) {
            tracing::info!("the wall clock is right again");
        }
        if self.clock.monotonic() >= self.grace_ends {
            self.mark_silent(now).await?;
        }
        self.expire(Lifetime::Open, ago(now, self.keep_open)).await?;
        self.expire(Lifetime::Ended, ago(now, self.keep_ended)).await?;
        if let Some(before) = ago(now, self.keep_open)
            && self.tracker.store.forget_reports(before).await? > 0
        {
            let reports = self.tracker.store.reports().await?;
            self.tracker.metrics.restore_reports(&reports, now);
        }
        Ok(())
    }

    async fn mark_silent(&self, now: Timestamp) -> Result<(), store::Error> {
        let Some(before) = ago(now, self.silence) else { return Ok(()) };
        loop {
            let silent = self.tracker.store.silent(before, SILENT).await?;
            let full = silent.len() == SILENT as usize;
            let mut marking = JoinSet::new();
            for release in silent {
                marking.spawn(mark(self.tracker.clone(), release, before));
            }
            let mut marked = 0;
            for outcome in marking.join_all().await {
                marked += usize::from(outcome?);
            }
            // One that cannot be marked must not be tried for ever.
            if !full || marked == 0 {
                return Ok(());
            }
        }
    }

    async fn expire(&self, lifetime: Lifetime, before: Option<Timestamp>) -> Result<(), store::Error> {
        let Some(before) = before else { return Ok(()) };
        let mut total = 0;
        loop {
            let removed = self.tracker.store.expire(lifetime, before, EXPIRED).await?;
            total += removed;
            if removed < EXPIRED {
                break;
            }
        }
        if total > 0 {
            tracing::info!(records = total, ?lifetime, "records expired");
            self.tracker.metrics.count(&self.tracker.store.tally().await?);
        }
        Ok(())
    }
}

/// Marks one release, unless a report came in between. Answers whether it did.
async fn mark(tracker: Tracker, release: Release, before: Timestamp) -> Result<bool, store::Error> {
    let changed =
        tracker.change(release.clone(), String::new(), What::Silent(before), Unknown::Leave).await?;
    let marked = changed.moves.iter().any(|step| step.to == State::Unreported);
    if marked {
        let stream = &release.stream;
        tracker.metrics.unreported(&stream.cluster);
        tracing::warn!(
            app_namespace = %stream.app_namespace,
            app = %stream.app,
            env = %stream.env,
            cluster = %stream.cluster,
            id = %release.id,
            quiet_before = %before,
            "release unreported: merged or begun, and then silence"
        );
    }
    Ok(marked)
}

/// The time `duration` before `now`; `None` when there was none.
fn ago(now: Timestamp, duration: Duration) -> Option<Timestamp> {
    now.checked_sub(jiff::SignedDuration::try_from(duration).ok()?).ok()
}
