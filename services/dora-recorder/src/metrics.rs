//! Metrics of the service's own work. What it counts for others is in the exposition.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};
use transponder_runtime::Context;

use crate::{error::Budget, state::Disposition};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DispositionLabel {
    disposition: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BudgetLabel {
    budget: &'static str,
}

/// Counters since the process began; their label sets are closed.
#[derive(Clone)]
pub(crate) struct Metrics {
    verdicts: Family<DispositionLabel, Counter>,
    refused: Family<BudgetLabel, Counter>,
}

impl Metrics {
    pub(crate) fn register(context: &Context) -> Self {
        let metrics = Self { verdicts: Family::default(), refused: Family::default() };
        for disposition in [
            Disposition::New,
            Disposition::Repeated,
            Disposition::Absorbed,
            Disposition::Conflict,
            Disposition::Late,
        ] {
            drop(metrics.verdicts.get_or_create(&label(disposition)));
        }
        for budget in [Budget::All, Budget::Cluster, Budget::AppNamespace] {
            drop(metrics.refused.get_or_create(&BudgetLabel { budget: budget.as_str() }));
        }
        context.metrics.register(|registry| {
            let help = "Verdicts that were judged, by what became of them";
            registry.register("transponder_dora_verdicts", help, metrics.verdicts.clone());
            let help = "Verdicts that were refused because there is no room for another stream, by the budget that is spent";
            registry.register("transponder_dora_streams_refused", help, metrics.refused.clone());
        });
        metrics
    }

    pub(crate) fn judged(&self, disposition: Disposition) {
        self.verdicts.get_or_create(&label(disposition)).inc();
    }

    pub(crate) fn refused(&self, budget: Budget) {
        self.refused.get_or_create(&BudgetLabel { budget: budget.as_str() }).inc();
    }
}

fn label(disposition: Disposition) -> DispositionLabel {
    let disposition = match disposition {
        Disposition::New => "new",
        Disposition::Repeated => "repeated",
        Disposition::Absorbed => "absorbed",
        Disposition::Conflict => "conflict",
        Disposition::Late => "late",
    };
    DispositionLabel { disposition }
}
