//! What time it is, behind a trait so that a test can let a day pass.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

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
///
/// A clock that was wrong at the start and is put right later has jumped for good: once it has kept pace with the
/// monotonic clock for an hour after the jump, it is the one to go by.
#[derive(Debug)]
pub struct JumpGuard(Mutex<Anchors>);

#[derive(Debug)]
struct Anchors {
    /// What the clocks are compared with.
    trusted: Anchor,
    /// Since when they have been in pace again, while they disagree with that.
    jumped: Option<Anchor>,
}

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy)]
struct Anchor {
    wall: Timestamp,
    monotonic: Duration,
}

impl Anchor {
    fn now(clock: &dyn Clock) -> Self {
        Self { wall: clock.wall(), monotonic: clock.monotonic() }
    }

    /// How far the two clocks have drifted apart since `earlier`.
    fn drift_since(&self, earlier: &Self) -> Duration {
        let by_wall = self.wall.duration_since(earlier.wall);
        let by_monotonic = self.monotonic.saturating_sub(earlier.monotonic);
        let expected = jiff::SignedDuration::try_from(by_monotonic).unwrap_or(jiff::SignedDuration::MAX);
        by_wall.saturating_sub(expected).unsigned_abs()
    }
}

impl JumpGuard {
    /// How far the two clocks may drift apart.
    pub const TOLERANCE: Duration = Duration::from_secs(3600);
    /// How far they may drift apart after a jump to be in pace.
    const PACE: Duration = Duration::from_secs(60);
    /// How long they must have been in pace after a jump.
    const STEADY: Duration = Duration::from_secs(3600);

    /// Starts to compare.
    #[must_use]
    pub fn new(clock: &dyn Clock) -> Self {
        Self(Mutex::new(Anchors { trusted: Anchor::now(clock), jumped: None }))
    }

    /// What time it is, if the wall clock can be gone by: it agrees with the monotonic clock to within an hour since the
    /// guard was made, or has kept pace with it for an hour since it last jumped. Go by this time and not by another
    /// look at the clock, which may jump in between. Ask often: a jump is noticed when it is asked.
    #[must_use]
    pub fn trusted(&self, clock: &dyn Clock) -> Option<Timestamp> {
        let now = Anchor::now(clock);
        self.agrees(now).then_some(now.wall)
    }

    fn agrees(&self, now: Anchor) -> bool {
        let mut anchors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now.drift_since(&anchors.trusted) <= Self::TOLERANCE {
            anchors.jumped = None;
            return true;
        }
        let since = match anchors.jumped {
            Some(since) if now.drift_since(&since) <= Self::PACE => since,
            _ => *anchors.jumped.insert(now),
        };
        let steady = now.monotonic.saturating_sub(since.monotonic) >= Self::STEADY;
        if steady {
            *anchors = Anchors { trusted: since, jumped: None };
        }
        steady
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Hands(Mutex<(i64, u64)>);

    impl Hands {
        /// Lets the wall clock and the monotonic clock go on by so many seconds.
        fn pass(&self, wall: i64, monotonic: u64) {
            let mut hands = self.0.lock().unwrap();
            hands.0 += wall;
            hands.1 += monotonic;
        }
    }

    impl Clock for Hands {
        fn wall(&self) -> Timestamp {
            Timestamp::from_second(1_800_000_000 + self.0.lock().unwrap().0).unwrap()
        }

        fn monotonic(&self) -> Duration {
            Duration::from_secs(self.0.lock().unwrap().1)
        }
    }

    const DAY: i64 = 24 * 3600;

    fn hands() -> (Hands, JumpGuard) {
        let hands = Hands(Mutex::new((0, 0)));
        let guard = JumpGuard::new(&hands);
        (hands, guard)
    }

    #[test]
    fn a_clock_that_jumps_is_not_gone_by_and_is_again_when_it_jumps_back() {
        for jump in [DAY, -DAY] {
            let (hands, guard) = hands();
            hands.pass(60, 60);
            assert!(guard.trusted(&hands).is_some());
            hands.pass(jump, 0);
            assert!(guard.trusted(&hands).is_none());
            hands.pass(60 - jump, 60);
            assert!(guard.trusted(&hands).is_some());
        }
    }

    #[test]
    fn a_clock_put_right_after_the_start_is_gone_by_once_it_kept_pace_for_an_hour() {
        for jump in [DAY, -DAY] {
            let (hands, guard) = hands();
            hands.pass(jump, 0);
            for minute in 0..60 {
                assert!(guard.trusted(&hands).is_none(), "minute {minute}");
                hands.pass(60, 60);
            }
            assert!(guard.trusted(&hands).is_some());
            hands.pass(DAY, DAY.unsigned_abs());
            assert!(guard.trusted(&hands).is_some());
        }
    }

    #[test]
    fn a_clock_that_keeps_jumping_is_never_gone_by() {
        let (hands, guard) = hands();
        for _ in 0..300 {
            hands.pass(DAY, 60);
            assert!(guard.trusted(&hands).is_none());
        }
    }

    #[test]
    fn the_hour_begins_anew_with_every_jump() {
        let (hands, guard) = hands();
        hands.pass(DAY, 0);
        assert!(guard.trusted(&hands).is_none());
        hands.pass(3000, 3000);
        assert!(guard.trusted(&hands).is_none());
        hands.pass(DAY, 0);
        assert!(guard.trusted(&hands).is_none());
        hands.pass(3000, 3000);
        assert!(guard.trusted(&hands).is_none());
        hands.pass(600, 600);
        assert!(guard.trusted(&hands).is_some());
    }
}
