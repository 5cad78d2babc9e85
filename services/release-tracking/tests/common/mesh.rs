//! A mesh directory with throw-away certificates, the accounts that may call, and channels of both kinds.

use std::{net::SocketAddr, path::Path};

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use transponder_core::ServiceName;
use transponder_runtime::{
    Context,
    auth::CallersConfig,
    grpc::{self, MeshChannel},
    mesh::{MeshConfig, MeshIdentity},
};

/// Certificates of all services, and the accounts that may call.
pub struct Mesh {
    directory: tempfile::TempDir,
    ca: String,
    pub config: MeshConfig,
    pub callers: CallersConfig,
}

impl Mesh {
    /// `accounts` are `<namespace>/<name>`; the token of each is [`token`].
    pub fn new(accounts: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let ca_key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
        write(directory.path(), "ca.crt", &ca_pem);
        let issuer = Issuer::new(ca, ca_key);
        for service in ServiceName::ALL {
            let key = KeyPair::generate().unwrap();
            let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
            let mut params = CertificateParams::new(names).unwrap();
            let id = service.spiffe_id("transponder.local");
            params.subject_alt_names.push(SanType::URI(id.try_into().unwrap()));
            params.extended_key_usages =
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            let certificate = params.signed_by(&key, &issuer).unwrap();
            write(directory.path(), &format!("{service}.crt"), &certificate.pem());
            write(directory.path(), &format!("{service}.key"), &key.serialize_pem());
        }
        let entry =
            |account: &&str| format!("[[token]]\naccount = \"{account}\"\ntoken = \"{}\"\n", token(account));
        write(directory.path(), "tokens.toml", &accounts.iter().map(entry).collect::<String>());
        Self {
            config: MeshConfig { directory: directory.path().to_owned(), ..MeshConfig::default() },
            callers: CallersConfig {
                platform_accounts: vec!["platform-system/*".into()],
                token_file: Some(directory.path().join("tokens.toml")),
                ..CallersConfig::default()
            },
            ca: ca_pem,
            directory,
        }
    }

    /// A place for what a service stores.
    pub fn data_directory(&self) -> std::path::PathBuf {
        self.directory.path().join("data")
    }

    /// A channel of a part of the mesh.
    pub fn channel(&self, caller: ServiceName, address: SocketAddr) -> MeshChannel {
        let identity = MeshIdentity::load(caller, &self.config, &Context::new()).unwrap();
        grpc::channel(&address.to_string(), ServiceName::ReleaseTracking, identity).unwrap()
    }

    /// A channel without a client certificate, as a Task has it.
    pub fn task_channel(&self, address: SocketAddr) -> Channel {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.ca));
        let endpoint = Endpoint::from_shared(format!("https://{address}")).unwrap();
        endpoint.tls_config(tls.domain_name("localhost")).unwrap().connect_lazy()
    }
}

/// The token of an account.
pub fn token(account: &str) -> String {
    format!("token-of-{account}-0123456789")
}

fn write(directory: &Path, name: &str, text: &str) {
    std::fs::write(directory.join(name), text).unwrap();
}
