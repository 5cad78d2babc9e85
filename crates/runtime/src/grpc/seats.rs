//! The places for connections.
//!
//! When all are taken, the connection that has waited longest without a call by somebody known makes room: strangers
//! keep out neither the parts of the mesh nor Tasks. Nor do Tasks keep out the mesh: only so many keep their places.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::CancellationToken;

/// All places.
#[derive(Debug)]
pub(super) struct Seats {
    limit: usize,
    tasks: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// Numbers of the connections of Tasks that keep their place.
    tasks: BTreeSet<u64>,
    /// Connections that anybody may have made, oldest first.
    strangers: BTreeMap<u64, CancellationToken>,
    next: u64,
}

impl Seats {
    /// `limit` places, of which Tasks may keep `tasks`.
    pub(super) fn new(limit: usize, tasks: usize) -> Self {
        Self { limit, tasks, taken: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place, and says whether another connection lost its own for it; `None` when all are kept.
    pub(super) fn take(seats: &Arc<Self>) -> Option<(Seat, bool)> {
        let evicted = CancellationToken::new();
        let mut taken = seats.lock();
        let full = taken.all >= seats.limit;
        if full {
            taken.strangers.pop_first()?.1.cancel();
        }
        let number = taken.next;
        taken.next += 1;
        taken.all += 1;
        taken.strangers.insert(number, evicted.clone());
        drop(taken);
        Some((Seat { number, evicted, seats: seats.clone() }, full))
    }
}

/// The place of one connection, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    number: u64,
    evicted: CancellationToken,
    seats: Arc<Seats>,
}

impl Seat {
    /// Resolves when the connection has to make room.
    pub(super) fn evicted(&self) -> CancellationToken {
        self.evicted.clone()
    }

    /// The connection is that of a part of the mesh, and keeps its place.
    pub(super) fn keep_for_service(&self) {
        self.seats.lock().strangers.remove(&self.number);
    }

    /// A Task made a call: the connection keeps its place, unless as many of other Tasks do.
    pub(super) fn keep_for_task(&self) {
        let mut taken = self.seats.lock();
        if taken.tasks.len() < self.seats.tasks && taken.strangers.remove(&self.number).is_some() {
            taken.tasks.insert(self.number);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.lock();
        taken.all -= 1;
        taken.strangers.remove(&self.number);
        taken.tasks.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_stranger_makes_room_and_nobody_that_is_known_does() {
        let seats = Arc::new(Seats::new(3, 1));
        let (service, _) = Seats::take(&seats).unwrap();
        service.keep_for_service();
        let (task, _) = Seats::take(&seats).unwrap();
        task.keep_for_task();
        let (stranger, evicted) = Seats::take(&seats).unwrap();
        assert!(!evicted);
        let (other, evicted) = Seats::take(&seats).unwrap();
        assert!(evicted && stranger.evicted.is_cancelled());
        assert!(!service.evicted.is_cancelled() && !task.evicted.is_cancelled());
        drop(stranger);
        other.keep_for_service();
        assert!(Seats::take(&seats).is_none(), "all are known");
        drop(task);
        assert!(Seats::take(&seats).is_some_and(|(_, evicted)| !evicted));
    }

    #[test]
    fn tasks_keep_no_more_than_their_share() {
        let seats = Arc::new(Seats::new(3, 2));
        let tasks: Vec<_> = (0..3).map(|_| Seats::take(&seats).unwrap().0).collect();
        for task in &tasks {
            task.keep_for_task();
        }
        let (service, _) = Seats::take(&seats).unwrap();
        service.keep_for_service();
        let evicted: Vec<_> = tasks.iter().map(|task| task.evicted.is_cancelled()).collect();
        assert_eq!(evicted, [false, false, true]);
        drop(tasks);
        let (task, _) = Seats::take(&seats).unwrap();
        task.keep_for_task();
        assert_eq!(seats.lock().tasks.len(), 1);
    }
}
