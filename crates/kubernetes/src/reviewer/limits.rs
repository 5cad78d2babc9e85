//! How many reviews there may be, since strangers can ask for them.

use std::{num::NonZeroU32, time::Duration};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter, clock::Clock as _};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Reviews at a time.
const AT_A_TIME: usize = 16;
/// Reviews a second, over time and at once.
const RATE: [u32; 2] = [50, 100];
/// Most tokens that may wait for their review.
pub(super) const WAITING: usize = 256;

/// Gives turns, in the order in which they were asked for.
pub(super) struct Limits {
    places: Semaphore,
    rate: DefaultDirectRateLimiter,
    patience: Duration,
}

impl Limits {
    /// A turn is waited for no longer than `patience`.
    pub(super) fn new(patience: Duration) -> Self {
        let [rate, burst] = RATE.map(|rate| NonZeroU32::new(rate).unwrap_or(NonZeroU32::MIN));
        let quota = Quota::per_second(rate).allow_burst(burst);
        Self { places: Semaphore::new(AT_A_TIME), rate: RateLimiter::direct(quota), patience }
    }

    /// Waits for a turn, which lasts as long as what is answered is held. `None` when there was none in time.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        let wait = async {
            let place = self.places.acquire().await.ok()?;
            while let Err(until) = self.rate.check() {
                tokio::time::sleep(until.wait_time_from(self.rate.clock().now())).await;
            }
            Some(place)
        };
        tokio::time::timeout(self.patience, wait).await.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn there_are_no_more_at_a_time_than_places_and_each_waits_for_one() {
        let limits = Limits::new(Duration::from_millis(50));
        let mut held = Vec::new();
        for _ in 0..AT_A_TIME {
            held.push(limits.turn().await.unwrap());
        }
        assert!(limits.turn().await.is_none());
        held.pop();
        assert!(limits.turn().await.is_some());
    }

    #[tokio::test]
    async fn there_are_no_more_a_second_than_the_rate() {
        let limits = Limits::new(Duration::from_secs(5));
        let started = std::time::Instant::now();
        for _ in 0..RATE[1] + RATE[0] / 2 {
            drop(limits.turn().await.unwrap());
        }
        assert!(started.elapsed() >= Duration::from_millis(450), "{:?}", started.elapsed());
    }
}
