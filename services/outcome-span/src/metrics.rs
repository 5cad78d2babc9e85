//! Metrics of OutcomeSpan. Labels come from fixed sets.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};
use transponder_runtime::Context;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Result {
    result: &'static str,
}

/// The metrics.
pub(crate) struct Metrics {
    spans: Family<Result, Counter>,
}

impl Metrics {
    pub(crate) fn register(context: &Context) -> Self {
        let metrics = Self { spans: Family::default() };
        context.metrics.register(|registry| {
            registry.register(
                "transponder_spans",
                "Spans by what the tracing backend made of them: sent, warned, rejected, refused, later, unknown, waiting",
                metrics.spans.clone(),
            );
        });
        metrics
    }

    /// One span came to `result`.
    pub(crate) fn sent(&self, result: &'static str) {
        self.spans.get_or_create(&Result { result }).inc();
    }
}
