//! The product as five processes.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

use crate::{Mesh, Process, http, mesh::START, ports};

/// The services, as the command line names them, each with the keys of the configuration that hold its address.
const SERVICES: [(&str, &[&str]); 5] = [
    ("edge", &["edge.listen"]),
    ("forwarder", &["forwarder.listen", "edge.peers.forwarder"]),
    ("dora-recorder", &["dora.listen", "edge.peers.dora_recorder"]),
    (
        "release-tracking",
        &["release_tracking.listen", "edge.peers.release_tracking", "outcome_span.release_tracking"],
    ),
    ("outcome-span", &["outcome_span.listen", "edge.peers.outcome_span"]),
];

/// A mesh each of whose services is a process that can be stopped, killed and started again by itself.
pub struct Apart {
    /// The installation, with the addresses of what runs.
    pub mesh: Mesh,
    /// Dropped, and so ended, before the installation's directory is.
    processes: BTreeMap<&'static str, Process>,
}

impl Apart {
    /// Parts a mesh that does not run yet. Each service keeps its address over restarts.
    #[must_use]
    pub fn new(mut mesh: Mesh) -> Self {
        for (_, keys) in SERVICES {
            let address = format!("127.0.0.1:{}", ports::free());
            keys.iter().for_each(|key| mesh.set(key, &address));
        }
        Self { processes: BTreeMap::new(), mesh }
    }

    /// Starts all of them and waits until each is ready.
    pub async fn start_all(&mut self) {
        for (service, _) in SERVICES {
            self.spawn(service);
        }
        for (service, _) in SERVICES {
            self.wait_ready(service).await;
        }
    }

    /// Starts one and waits until it is ready.
    pub async fn start(&mut self, service: &'static str) {
        self.spawn(service);
        self.wait_ready(service).await;
    }

    /// Starts one and waits until it listens, whether it is ready or not.
    pub async fn launch(&mut self, service: &'static str) {
        self.spawn(service);
        self.wait_listening(service).await;
    }

    /// Whether a service says that it is ready.
    ///
    /// # Errors
    ///
    /// Why it is not.
    pub async fn readiness(&self, service: &str) -> Result<(), String> {
        readiness(&self.mesh.address(&admin(service)).to_string()).await
    }

    fn spawn(&mut self, service: &'static str) {
        let command = self.mesh.command(service, &self.ready_file(service));
        self.processes.insert(service, Process::start(service, command));
    }

    async fn wait_ready(&mut self, service: &'static str) {
        let admin = self.wait_listening(service).await;
        self.process(service).ready(START, || readiness(&admin)).await;
    }

    /// Answers where the admin listener is.
    async fn wait_listening(&mut self, service: &'static str) -> String {
        let file = self.ready_file(service);
        let process = self.process(service);
        let addresses: Value = process
            .ready(START, || async {
                let text = std::fs::read(&file).map_err(|e| e.to_string())?;
                serde_json::from_slice(&text).map_err(|e| e.to_string())
            })
            .await;
        self.mesh.located(service, &addresses[service]);
        self.mesh.located(&admin(service), &addresses["admin"]);
        addresses["admin"].as_str().unwrap_or_default().to_owned()
    }

    fn ready_file(&self, service: &str) -> std::path::PathBuf {
        self.mesh.path(&format!("{service}-ready.json"))
    }

    /// The process of a service.
    ///
    /// # Panics
    ///
    /// When it was never started.
    pub fn process(&mut self, service: &str) -> &mut Process {
        self.processes.get_mut(service).expect("a service that was started")
    }

    /// Ends a service by SIGTERM and starts it again.
    ///
    /// # Panics
    ///
    /// When it does not end as it should.
    pub async fn restart(&mut self, service: &'static str) {
        let status = self.process(service).terminate(Duration::from_secs(25)).await;
        assert!(status.success(), "{service}: {status}");
        self.start(service).await;
    }

    /// The value of one sample of a service, as [`Mesh::metric`].
    pub async fn metric(&self, service: &str, name: &str, labels: &[&str]) -> f64 {
        self.mesh.metric_of(&admin(service), name, labels).await
    }
}

async fn readiness(admin: &str) -> Result<(), String> {
    let answer = http(["-s", "--max-time", "5", &format!("http://{admin}/readyz")]).await?;
    if answer.status == 200 { Ok(()) } else { Err(answer.body_text()) }
}

/// Where the admin listener of a service is found: the edge's stands for the mesh's.
fn admin(service: &str) -> String {
    if service == "edge" { "admin".into() } else { format!("admin of {service}") }
}
