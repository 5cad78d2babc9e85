//! The retry schedule: exponential with full jitter.
//!
//! Attempts are counted in the store, so a schedule is a function of the count and not an iterator.

use std::time::Duration;

/// An exponential schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Upper bound of the first delay.
    pub base: Duration,
    /// Upper bound of every delay, what the peer asks for included.
    pub cap: Duration,
}

impl Backoff {
    /// The upper bound of the delay after `attempts` failed attempts.
    #[must_use]
    pub fn ceiling(&self, attempts: u32) -> Duration {
        let factor = 2u32.checked_pow(attempts.saturating_sub(1)).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.cap)
    }

    /// The delay after `attempts` failed attempts: a random part of the ceiling (`random` in 0..1), or what the peer
    /// asked for, if that is longer; never above the cap.
    #[must_use]
    pub fn delay(&self, attempts: u32, asked: Option<Duration>, random: f64) -> Duration {
        let jittered = self.ceiling(attempts).mul_f64(random.clamp(0.0, 1.0));
        asked.map_or(jittered, |asked| asked.max(jittered)).min(self.cap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(300) };

    #[test]
    fn the_ceiling_doubles_up_to_the_cap() {
        for (attempts, seconds) in [(0, 1), (1, 1), (2, 2), (3, 4), (9, 256), (10, 300), (u32::MAX, 300)] {
            assert_eq!(BACKOFF.ceiling(attempts), Duration::from_secs(seconds), "{attempts}");
        }
    }

    #[test]
    fn what_the_peer_asks_is_honoured_up_to_the_cap() {
        assert_eq!(BACKOFF.delay(1, Some(Duration::from_secs(20)), 0.5), Duration::from_secs(20));
        assert_eq!(BACKOFF.delay(1, Some(Duration::from_secs(9999)), 0.5), BACKOFF.cap);
        assert_eq!(BACKOFF.delay(5, Some(Duration::ZERO), 0.5), Duration::from_secs(8));
    }
}
