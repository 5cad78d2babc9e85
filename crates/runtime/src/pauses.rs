//! Pauses between tries of something that fails: they grow, and no two processes take the same.

use std::time::Duration;

use transponder_core::retry::Backoff;

/// The pauses of one thing that is tried until it works.
#[derive(Debug, Clone)]
pub struct Pauses {
    backoff: Backoff,
    failed: u32,
}

impl Pauses {
    /// Of about `first` to begin with, and at most `longest`.
    #[must_use]
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { backoff: Backoff { base: first, cap: longest }, failed: 0 }
    }

    /// It failed again: how long to wait before the next try. Half of the pause is left to chance; `asked` is the
    /// shortest that the other side asked for, heeded up to the longest.
    #[must_use]
    pub fn next(&mut self, asked: Option<Duration>) -> Duration {
        self.failed = self.failed.saturating_add(1);
        let pause = self.backoff.ceiling(self.failed).mul_f64(0.5 + fastrand::f64() / 2.0);
        asked.map_or(pause, |asked| asked.max(pause)).min(self.backoff.cap)
    }

    /// It works: the next pause is the first again.
    pub fn reset(&mut self) {
        self.failed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn pauses_grow_to_the_longest_and_begin_anew_after_a_success() {
        let mut pauses = Pauses::new(SECOND, SECOND * 8);
        for ceiling in [1, 2, 4, 8, 8] {
            let pause = pauses.next(None);
            assert!(pause >= SECOND * ceiling / 2 && pause <= SECOND * ceiling, "{pause:?} of {ceiling} s");
        }
        pauses.reset();
        assert!(pauses.next(None) <= SECOND);
    }

    #[test]
    fn what_is_asked_for_is_heeded_up_to_the_longest() {
        let mut pauses = Pauses::new(SECOND, SECOND * 8);
        assert_eq!(pauses.next(Some(SECOND * 5)), SECOND * 5);
        assert_eq!(pauses.next(Some(SECOND * 500)), SECOND * 8);
    }
}
