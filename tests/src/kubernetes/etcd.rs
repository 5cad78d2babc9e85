//! The store of a control plane.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{LONG, Process, Run, curl, ports, tool};

/// What the data of etcd survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The death of etcd, at any moment. Nothing is synced, which makes it fast.
    #[default]
    Kill,
    /// The loss of power, too: every write is synced, as on a real cluster.
    PowerLoss,
}

/// An etcd on a free port of 127.0.0.1.
pub(super) struct Etcd {
    pub(super) process: Process,
    port: u16,
    data: PathBuf,
    durability: Durability,
}

impl Etcd {
    /// Starts one with its data in `data`, and waits until it answers.
    pub(super) async fn start(data: &Path, durability: Durability) -> Self {
        let port = ports::free();
        let process = run(data, port, durability).await;
        Self { process, port, data: data.to_owned(), durability }
    }

    /// Starts it again, on the same port with the same data.
    pub(super) async fn again(&mut self) {
        assert!(self.process.ended().is_some(), "etcd still runs");
        self.process = run(&self.data, self.port, self.durability).await;
    }

    /// Keeps in a file what there is now.
    pub(super) async fn save(&self, file: &Path) {
        etcdctl().args(["--endpoints", &self.url(), "snapshot", "save"]).args([file]).run().await.success();
    }

    /// Replaces everything by what was kept in a file, and starts it again.
    pub(super) async fn restore(&mut self, file: &Path) {
        assert!(self.process.ended().is_some(), "etcd still runs");
        fs::remove_dir_all(&self.data).expect("remove the data of etcd");
        let restore = etcdctl().args(["snapshot", "restore"]).args([file]);
        restore.args([Path::new("--data-dir"), &self.data]).run().await.success();
        self.again().await;
    }

    /// Forgets how everything was before now.
    pub(super) async fn compact(&self) {
        let url = self.url();
        let status = etcdctl().args(["--endpoints", &url, "endpoint", "status", "-w", "json"]).run().await;
        let now = status.success().json()[0]["Status"]["header"]["revision"].to_string();
        etcdctl().args(["--endpoints", &url, "compact", &now]).run().await.success();
    }

    pub(super) fn url(&self) -> String {
        url(self.port)
    }
}

fn etcdctl() -> Run {
    Run::tool("etcdctl").env("ETCDCTL_API", "3")
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

async fn run(data: &Path, port: u16, durability: Durability) -> Process {
    let url = url(port);
    let mut command = Command::new(tool("etcd"));
    command.arg("--data-dir").arg(data).args(["--logger=zap", "--log-outputs=stderr"]);
    command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
    // It has no peers; port 0 is good enough for them.
    command.args(["--listen-peer-urls", "http://127.0.0.1:0"]);
    if durability == Durability::Kill {
        command.arg("--unsafe-no-fsync");
    }
    let mut process = Process::start("etcd", command);
    let health = format!("{url}/health");
    process
        .ready(LONG, || async {
            let answer = curl(["--max-time", "2", &health]).await;
            if answer.text().contains("true") { Ok(()) } else { Err(answer.text() + &answer.stderr) }
        })
        .await;
    process
}
