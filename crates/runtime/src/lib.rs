//! What every service runs on: configuration, telemetry, TLS, gRPC server and client, admin listener, shutdown.
//!
//! Knows the domain's callers and services, but no service's own work.

pub mod admin;
pub mod auth;
pub mod clock;
pub mod config;
pub mod crash;
pub mod error;
#[cfg(test)]
mod fixture;
pub mod grpc;
pub mod jwt;
pub mod mesh;
pub mod metrics;
pub mod operator;
pub mod outage;
pub mod pauses;
pub mod retry_after;
pub mod shutdown;
pub mod telemetry;
pub mod tls;
pub mod trace;
pub mod watch;

pub use clock::{Clock, SystemClock};
pub use error::Fault;
pub use metrics::Metrics;
pub use shutdown::Shutdown;

use std::sync::Arc;

use admin::Readiness;

/// What a service is given when it is built.
#[derive(Clone)]
pub struct Context {
    /// Where its metrics are registered.
    pub metrics: Metrics,
    /// Where it says whether it is ready.
    pub readiness: Readiness,
    /// When it must stop.
    pub shutdown: Shutdown,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Where it records what it does.
    pub tracer: trace::Tracer,
    /// Until when the certificates of the process are valid.
    pub certificates: mesh::CertificateMetrics,
}

impl Context {
    /// A context of its own, with the system's clock.
    #[must_use]
    pub fn new() -> Self {
        let metrics = Metrics::default();
        Self {
            certificates: mesh::CertificateMetrics::register(&metrics),
            metrics,
            readiness: Readiness::default(),
            shutdown: Shutdown::default(),
            clock: Arc::new(SystemClock::new()),
            tracer: trace::Tracer::default(),
        }
    }
}

impl Default for Context {
    fn default() -> Self {
        Self::new()
    }
}
