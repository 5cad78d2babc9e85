//! Waiting for a condition.

use std::{
    panic::Location,
    time::{Duration, Instant},
};

/// For what should happen at once: long enough for a busy machine.
pub const SHORT: Duration = Duration::from_secs(10);
/// For what takes a program to start, or a retry or two.
pub const LONG: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(20);

/// Asks `probe` until it answers `Ok`, and returns that.
///
/// `what` says what is waited for, as in "the event is at the broker". A probe that hangs is cut off at the end of
/// the time.
///
/// # Panics
///
/// When `timeout` has passed, with the last state that the probe saw.
#[track_caller]
pub fn eventually<T, F, P>(what: &str, timeout: Duration, mut probe: F) -> impl Future<Output = T>
where
    F: FnMut() -> P,
    P: Future<Output = Result<T, String>>,
{
    // Taken here: inside the future the caller is the executor.
    let caller = Location::caller();
    async move {
        let end = Instant::now() + timeout;
        let mut last = "nothing was seen".to_owned();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match tokio::time::timeout(left, probe()).await {
                Ok(Ok(value)) => return value,
                Ok(Err(state)) => last = state,
                Err(_) => {}
            }
            if Instant::now() >= end {
                panic!("{caller}: {what}: not within {timeout:?}; last seen: {last}");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
