//! The controllers of a control plane.

use std::process::Command;

use super::pki::Pki;
use crate::{LONG, Process, curl, ports, tool};

/// A running kube-controller-manager with all of its controllers, each with the rights that a cluster gives it.
#[derive(Debug)]
pub struct ControllerManager {
    process: Process,
}

impl ControllerManager {
    pub(super) async fn start(pki: &Pki) -> Self {
        let port = ports::free();
        let file = |flag: &str, name: &str| format!("--{flag}={}", pki.path(name).display());
        let mut command = Command::new(tool("kube-controller-manager"));
        command.args([
            file("kubeconfig", "controller-manager.kubeconfig"),
            file("root-ca-file", "ca.crt"),
            file("service-account-private-key-file", "service-account.key"),
            // It would make a folder in /usr/libexec.
            file("flex-volume-plugin-dir", "flex-volumes"),
            format!("--secure-port={port}"),
        ]);
        command.args([
            "--bind-address=127.0.0.1",
            "--use-service-account-credentials",
            "--leader-elect=false",
        ]);
        let mut process = Process::start("kube-controller-manager", command);
        let health = format!("https://127.0.0.1:{port}/healthz");
        process
            .ready(LONG, || async {
                // Its certificate is made by itself at each start.
                let ran = curl(["-k", "-f", "--max-time", "2", &health]).await;
                if ran.code == Some(0) { Ok(()) } else { Err(ran.stderr) }
            })
            .await;
        Self { process }
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}
