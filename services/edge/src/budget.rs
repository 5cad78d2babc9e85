//! What one cluster may spend, and all clusters together. No cluster's spending touches another's.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter, clock::Clock as _};
use transponder_core::ClusterName;

use crate::config::{BudgetConfig, HttpConfig};

/// A counted amount with an upper bound.
#[derive(Debug)]
struct Meter {
    used: AtomicU64,
    limit: u64,
}

impl Meter {
    fn new(limit: u64) -> Self {
        Self { used: AtomicU64::new(0), limit }
    }

    fn try_add(&self, amount: u64) -> bool {
        self.used
            .fetch_update(Relaxed, Relaxed, |used| used.checked_add(amount).filter(|sum| *sum <= self.limit))
            .is_ok()
    }

    /// Adds what is there already and cannot be refused.
    fn add(&self, amount: u64) {
        let _ = self.used.fetch_update(Relaxed, Relaxed, |used| Some(used.saturating_add(amount)));
    }

    fn subtract(&self, amount: u64) {
        // Cannot go below zero: what is taken out was put in.
        let _ = self.used.fetch_update(Relaxed, Relaxed, |used| Some(used.saturating_sub(amount)));
    }
}

/// The room for undelivered events.
#[derive(Debug)]
struct Room {
    events: Meter,
    bytes: Meter,
}

impl Room {
    fn try_take(&self, bytes: u64) -> bool {
        if !self.events.try_add(1) {
            return false;
        }
        let fits = self.bytes.try_add(bytes);
        if !fits {
            self.events.subtract(1);
        }
        fits
    }
}

/// Which budget is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spent {
    /// The cluster's own.
    Cluster,
    /// The store's.
    Store,
}

/// What one cluster may spend.
#[derive(Debug)]
pub(crate) struct Budget {
    rate: DefaultDirectRateLimiter,
    undelivered: Room,
    bodies: Meter,
    connections: Meter,
    shared: Arc<Shared>,
}

/// What all clusters may spend together.
#[derive(Debug)]
struct Shared {
    undelivered: Room,
    bodies: Meter,
}

impl Shared {
    fn new(config: &BudgetConfig, bodies: u64) -> Self {
        Self {
            undelivered: Room {
                events: Meter::new(config.store_events),
                bytes: Meter::new(config.store_bytes.as_u64()),
            },
            bodies: Meter::new(bodies),
        }
    }
}

impl Budget {
    /// Counts a request.
    ///
    /// # Errors
    /// How long to wait for the next.
    pub(crate) fn request(&self) -> Result<(), Duration> {
        self.rate.check().map_err(|until| until.wait_time_from(self.rate.clock().now()))
    }

    /// Takes room for an event, to be given back when it is delivered.
    pub(crate) fn take_room(&self, bytes: u64) -> Result<(), Spent> {
        if !self.undelivered.try_take(bytes) {
            return Err(Spent::Cluster);
        }
        if !self.shared.undelivered.try_take(bytes) {
            self.undelivered.events.subtract(1);
            self.undelivered.bytes.subtract(bytes);
            return Err(Spent::Store);
        }
        Ok(())
    }

    /// Counts an event that is stored already.
    pub(crate) fn occupy(&self, bytes: u64) {
        for room in [&self.undelivered, &self.shared.undelivered] {
            room.events.add(1);
            room.bytes.add(bytes);
        }
    }

    /// Gives back the room of an event.
    pub(crate) fn give_back(&self, bytes: u64) {
        for room in [&self.undelivered, &self.shared.undelivered] {
            room.events.subtract(1);
            room.bytes.subtract(bytes);
        }
    }

    /// Takes one of the cluster's connections.
    pub(crate) fn take_connection(&self) -> bool {
        self.connections.try_add(1)
    }

    /// Gives it back.
    pub(crate) fn give_back_connection(&self) {
        self.connections.subtract(1);
    }

    /// Takes room for bytes of a body that is being received.
    pub(crate) fn take_body(&self, bytes: u64) -> Result<(), Spent> {
        if !self.bodies.try_add(bytes) {
            return Err(Spent::Cluster);
        }
        if !self.shared.bodies.try_add(bytes) {
            self.bodies.subtract(bytes);
            return Err(Spent::Store);
        }
        Ok(())
    }

    /// Gives back the bytes of a body.
    pub(crate) fn give_back_body(&self, bytes: u64) {
        self.bodies.subtract(bytes);
        self.shared.bodies.subtract(bytes);
    }
}

/// The budgets of all clusters, those included that have events stored and are no longer registered.
#[derive(Debug, Clone)]
pub(crate) struct Budgets {
    config: BudgetConfig,
    bodies_per_cluster: u64,
    connections_per_cluster: u64,
    shared: Arc<Shared>,
    known: Arc<Mutex<HashMap<ClusterName, Arc<Budget>>>>,
}

impl Budgets {
    pub(crate) fn new(config: &BudgetConfig, http: &HttpConfig) -> Self {
        let shared = Shared::new(config, http.bodies_in_flight.as_u64());
        Self {
            config: config.clone(),
            bodies_per_cluster: http.bodies_in_flight_per_cluster.as_u64(),
            connections_per_cluster: (http.max_connections as u64 / 4).max(1),
            shared: Arc::new(shared),
            known: Arc::default(),
        }
    }

    /// Others, of the same size, that nobody else counts in.
    pub(crate) fn apart(&self) -> Self {
        Self {
            shared: Arc::new(Shared::new(&self.config, self.shared.bodies.limit)),
            known: Arc::default(),
            ..self.clone()
        }
    }

    /// The budget of a cluster. Asked when the registry or the outbox is read, not for each request.
    pub(crate) fn of(&self, name: &ClusterName) -> Arc<Budget> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(name.clone()).or_insert_with(|| Arc::new(self.make())).clone()
    }

    /// Counts nothing as stored, before the outbox is read anew.
    pub(crate) fn reset(&self) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let rooms = known.values().map(|budget| &budget.undelivered).chain([&self.shared.undelivered]);
        for room in rooms {
            room.events.used.store(0, Relaxed);
            room.bytes.used.store(0, Relaxed);
        }
    }

    fn make(&self) -> Budget {
        let at_least_one = |n| NonZeroU32::new(n).unwrap_or(NonZeroU32::MIN);
        let quota =
            Quota::per_second(at_least_one(self.config.rate)).allow_burst(at_least_one(self.config.burst));
        Budget {
            rate: RateLimiter::direct(quota),
            undelivered: Room {
                events: Meter::new(self.config.undelivered_events),
                bytes: Meter::new(self.config.undelivered_bytes.as_u64()),
            },
            bodies: Meter::new(self.bodies_per_cluster),
            connections: Meter::new(self.connections_per_cluster),
            shared: self.shared.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_clusters_spending_leaves_the_others_room() {
        let config = BudgetConfig { undelivered_events: 2, store_events: 3, ..BudgetConfig::default() };
        let budgets = Budgets::new(&config, &HttpConfig::default());
        let (a, b) = (budgets.of(&"a".parse().unwrap()), budgets.of(&"b".parse().unwrap()));
        assert_eq!((a.take_room(1), a.take_room(1)), (Ok(()), Ok(())));
        assert_eq!(a.take_room(1), Err(Spent::Cluster));
        assert_eq!(b.take_room(1), Ok(()));
        assert_eq!(b.take_room(1), Err(Spent::Store));
        a.give_back(1);
        assert_eq!(b.take_room(1), Ok(()));
    }

    #[test]
    fn the_rate_is_each_clusters_own() {
        let config = BudgetConfig { rate: 1, burst: 2, ..BudgetConfig::default() };
        let budgets = Budgets::new(&config, &HttpConfig::default());
        let (a, b) = (budgets.of(&"a".parse().unwrap()), budgets.of(&"b".parse().unwrap()));
        assert!(a.request().is_ok() && a.request().is_ok());
        assert!(a.request().unwrap_err() <= Duration::from_secs(1));
        assert!(b.request().is_ok());
    }
}
