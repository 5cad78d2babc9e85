//! The API server of a control plane.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    time::Instant,
};

use tempfile::TempDir;

use super::{
    ControllerManager, Durability,
    etcd::Etcd,
    kubeconfig::{self, Credential},
    pki::Pki,
};
use crate::{LONG, Process, curl, ports, tool};

/// Who issues tokens, and the audience of the API server itself.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Who did what to which object with what result, of every request. Without `RequestReceived`, which knows no result.
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{ level: Metadata }]
";

/// What a test may choose.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// What the stored objects survive.
    pub durability: Durability,
    /// More arguments of kube-apiserver.
    pub arguments: Vec<String>,
}

/// A running control plane on free ports of 127.0.0.1, everything it wrote in one folder that goes with it.
pub struct ApiServer {
    // In the order in which they end: who uses goes before what it uses.
    process: Process,
    etcd: Etcd,
    port: u16,
    arguments: Vec<String>,
    pub(super) pki: Pki,
    folder: TempDir,
}

impl ApiServer {
    /// Starts etcd and kube-apiserver and waits until they are ready: some five seconds on an idle machine.
    pub async fn start() -> Self {
        Self::with(Settings::default()).await
    }

    /// Starts them with settings of the test's own.
    pub async fn with(settings: Settings) -> Self {
        let started = Instant::now();
        let folder = tempfile::tempdir().expect("make a folder for the control plane");
        fs::write(folder.path().join("audit.yaml"), AUDIT_POLICY).expect("write the audit policy");
        let pki = Pki::new(folder.path());
        pki.server("kube-apiserver");
        pki.client("admin", "admin", Some("system:masters"));
        pki.client("controller-manager", "system:kube-controller-manager", None);
        let port = ports::free();
        for user in ["admin", "controller-manager"] {
            let file = pki.path(&format!("{user}.kubeconfig"));
            kubeconfig::write(&file, &url(port), &pki, &Credential::Certificate(user));
        }
        let etcd = Etcd::start(&folder.path().join("etcd"), settings.durability).await;
        let store = started.elapsed();
        let process = run(port, &etcd.url(), &pki, &settings.arguments).await;
        println!("control plane ready in {:.1?}, etcd in {store:.1?} of it", started.elapsed());
        Self { process, etcd, port, arguments: settings.arguments, pki, folder }
    }

    /// Starts kube-controller-manager, without which no namespace goes, nothing is collected, no namespace gets its
    /// default ServiceAccount, no Job makes pods and no quota counts.
    pub async fn controller_manager(&self) -> ControllerManager {
        ControllerManager::start(&self.pki).await
    }

    /// Where it listens, such as `https://127.0.0.1:40123`.
    #[must_use]
    pub fn url(&self) -> String {
        url(self.port)
    }

    /// The certificate of its authority.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.pki.path("ca.crt")
    }

    /// The folder of everything that the control plane keeps.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The process of kube-apiserver, to look at or to signal.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The process of etcd, to look at or to signal.
    pub fn etcd_process(&mut self) -> &mut Process {
        &mut self.etcd.process
    }

    /// Kills kube-apiserver as `kill -9` does.
    pub fn kill_apiserver(&mut self) -> ExitStatus {
        self.process.kill()
    }

    /// Starts kube-apiserver again, on the same port with the same keys, and waits until it is ready. etcd must run.
    ///
    /// # Panics
    ///
    /// When it still runs.
    pub async fn start_apiserver(&mut self) {
        assert!(self.process.ended().is_some(), "kube-apiserver still runs");
        self.process = run(self.port, &self.etcd.url(), &self.pki, &self.arguments).await;
    }

    /// Where etcd listens, such as `http://127.0.0.1:40124`.
    #[must_use]
    pub fn etcd_url(&self) -> String {
        self.etcd.url()
    }

    /// Kills etcd as `kill -9` does.
    pub fn kill_etcd(&mut self) -> ExitStatus {
        self.etcd.process.kill()
    }

    /// Starts etcd again, on the same port with the same data, and waits until it answers. The API server finds it by
    /// itself within half a minute; [`ready`](Self::ready) waits for that.
    ///
    /// # Panics
    ///
    /// When it still runs.
    pub async fn start_etcd(&mut self) {
        self.etcd.again().await;
    }

    /// Keeps in a file what etcd has now, as an operator's backup does.
    pub async fn save(&self) -> PathBuf {
        let file = self.folder().join("snapshot.db");
        self.etcd.save(&file).await;
        file
    }

    /// Takes everything back to what was kept in a file, as an operator does: both programs are stopped before and
    /// started after.
    pub async fn restore(&mut self, file: &Path) {
        self.kill_apiserver();
        self.kill_etcd();
        self.etcd.restore(file).await;
        self.start_apiserver().await;
    }

    /// Lets etcd forget how everything was before now.
    pub async fn compact(&self) {
        self.etcd.compact().await;
    }

    /// Waits until the API server says that it is ready.
    pub async fn ready(&mut self) {
        wait(&mut self.process, self.port, &self.pki).await;
    }
}

fn url(port: u16) -> String {
    format!("https://127.0.0.1:{port}")
}

async fn run(port: u16, etcd: &str, pki: &Pki, arguments: &[String]) -> Process {
    let mut command = Command::new(tool("kube-apiserver"));
    let file = |flag: &str, name: &str| format!("--{flag}={}", pki.path(name).display());
    command.arg(format!("--etcd-servers={etcd}"));
    command.args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"]);
    command.arg(format!("--secure-port={port}"));
    // It would publish its address as that of the Service `kubernetes`, and loopback may not stand there.
    command.arg("--endpoint-reconciler-type=none");
    command.args(["--service-cluster-ip-range=10.0.0.0/24", "--authorization-mode=RBAC"]);
    command.args([
        file("tls-cert-file", "kube-apiserver.crt"),
        file("tls-private-key-file", "kube-apiserver.key"),
        file("client-ca-file", "ca.crt"),
        format!("--service-account-issuer={ISSUER}"),
        file("service-account-signing-key-file", "service-account.key"),
        file("service-account-key-file", "service-account.pub"),
        file("audit-policy-file", "audit.yaml"),
        file("audit-log-path", super::audit::FILE),
        // Never begun anew within a test, which reads one file.
        "--audit-log-maxsize=10000".to_owned(),
    ]);
    command.args(arguments);
    let mut process = Process::start("kube-apiserver", command);
    wait(&mut process, port, pki).await;
    process
}

async fn wait(process: &mut Process, port: u16, pki: &Pki) {
    let (ca, certificate, key) = (pki.path("ca.crt"), pki.path("admin.crt"), pki.path("admin.key"));
    // The namespace is made after the server calls itself ready.
    let urls = ["/readyz", "/api/v1/namespaces/default"].map(|path| format!("{}{path}", url(port)));
    process
        .ready(LONG, || async {
            // It takes four seconds to say that etcd does not answer.
            let mut request: Vec<&str> = vec!["-f", "--max-time", "6"];
            for (flag, file) in [("--cacert", &ca), ("--cert", &certificate), ("--key", &key)] {
                request.extend([flag, file.to_str().expect("a path in UTF-8")]);
            }
            for url in &urls {
                let ran = curl(request.iter().copied().chain([url.as_str()])).await;
                if ran.code != Some(0) {
                    return Err(format!("{url}: {}", ran.stderr.trim()));
                }
            }
            Ok(())
        })
        .await;
}
