//! The edge's metrics. Label values come from fixed sets and from the registry, never from a request.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
};
use transponder_core::{ClusterName, Phase, Target};
use transponder_runtime::Context;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    method: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClusterLabels {
    cluster: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    phase: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TargetLabels {
    target: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// Why a connection was closed before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closed {
    Handshake,
    Evicted,
}

#[derive(Clone)]
pub(crate) struct Metrics {
    requests: Family<StatusLabels, Counter>,
    events: Family<ClusterLabels, Counter>,
    observations: Family<PhaseLabels, Counter>,
    pending: Gauge,
    delivered: Family<TargetLabels, Counter>,
    failed: Family<TargetLabels, Counter>,
    dead: Family<TargetLabels, Counter>,
    waiting: Family<TargetLabels, Gauge>,
    down: Family<TargetLabels, Gauge>,
    connections: Gauge,
    closed: Family<ReasonLabels, Counter>,
    store_seconds: Histogram,
    clusters: Gauge,
    findings: Gauge,
}

impl Metrics {
    pub(crate) fn register(context: &Context) -> Self {
        let metrics = Self {
            requests: Family::default(),
            events: Family::default(),
            observations: Family::default(),
            pending: Gauge::default(),
            delivered: Family::default(),
            failed: Family::default(),
            dead: Family::default(),
            waiting: Family::default(),
            down: Family::default(),
            connections: Gauge::default(),
            closed: Family::default(),
            store_seconds: Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0]),
            clusters: Gauge::default(),
            findings: Gauge::default(),
        };
        // From zero, so that `increase()` sees the first.
        for target in Target::ALL {
            let labels = TargetLabels { target: target.as_str() };
            for counter in [&metrics.delivered, &metrics.failed, &metrics.dead] {
                drop(counter.get_or_create(&labels));
            }
        }
        for phase in [Phase::Syncing, Phase::Succeeded, Phase::Failed] {
            drop(metrics.observations.get_or_create(&PhaseLabels { phase: phase.as_str() }));
        }
        context.metrics.register(|r| {
            r.register("transponder_edge_requests", "Requests by answer", metrics.requests.clone());
            r.register("transponder_events", "Events stored for the first time", metrics.events.clone());
            r.register("transponder_observations", "Observations stored", metrics.observations.clone());
            r.register("transponder_pending_verdicts", "Verdicts that are settling", metrics.pending.clone());
            r.register("transponder_deliveries", "Events that a target took", metrics.delivered.clone());
            r.register(
                "transponder_delivery_failures",
                "Calls to a target that failed",
                metrics.failed.clone(),
            );
            r.register("transponder_dead_letters", "Events given up for a target", metrics.dead.clone());
            r.register("transponder_waiting_events", "Events in a target's queue", metrics.waiting.clone());
            r.register("transponder_target_down", "1 while a target takes no events", metrics.down.clone());
            r.register("transponder_edge_connections", "Open connections", metrics.connections.clone());
            r.register(
                "transponder_edge_connections_closed",
                "Connections closed early",
                metrics.closed.clone(),
            );
            r.register(
                "transponder_store_seconds",
                "Time from a complete request to its event being on disk",
                metrics.store_seconds.clone(),
            );
            r.register("transponder_registry_clusters", "Clusters in the registry", metrics.clusters.clone());
            r.register(
                "transponder_registry_findings",
                "Faults in the registry; `transponder doctor` names them",
                metrics.findings.clone(),
            );
        });
        metrics
    }

    pub(crate) fn answered(&self, method: &'static str, status: u16) {
        self.requests.get_or_create(&StatusLabels { method, status }).inc();
    }

    pub(crate) fn stored(&self, cluster: &ClusterName) {
        self.events.get_or_create(&ClusterLabels { cluster: cluster.to_string() }).inc();
    }

    pub(crate) fn observed(&self, phase: Phase) {
        self.observations.get_or_create(&PhaseLabels { phase: phase.as_str() }).inc();
    }

    pub(crate) fn store_took(&self, seconds: f64) {
        self.store_seconds.observe(seconds);
    }

    pub(crate) fn pending_verdicts(&self, number: usize) {
        self.pending.set(i64::try_from(number).unwrap_or(i64::MAX));
    }

    pub(crate) fn delivered(&self, target: Target) {
        self.delivered.get_or_create(&TargetLabels { target: target.as_str() }).inc();
    }

    pub(crate) fn failed(&self, target: Target) {
        self.failed.get_or_create(&TargetLabels { target: target.as_str() }).inc();
    }

    pub(crate) fn dead(&self, target: Target) {
        self.dead.get_or_create(&TargetLabels { target: target.as_str() }).inc();
    }

    pub(crate) fn waiting(&self, target: Target, number: usize, down: bool) {
        let labels = TargetLabels { target: target.as_str() };
        self.waiting.get_or_create(&labels).set(i64::try_from(number).unwrap_or(i64::MAX));
        self.down.get_or_create(&labels).set(i64::from(down));
    }

    pub(crate) fn connected(&self) {
        self.connections.inc();
    }

    pub(crate) fn disconnected(&self) {
        self.connections.dec();
    }

    pub(crate) fn closed(&self, why: Closed) {
        let reason = match why {
            Closed::Handshake => "handshake",
            Closed::Evicted => "evicted",
        };
        self.closed.get_or_create(&ReasonLabels { reason }).inc();
    }

    pub(crate) fn registry(&self, clusters: usize, findings: usize) {
        self.clusters.set(i64::try_from(clusters).unwrap_or(i64::MAX));
        self.findings.set(i64::try_from(findings).unwrap_or(i64::MAX));
    }
}
