//! Telling of the registry: readiness, metrics, and one line in the log for each new finding.

use std::sync::{Mutex, PoisonError};

use transponder_runtime::{Context, admin::Part};

use super::{Finding, Registry};
use crate::metrics::Metrics;

/// Tells of the registry after each change.
pub(crate) struct Report {
    part: Part,
    metrics: Metrics,
    said: Mutex<Vec<Finding>>,
}

impl Report {
    /// Nothing is known of it yet.
    pub(crate) fn new(metrics: &Metrics, context: &Context) -> Self {
        let part = context.readiness.part("edge registry");
        Self { part, metrics: metrics.clone(), said: Mutex::default() }
    }

    /// Tells how it is.
    pub(crate) fn tell(&self, registry: &Registry, findings: Vec<Finding>) {
        self.metrics.registry(registry.len(), findings.len());
        match registry.problem() {
            Some(problem) => self.part.not_ready(problem),
            None => self.part.ready(),
        }
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        for finding in findings.iter().filter(|finding| !said.contains(finding)) {
            tracing::warn!(
                cluster = finding.cluster,
                problem = finding.problem,
                fatal = finding.fatal,
                "registry"
            );
        }
        *said = findings;
    }
}
