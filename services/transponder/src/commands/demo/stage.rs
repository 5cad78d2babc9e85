//! The stage: a whole mesh in a directory that goes away.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use transponder_core::{ClusterName, ServiceName, Timestamp};
use transponder_runtime::{Context, config::section};

use super::{broker::Broker, look::PATIENCE, task::Task};
use crate::{
    cli::Globals,
    config,
    files::{read, write_private},
    installation::{Installation, Plan},
    mesh::{Addresses, Mesh, Selection, wait_until_ready},
    output::print,
    registry::{Entry, Registry},
    relay::{Relay, https_client},
};

/// The cluster that reports.
pub(super) const CLUSTER: &str = "kind-prod";
/// How long a failure settles, here: long enough to see that it waits.
pub(super) const SETTLE: &str = "2s";
/// How long silence lasts before it is one.
pub(super) const SILENCE: &str = "2s";
/// Certificates of a demo need not outlive a day of reading.
const VALIDITY: Duration = Duration::from_hours(7 * 24);

/// The mesh as it runs, and everybody's way to it.
pub(super) struct Stage {
    directory: TempDir,
    pub(super) installation: Installation,
    pub(super) addresses: Arc<Addresses>,
    pub(super) broker: Broker,
    pub(super) relay: Relay,
    pub(super) task: Task,
    pub(super) http: reqwest::Client,
    context: Context,
    running: JoinHandle<anyhow::Result<()>>,
}

impl Stage {
    /// Sets everything up and waits until every part is ready.
    pub(super) async fn set(globals: &Globals, context: &Context) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("transponder-demo-").tempdir()?;
        let installation = Installation::at(directory.path())?;
        let broker_token = broker_token();
        let broker = Broker::start(&broker_token).await.context("the demo's broker cannot listen")?;
        installation.make(&Plan {
            names: &[],
            validity: VALIDITY,
            broker_url: &broker.url(),
            broker_token: Some(&broker_token),
        })?;
        let (cluster, registry) = (ClusterName::new(CLUSTER)?, Registry::new(&installation.registry()));
        let mut entry = Entry {
            relay_secret_name: format!("cluster-{CLUSTER}-relay-token"),
            // The port is not known before the edge listens.
            outcome_relay_url: format!("https://127.0.0.1/outcome/{CLUSTER}"),
            relay_host_alias_ip: None,
            relay_ca: Some(read(&installation.edge_authority())?),
            forward_types: None,
            app_namespaces: None,
        };
        let token = registry.add(&cluster, &entry)?;
        write_private(&directory.path().join("relay-token"), token.as_bytes())?;

        let (config, _) = config::load(&settings(&installation, globals))?;
        // Whatever the environment says: a throw-away story goes to nobody's tracing backend.
        let otlp = transponder_outcome_span::Settings::default();
        let mesh = Mesh::build(config, Selection::All, otlp, context).await?;
        let addresses = mesh.addresses();
        let running = tokio::spawn(mesh.run());
        wait_until_ready(context, PATIENCE).await?;

        pin(&installation, &addresses)?;

        let edge = addresses.of(ServiceName::Edge).context("the edge has no address")?;
        entry.outcome_relay_url = format!("https://{edge}/outcome/{CLUSTER}");
        registry.update(&cluster, &entry)?;
        let url = entry.outcome_relay_url.parse()?;
        let tracking =
            addresses.of(ServiceName::ReleaseTracking).context("release-tracking has no address")?;
        let task_token = read(&installation.task_token())?;
        let task = Task::connect(tracking, &read(&installation.mesh_authority())?, &task_token).await?;
        Ok(Self {
            relay: Relay::new(url, &token, entry.relay_ca.as_deref())?,
            http: https_client(entry.relay_ca.as_deref())?,
            task,
            directory,
            installation,
            addresses,
            broker,
            context: context.clone(),
            running,
        })
    }

    /// Where metrics are scraped.
    pub(super) fn metrics_url(&self) -> String {
        format!("http://{}/metrics", self.addresses.admin)
    }

    /// The same way to the edge with another token.
    pub(super) fn relay_with(&self, token: &str) -> anyhow::Result<Relay> {
        let ca = read(&self.installation.edge_authority())?;
        Relay::new(self.relay.url().clone(), token, Some(&ca))
    }

    /// Shows what arrives at the broker, until the demo is ended.
    pub(super) async fn watch_broker(&self, context: &Context) {
        let mut count = self.broker.count();
        let mut shown = *count.borrow_and_update();
        while let Some(Ok(())) = context.shutdown.or(count.changed()).await {
            let arrivals = self.broker.arrivals();
            for arrival in arrivals.iter().skip(shown) {
                let (key, bytes) = (&arrival.key, arrival.body.len());
                print(&format!("broker  {key}  {}, {bytes} bytes\n", arrival.content_type));
            }
            shown = arrivals.len();
            count.borrow_and_update();
        }
    }

    /// Stops the mesh as SIGTERM would, and takes the directory away.
    pub(super) async fn strike(self) -> anyhow::Result<()> {
        self.context.shutdown.begin();
        self.running.await??;
        self.directory.close().context("removing the demo's directory")
    }
}

/// Writes into the installation's file where its parts are, for commands that are pasted beside the demo.
fn pin(installation: &Installation, addresses: &Addresses) -> anyhow::Result<()> {
    let mut file: toml::Table = read(&installation.config_file())?.parse()?;
    let mut set = |section: &str, address: SocketAddr| {
        let table = file.entry(section).or_insert_with(|| toml::Table::new().into());
        if let Some(table) = table.as_table_mut() {
            table.insert("listen".into(), address.to_string().into());
        }
    };
    set("admin", addresses.admin);
    for (service, address) in &addresses.services {
        set(section(*service), *address);
    }
    write_private(&installation.config_file(), file.to_string().as_bytes())
}

/// The installation's file, free ports, and windows that a reader can wait for; what the user sets comes last.
fn settings(installation: &Installation, globals: &Globals) -> Globals {
    let listeners = ["admin", "edge", "forwarder", "dora", "release_tracking", "outcome_span"]
        .map(|section| (format!("{section}.listen"), "127.0.0.1:0".to_owned()));
    let windows = [
        ("edge.settle.failed", SETTLE),
        ("release_tracking.silence", SILENCE),
        ("release_tracking.sweep_interval", "100ms"),
        ("dora.zero_hold", "100ms"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()));
    let set = listeners.into_iter().chain(windows).chain(globals.set.iter().cloned()).collect();
    Globals { config: Some(installation.config_file()), set, store: None, log: globals.log.clone() }
}

/// A token of the shape that Kubernetes projects, signed by nobody: the forwarder reads its audience and expiry.
fn broker_token() -> String {
    let expires = Timestamp::now().as_second() + 7 * 24 * 3600;
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let claims = format!(
        r#"{{"aud":["cdevents-broker"],"exp":{expires},"sub":"system:serviceaccount:platform-system:transponder-forwarder"}}"#
    );
    format!("{}.{}.{}", part(r#"{"alg":"none"}"#), part(&claims), part("demo"))
}
