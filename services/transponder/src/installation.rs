//! A whole installation in one directory: what `init` leaves behind and the demo throws away.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::ensure;
use toml::Value;

use crate::{
    certificates::{Choice, MeshCertificates, write_edge},
    files::{make_directory, write_private},
    secret::random_token,
};

/// The app namespace of the account whose token lies ready.
pub const TASK_NAMESPACE: &str = "app-shop-cicd";
/// Name of that account: one of those that `callers.app_accounts` lists from the start.
pub const TASK_ACCOUNT: &str = "pipeline-runner";

/// The directory of an installation, and where things are in it.
#[derive(Debug, Clone)]
pub struct Installation {
    root: PathBuf,
}

/// How an installation is made.
#[derive(Debug, Clone)]
pub struct Plan<'a> {
    /// Names of the machine beside localhost.
    pub names: &'a [String],
    /// How long certificates are valid.
    pub validity: Duration,
    /// Where events are posted to.
    pub broker_url: &'a str,
    /// The broker's token; `None` where the broker asks for none.
    pub broker_token: Option<&'a str>,
}

impl Installation {
    /// The installation in a directory. The path is made absolute, so that it holds wherever it is used from.
    ///
    /// # Errors
    /// When the current directory is unknown.
    pub fn at(root: &Path) -> anyhow::Result<Self> {
        Ok(Self { root: std::path::absolute(root)? })
    }

    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The configuration file.
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.root.join("transponder.toml")
    }

    /// The authority that hooks trust.
    #[must_use]
    pub fn edge_authority(&self) -> PathBuf {
        self.root.join("edge/edge-ca.crt")
    }

    /// The authority that Tasks trust.
    #[must_use]
    pub fn mesh_authority(&self) -> PathBuf {
        self.root.join("mesh/ca.crt")
    }

    /// The registry.
    #[must_use]
    pub fn registry(&self) -> PathBuf {
        self.root.join("registry")
    }

    /// The token of a Task, alone in its file.
    #[must_use]
    pub fn task_token(&self) -> PathBuf {
        self.root.join("task-token")
    }

    /// Where spans go while no OTLP endpoint is set.
    #[must_use]
    pub fn spans(&self) -> PathBuf {
        self.root.join("data/spans.jsonl")
    }

    /// Writes certificates, the empty registry, a Task's token and the configuration that uses them.
    ///
    /// # Errors
    /// When the directory holds an installation already, or a file cannot be written.
    pub fn make(&self, plan: &Plan<'_>) -> anyhow::Result<()> {
        let config = self.config_file();
        ensure!(!config.exists(), "there is an installation already: {} exists", config.display());
        MeshCertificates {
            directory: &self.root.join("mesh"),
            trust_domain: &transponder_runtime::mesh::MeshConfig::default().trust_domain,
            names: plan.names,
            validity: plan.validity,
            authority: Choice::Existing,
        }
        .write()?;
        write_edge(&self.root.join("edge"), plan.names, plan.validity, Choice::Existing)?;
        make_directory(&self.registry().join("cluster-registry"))?;
        make_directory(&self.registry().join("secrets"))?;
        make_directory(&self.root.join("data"))?;
        self.write_tokens(plan.broker_token)?;
        write_private(&config, self.config(plan).as_bytes())
    }

    fn write_tokens(&self, broker: Option<&str>) -> anyhow::Result<()> {
        let token = random_token()?;
        write_private(&self.task_token(), token.as_bytes())?;
        let callers = format!(
            "# Tokens of Tekton Tasks, where no Kubernetes checks them. Read anew when this file changes.\n\n\
             [[token]]\naccount = \"{TASK_NAMESPACE}/{TASK_ACCOUNT}\"\ntoken = \"{token}\"\n"
        );
        write_private(&self.root.join("callers.toml"), callers.as_bytes())?;
        broker.map_or(Ok(()), |token| write_private(&self.root.join("broker-token"), token.as_bytes()))
    }

    fn config(&self, plan: &Plan<'_>) -> String {
        let path = |below: &str| Value::String(self.root.join(below).to_string_lossy().into_owned());
        let broker_url = Value::String(plan.broker_url.to_owned());
        let broker_token = match plan.broker_token {
            Some(_) => format!("token_file = {}", path("broker-token")),
            None => "# Empty: the broker asks for no token.\ntoken_file = \"\"".into(),
        };
        format!(
            "# Every key, its default and its meaning: transponder config --reference\n\n\
             [log]\nformat = \"text\"\n\n\
             [mesh]\ndirectory = {}\n\n\
             [callers]\ntoken_file = {}\n\n\
             [edge]\nlisten = \"{}:8443\"\ncertificate = {}\nkey = {}\nregistry = {}\ndata_directory = {}\n\n\
             [forwarder]\nbroker_url = {broker_url}\n{broker_token}\n\n\
             [dora]\ndata_directory = {}\n\n\
             [release_tracking]\ndata_directory = {}\n\n\
             [outcome_span]\n# Where spans go while OTEL_EXPORTER_OTLP_ENDPOINT is not set.\nfile = {}\n",
            path("mesh"),
            path("callers.toml"),
            // Who names the machine means to be reached by these names.
            if plan.names.is_empty() { "127.0.0.1" } else { "0.0.0.0" },
            path("edge/edge.crt"),
            path("edge/edge.key"),
            path("registry"),
            path("data/edge"),
            path("data/dora-recorder"),
            path("data/release-tracking"),
            path("data/spans.jsonl"),
        )
    }
}
