//! What a request for an unknown cluster waits for, so that it takes as long as one for a known cluster whose Secret is
//! read: or the time would tell which clusters there are. It costs no request.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Unknown names that are told from one another.
const SLOTS: usize = 4096;

/// Pretends to read the Secrets of clusters that do not exist.
pub(super) struct Decoy {
    started: Instant,
    hasher: RandomState,
    /// Per name, the milliseconds from the start to when its Secret would have to be read again.
    slots: Box<[AtomicU64]>,
    /// Microseconds that the last real read took.
    took: AtomicU64,
}

impl Decoy {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            hasher: RandomState::new(),
            slots: std::iter::repeat_with(AtomicU64::default).take(SLOTS).collect(),
            took: AtomicU64::new(0),
        }
    }

    /// Takes note of how long a real read took.
    pub(super) fn took(&self, time: Duration) {
        self.took.store(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    /// How long a request for this name has to wait, where a Secret is `fresh` for so long.
    pub(super) fn wait(&self, name: &str, fresh: Duration) -> Duration {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let now = self.started.elapsed();
        let place = usize::try_from(self.hasher.hash_one(name)).unwrap_or(usize::MAX) % SLOTS;
        let again = &self.slots[place];
        if millis(now) < again.load(Relaxed) {
            return Duration::ZERO;
        }
        again.store(millis(now + fresh), Relaxed);
        Duration::from_micros(self.took.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_waits_as_often_and_as_long_as_a_known_one() {
        let (decoy, fresh, took) = (Decoy::new(), Duration::from_millis(40), Duration::from_millis(7));
        decoy.took(took);
        assert_eq!(decoy.wait("a", fresh), took);
        assert_eq!(decoy.wait("a", fresh), Duration::ZERO);
        assert_eq!(decoy.wait("another", fresh), took);
        std::thread::sleep(fresh * 2);
        assert_eq!(decoy.wait("a", fresh), took);
    }
}
