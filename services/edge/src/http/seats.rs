//! The seats for connections.
//!
//! At the cap, the connection that has waited longest without showing a valid token makes room: strangers that say
//! nothing, or little and slowly, cannot keep an honest client out. Nor can one cluster: it holds a share of the seats.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio_util::sync::CancellationToken;

use crate::budget::Budget;

/// All seats.
pub(super) struct Seats {
    limit: usize,
    taken: Mutex<Taken>,
    next: AtomicU64,
}

#[derive(Default)]
struct Taken {
    all: usize,
    /// Connections that have shown no valid token, oldest first.
    strangers: BTreeMap<u64, CancellationToken>,
}

impl Seats {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, taken: Mutex::default(), next: AtomicU64::new(0) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a seat, and says whether another connection lost its own for it; `None` when all are held by clusters.
    pub(super) fn take(seats: &Arc<Self>) -> Option<(Seat, bool)> {
        let number = seats.next.fetch_add(1, Ordering::Relaxed);
        let evicted = CancellationToken::new();
        let mut taken = seats.lock();
        let full = taken.all >= seats.limit;
        if full {
            taken.strangers.pop_first()?.1.cancel();
        }
        taken.all += 1;
        taken.strangers.insert(number, evicted.clone());
        drop(taken);
        Some((Seat { number, evicted, cluster: OnceLock::new(), seats: seats.clone() }, full))
    }
}

/// The seat of one connection, given back when it is dropped.
pub(super) struct Seat {
    number: u64,
    evicted: CancellationToken,
    /// Whose token the connection has shown first.
    cluster: OnceLock<Arc<Budget>>,
    seats: Arc<Seats>,
}

impl Seat {
    /// Resolves when the connection has to make room.
    pub(super) fn evicted(&self) -> CancellationToken {
        self.evicted.clone()
    }

    /// The connection has shown a valid token, and keeps its seat from here on.
    ///
    /// # Errors
    /// When the cluster holds its share of the seats already.
    pub(super) fn trust(&self, budget: &Arc<Budget>) -> Result<(), ()> {
        if self.cluster.get().is_some() {
            return Ok(());
        }
        if !budget.take_connection() {
            return Err(());
        }
        if self.cluster.set(budget.clone()).is_err() {
            budget.give_back_connection();
        }
        self.seats.lock().strangers.remove(&self.number);
        Ok(())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(budget) = self.cluster.get() {
            budget.give_back_connection();
        }
        let mut taken = self.seats.lock();
        taken.all -= 1;
        taken.strangers.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        budget::Budgets,
        config::{BudgetConfig, HttpConfig},
    };

    fn budget(name: &str, max_connections: usize) -> Arc<Budget> {
        let http = HttpConfig { max_connections, ..HttpConfig::default() };
        Budgets::new(&BudgetConfig::default(), &http).of(&name.parse().unwrap())
    }

    #[test]
    fn at_the_limit_the_oldest_stranger_makes_room_and_nobody_with_a_token_does() {
        let seats = Arc::new(Seats::new(2));
        let (known, _) = Seats::take(&seats).unwrap();
        known.trust(&budget("a", 100)).unwrap();
        let (stranger, evicted) = Seats::take(&seats).unwrap();
        assert!(!evicted);
        let (third, evicted) = Seats::take(&seats).unwrap();
        assert!(evicted && stranger.evicted.is_cancelled() && !known.evicted.is_cancelled());
        third.trust(&budget("b", 100)).unwrap();
        assert!(Seats::take(&seats).is_none());
    }

    #[test]
    fn a_cluster_holds_a_quarter_of_the_seats_at_most() {
        let seats = Arc::new(Seats::new(100));
        let loud = budget("loud", 8);
        let held: Vec<_> = (0..3).map(|_| Seats::take(&seats).unwrap().0).collect();
        let trusted: Vec<_> = held.iter().map(|seat| seat.trust(&loud).is_ok()).collect();
        assert_eq!(trusted, [true, true, false]);
        drop(held);
        assert!(Seats::take(&seats).unwrap().0.trust(&loud).is_ok());
    }
}
