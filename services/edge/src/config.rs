//! Section `[edge]`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};
use transponder_core::{Target, retry::Backoff, settle::Windows};
use transponder_runtime::config::{BadValue, check, duration};

/// Largest body limit that may be configured: what the edge accepts must fit a gRPC message.
pub(crate) const MAX_BODY_LIMIT: ByteSize = ByteSize::mib(1);

/// The edge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where reports come in, over TLS.
    pub listen: SocketAddr,
    /// PEM file with the server's certificate chain.
    pub certificate: PathBuf,
    /// PEM file with its key.
    pub key: PathBuf,
    /// Directory of the outbox. One process at a time.
    pub data_directory: PathBuf,
    /// Directory of the cluster registry.
    pub registry: PathBuf,
    /// Largest event, up to 1 MiB.
    pub body_limit: ByteSize,
    /// Deadlines and caps of connections.
    pub http: HttpConfig,
    /// Budgets of each cluster and of the store.
    pub budget: BudgetConfig,
    /// Delivery to the targets.
    pub delivery: DeliveryConfig,
    /// Settling of verdicts.
    pub settle: SettleConfig,
    /// How long events are remembered.
    pub retention: RetentionConfig,
    /// Where the other services are.
    pub peers: PeersConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], 8443)),
            certificate: "/etc/transponder/edge/tls.crt".into(),
            key: "/etc/transponder/edge/tls.key".into(),
            data_directory: "/var/lib/transponder/edge".into(),
            registry: "/etc/transponder/registry".into(),
            body_limit: ByteSize::kib(256),
            http: HttpConfig::default(),
            budget: BudgetConfig::default(),
            delivery: DeliveryConfig::default(),
            settle: SettleConfig::default(),
            retention: RetentionConfig::default(),
            peers: PeersConfig::default(),
        }
    }
}

/// Deadlines and caps of connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpConfig {
    /// Longest TLS handshake.
    #[serde(with = "duration")]
    pub handshake_timeout: Duration,
    /// Longest wait for a request's head, the wait between two requests included.
    #[serde(with = "duration")]
    pub idle_timeout: Duration,
    /// Longest wait for a whole body.
    #[serde(with = "duration")]
    pub body_timeout: Duration,
    /// Longest life of a connection.
    #[serde(with = "duration")]
    pub connection_age: Duration,
    /// Connections at a time, a quarter of them of one cluster. Beyond that, the one that has waited longest without a
    /// valid token is closed.
    pub max_connections: usize,
    /// Bytes of bodies that are being received, of all clusters together.
    pub bodies_in_flight: ByteSize,
    /// The same, of one cluster.
    pub bodies_in_flight_per_cluster: ByteSize,
}

impl HttpConfig {
    fn check(&self, body_limit: ByteSize) -> Result<(), BadValue> {
        check::above_zero("edge.http.max_connections", self.max_connections as u64)?;
        for (key, value) in [
            ("edge.http.handshake_timeout", self.handshake_timeout),
            ("edge.http.idle_timeout", self.idle_timeout),
            ("edge.http.body_timeout", self.body_timeout),
            ("edge.http.connection_age", self.connection_age),
        ] {
            check::at_least(key, value, SHORTEST, "")?;
        }
        room_for_one("edge.http.bodies_in_flight", self.bodies_in_flight, body_limit)?;
        room_for_one("edge.http.bodies_in_flight_per_cluster", self.bodies_in_flight_per_cluster, body_limit)
    }
}

/// A room that the largest event does not fit into refuses it for ever.
fn room_for_one(key: &str, room: ByteSize, body_limit: ByteSize) -> Result<(), BadValue> {
    if room >= body_limit {
        return Ok(());
    }
    Err(BadValue::new(key, room, format!("must be at least edge.body_limit ({body_limit})")))
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            handshake_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(10),
            connection_age: Duration::from_secs(3600),
            max_connections: 12_000,
            bodies_in_flight: ByteSize::mib(64),
            bodies_in_flight_per_cluster: ByteSize::mib(16),
        }
    }
}

/// Budgets of each cluster and of the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BudgetConfig {
    /// Requests a second of one cluster.
    pub rate: u32,
    /// Requests of one cluster at once.
    pub burst: u32,
    /// Undelivered events of one cluster.
    pub undelivered_events: u64,
    /// Bytes of undelivered events of one cluster.
    pub undelivered_bytes: ByteSize,
    /// Undelivered events in all.
    pub store_events: u64,
    /// Bytes of undelivered events in all.
    pub store_bytes: ByteSize,
}

impl BudgetConfig {
    /// With what fits etcd where nothing else was asked for.
    pub(crate) fn on_kubernetes(mut self) -> Self {
        let usual = Self::default();
        if self.undelivered_bytes == usual.undelivered_bytes {
            self.undelivered_bytes = ByteSize::mib(32);
        }
        if self.store_bytes == usual.store_bytes {
            self.store_bytes = ByteSize::mib(512);
        }
        self
    }

    fn check(&self, body_limit: ByteSize) -> Result<(), BadValue> {
        check::above_zero("edge.budget.rate", self.rate.into())?;
        check::above_zero("edge.budget.burst", self.burst.into())?;
        check::above_zero("edge.budget.undelivered_events", self.undelivered_events)?;
        check::above_zero("edge.budget.store_events", self.store_events)?;
        room_for_one("edge.budget.undelivered_bytes", self.undelivered_bytes, body_limit)?;
        room_for_one("edge.budget.store_bytes", self.store_bytes, body_limit)
    }
}

impl Default for BudgetConfig {
    fn default() -> Self {
        Self {
            rate: 50,
            burst: 500,
            undelivered_events: 10_000,
            undelivered_bytes: ByteSize::mib(256),
            store_events: 200_000,
            store_bytes: ByteSize::gib(2),
        }
    }
}

/// Delivery to the targets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeliveryConfig {
    /// Which effects the edge owns beside broker and tracking: `dora`, `span`. What is not listed, a Task does.
    pub targets: Vec<Target>,
    /// Calls at a time to one target.
    pub concurrency: usize,
    /// Longest call.
    #[serde(with = "duration")]
    pub call_timeout: Duration,
    /// Upper bound of the first retry delay; it doubles from there.
    #[serde(with = "duration")]
    pub retry_base: Duration,
    /// Upper bound of every retry delay.
    #[serde(with = "duration")]
    pub retry_cap: Duration,
    /// After which an event is dead, if its target has taken others since.
    #[serde(with = "duration")]
    pub give_up: Duration,
    /// How long the head of a stream holds back what follows it to the broker.
    #[serde(with = "duration")]
    pub order_for: Duration,
}

impl DeliveryConfig {
    /// The retry schedule.
    #[must_use]
    pub fn backoff(&self) -> Backoff {
        Backoff { base: self.retry_base, cap: self.retry_cap }
    }

    fn check(&self) -> Result<(), BadValue> {
        check::above_zero("edge.delivery.concurrency", self.concurrency as u64)?;
        check::lasting("edge.delivery.call_timeout", self.call_timeout)?;
        // Without a delay a refused event would be a hot loop.
        check::at_least("edge.delivery.retry_base", self.retry_base, SHORTEST, "")?;
        check::at_least(
            "edge.delivery.retry_cap",
            self.retry_cap,
            self.retry_base,
            "edge.delivery.retry_base",
        )?;
        self.check_targets()
    }

    fn check_targets(&self) -> Result<(), BadValue> {
        const KEY: &str = "edge.delivery.targets";
        for (n, target) in self.targets.iter().enumerate() {
            if ![Target::Dora, Target::Span].contains(target) {
                return Err(BadValue::new(KEY, target, "is always one; it must be of dora and span"));
            }
            if self.targets[..n].contains(target) {
                return Err(BadValue::new(KEY, target, "is named twice"));
            }
        }
        Ok(())
    }
}

impl Default for DeliveryConfig {
    fn default() -> Self {
        Self {
            targets: vec![Target::Dora, Target::Span],
            concurrency: 32,
            call_timeout: Duration::from_secs(20),
            retry_base: Duration::from_secs(1),
            retry_cap: Duration::from_secs(300),
            give_up: Duration::from_secs(24 * 3600),
            order_for: Duration::from_secs(120),
        }
    }
}

/// Settling of verdicts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SettleConfig {
    /// A success is handed over this long after its receipt.
    #[serde(with = "duration")]
    pub succeeded: Duration,
    /// A failure is handed over this long after the last observation of its release.
    #[serde(with = "duration")]
    pub failed: Duration,
    /// And at most this long after its first failure.
    #[serde(with = "duration")]
    pub max: Duration,
}

impl SettleConfig {
    /// The windows.
    #[must_use]
    pub fn windows(&self) -> Windows {
        Windows { succeeded: self.succeeded, failed: self.failed, max: self.max }
    }
}

impl Default for SettleConfig {
    fn default() -> Self {
        Self {
            succeeded: Duration::ZERO,
            failed: Duration::from_secs(20 * 60),
            max: Duration::from_secs(2 * 3600),
        }
    }
}

/// How long events are remembered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetentionConfig {
    /// After the last target is final.
    #[serde(with = "duration")]
    pub delivered: Duration,
    /// The bytes of an event, after the last target is final.
    #[serde(with = "duration")]
    pub bodies: Duration,
    /// With a dead target.
    #[serde(with = "duration")]
    pub dead: Duration,
    /// How often is swept.
    #[serde(with = "duration")]
    pub sweep: Duration,
}

impl Default for RetentionConfig {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 3600);
        Self { delivered: day * 7, bodies: day, dead: day * 30, sweep: Duration::from_secs(60) }
    }
}

/// Where the other services are, as `host:port`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PeersConfig {
    /// Forwarder.
    pub forwarder: String,
    /// DoraRecorder.
    pub dora_recorder: String,
    /// ReleaseTracking.
    pub release_tracking: String,
    /// OutcomeSpan.
    pub outcome_span: String,
}

impl Default for PeersConfig {
    fn default() -> Self {
        Self {
            forwarder: "127.0.0.1:8444".into(),
            dora_recorder: "127.0.0.1:8445".into(),
            release_tracking: "127.0.0.1:8446".into(),
            outcome_span: "127.0.0.1:8447".into(),
        }
    }
}

impl PeersConfig {
    fn check(&self) -> Result<(), BadValue> {
        check::host_port("edge.peers.forwarder", &self.forwarder)?;
        check::host_port("edge.peers.dora_recorder", &self.dora_recorder)?;
        check::host_port("edge.peers.release_tracking", &self.release_tracking)?;
        check::host_port("edge.peers.outcome_span", &self.outcome_span)
    }
}

impl Config {
    /// What no type can say.
    ///
    /// # Errors
    /// Names the key, the value and what is wrong with it.
    pub fn check(&self) -> Result<(), BadValue> {
        if self.body_limit > MAX_BODY_LIMIT || self.body_limit.as_u64() == 0 {
            let problem = format!("must be between 1 byte and {MAX_BODY_LIMIT}");
            return Err(BadValue::new("edge.body_limit", self.body_limit, problem));
        }
        check::given("edge.data_directory", &self.data_directory)?;
        self.http.check(self.body_limit)?;
        self.budget.check(self.body_limit)?;
        self.delivery.check()?;
        let Windows { failed, max, .. } = self.settle.windows();
        check::at_least("edge.settle.max", max, failed, "edge.settle.failed")?;
        check::at_least("edge.retention.sweep", self.retention.sweep, SHORTEST, "")?;
        self.peers.check()
    }
}

/// What happens over and over happens no more often than this.
const SHORTEST: Duration = Duration::from_millis(10);

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
