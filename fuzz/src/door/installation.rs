//! What an edge needs to run: two certificates, a registry of one cluster, room for its outbox.

use std::{fs, path::Path, time::Duration};

use bytesize::ByteSize;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use transponder_core::ServiceName;
use transponder_edge::{BudgetConfig, Config, DeliveryConfig, HttpConfig, PeersConfig};
use transponder_runtime::mesh::MeshConfig;

/// The only cluster, as the corpus names it.
const CLUSTER: &str = "kind-prod";
/// Its token, as the corpus shows it.
pub(super) const TOKEN: &str = "fuzz-relay-token-0123456789";
/// Longest wait of the edge for anything that a client should send.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longer than anybody fuzzes.
const LATER: Duration = Duration::from_secs(24 * 3600);

/// Writes it all below `root`. `ca.crt` there is the authority that clients trust.
pub(super) fn write(root: &Path) -> (Config, MeshConfig) {
    let mut authority = CertificateParams::new(Vec::new()).expect("no names");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().expect("a key");
    let certificate = authority.self_signed(&key).expect("an authority");
    fs::write(root.join("ca.crt"), certificate.pem()).expect("write a certificate");
    let issuer = Issuer::new(authority, key);
    let mesh = MeshConfig { directory: root.to_owned(), ..MeshConfig::default() };
    issue(root, "edge", &issuer, &ServiceName::Edge.spiffe_id(&mesh.trust_domain));

    let entry = serde_json::json!({
        "relaySecretName": "relay-token",
        "outcomeRelayURL": "https://127.0.0.1/outcome/kind-prod",
        "forwardTypes": ["dev.cdevents.*"],
        "appNamespaces": ["app-*"],
    });
    for folder in ["registry/cluster-registry", "registry/secrets/relay-token", "outbox"] {
        fs::create_dir_all(root.join(folder)).expect("make a folder");
    }
    let put =
        |path: &str, text: &str| fs::write(root.join("registry").join(path), text).expect("write a file");
    put(&format!("cluster-registry/{CLUSTER}"), &entry.to_string());
    put("secrets/relay-token/token", TOKEN);
    (config(root), mesh)
}

fn issue(root: &Path, name: &str, issuer: &Issuer<'_, KeyPair>, uri: &str) {
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("an address");
    params.subject_alt_names.push(SanType::URI(uri.try_into().expect("a URI")));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, issuer).expect("a certificate");
    fs::write(root.join(format!("{name}.key")), key.serialize_pem()).expect("write a key");
    fs::write(root.join(format!("{name}.crt")), certificate.pem()).expect("write a certificate");
}

/// No budget is ever spent, and nothing is delivered a second time: what an input does depends on it alone.
fn config(root: &Path) -> Config {
    let nowhere = || "127.0.0.1:1".to_owned();
    Config {
        listen: ([127, 0, 0, 1], 0).into(),
        certificate: root.join("edge.crt"),
        key: root.join("edge.key"),
        data_directory: root.join("outbox"),
        registry: root.join("registry"),
        body_limit: ByteSize::kib(4),
        http: HttpConfig {
            handshake_timeout: PATIENCE,
            idle_timeout: PATIENCE,
            body_timeout: PATIENCE,
            ..HttpConfig::default()
        },
        budget: BudgetConfig {
            rate: 1_000_000,
            burst: 1_000_000,
            undelivered_events: u64::MAX,
            undelivered_bytes: ByteSize(u64::MAX),
            store_events: u64::MAX,
            store_bytes: ByteSize(u64::MAX),
        },
        delivery: DeliveryConfig {
            concurrency: 1,
            retry_base: LATER,
            retry_cap: LATER,
            ..DeliveryConfig::default()
        },
        peers: PeersConfig {
            forwarder: nowhere(),
            dora_recorder: nowhere(),
            release_tracking: nowhere(),
            outcome_span: nowhere(),
        },
        ..Config::default()
    }
}
