//! The last releases of a stream: what is needed to count none of them twice.

use transponder_core::ReleaseKey;

use super::Instant;

/// How many releases are held.
pub const HELD: usize = 256;
/// Releases that finished at the same instant as the oldest are held beyond [`HELD`], up to this many: with one of them
/// forgotten, its repetition would be neither known nor older than all that are.
pub const HELD_WITH_TIES: usize = 1024;

/// What is known of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// The release.
    pub key: ReleaseKey,
    /// Its latest finish, whatever it came to.
    pub finished_at: Instant,
    /// When it finished that was counted as succeeded.
    pub succeeded_at: Option<Instant>,
    /// Whether it was counted as failed.
    pub failed: bool,
    /// Whether it was counted as a conflict.
    pub conflict: bool,
}

/// The releases that are held, and how far back they reach.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Window {
    known: Vec<Known>,
    forgotten_until: Option<Instant>,
}

impl Window {
    /// A window as a store kept it.
    #[must_use]
    pub fn new(known: Vec<Known>, forgotten_until: Option<Instant>) -> Self {
        Self { known, forgotten_until }
    }

    /// The releases that are held, in no order.
    #[must_use]
    pub fn known(&self) -> &[Known] {
        &self.known
    }

    /// The latest finish of a release that was forgotten.
    #[must_use]
    pub fn forgotten_until(&self) -> Option<Instant> {
        self.forgotten_until
    }

    pub(super) fn find_mut(&mut self, key: ReleaseKey) -> Option<&mut Known> {
        self.known.iter_mut().find(|known| known.key == key)
    }

    fn oldest(&self) -> Option<Instant> {
        self.known.iter().map(|known| known.finished_at).min()
    }

    /// Whether it cannot be told if an unknown release that finished then was counted before.
    pub(super) fn is_late(&self, finished_at: Instant) -> bool {
        let before_oldest =
            self.known.len() >= HELD && self.oldest().is_some_and(|oldest| finished_at < oldest);
        before_oldest || self.forgotten_until.is_some_and(|until| finished_at <= until)
    }

    /// Takes in a release that is not known and answers which ones are forgotten for it.
    pub(super) fn insert(&mut self, release: Known) -> Vec<ReleaseKey> {
        // Exactly one more: doubling would waste half of the memory that all streams take.
        self.known.reserve_exact(1);
        self.known.push(release);
        let mut forgotten = Vec::new();
        while let (excess @ 1.., Some(oldest)) = (self.known.len().saturating_sub(HELD), self.oldest()) {
            let ties = self.known.iter().filter(|known| known.finished_at == oldest).count();
            let mut going = match ties <= excess {
                // All of one instant go together, or none.
                true => ties,
                false if self.known.len() > HELD_WITH_TIES => excess,
                false => break,
            };
            self.known.retain(|known| {
                let goes = going > 0 && known.finished_at == oldest;
                if goes {
                    going -= 1;
                    forgotten.push(known.key);
                }
                !goes
            });
            self.forgotten_until = self.forgotten_until.max(Some(oldest));
        }
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Instant {
        Instant::from_nanos(second * 1_000_000_000).unwrap()
    }

    fn release(number: u32, second: i64) -> Known {
        let mut key = [0; 20];
        key[..4].copy_from_slice(&number.to_be_bytes());
        let key = ReleaseKey::from_bytes(key);
        Known { key, finished_at: at(second), succeeded_at: None, failed: true, conflict: false }
    }

    #[test]
    fn a_known_release_takes_forty_bytes() {
        assert_eq!(size_of::<Known>(), 40);
    }

    #[test]
    fn once_full_the_oldest_goes_and_what_is_older_than_all_is_late() {
        let mut window = Window::default();
        for number in 0..256 {
            assert!(!window.is_late(at(1)));
            assert!(window.insert(release(number, 10 + i64::from(number))).is_empty());
        }
        assert!(window.is_late(at(9)) && !window.is_late(at(10)));
        assert_eq!(window.insert(release(256, 12)), [release(0, 10).key]);
        assert!(window.is_late(at(10)) && !window.is_late(at(11)));
        assert_eq!(window.known().len(), HELD);
    }

    #[test]
    fn releases_of_the_oldest_instant_are_forgotten_together_or_not_at_all() {
        let mut window = Window::default();
        for number in 0..300 {
            assert!(window.insert(release(number, 10)).is_empty());
        }
        assert!(!window.is_late(at(10)));
        for number in 300..555 {
            assert!(window.insert(release(number, 11)).is_empty());
        }
        assert_eq!(window.insert(release(555, 11)).len(), 300);
        assert!(window.is_late(at(10)) && !window.is_late(at(11)));
    }

    #[test]
    fn even_ties_are_bounded_and_never_counted_again() {
        let mut window = Window::default();
        for number in 0..2_000 {
            if !window.is_late(at(10)) {
                window.insert(release(number, 10));
            }
            assert!(window.known().len() <= HELD_WITH_TIES);
        }
        assert!(window.is_late(at(10)));
    }
}
