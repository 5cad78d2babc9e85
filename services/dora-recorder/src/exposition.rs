//! The DORA metrics as Prometheus reads them: committed values only, computed at each scrape, and of several replicas by
//! one.

use std::fmt::{self, Error};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet},
    metrics::MetricType,
};

use crate::{
    ledger::View,
    state::{Histogram, LEAD_TIME_BOUNDS, RESTORE_BOUNDS, Totals},
};

/// What is shown of a stream, or of what was imported of an app.
struct Series {
    /// App namespace, app, env and cluster; the last two are empty for what was imported.
    names: [String; 4],
    deployments: u64,
    totals: Totals,
}

/// Shows what the ledger has committed.
pub(crate) struct Exposition(pub(crate) View);

impl fmt::Debug for Exposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exposition")
    }
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        let encoder = &mut encoder;
        let help = "Streams that are held: combinations of app namespace, app, env and cluster";
        let mut gauge =
            encoder.encode_descriptor("transponder_dora_streams", help, None, MetricType::Gauge)?;
        gauge.encode_gauge(&i64::try_from(self.0.streams()).unwrap_or(i64::MAX))?;
        if !self.0.is_on() {
            return Ok(());
        }
        let streams = &self.series();
        let help = "Deployments: releases that were counted as succeeded for the first time";
        counter(encoder, "dora_deployments", help, streams, |series| series.deployments)?;
        releases(encoder, streams)?;
        let help = "Time from the start of a flow to the first success of its release";
        histogram(encoder, "dora_lead_time_seconds", help, streams, &LEAD_TIME_BOUNDS, |t| &t.lead_time)?;
        let help = "Time from the first unrestored failure of a stream to its next success";
        let name = "dora_time_to_restore_seconds_experimental";
        histogram(encoder, name, help, streams, &RESTORE_BOUNDS, |t| &t.restore)?;
        let help = "Releases that were reported failed after they had been counted as succeeded";
        counter(encoder, "dora_conflicts", help, streams, |series| series.totals.conflicts)?;
        let help = "Reports of unknown releases that finished before all that are still known";
        counter(encoder, "dora_late_reports", help, streams, |series| series.totals.late)?;
        discarded(encoder, streams)?;
        // The process may have been stopped since: then somebody else shows more by now.
        if self.0.is_on() { Ok(()) } else { Err(Error) }
    }
}

impl Exposition {
    fn series(&self) -> Vec<Series> {
        let imports = self.0.imports().into_iter().map(|import| Series {
            names: [import.app_namespace.to_string(), import.app.to_string(), String::new(), String::new()],
            deployments: import.deployments,
            totals: import.totals,
        });
        let streams = self.0.shown().into_iter().map(|shown| {
            let stream = &shown.state.stream;
            let names = [
                stream.app_namespace.as_str(),
                stream.app.as_str(),
                stream.env.as_str(),
                stream.cluster.as_str(),
            ];
            Series {
                names: names.map(str::to_owned),
                deployments: shown.totals.succeeded,
                totals: shown.totals,
            }
        });
        imports.chain(streams).collect()
    }
}

impl Series {
    fn labels(&self) -> [(&'static str, &str); 4] {
        let [app_namespace, app, env, cluster] = &self.names;
        [("app_namespace", app_namespace), ("app", app), ("env", env), ("cluster", cluster)]
    }
}

fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    streams: &[Series],
    value: fn(&Series) -> u64,
) -> Result<(), Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for series in streams {
        let labels = series.labels();
        family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value(series), None)?;
    }
    Ok(())
}

fn releases(encoder: &mut DescriptorEncoder<'_>, streams: &[Series]) -> Result<(), Error> {
    let help = "Releases, counted at most once for each outcome";
    let mut family = encoder.encode_descriptor("dora_releases", help, None, MetricType::Counter)?;
    for series in streams {
        let totals = &series.totals;
        for (outcome, value) in [("succeeded", totals.succeeded), ("failed", totals.failed)] {
            let [a, b, c, d] = series.labels();
            let labels = [a, b, c, d, ("outcome", outcome)];
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
    }
    Ok(())
}

fn histogram<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    streams: &[Series],
    bounds: &[u32; N],
    value: fn(&Totals) -> &Histogram<[u64; N]>,
) -> Result<(), Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for series in streams {
        let histogram = value(&series.totals);
        let buckets: Vec<(f64, u64)> = bounds
            .iter()
            .map(|bound| f64::from(*bound))
            .zip(histogram.buckets)
            .chain([(f64::INFINITY, histogram.above)])
            .collect();
        let labels = series.labels();
        let (sum, count) = (histogram.sum.as_secs_f64(), histogram.count());
        family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
    }
    Ok(())
}

/// Over all streams: what is discarded is a matter of clocks, and four more series per stream would be too many.
fn discarded(encoder: &mut DescriptorEncoder<'_>, streams: &[Series]) -> Result<(), Error> {
    let help = "Samples that were not observed because they are negative or implausible";
    let mut family = encoder.encode_descriptor("dora_discarded_samples", help, None, MetricType::Counter)?;
    let sum = |value: fn(&Totals) -> u64| streams.iter().map(|series| value(&series.totals)).sum::<u64>();
    for (sample, reason, value) in [
        ("lead_time", "negative", sum(|t| t.lead_time_discarded.negative)),
        ("lead_time", "implausible", sum(|t| t.lead_time_discarded.implausible)),
        ("restore", "negative", sum(|t| t.restore_discarded.negative)),
        ("restore", "implausible", sum(|t| t.restore_discarded.implausible)),
    ] {
        let labels = [("sample", sample), ("reason", reason)];
        family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
    }
    Ok(())
}
