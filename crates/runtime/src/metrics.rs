//! The process's metrics and their exposition.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::{encoding, registry::Registry};

/// The content type of OpenMetrics.
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The content type of Prometheus' older text format.
pub const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The one registry of a process. Clones share it.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Mutex<Registry>>);

impl Metrics {
    /// Registers metrics.
    pub fn register<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        register(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// All metrics, in the format that the `Accept` header asks for, and its content type.
    ///
    /// # Errors
    /// When a collector fails to encode.
    pub fn expose(&self, accept: &str) -> Result<(String, &'static str), std::fmt::Error> {
        let registry = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        if accept.contains("application/openmetrics-text") {
            encoding::text::encode(&mut text, &registry)?;
            Ok((text, OPENMETRICS))
        } else {
            encoding::prometheus_text::encode(&mut text, &registry)?;
            Ok((text, TEXT))
        }
    }
}
