//! Configuration: section `[dora]`.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use transponder_core::{AppName, AppNamespace, ClusterName};
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
    /// Which Applications of this cluster's own Argo CD are read.
    pub applications: Applications,
    /// How many streams, and with them series, there may be.
    pub budgets: Budgets,
}

/// The Applications of this cluster's own Argo CD. They are read and never written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Applications {
    /// Their namespace.
    pub namespace: String,
    /// What their label `<prefix>/dora-track` and the annotations of older Tasks begin with.
    pub prefix: String,
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
            applications: Applications::default(),
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
        let Applications { namespace, prefix } = &self.applications;
        if AppNamespace::new(namespace).is_err() {
            return Err(BadValue::new("dora.applications.namespace", namespace, "must be a namespace"));
        }
        if !is_prefix(prefix) {
            let problem = "must be a DNS name, such as hangar.io";
            return Err(BadValue::new("dora.applications.prefix", prefix, problem));
        }
        check::above_zero("dora.budgets.streams", self.budgets.streams.into())?;
        check::above_zero("dora.budgets.streams_per_cluster", self.budgets.streams_per_cluster.into())?;
        let per_app_namespace = self.budgets.streams_per_app_namespace.into();
        check::above_zero("dora.budgets.streams_per_app_namespace", per_app_namespace)
    }
}

/// Whether a label's name may begin with this and a slash.
fn is_prefix(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(|label| AppName::new(label).is_ok())
}

impl Default for Applications {
    fn default() -> Self {
        Self { namespace: "argocd".to_owned(), prefix: "hangar.io".to_owned() }
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
    fn a_prefix_is_a_dns_name_and_a_namespace_is_one() {
        for (namespace, prefix, wrong) in [
            ("argocd", "hangar.io/", "dora.applications.prefix: 'hangar.io/' must be a DNS name"),
            ("argocd", "", "dora.applications.prefix: '' must be a DNS name"),
            ("Argo CD", "hangar.io", "dora.applications.namespace: 'Argo CD' must be a namespace"),
        ] {
            let applications = Applications { namespace: namespace.into(), prefix: prefix.into() };
            let error = Config { applications, ..Config::default() }.check().unwrap_err().to_string();
            assert!(error.starts_with(wrong), "{error}");
        }
    }

    #[test]
    fn a_data_directory_must_be_given() {
        assert_eq!(Config::default().check(), Ok(()));
        let config = Config { data_directory: PathBuf::new(), ..Config::default() };
        assert_eq!(config.check().unwrap_err().to_string(), "dora.data_directory: '' must be a path");
    }
}
