//! The one budget that bounds everything.

use std::{
    thread,
    time::{Duration, Instant},
};

/// How much of the deadline a wait leaves for the attempt after it, at most.
const LAST_TRY: Duration = Duration::from_secs(2);

/// A point in time, counted from process start.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    start: Instant,
    total: Duration,
}

impl Deadline {
    /// The point `total` after `start`.
    #[must_use]
    pub fn new(start: Instant, total: Duration) -> Self {
        Self { start, total }
    }

    /// The whole budget.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.total
    }

    /// What is left; zero when it is over.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.total.saturating_sub(self.start.elapsed())
    }

    /// The limit of one attempt: a part of the budget, so that a peer that hangs leaves room for another attempt.
    #[must_use]
    pub fn slice(&self) -> Duration {
        (self.total / 3).clamp(Duration::from_secs(1), Duration::from_secs(15)).min(self.remaining())
    }

    /// Waits. A wait that would use up the budget is cut, so that a last attempt fits behind it. Answers whether
    /// there is time for an attempt at all.
    #[must_use]
    pub fn wait(&self, delay: Duration) -> bool {
        let room = self.remaining().saturating_sub(LAST_TRY.min(self.total / 4));
        if room.is_zero() {
            return false;
        }
        thread::sleep(delay.min(room));
        true
    }
}

/// Reads a duration such as `10s`, `500ms` or `1m`.
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(number.checked_mul(60)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_number_and_a_unit() {
        for (text, expected) in [
            ("10s", Some(Duration::from_secs(10))),
            ("500ms", Some(Duration::from_millis(500))),
            ("1m", Some(Duration::from_secs(60))),
            ("10", None),
            ("s", None),
            ("", None),
            ("-1s", None),
            ("1.5s", None),
            ("1 s", None),
            ("99999999999999999999s", None),
            ("18446744073709551615m", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn a_wait_leaves_room_for_a_last_attempt_and_then_there_is_none() {
        let deadline = Deadline::new(Instant::now(), Duration::from_millis(200));
        assert!(deadline.wait(Duration::from_secs(60)));
        assert!(!deadline.remaining().is_zero());
        assert!(!deadline.wait(Duration::ZERO));
    }
}
