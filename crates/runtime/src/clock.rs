//! What time it is, behind a trait so that a test can let a day pass.

use std::time::{Duration, Instant};

use transponder_core::Timestamp;

/// A wall clock and a clock that never jumps.
pub trait Clock: Send + Sync + 'static {
    /// The wall clock. It may jump.
    fn wall(&self) -> Timestamp;
    /// Time since the clock was made. It never jumps.
    fn monotonic(&self) -> Duration;
}

/// The system's clocks.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// Starts the monotonic clock.
    #[must_use]
    pub fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Tells when the wall clock has jumped, so that sweepers do not delete by a wrong time.
#[derive(Debug)]
pub struct JumpGuard {
    wall: Timestamp,
    monotonic: Duration,
}

impl JumpGuard {
    /// How far the two clocks may drift apart.
    pub const TOLERANCE: Duration = Duration::from_secs(3600);

    /// Starts to compare.
    #[must_use]
    pub fn new(clock: &dyn Clock) -> Self {
        Self { wall: clock.wall(), monotonic: clock.monotonic() }
    }

    /// Whether wall and monotonic clock still agree to within an hour since the guard was made.
    #[must_use]
    pub fn agrees(&self, clock: &dyn Clock) -> bool {
        let by_wall = clock.wall().duration_since(self.wall);
        let by_monotonic = clock.monotonic().saturating_sub(self.monotonic);
        let expected = jiff::SignedDuration::try_from(by_monotonic).unwrap_or(jiff::SignedDuration::MAX);
        by_wall.saturating_sub(expected).unsigned_abs() <= Self::TOLERANCE
    }
}
