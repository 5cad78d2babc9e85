//! One of several processes that run the same service of one installation.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde_json::Value;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::{Mesh, Process, http, mesh::START};

/// A running replica. Dropping it kills it.
pub struct Replica {
    service: &'static str,
    process: Process,
    addresses: Value,
}

impl Replica {
    /// Starts a replica of a service under a name that no other one has, and waits until it listens. Whether it is ready
    /// is another matter.
    pub async fn start(mesh: &Mesh, service: &'static str, name: &str) -> Self {
        Self::start_with(mesh, service, name, &[]).await
    }

    /// Starts one with variables of the environment of its own.
    pub async fn start_with(
        mesh: &Mesh,
        service: &'static str,
        name: &str,
        environment: &[(&'static str, String)],
    ) -> Self {
        let file: PathBuf = mesh.path(&format!("{name}-ready.json"));
        let mut command = mesh.command(service, &file);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        let mut process = Process::start(name, command);
        let addresses = process
            .ready(START, || async {
                let text = std::fs::read(&file).map_err(|e| e.to_string())?;
                serde_json::from_slice::<Value>(&text).map_err(|e| e.to_string())
            })
            .await;
        Self { service, process, addresses }
    }

    /// The process, to look at or to signal.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Waits until it says that it is ready.
    pub async fn ready(&mut self) {
        let admin = self.address("admin");
        self.process.ready(START, || readyz(admin)).await;
    }

    /// What it says of its readiness: `Ok` when it is ready, and the reasons when it is not.
    ///
    /// # Errors
    ///
    /// The reasons.
    pub async fn readiness(&self) -> Result<(), String> {
        readyz(self.address("admin")).await
    }

    /// The text of `/metrics`.
    ///
    /// # Errors
    ///
    /// When it does not answer at once.
    pub async fn metrics(&self) -> Result<String, String> {
        let url = format!("http://{}/metrics", self.address("admin"));
        Ok(http(["-s", "--max-time", "1", &url]).await?.body_text())
    }

    /// A connection to the service by whoever holds the certificate of `caller`, made when it is first used.
    ///
    /// # Panics
    ///
    /// When there is no such certificate.
    #[must_use]
    pub fn channel(&self, mesh: &Mesh, caller: &str) -> Channel {
        let certificate = mesh.certificate(caller);
        let identity = Identity::from_pem(read(&certificate), read(&certificate.with_extension("key")));
        self.connect(mesh, |tls| tls.identity(identity))
    }

    /// A connection without a certificate, for who brings a token.
    ///
    /// # Panics
    ///
    /// When the mesh has no authority.
    #[must_use]
    pub fn task_channel(&self, mesh: &Mesh) -> Channel {
        self.connect(mesh, |tls| tls)
    }

    fn connect(&self, mesh: &Mesh, with: impl FnOnce(ClientTlsConfig) -> ClientTlsConfig) -> Channel {
        let authority = Certificate::from_pem(read(&mesh.path("mesh/ca.crt")));
        let tls = with(ClientTlsConfig::new().ca_certificate(authority).domain_name("localhost"));
        let address = self.address(self.service);
        let endpoint = Endpoint::from_shared(format!("https://{address}")).expect("an address");
        endpoint.tls_config(tls).expect("TLS settings").connect_lazy()
    }

    /// Where a part of it listens: `admin`, or the service.
    ///
    /// # Panics
    ///
    /// When it has no such part.
    #[must_use]
    pub fn address(&self, part: &str) -> SocketAddr {
        self.addresses[part].as_str().and_then(|text| text.parse().ok()).expect("a part that listens")
    }
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("a certificate of the mesh")
}

async fn readyz(admin: SocketAddr) -> Result<(), String> {
    let answer = http(["-s", "--max-time", "5", &format!("http://{admin}/readyz")]).await?;
    if answer.status == 200 { Ok(()) } else { Err(answer.body_text()) }
}
