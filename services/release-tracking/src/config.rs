//! Configuration of the service: section `[release_tracking]`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};
use transponder_runtime::config::{BadValue, check, duration};

use crate::budget::Budgets;

/// Section `[release_tracking]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where gRPC listens.
    pub listen: SocketAddr,
    /// Where `tracking.db` and the operator's socket lie. Used by one process at a time.
    pub data_directory: PathBuf,
    /// How long after the merge or the last PreSync a release without an outcome is `unreported`.
    #[serde(with = "duration")]
    pub silence: Duration,
    /// How long a record lives after its last change while its release has not ended.
    #[serde(with = "duration")]
    pub keep_open: Duration,
    /// How long a record lives after its last change once its release has ended.
    #[serde(with = "duration")]
    pub keep_ended: Duration,
    /// Pause between two looks for silence and age.
    #[serde(with = "duration")]
    pub sweep_interval: Duration,
    /// Most records of one app namespace on one cluster; and, apart from these, most that Tasks of one app made,
    /// whatever clusters they named.
    pub max_records_per_app_namespace: u64,
    /// Most records of one cluster, without those that Tasks of apps made.
    pub max_records_per_cluster: u64,
    /// Most records of the store.
    pub max_records: u64,
    /// Most clusters that have a metric series of their own; the others share `other`.
    pub max_cluster_labels: usize,
    /// App namespaces, as globs, in which older Tasks have left ConfigMaps `release-tracking-<chain id>`. Only with the
    /// Kubernetes store, which must be allowed to get ConfigMaps there.
    pub older_records: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        const DAY: u64 = 24 * 60 * 60;
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8446)),
            data_directory: "/var/lib/transponder/release-tracking".into(),
            silence: Duration::from_secs(45 * 60),
            keep_open: Duration::from_secs(90 * DAY),
            keep_ended: Duration::from_secs(14 * DAY),
            sweep_interval: Duration::from_secs(30),
            max_records_per_app_namespace: 200_000,
            max_records_per_cluster: 1_000_000,
            max_records: 2_000_000,
            max_cluster_labels: 1_000,
            older_records: Vec::new(),
        }
    }
}

impl Config {
    /// What one app namespace on one cluster, one cluster and the store may hold.
    pub(crate) fn budgets(&self) -> Budgets {
        Budgets {
            app_namespace: self.max_records_per_app_namespace,
            cluster: self.max_records_per_cluster,
            store: self.max_records,
        }
    }

    /// The app namespaces in which there may be older records.
    pub(crate) fn older_records(&self) -> Result<GlobSet, BadValue> {
        let wrong = |glob: &str, error: globset::Error| {
            BadValue::new("release_tracking.older_records", glob, format!("is no glob: {error}"))
        };
        let mut set = GlobSetBuilder::new();
        for glob in &self.older_records {
            set.add(GlobBuilder::new(glob).build().map_err(|e| wrong(glob, e))?);
        }
        set.build().map_err(|e| wrong(&self.older_records.join(" "), e))
    }

    /// Refuses values that would make the service do nothing, or nothing else.
    ///
    /// # Errors
    /// Names the key, the value and what is wrong with it.
    pub fn check(&self) -> Result<(), BadValue> {
        check::given("release_tracking.data_directory", &self.data_directory)?;
        check::lasting("release_tracking.silence", self.silence)?;
        check::lasting("release_tracking.keep_open", self.keep_open)?;
        check::lasting("release_tracking.keep_ended", self.keep_ended)?;
        check::at_least(
            "release_tracking.sweep_interval",
            self.sweep_interval,
            Duration::from_millis(10),
            "",
        )?;
        let per_app_namespace = self.max_records_per_app_namespace;
        check::above_zero("release_tracking.max_records_per_app_namespace", per_app_namespace)?;
        check::above_zero("release_tracking.max_records_per_cluster", self.max_records_per_cluster)?;
        check::above_zero("release_tracking.max_records", self.max_records)?;
        self.older_records().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_cannot_work_is_refused_by_name() {
        assert_eq!(Config::default().check(), Ok(()));
        let config = Config { silence: Duration::ZERO, ..Config::default() };
        assert_eq!(config.check().unwrap_err().key, "release_tracking.silence");
        let config = Config { data_directory: PathBuf::new(), ..Config::default() };
        assert_eq!(config.check().unwrap_err().key, "release_tracking.data_directory");
        let config = Config { older_records: vec!["app-[".into()], ..Config::default() };
        assert_eq!(config.check().unwrap_err().key, "release_tracking.older_records");
    }
}
