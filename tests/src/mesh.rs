//! The product as an operator runs it: `transponder all` in a directory made by `transponder init`.

mod client;
mod metrics;
mod on_kubernetes;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use bytes::Bytes;
use serde_json::Value;
use tempfile::TempDir;

pub(crate) use client::client;
use client::client_tls;
pub use metrics::sum_of;

use crate::{
    Broker, HttpResponse, LONG, NAMESPACE, Process, Run, TestEvent, eventually, http, kubernetes::ApiServer,
    product,
};

/// How long a start may take on a busy machine.
pub(crate) const START: Duration = Duration::from_secs(60);

/// Every target of a terminal event has it.
pub const ALL_DELIVERED: [(&str, &str); 4] =
    [("broker", "delivered"), ("tracking", "delivered"), ("dora", "delivered"), ("span", "delivered")];

/// A mesh that can be stopped, killed and started again on the same data.
pub struct Mesh {
    /// Dropped, and so ended, before its directory is.
    process: Option<Process>,
    directory: TempDir,
    settings: Vec<(String, String)>,
    environment: Vec<(String, String)>,
    tokens: BTreeMap<String, String>,
    addresses: Value,
    client: reqwest::Client,
    /// What it stands on, where that is not its own directory.
    server: Option<ApiServer>,
}

impl Mesh {
    /// Makes an installation whose events go to `broker`, with one cluster `kind-prod`. It does not run yet.
    ///
    /// # Panics
    ///
    /// When the product refuses.
    pub async fn new(broker: &Broker) -> Self {
        let directory = tempfile::tempdir().expect("make a folder");
        let install = directory.path().join("install");
        Run::program(product("transponder"))
            .args(["init".into(), install.clone(), "--broker-url".into(), PathBuf::from(broker.url())])
            .run()
            .await
            .success();
        let mut mesh = Self {
            client: client(client_tls(&install.join("edge/edge-ca.crt"))),
            directory,
            settings: Vec::new(),
            environment: Vec::new(),
            tokens: BTreeMap::new(),
            process: None,
            addresses: Value::Null,
            server: None,
        };
        for key in [
            "edge.listen",
            "forwarder.listen",
            "dora.listen",
            "release_tracking.listen",
            "outcome_span.listen",
            "admin.listen",
        ] {
            mesh.set(key, "127.0.0.1:0");
        }
        mesh.set("log.format", "json");
        mesh.set("edge.settle.failed", "2s");
        mesh.set("edge.settle.max", "10s");
        mesh.set("edge.delivery.retry_base", "200ms");
        mesh.set("dora.zero_hold", "0s");
        if std::env::var("TRANSPONDER_TEST_STORE").is_ok_and(|store| store == "kubernetes") {
            mesh.stand_on_kubernetes().await;
        }
        mesh.add_cluster("kind-prod").await;
        mesh
    }

    /// A mesh that runs.
    pub async fn start(broker: &Broker) -> Self {
        let mut mesh = Self::new(broker).await;
        mesh.run().await;
        mesh
    }

    /// Sets a value of the configuration for the next start.
    pub fn set(&mut self, key: &str, value: &str) {
        self.settings.push((key.to_owned(), value.to_owned()));
    }

    /// Sets a variable of the environment for the next start.
    pub fn env(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Forgets a variable that was set.
    pub fn unset(&mut self, name: &str) {
        self.environment.retain(|(set, _)| set != name);
    }

    /// The installation's directory.
    #[must_use]
    pub fn path(&self, below: &str) -> PathBuf {
        self.directory.path().join("install").join(below)
    }

    /// Runs an operator's command on the installation.
    pub async fn operate(
        &self,
        arguments: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>,
    ) -> crate::Ran {
        let config = self.path("transponder.toml");
        let arguments: Vec<_> = arguments.into_iter().map(|one| one.as_ref().to_owned()).collect();
        let mut run = Run::program(product("transponder")).args([Path::new("--config"), &config]);
        if let Some(server) = &self.server {
            let kubeconfig = format!("kubernetes.kubeconfig={}", server.admin_kubeconfig().display());
            let namespace = format!("kubernetes.namespace={NAMESPACE}");
            run = run.args(["--store", "kubernetes", "--set", &kubeconfig, "--set", &namespace]);
        }
        run.args(arguments).run().await
    }

    /// Registers a cluster and keeps its token.
    ///
    /// # Panics
    ///
    /// When the product refuses.
    pub async fn add_cluster(&mut self, name: &str) {
        self.add_cluster_that(name, &[]).await;
    }

    /// Registers a cluster with further arguments of `cluster add`, and keeps its token.
    ///
    /// # Panics
    ///
    /// When the product refuses.
    pub async fn add_cluster_that(&mut self, name: &str, may: &[&str]) {
        let ca = self.path("edge/edge-ca.crt").display().to_string();
        let mut add = vec!["cluster", "add", name, "--url", "https://127.0.0.1:8443", "--ca", &ca];
        add.extend(["--output", "json"]);
        add.extend(self.server.as_ref().map(|_| "--apply"));
        add.extend(may);
        let added = self.operate(add).await.success();
        let token = added.json()["token"].as_str().expect("a token").to_owned();
        self.tokens.insert(name.to_owned(), token);
    }

    /// The relay token of a cluster.
    ///
    /// # Panics
    ///
    /// When the cluster was not added.
    #[must_use]
    pub fn token(&self, cluster: &str) -> &str {
        self.tokens.get(cluster).expect("a registered cluster")
    }

    /// The token of an application's Task.
    ///
    /// # Panics
    ///
    /// When there is none.
    #[must_use]
    pub fn task_token(&self) -> String {
        std::fs::read_to_string(self.path("task-token")).expect("the token of a Task").trim().to_owned()
    }

    /// Starts the mesh and waits until it is ready.
    ///
    /// # Panics
    ///
    /// When it does not become ready.
    pub async fn run(&mut self) {
        self.launch();
        let ready = self.directory.path().join("ready.json");
        let mut process = self.process.take().expect("a process");
        self.addresses = process
            .ready(START, || async {
                let text = std::fs::read(&ready).map_err(|e| e.to_string())?;
                serde_json::from_slice(&text).map_err(|e| e.to_string())
            })
            .await;
        self.process = Some(process);
        let url = format!("http://{}/readyz", self.address("admin"));
        let mut process = self.process.take().expect("a process");
        process
            .ready(START, || async {
                let answer = http(["-s", "--max-time", "5", &url]).await?;
                if answer.status == 200 { Ok(()) } else { Err(answer.body_text()) }
            })
            .await;
        self.process = Some(process);
    }

    /// Starts the mesh and does not wait for anything.
    pub fn launch(&mut self) {
        let command = self.command("all", &self.directory.path().join("ready.json"));
        self.process = Some(Process::start("transponder all", command));
    }

    /// The command that runs `all` or one service, which says in `ready` where it listens.
    pub(crate) fn command(&self, service: &str, ready: &Path) -> Command {
        self.command_with(service, ready, &[])
    }

    /// The same with settings of its own. All stand before the service: what stands after it takes the place of those.
    pub(crate) fn command_with(&self, service: &str, ready: &Path, more: &[(&str, String)]) -> Command {
        let _ = std::fs::remove_file(ready);
        let mut command = Command::new(product("transponder"));
        command.arg("--config").arg(self.path("transponder.toml"));
        for (key, value) in &self.settings {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        for (key, value) in more {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        command.arg(service).arg("--ready-file").arg(ready);
        command.envs(self.environment.iter().map(|(k, v)| (k, v)));
        command
    }

    /// Takes over where a part listens that another process runs.
    pub(crate) fn located(&mut self, part: &str, address: &Value) {
        self.addresses[part] = address.clone();
    }

    /// Kills it as `kill -9` does.
    pub fn kill(&mut self) {
        if let Some(process) = &mut self.process {
            process.kill();
        }
    }

    /// Ends it by SIGTERM.
    pub async fn stop(&mut self) -> std::process::ExitStatus {
        self.process().terminate(Duration::from_secs(25)).await
    }

    /// The TLS settings of a client that trusts the edge.
    #[must_use]
    pub fn client_tls(&self) -> rustls::ClientConfig {
        client_tls(&self.path("edge/edge-ca.crt"))
    }

    /// The running process.
    ///
    /// # Panics
    ///
    /// When it was never started.
    pub fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("a mesh that was started")
    }

    /// Where a part listens: `admin`, `edge`, `dora-recorder`, …
    ///
    /// # Panics
    ///
    /// When the part does not run.
    #[must_use]
    pub fn address(&self, part: &str) -> SocketAddr {
        let text = self.addresses[part]
            .as_str()
            .unwrap_or_else(|| panic!("{part} does not run: {}", self.addresses));
        text.parse().expect("an address")
    }

    /// The URL of a path at the edge.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address("edge"))
    }

    /// Posts an event by system curl, with further arguments if needed.
    ///
    /// # Errors
    ///
    /// curl's own.
    pub async fn curl(&self, cluster: &str, body: &str, more: &[&str]) -> Result<HttpResponse, String> {
        let bearer = format!("Authorization: Bearer {}", self.token(cluster));
        let (url, ca) = (self.url(&format!("/outcome/{cluster}")), self.path("edge/edge-ca.crt"));
        let ca = ca.to_string_lossy();
        let mut arguments = vec!["-s", "--max-time", "20", "--cacert", &ca, "-H", &bearer];
        arguments.extend(["-H", "Content-Type: application/cloudevents+json", "--data-binary", body]);
        arguments.extend(more);
        arguments.push(&url);
        http(arguments).await
    }

    /// Posts an event over a kept connection. Answers status and body.
    ///
    /// # Errors
    ///
    /// When there was no whole answer: nothing is known of the event then.
    pub async fn post(&self, cluster: &str, event: impl Into<Bytes>) -> Result<(u16, Value), String> {
        let request = self
            .client
            .post(self.url(&format!("/outcome/{cluster}")))
            .bearer_auth(self.token(cluster))
            .header("content-type", "application/cloudevents+json")
            .body(event.into());
        answer(request).await
    }

    /// Reads a receipt.
    ///
    /// # Errors
    ///
    /// When there was no whole answer.
    pub async fn receipt(&self, cluster: &str, key: &str) -> Result<(u16, Value), String> {
        let request =
            self.client.get(self.url(&format!("/outcome/{cluster}/{key}"))).bearer_auth(self.token(cluster));
        answer(request).await
    }

    /// Posts an event of the cluster that it names.
    ///
    /// # Panics
    ///
    /// When it is not taken as a new one.
    pub async fn accept(&self, event: &TestEvent) {
        let (status, answer) = self.post(&event.cluster, event.body()).await.expect("an answer");
        assert_eq!(status, 202, "{answer}");
    }

    /// Waits until targets of an event are in these states.
    pub async fn wait_for(&self, event: &TestEvent, states: &[(&str, &str)]) {
        eventually(&format!("{} is {states:?}", event.chain_id), LONG, || async {
            let (_, receipt) = self.receipt(&event.cluster, &event.key()).await?;
            let targets = &receipt["targets"];
            let all = states.iter().all(|(target, state)| targets[target]["state"] == *state);
            if all { Ok(()) } else { Err(targets.to_string()) }
        })
        .await;
    }

    /// Waits until every target of an event has the given state, or all are delivered or replaced.
    pub async fn wait_final(&self, cluster: &str, key: &str) -> Value {
        eventually(&format!("{key} is final"), Duration::from_secs(30), || async {
            let (_, receipt) = self.receipt(cluster, key).await?;
            let targets = receipt["targets"].as_object().cloned().unwrap_or_default();
            let done =
                |target: &Value| matches!(target["state"].as_str(), Some("delivered" | "replaced" | "dead"));
            if !targets.is_empty() && targets.values().all(done) {
                Ok(receipt)
            } else {
                Err(receipt.to_string())
            }
        })
        .await
    }
}

async fn answer(request: reqwest::RequestBuilder) -> Result<(u16, Value), String> {
    let response = request.send().await.map_err(|e| format!("{e:?}"))?;
    let status = response.status().as_u16();
    let body = response.bytes().await.map_err(|e| e.to_string())?;
    let value = serde_json::from_slice(&body).map_err(|e| format!("{status}: {e}"))?;
    Ok((status, value))
}
