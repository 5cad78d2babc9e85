//! The service's metrics. Labels are bounded: no name that a caller makes up becomes a series without end.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};
use transponder_core::{ClusterName, Timestamp};
use transponder_runtime::Context;

use crate::{
    state::State,
    store::{Move, Report},
};

/// What clusters without a series of their own share.
const OTHER: &str = "other";
/// The part of all labels that goes to clusters that never reported: their names may be anyone's invention.
const UNPROVEN_PART: usize = 10;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClusterLabel {
    cluster: String,
}

/// Who counts the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counting {
    /// This process, which alone has them: the gauges follow each change.
    Alone,
    /// One of several that have the same ones, so that their sum is the number of records: the gauges are there while this
    /// process is the one, and as true as its last sweep.
    InTurn,
}

/// The service's metrics.
pub(crate) struct Metrics {
    counting: Counting,
    releases: Family<StateLabel, Gauge>,
    unreported: Family<ClusterLabel, Counter>,
    last_report: Family<ClusterLabel, Gauge>,
    /// Clusters with a series of their own, those that reported and those that did not.
    labels: Mutex<Labels>,
}

struct Labels {
    max: usize,
    reporting: HashSet<ClusterName>,
    unproven: HashSet<ClusterName>,
}

impl Metrics {
    pub(crate) fn register(context: &Context, max_labels: usize, counting: Counting) -> Self {
        let metrics = Self {
            counting,
            releases: Family::default(),
            unreported: Family::default(),
            last_report: Family::default(),
            labels: Mutex::new(Labels {
                max: max_labels,
                reporting: HashSet::new(),
                unproven: HashSet::new(),
            }),
        };
        context.metrics.register(|registry| {
            registry.register(
                "transponder_releases",
                "Records of releases by state",
                metrics.releases.clone(),
            );
            registry.register(
                "transponder_unreported",
                "Releases that became unreported: merged or begun, and then silence",
                metrics.unreported.clone(),
            );
            registry.register(
                "transponder_cluster_last_report_timestamp_seconds",
                "Unix time at which a cluster's last report was received",
                metrics.last_report.clone(),
            );
        });
        if counting == Counting::Alone {
            metrics.count(&[]);
        }
        metrics
    }

    fn state(&self, state: State) -> Gauge {
        self.releases.get_or_create_owned(&StateLabel { state: state.as_str() })
    }

    /// Follows records from state to state.
    pub(crate) fn moved(&self, moves: &[Move]) {
        if self.counting == Counting::InTurn {
            return;
        }
        for step in moves {
            if let Some(from) = step.from {
                self.state(from).dec();
            }
            self.state(step.to).inc();
        }
    }

    /// A record is gone.
    pub(crate) fn removed(&self, state: State) {
        if self.counting == Counting::Alone {
            self.state(state).dec();
        }
    }

    /// Another process counts the records now.
    pub(crate) fn count_no_more(&self) {
        self.releases.clear();
    }

    /// Takes over what the store counted: the truth, after calls whose end was unknown and records that expired.
    pub(crate) fn count(&self, tally: &[(State, u64)]) {
        for state in State::ALL {
            let count = tally.iter().find(|(counted, _)| *counted == state).map_or(0, |(_, count)| *count);
            self.state(state).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// A cluster reported.
    pub(crate) fn reported(&self, report: &Report, now: Timestamp) {
        let mut labels = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        if !labels.reporting.contains(&report.cluster) {
            if labels.reporting.len() >= labels.max {
                return;
            }
            labels.unproven.remove(&report.cluster);
            labels.reporting.insert(report.cluster.clone());
        }
        drop(labels);
        let label = ClusterLabel { cluster: report.cluster.to_string() };
        // The counter is born at 0, so that `increase()` sees the first unreported release.
        drop(self.unreported.get_or_create(&label));
        let gauge = self.last_report.get_or_create_owned(&label);
        let (kept, told) = (gauge.get(), report.at.as_second());
        // One from the future, which a wall clock that jumped has left behind, gives way: as in the store.
        if told > kept || kept > now.as_second() {
            gauge.set(told);
        }
    }

    /// Takes over what the store kept: clusters that are long gone have no series any more.
    pub(crate) fn restore_reports(&self, reports: &[Report], now: Timestamp) {
        let gone: Vec<ClusterName> = {
            let mut labels = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
            let kept: HashSet<_> = reports.iter().map(|report| &report.cluster).collect();
            labels.reporting.extract_if(|cluster| !kept.contains(cluster)).collect()
        };
        for cluster in gone {
            let label = ClusterLabel { cluster: cluster.to_string() };
            self.last_report.remove(&label);
            self.unreported.remove(&label);
        }
        for report in reports {
            self.reported(&Report { cluster: report.cluster.clone(), at: report.at.min(now) }, now);
        }
    }

    /// A cluster is heard of, so that its counter is born at 0 before there is anything to count.
    pub(crate) fn heard_of(&self, cluster: &ClusterName) {
        drop(self.unreported.get_or_create(&self.label(cluster)));
    }

    /// A release became unreported.
    pub(crate) fn unreported(&self, cluster: &ClusterName) {
        self.unreported.get_or_create(&self.label(cluster)).inc();
    }

    fn label(&self, cluster: &ClusterName) -> ClusterLabel {
        let mut labels = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        let room = labels.unproven.len() < labels.max / UNPROVEN_PART;
        let known = labels.reporting.contains(cluster) || labels.unproven.contains(cluster);
        if !known && room {
            labels.unproven.insert(cluster.clone());
        }
        let cluster = if known || room { cluster.to_string() } else { OTHER.to_owned() };
        ClusterLabel { cluster }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(n: usize) -> ClusterName {
        ClusterName::new(&format!("c-{n}")).unwrap()
    }

    fn lines(context: &Context, metric: &str) -> Vec<String> {
        let (text, _) = context.metrics.expose("").unwrap();
        text.lines().filter(|line| line.starts_with(metric)).map(str::to_owned).collect()
    }

    #[test]
    fn invented_clusters_share_one_series_and_do_not_crowd_out_those_that_report() {
        let context = Context::new();
        let metrics = Metrics::register(&context, 20, Counting::Alone);
        for n in 0..100 {
            metrics.unreported(&cluster(n));
        }
        assert_eq!(lines(&context, "transponder_unreported_total").len(), 3);
        let at = Timestamp::from_second(1_800_000_000).unwrap();
        for n in 200..300 {
            metrics.reported(&Report { cluster: cluster(n), at }, at);
        }
        assert_eq!(lines(&context, "transponder_cluster_last_report").len(), 20);
        assert!(
            lines(&context, "transponder_unreported_total")
                .contains(&"transponder_unreported_total{cluster=\"c-200\"} 0".to_owned())
        );
    }
}
