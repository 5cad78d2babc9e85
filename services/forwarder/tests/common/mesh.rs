//! A mesh directory with throw-away certificates, and clients of it.

use std::{net::SocketAddr, path::Path, sync::Arc};

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use transponder_core::ServiceName;
use transponder_runtime::{
    Context,
    auth::CallersConfig,
    grpc::{MeshChannel, channel},
    mesh::{MeshConfig, MeshIdentity},
};

/// The token of the app account `app-shop-cicd/pipeline-runner`.
pub const APP_TOKEN: &str = "app-token-0123456789";
/// The token of the platform account `platform-system/outcome`.
pub const PLATFORM_TOKEN: &str = "platform-token-0123456789";

/// Certificates of all services, and the accounts that may call.
pub struct Mesh {
    pub dir: tempfile::TempDir,
    pub config: MeshConfig,
    pub callers: CallersConfig,
    ca_pem: String,
}

/// A CA that signs what it is asked to.
pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

impl Ca {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Certificate and key, as PEM, for localhost and 127.0.0.1.
    pub fn issue(&self, uri: Option<String>) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params =
            CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        if let Some(uri) = uri {
            params.subject_alt_names.push(SanType::URI(uri.try_into().unwrap()));
        }
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

impl Mesh {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ca = Ca::new();
        write(dir.path(), "ca.crt", &ca.pem);
        for service in ServiceName::ALL {
            let (certificate, key) = ca.issue(Some(service.spiffe_id("transponder.local")));
            write(dir.path(), &format!("{service}.crt"), &certificate);
            write(dir.path(), &format!("{service}.key"), &key);
        }
        let tokens = format!(
            "[[token]]\naccount = \"app-shop-cicd/pipeline-runner\"\ntoken = \"{APP_TOKEN}\"\n\
             [[token]]\naccount = \"platform-system/outcome\"\ntoken = \"{PLATFORM_TOKEN}\"\n"
        );
        write(dir.path(), "tokens.toml", &tokens);
        let config = MeshConfig { directory: dir.path().to_owned(), ..MeshConfig::default() };
        let callers = CallersConfig {
            platform_accounts: vec!["platform-system/outcome".into()],
            token_file: Some(dir.path().join("tokens.toml")),
            ..CallersConfig::default()
        };
        Self { dir, config, callers, ca_pem: ca.pem }
    }

    /// A channel to `service`, as `caller`.
    pub fn channel(&self, caller: ServiceName, service: ServiceName, address: SocketAddr) -> MeshChannel {
        let identity = self.identity(caller);
        channel(&address.to_string(), service, identity).unwrap()
    }

    pub fn identity(&self, service: ServiceName) -> Arc<MeshIdentity> {
        MeshIdentity::load(service, &self.config, &Context::new()).unwrap()
    }

    /// A channel without a client certificate, as a Task has it.
    pub fn task_channel(&self, address: SocketAddr) -> Channel {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.ca_pem));
        let endpoint = Endpoint::from_shared(format!("https://{address}")).unwrap();
        endpoint.tls_config(tls.domain_name("localhost")).unwrap().connect_lazy()
    }
}

/// A request with a ServiceAccount token.
pub fn with_token<T>(message: T, token: &str) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request
}

fn write(dir: &Path, name: &str, text: &str) {
    std::fs::write(dir.join(name), text).unwrap();
}
