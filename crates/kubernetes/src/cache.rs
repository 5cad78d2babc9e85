//! What was found out about a token, for a while, under the token's digest.

use std::{
    collections::{HashMap, VecDeque},
    time::Instant,
};

/// SHA-256 of a token: no look-up compares a secret byte by byte, and none is kept.
pub(crate) type Digest = [u8; 32];

/// A bounded number of answers, each until its own time. When it is full, the one that was learnt first goes.
#[derive(Debug)]
pub(crate) struct Cache<V> {
    capacity: usize,
    known: HashMap<Digest, (V, Instant)>,
    /// In the order in which they were learnt. One that was learnt anew has an older place here, too, which tells by its
    /// time that it does not count any more.
    order: VecDeque<(Digest, Instant)>,
}

impl<V: Clone> Cache<V> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, known: HashMap::new(), order: VecDeque::new() }
    }

    pub(crate) fn get(&self, digest: &Digest, now: Instant) -> Option<V> {
        let (value, until) = self.known.get(digest)?;
        (now < *until).then(|| value.clone())
    }

    pub(crate) fn insert(&mut self, digest: Digest, value: V, until: Instant, now: Instant) {
        while self.order.len() >= self.capacity || self.order.front().is_some_and(|(_, until)| *until <= now)
        {
            let Some((oldest, until)) = self.order.pop_front() else { break };
            if self.known.get(&oldest).is_some_and(|(_, counts)| *counts == until) {
                self.known.remove(&oldest);
            }
        }
        self.known.insert(digest, (value, until));
        self.order.push_back((digest, until));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_answer_ends_with_its_time() {
        let (mut cache, now) = (Cache::new(2), Instant::now());
        cache.insert([1; 32], 'a', now + SECOND, now);
        assert_eq!(cache.get(&[1; 32], now), Some('a'));
        assert_eq!(cache.get(&[1; 32], now + SECOND), None);
        assert_eq!(cache.get(&[2; 32], now), None);
    }

    #[test]
    fn no_more_are_kept_than_there_is_room_for() {
        let (mut cache, now) = (Cache::new(2), Instant::now());
        for n in 1..=3 {
            cache.insert([n; 32], n, now + SECOND, now);
        }
        assert_eq!([1, 2, 3].map(|n| cache.get(&[n; 32], now)), [None, Some(2), Some(3)]);
        assert!(cache.known.len() == 2 && cache.order.len() == 2);
    }

    #[test]
    fn what_has_ended_makes_room_first() {
        let (mut cache, now) = (Cache::new(2), Instant::now());
        cache.insert([1; 32], 1, now + SECOND, now);
        cache.insert([2; 32], 2, now + SECOND * 9, now);
        cache.insert([3; 32], 3, now + SECOND * 9, now + SECOND);
        assert_eq!([2, 3].map(|n| cache.get(&[n; 32], now + SECOND)), [Some(2), Some(3)]);
    }

    #[test]
    fn what_is_learnt_anew_outlives_its_first_place() {
        let (mut cache, now) = (Cache::new(3), Instant::now());
        cache.insert([1; 32], 'a', now + SECOND, now);
        cache.insert([2; 32], 'x', now + SECOND * 9, now);
        cache.insert([1; 32], 'b', now + SECOND * 9, now + SECOND);
        cache.insert([3; 32], 'c', now + SECOND * 9, now + SECOND);
        assert_eq!(cache.get(&[1; 32], now + SECOND), Some('b'));
        for n in 4..50 {
            cache.insert([n; 32], 'd', now + SECOND * 9, now + SECOND);
            cache.insert([n; 32], 'e', now + SECOND * 9, now + SECOND);
        }
        assert!(cache.known.len() <= 3 && cache.order.len() <= 3);
    }
}
