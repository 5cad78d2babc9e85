//! A DoraRecorder with certificates and tokens of its own, and ways to call it.

pub(crate) mod warnings;

use std::{fs, net::SocketAddr, path::Path, time::Duration};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tonic::{Request, Status, metadata::MetadataValue, transport::Channel};
use transponder_core::ServiceName;
use transponder_dora_recorder::{App, Config, Error};
use transponder_proto::v1::{self, dora_recorder_client::DoraRecorderClient};
use transponder_runtime::{
    Context,
    auth::{CallersConfig, TokenFile},
    grpc::{self, MeshChannel},
    mesh::{MeshConfig, MeshIdentity},
};

pub(crate) const SHOP_TOKEN: &str = "token-of-the-shop-pipeline";
pub(crate) const PLATFORM_TOKEN: &str = "token-of-the-platform-task";

/// What outlives a restart: certificates, tokens and data.
pub(crate) struct Ground {
    directory: TempDir,
    mesh: MeshConfig,
}

/// A running service.
pub(crate) struct Running {
    pub(crate) context: Context,
    pub(crate) address: SocketAddr,
    mesh: MeshConfig,
    task: JoinHandle<Result<(), Error>>,
}

impl Ground {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mesh = MeshConfig { directory: directory.path().join("mesh"), ..MeshConfig::default() };
        write_mesh(&mesh);
        let tokens = format!(
            "[[token]]\naccount = \"app-shop-cicd/pipeline-runner\"\ntoken = \"{SHOP_TOKEN}\"\n\
             [[token]]\naccount = \"platform-system/outcome\"\ntoken = \"{PLATFORM_TOKEN}\"\n"
        );
        fs::write(directory.path().join("tokens.toml"), tokens).unwrap();
        Self { directory, mesh }
    }

    pub(crate) fn data(&self) -> std::path::PathBuf {
        self.directory.path().join("data")
    }

    pub(crate) fn config(&self) -> Config {
        Config {
            listen: ([127, 0, 0, 1], 0).into(),
            data_directory: self.data(),
            zero_hold: Duration::ZERO,
            ..Config::default()
        }
    }

    pub(crate) async fn start(&self, config: Config) -> Running {
        let callers = CallersConfig {
            platform_accounts: vec!["platform-system/outcome".into()],
            token_file: Some(self.directory.path().join("tokens.toml")),
            ..CallersConfig::default()
        };
        let context = Context::new();
        let reviewer = TokenFile::load(&callers, &context).unwrap();
        let app = App::build(config, &self.mesh, reviewer, None, &context).await.unwrap();
        let address = app.address();
        Running { context, address, mesh: self.mesh.clone(), task: tokio::spawn(app.run()) }
    }
}

impl Running {
    /// A client with the certificate of a service.
    pub(crate) fn client(&self, service: ServiceName) -> DoraRecorderClient<MeshChannel> {
        let identity = MeshIdentity::load(service, &self.mesh, &self.context).unwrap();
        let address = format!("localhost:{}", self.address.port());
        DoraRecorderClient::new(grpc::channel(&address, ServiceName::DoraRecorder, identity).unwrap())
    }

    /// A client as a Task is one: it trusts the mesh's CA and has no certificate.
    pub(crate) fn task(&self) -> DoraRecorderClient<Channel> {
        let ca = fs::read_to_string(self.mesh.directory.join("ca.crt")).unwrap();
        DoraRecorderClient::new(task_channel(self.address, &ca))
    }

    pub(crate) fn metrics(&self, accept: &str) -> String {
        self.context.metrics.expose(accept).unwrap().0
    }

    /// Stops as on SIGTERM.
    pub(crate) async fn stop(self) {
        self.context.shutdown.begin();
        self.task.await.unwrap().unwrap();
    }

    /// Stops as by a kill: nothing is drained.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

/// Waits until a condition holds.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap_or_else(|_| panic!("never {what}"));
}

pub(crate) fn with_token<T>(message: T, token: &str) -> Request<T> {
    let mut request = Request::new(message);
    let value: MetadataValue<_> = format!("Bearer {token}").parse().unwrap();
    request.metadata_mut().insert("authorization", value);
    request
}

pub(crate) fn outcome(app: &str, chain: &str, phase: v1::Phase, second: i64) -> v1::RecordOutcomeRequest {
    let time = |second| Some(prost_types::Timestamp { seconds: 1_700_000_000 + second, nanos: 0 });
    v1::RecordOutcomeRequest {
        release: Some(v1::Release {
            app_namespace: format!("app-{app}-cicd"),
            app_name: app.into(),
            env: "prod".into(),
            cluster: "kind-prod".into(),
            chain_id: chain.into(),
            ..Default::default()
        }),
        phase: phase.into(),
        finished_at: time(second),
        flow_start_time: time(0),
        received_at: time(second + 1),
        first_finished_at: None,
    }
}

pub(crate) fn disposition(
    answer: Result<tonic::Response<v1::RecordOutcomeResponse>, Status>,
) -> v1::Disposition {
    answer.unwrap().into_inner().disposition()
}

fn task_channel(address: SocketAddr, ca: &str) -> Channel {
    use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)).domain_name("localhost");
    Endpoint::from_shared(format!("https://{address}")).unwrap().tls_config(tls).unwrap().connect_lazy()
}

fn write_mesh(mesh: &MeshConfig) {
    fs::create_dir_all(&mesh.directory).unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "test mesh");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    fs::write(mesh.directory.join("ca.crt"), ca.pem()).unwrap();
    for service in ServiceName::ALL {
        let mut params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params
            .subject_alt_names
            .push(SanType::URI(service.spiffe_id(&mesh.trust_domain).try_into().unwrap()));
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &ca).unwrap();
        write(&mesh.certificate(service), &certificate.pem());
        write(&mesh.key(service), &key.serialize_pem());
    }
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}
