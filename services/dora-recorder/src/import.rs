//! What an older exporter left in ConfigMaps: read by every replica at its start, and kept by the holder of the Lease as
//! objects of our own, one per app and created once. So whoever is killed at any step leaves something out or nothing,
//! and the next one goes on; no verdict is taken before all of it is there.
//!
//! An entry that cannot be read is named in the log and left out: it concerns its app alone.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde::{Deserialize, de::DeserializeOwned};
use transponder_core::{AppName, AppNamespace, Timestamp};
use transponder_kubernetes::{Access, ApiError};

use crate::state::{Imported, Instant, Sample, Totals};

/// Totals of apps.
const TOTALS: &str = "dora-metrics-state";
/// Last failures of apps that no success has followed.
const FAILURES: &str = "dora-cluster-mapped-state";

/// An app, as the exporter knew it.
pub(crate) type App = (AppNamespace, AppName);

/// What there is to be imported.
pub(crate) type Legacy = BTreeMap<App, Imported>;

/// Reads both ConfigMaps. One that is not there holds nothing.
///
/// # Errors
/// When that cannot be told.
pub(crate) async fn read(access: &Access) -> Result<Legacy, ApiError> {
    let maps: Api<ConfigMap> = access.api();
    let totals = access.call("read ConfigMap dora-metrics-state", maps.get_opt(TOTALS)).await?;
    let failures = access.call("read ConfigMap dora-cluster-mapped-state", maps.get_opt(FAILURES)).await?;
    let data = |map: Option<ConfigMap>| map.and_then(|map| map.data).unwrap_or_default();
    Ok(combine(&data(totals), &data(failures)))
}

fn combine(totals: &BTreeMap<String, String>, failures: &BTreeMap<String, String>) -> Legacy {
    let mut legacy = Legacy::new();
    for (app, found) in entries(TOTALS, totals, |text| json::<Record>(text).map(|record| record.add_up())) {
        let import = entry(&mut legacy, app);
        (import.deployments, import.totals) = found;
    }
    for (app, since) in entries(FAILURES, failures, time) {
        entry(&mut legacy, app).failing_since = Some(since);
    }
    legacy
}

fn entry(legacy: &mut Legacy, app: App) -> &mut Imported {
    legacy.entry(app.clone()).or_insert_with(|| Imported {
        app_namespace: app.0,
        app: app.1,
        deployments: 0,
        totals: Totals::default(),
        failing_since: None,
        claimed_by: None,
    })
}

/// The entries that can be read.
fn entries<T>(
    map: &'static str,
    data: &BTreeMap<String, String>,
    read: impl Fn(&str) -> Result<T, String>,
) -> Vec<(App, T)> {
    let entry = |(key, text): (&String, &String)| {
        let found = app(key).and_then(|app| Ok((app, read(text)?)));
        found
            .inspect_err(|problem| tracing::error!(map, key, problem, "not imported: mend it and restart"))
            .ok()
    };
    data.iter().filter_map(entry).collect()
}

/// `<appNamespace>.<app>`: neither has a dot.
fn app(key: &str) -> Result<App, String> {
    let (namespace, app) = key.split_once('.').ok_or("the key must be <appNamespace>.<app>")?;
    let namespace = AppNamespace::new(namespace).map_err(|e| format!("the app namespace {e}"))?;
    Ok((namespace, AppName::new(app).map_err(|e| format!("the app {e}"))?))
}

fn json<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|e| e.to_string())
}

fn time(text: &str) -> Result<Instant, String> {
    let time: Timestamp = text.trim().parse().map_err(|e| format!("'{text}' is no RFC 3339 time: {e}"))?;
    Ok(time.into())
}

/// What the exporter kept of an app. Samples are seconds.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Record {
    deployments: u64,
    releases_succeeded: u64,
    releases_failed: u64,
    lead_time_observations: Vec<f64>,
    mttr_observations: Vec<f64>,
}

impl Record {
    fn add_up(&self) -> (u64, Totals) {
        let mut totals =
            Totals { succeeded: self.releases_succeeded, failed: self.releases_failed, ..Totals::default() };
        // The exporter showed them, so they are believed however long they are.
        let valid =
            |seconds: &f64| Duration::try_from_secs_f64(*seconds).map_or(Sample::Negative, Sample::Valid);
        self.lead_time_observations.iter().for_each(|seconds| totals.lead_time(valid(seconds)));
        self.mttr_observations.iter().for_each(|seconds| totals.restore(valid(seconds)));
        (self.deployments, totals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn both_maps_make_one_import_per_app_and_a_broken_entry_is_left_out() {
        let record = r#"{"deployments":3,"releasesSucceeded":4,"releasesFailed":2,
            "leadTimeObservations":[60,4000.5,-1],"mttrObservations":[301],"later":{}}"#;
        let totals = map(&[("app-shop-cicd.shop", record), ("app-pay-cicd.pay", "{"), ("nodot", "{}")]);
        let failures = map(&[
            ("app-shop-cicd.shop", "2026-09-14T10:00:00Z"),
            ("app-new-cicd.new", "2026-09-14T11:00:00+01:00"),
            ("app-pay-cicd.pay", "yesterday"),
        ]);
        let legacy = combine(&totals, &failures);
        let since = time("2026-09-14T10:00:00Z").unwrap();
        assert_eq!(legacy.len(), 2);
        let [new, shop] = legacy.values().collect::<Vec<_>>()[..] else { panic!() };
        assert_eq!((new.app.as_str(), new.deployments, new.failing_since), ("new", 0, Some(since)));
        assert_eq!((shop.deployments, shop.failing_since), (3, Some(since)));
        assert_eq!((shop.totals.succeeded, shop.totals.failed), (4, 2));
        assert_eq!(shop.totals.lead_time.buckets, [1, 1, 0, 0]);
        assert_eq!(shop.totals.lead_time.sum, Duration::from_millis(4_060_500));
        assert_eq!(shop.totals.lead_time_discarded.negative, 1);
        assert_eq!(shop.totals.restore.buckets, [0, 1, 0, 0, 0, 0]);
    }
}
