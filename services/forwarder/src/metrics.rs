//! Metrics of the Forwarder. Labels come from fixed sets.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
};
use transponder_runtime::Context;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Result {
    result: &'static str,
}

/// The metrics.
pub(crate) struct Metrics {
    posts: Family<Result, Counter>,
    duration: Histogram,
    token_expiry: Gauge,
}

impl Metrics {
    pub(crate) fn register(context: &Context) -> Self {
        let metrics = Self {
            posts: Family::default(),
            duration: Histogram::new([0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0]),
            token_expiry: Gauge::default(),
        };
        context.metrics.register(|registry| {
            registry.register(
                "transponder_broker_posts",
                "Events for the broker by result: accepted, refused, status, later, unreachable, token",
                metrics.posts.clone(),
            );
            registry.register(
                "transponder_broker_post_duration_seconds",
                "Time from sending an event to the broker's answer",
                metrics.duration.clone(),
            );
            registry.register(
                "transponder_broker_token_expiry_timestamp_seconds",
                "Unix time at which the broker token expires; 0 without a token that may be sent",
                metrics.token_expiry.clone(),
            );
        });
        metrics
    }

    /// One call came to `result`.
    pub(crate) fn posted(&self, result: &'static str) {
        self.posts.get_or_create(&Result { result }).inc();
    }

    pub(crate) fn answered_within(&self, duration: Duration) {
        self.duration.observe(duration.as_secs_f64());
    }

    pub(crate) fn token_expires(&self, at: Option<i64>) {
        self.token_expiry.set(at.unwrap_or(0));
    }
}
