//! The product as it is measured: made by `transponder init`, with as many clusters as wanted.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{
    Bench,
    process::{Running, get, wait},
};
use crate::command;

const START: Duration = Duration::from_secs(60);
/// Nothing new at so many looks in a row, so far apart: everything is through.
const LOOKS: u32 = 2;
const QUIET: Duration = Duration::from_millis(500);
const TOKEN: &str = "bench-token-0123456789abcdef0123456789";

/// An installation on the disk that is measured.
pub(super) struct Installation {
    root: PathBuf,
}

impl Installation {
    /// Makes one with so many clusters.
    pub(super) fn make(bench: &Bench, name: &str, clusters: usize) -> Result<Self> {
        let root = bench.directory.path().join(name);
        let mut init = Command::new(&bench.programs.transponder);
        init.arg("init").arg(&root);
        command::succeed(&mut init, "transponder init", START)?;
        let registry = root.join("registry");
        let mut list = String::new();
        for number in 0..clusters {
            let cluster = format!("bench-{number:05}");
            let secret = format!("cluster-{cluster}-relay-token");
            // Tokens differ, as they do in life; the edge warns about those that are shared.
            let token = format!("{TOKEN}-{number}");
            let folder = registry.join("secrets").join(&secret);
            fs::create_dir_all(&folder)?;
            fs::write(folder.join("token"), &token)?;
            let url = format!("https://127.0.0.1:8443/outcome/{cluster}");
            let entry = json!({ "relaySecretName": secret, "outcomeRelayURL": url });
            fs::write(registry.join("cluster-registry").join(&cluster), entry.to_string())?;
            writeln!(list, "{cluster} {token}")?;
        }
        fs::write(root.join("clusters"), list)?;
        Ok(Self { root })
    }

    /// A file of it.
    pub(super) fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    /// Name and token of its clusters, in order.
    pub(super) fn tokens(&self) -> Result<Vec<(String, String)>> {
        let list = fs::read_to_string(self.path("clusters"))?;
        let pair = |line: &str| line.split_once(' ').map(|(name, token)| (name.to_owned(), token.to_owned()));
        list.lines().map(|line| pair(line).context("a cluster has a token")).collect()
    }

    /// Where hooks would find its authority.
    pub(super) fn ca(&self) -> PathBuf {
        self.path("edge/edge-ca.crt")
    }
}

/// A mesh, or an edge alone, that runs.
pub(super) struct Mesh {
    /// The process.
    pub(super) process: Running,
    addresses: Value,
}

/// How much of the mesh runs.
#[derive(Clone, Copy)]
pub(super) enum Parts {
    /// All services; events go to the sinks.
    All,
    /// The edge alone: it stores, and delivers nothing.
    Edge,
}

impl Mesh {
    /// Starts it on an installation and waits until it is ready.
    pub(super) fn start(bench: &Bench, installation: &Installation, parts: Parts) -> Result<Self> {
        Self::start_to(bench, installation, parts, &bench.sinks)
    }

    /// The same, delivering to other sinks.
    pub(super) fn start_to(
        bench: &Bench,
        installation: &Installation,
        parts: Parts,
        sinks: &Sinks,
    ) -> Result<Self> {
        let ready = installation.path("ready.json");
        let _ = fs::remove_file(&ready);
        let mut command = Command::new(&bench.programs.transponder);
        command.arg("--config").arg(installation.path("transponder.toml"));
        for (key, value) in settings(&sinks.broker) {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        command.arg(match parts {
            Parts::All => "all",
            Parts::Edge => "edge",
        });
        command.arg("--ready-file").arg(&ready);
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", sinks.otlp));
        command.env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        let mut process = Running::start("transponder", &mut command, &installation.path("data/log"))?;
        let addresses: Value = wait("listening", START, Duration::from_millis(1), || {
            process.check()?;
            Ok(fs::read(&ready).ok().and_then(|text| serde_json::from_slice(&text).ok()))
        })?;
        let mesh = Self { process, addresses };
        wait("ready", START, Duration::from_millis(1), || {
            Ok(get(mesh.address("admin")?, "/readyz").is_ok_and(|(status, _)| status == 200).then_some(()))
        })?;
        Ok(mesh)
    }

    /// Where a part listens.
    pub(super) fn address(&self, part: &str) -> Result<&str> {
        self.addresses[part].as_str().with_context(|| format!("{part} does not run"))
    }

    /// Events stored since its start.
    pub(super) fn stored(&self) -> Result<f64> {
        let (_, page) = get(self.address("admin")?, "/metrics")?;
        let samples = page.lines().filter(|line| line.starts_with("transponder_events_total"));
        let values = samples.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        Ok(values.sum())
    }
}

fn settings(broker: &str) -> Vec<(&'static str, String)> {
    let mut settings: Vec<_> = [
        "edge.listen",
        "forwarder.listen",
        "dora.listen",
        "release_tracking.listen",
        "outcome_span.listen",
        "admin.listen",
    ]
    .map(|key| (key, "127.0.0.1:0".to_owned()))
    .into();
    settings.push(("forwarder.broker_url", format!("http://{broker}/")));
    settings.push(("log.format", "json".into()));
    // A cluster's budgets are what a benchmark exceeds.
    for key in [
        "edge.budget.rate",
        "edge.budget.burst",
        "edge.budget.undelivered_events",
        "edge.budget.store_events",
    ] {
        settings.push((key, "1000000".into()));
    }
    settings.push(("edge.budget.undelivered_bytes", "8 GiB".into()));
    settings.push(("edge.budget.store_bytes", "8 GiB".into()));
    settings
}

/// The broker and the tracing backend that all meshes deliver to.
pub(super) struct Sinks {
    _process: Option<Running>,
    /// Address of the broker.
    pub(super) broker: String,
    /// Address of the backend.
    pub(super) otlp: String,
}

impl Sinks {
    /// Starts them.
    pub(super) fn start(program: &Path) -> Result<Self> {
        let (process, line) = Running::yardstick("sinks", Command::new(program).arg("sinks"))?;
        let text = |key: &str| Ok::<_, anyhow::Error>(line[key].as_str().context("no address")?.to_owned());
        Ok(Self { broker: text("broker")?, otlp: text("otlp")?, _process: Some(process) })
    }

    /// Sinks that somebody else runs.
    pub(super) fn of(broker: String, otlp: String) -> Self {
        Self { _process: None, broker, otlp }
    }

    /// How many events and spans have arrived.
    pub(super) fn arrived(&self) -> Result<(u64, u64)> {
        let (_, page) = get(&self.broker, "/")?;
        let counts: Value = serde_json::from_str(&page)?;
        let count = |key: &str| counts[key].as_u64().context("no count");
        Ok((count("events")?, count("spans")?))
    }

    /// Waits until nothing is on its way any more; answers how many spans have arrived.
    pub(super) fn quiet(&self) -> Result<u64> {
        let (mut last, mut looks) = (self.arrived()?, 0);
        wait("everything delivered", Duration::from_secs(240), Duration::ZERO, || {
            thread::sleep(QUIET);
            let now = self.arrived()?;
            looks = if now == last { looks + 1 } else { 0 };
            last = now;
            Ok((looks == LOOKS).then_some(now.1))
        })
    }
}
