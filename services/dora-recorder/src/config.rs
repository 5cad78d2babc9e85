//! Configuration: section `[dora]`.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use transponder_core::ClusterName;
use transponder_runtime::config::{BadValue, check, duration};

/// How the DoraRecorder counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Address of the gRPC listener.
    pub listen: SocketAddr,
    /// Directory of `dora.db`: on a local disk, used by one process at a time.
    pub data_directory: PathBuf,
    /// How long a new stream's series stand at 0 before they show what is counted, so that `increase()` sees the first
    /// release: at least two scrapes. For a stream that exists, the shortest one since its birth counts.
    #[serde(with = "duration")]
    pub zero_hold: Duration,
    /// Value of the label `cluster` for releases of this cluster's own Argo CD, which are read on Kubernetes alone.
    /// Absent: there are none.
    pub local_cluster: Option<ClusterName>,
    /// How many streams, and with them series, there may be.
    pub budgets: Budgets,
}

/// Bounds of the label sets. A stream is one combination of app namespace, app, env and cluster, and makes about 25
/// series. Streams that exist are never evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Budgets {
    /// Streams in all.
    pub streams: u32,
    /// Streams of one cluster, without those that Tasks of apps made.
    pub streams_per_cluster: u32,
    /// Streams of one app namespace on one cluster; and, apart from these, streams that Tasks of one app made, whatever
    /// clusters they named.
    pub streams_per_app_namespace: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8445)),
            data_directory: "/var/lib/transponder/dora-recorder".into(),
            zero_hold: Duration::from_secs(90),
            local_cluster: None,
            budgets: Budgets::default(),
        }
    }
}

impl Config {
    /// What no type can say.
    ///
    /// # Errors
    /// Names the key, the value and what is wrong with it.
    pub fn check(&self) -> Result<(), BadValue> {
        check::given("dora.data_directory", &self.data_directory)?;
        check::above_zero("dora.budgets.streams", self.budgets.streams.into())?;
        check::above_zero("dora.budgets.streams_per_cluster", self.budgets.streams_per_cluster.into())?;
        let per_app_namespace = self.budgets.streams_per_app_namespace.into();
        check::above_zero("dora.budgets.streams_per_app_namespace", per_app_namespace)
    }
}

impl Default for Budgets {
    fn default() -> Self {
        Self { streams: 20_000, streams_per_cluster: 5_000, streams_per_app_namespace: 2_000 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_must_be_given() {
        assert_eq!(Config::default().check(), Ok(()));
        let config = Config { data_directory: PathBuf::new(), ..Config::default() };
        assert_eq!(config.check().unwrap_err().to_string(), "dora.data_directory: '' must be a path");
    }
}
