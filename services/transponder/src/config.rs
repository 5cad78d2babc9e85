//! The configuration of the binary: one section per service, and what they share.

use std::net::{Ipv4Addr, SocketAddr};

use figment::Figment;
use serde::{Deserialize, Serialize};
use transponder_kubernetes::KubernetesConfig;
use transponder_runtime::{
    auth::CallersConfig, config::ConfigError, mesh::MeshConfig, telemetry::LogFormat, trace::TracesConfig,
};

use crate::cli::Globals;

/// The whole configuration.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Logging.
    pub log: LogConfig,
    /// Transponder's own traces.
    pub traces: TracesConfig,
    /// The admin listener.
    pub admin: AdminConfig,
    /// Where state is kept.
    pub store: StoreConfig,
    /// How the API server is reached.
    pub kubernetes: KubernetesConfig,
    /// Identities of the mesh.
    pub mesh: MeshConfig,
    /// Which ServiceAccounts may call.
    pub callers: CallersConfig,
    /// The edge.
    pub edge: transponder_edge::Config,
    /// The forwarder.
    pub forwarder: transponder_forwarder::Config,
    /// The DORA recorder.
    pub dora: transponder_dora_recorder::Config,
    /// Release tracking.
    pub release_tracking: transponder_release_tracking::Config,
    /// The outcome span.
    pub outcome_span: transponder_outcome_span::Config,
}

/// Where state is kept.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreConfig {
    /// Which store.
    pub kind: StoreKind,
}

/// The stores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum StoreKind {
    /// SQLite files on a local disk: one process per service.
    #[default]
    Embedded,
    /// Custom resources of a Kubernetes API: as many replicas as are wanted. Registry and callers come from there, too.
    Kubernetes,
}

impl StoreKind {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Kubernetes => "kubernetes",
        }
    }
}

/// Logging.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// A tracing filter.
    pub filter: String,
    /// How lines look.
    pub format: LogFormat,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { filter: "info".into(), format: LogFormat::Json }
    }
}

/// The admin listener.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdminConfig {
    /// Where it listens.
    pub listen: SocketAddr,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 9090)) }
    }
}

/// Layers defaults, file, variables and flags.
///
/// # Errors
/// Names each key that is unknown or has a bad value, and where it comes from.
pub fn load(globals: &Globals) -> Result<(Config, Figment), ConfigError> {
    let mut flags = globals.set.clone();
    if let Some(kind) = globals.store {
        flags.push(("store.kind".into(), kind.as_str().into()));
    }
    if let Some(filter) = &globals.log {
        flags.push(("log.filter".into(), filter.clone()));
    }
    transponder_runtime::config::load(globals.config.as_deref(), &flags)
}
