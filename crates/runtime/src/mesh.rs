//! The identity of one part of the mesh: its certificate, the CAs it trusts, and who a peer is.
//!
//! A directory holds `ca.crt`, optionally `ca-previous.crt`, and `<service>.crt` and `<service>.key` of each service.
//! Its CA is used for nothing else. Files are watched; a bad set keeps the last good one.

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};
use rustls::{ClientConfig, ServerConfig, server::WebPkiClientVerifier, version::TLS13};
use rustls_pki_types::CertificateDer;
use transponder_core::ServiceName;

use crate::{
    Context,
    tls::{self, Facts, TlsError, Usage},
    watch,
};

/// Where the identities lie.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MeshConfig {
    /// Trust domain of the SPIFFE ids.
    pub trust_domain: String,
    /// Directory with `ca.crt`, `<service>.crt` and `<service>.key`.
    pub directory: PathBuf,
}

impl Default for MeshConfig {
    fn default() -> Self {
        Self { trust_domain: "transponder.local".into(), directory: "/etc/transponder/mesh".into() }
    }
}

impl MeshConfig {
    /// The certificate of a service.
    #[must_use]
    pub fn certificate(&self, service: ServiceName) -> PathBuf {
        self.directory.join(format!("{service}.crt"))
    }

    /// The key of a service.
    #[must_use]
    pub fn key(&self, service: ServiceName) -> PathBuf {
        self.directory.join(format!("{service}.key"))
    }

    /// The CA files that exist: the current one and, during a change, the previous one.
    #[must_use]
    pub fn ca_files(&self) -> Vec<PathBuf> {
        let previous = self.directory.join("ca-previous.crt");
        let previous = previous.exists().then_some(previous);
        std::iter::once(self.directory.join("ca.crt")).chain(previous).collect()
    }
}

/// Labels of certificate metrics.
#[derive(Debug, Clone, PartialEq, Eq, Hash, prometheus_client::encoding::EncodeLabelSet)]
struct CertificateLabels {
    certificate: String,
}

/// The identity of one service, live.
pub struct MeshIdentity {
    service: ServiceName,
    config: MeshConfig,
    current: ArcSwap<Loaded>,
}

struct Loaded {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    facts: Facts,
    /// What was read, to see whether anything changed.
    material: Vec<u8>,
}

impl MeshIdentity {
    /// Loads the identity of a service and keeps it up to date.
    ///
    /// # Errors
    /// When a file is missing or wrong at the start.
    pub fn load(service: ServiceName, config: &MeshConfig, context: &Context) -> Result<Arc<Self>, TlsError> {
        let loaded = load(service, config)?;
        let label = format!("mesh/{service}");
        let metrics = context.certificates.clone();
        metrics.expires(&label, loaded.facts.not_after);
        let identity =
            Arc::new(Self { service, config: config.clone(), current: ArcSwap::from_pointee(loaded) });
        let watched = identity.clone();
        watch::spawn_shallow(vec![config.directory.clone()], context.shutdown.clone(), move || {
            watched.reload(&metrics, &label);
        });
        Ok(identity)
    }

    fn reload(&self, metrics: &CertificateMetrics, label: &str) {
        match load(self.service, &self.config) {
            Ok(loaded) if loaded.material == self.current.load().material => metrics.works(label),
            Ok(loaded) => {
                let not_after = loaded.facts.not_after;
                metrics.expires(label, not_after);
                self.current.store(Arc::new(loaded));
                tracing::info!(service = %self.service, %not_after, "mesh certificate replaced");
            }
            Err(error) => {
                if metrics.failed(label, &error) {
                    tracing::error!(service = %self.service, %error, "mesh certificate not replaced, the last good one stays");
                }
            }
        }
    }

    /// Whose identity this is.
    #[must_use]
    pub fn service(&self) -> ServiceName {
        self.service
    }

    /// The trust domain.
    #[must_use]
    pub fn trust_domain(&self) -> &str {
        &self.config.trust_domain
    }

    /// TLS for the next connection that is accepted.
    #[must_use]
    pub fn server(&self) -> Arc<ServerConfig> {
        self.current.load().server.clone()
    }

    /// TLS for the next connection that is made.
    #[must_use]
    pub fn client(&self) -> Arc<ClientConfig> {
        self.current.load().client.clone()
    }

    /// Which service a peer's certificate names: exactly one URI SAN, of our trust domain.
    ///
    /// # Errors
    /// Says why it names none.
    pub fn peer(&self, certificates: &[CertificateDer<'_>]) -> Result<ServiceName, String> {
        let certificate = certificates.first().ok_or("there is no certificate")?;
        let facts = tls::facts(certificate)?;
        let [uri] = facts.uris.as_slice() else {
            return Err(format!("the certificate has {} URI names, not one", facts.uris.len()));
        };
        ServiceName::from_spiffe_id(uri, &self.config.trust_domain)
            .ok_or_else(|| "the certificate names no service of this trust domain".to_owned())
    }
}

/// Metrics of all certificates of the process.
#[derive(Clone)]
pub struct CertificateMetrics {
    expiry: Family<CertificateLabels, Gauge>,
    failures: Family<CertificateLabels, Counter>,
    /// What is wrong now, by certificate.
    faults: Arc<Mutex<HashMap<String, TlsError>>>,
}

impl CertificateMetrics {
    /// Registers them.
    #[must_use]
    pub fn register(metrics: &crate::Metrics) -> Self {
        let this = Self { expiry: Family::default(), failures: Family::default(), faults: Arc::default() };
        metrics.register(|registry| {
            registry.register(
                "transponder_certificate_expiry_timestamp_seconds",
                "Unix time at which the certificate in use expires",
                this.expiry.clone(),
            );
            registry.register(
                "transponder_certificate_reload_failures",
                "Certificates that were not taken over because they were bad",
                this.failures.clone(),
            );
        });
        this
    }

    /// Notes until when the certificate in use is valid: the one on disk, which is in order.
    pub fn expires(&self, certificate: &str, not_after: transponder_core::Timestamp) {
        let labels = CertificateLabels { certificate: certificate.to_owned() };
        self.expiry.get_or_create(&labels).set(not_after.as_second());
        // From the start at 0, so that an alert on its increase sees the first.
        drop(self.failures.get_or_create(&labels));
        self.works(certificate);
    }

    /// What lies on disk is in order, and nothing new.
    pub fn works(&self, certificate: &str) {
        self.faults().remove(certificate);
    }

    /// Counts a certificate that was not taken over, and answers whether that is news: files are looked at again and
    /// again, and one fault is said once.
    #[must_use]
    pub fn failed(&self, certificate: &str, error: &TlsError) -> bool {
        self.failures.get_or_create(&CertificateLabels { certificate: certificate.to_owned() }).inc();
        self.faults().insert(certificate.to_owned(), error.clone()).as_ref() != Some(error)
    }

    fn faults(&self) -> std::sync::MutexGuard<'_, HashMap<String, TlsError>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks an identity as it lies on disk.
///
/// # Errors
/// Names the file and what is wrong with it.
pub fn check(service: ServiceName, config: &MeshConfig) -> Result<Facts, TlsError> {
    load(service, config).map(|loaded| loaded.facts)
}

fn load(service: ServiceName, config: &MeshConfig) -> Result<Loaded, TlsError> {
    let (certificate, key) = (config.certificate(service), config.key(service));
    let (pair, facts) = tls::load_pair(&certificate, &key, Usage::Mesh)?;
    let wrong = |path: &Path, problem: String| TlsError { path: path.to_owned(), problem };
    let expected = service.spiffe_id(&config.trust_domain);
    if facts.uris != [expected.clone()] {
        return Err(wrong(
            &certificate,
            format!("must have the one URI name {expected}, has {:?}", facts.uris),
        ));
    }
    let roots = Arc::new(tls::load_roots(&config.ca_files())?);
    let material = material(&pair.cert, &roots);
    let ca = config.directory.join("ca.crt");
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), tls::provider())
        .allow_unauthenticated()
        .build()
        .map_err(|e| wrong(&ca, e.to_string()))?;
    tls::believed(&pair.cert, &roots, verifier.as_ref()).map_err(|problem| wrong(&certificate, problem))?;
    let resolver = Arc::new(rustls::sign::SingleCertAndKey::from(pair));
    let mut server = ServerConfig::builder_with_provider(tls::provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(|e| wrong(&certificate, e.to_string()))?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(resolver.clone());
    server.alpn_protocols = vec![b"h2".to_vec()];
    let mut client = ClientConfig::builder_with_provider(tls::provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(|e| wrong(&certificate, e.to_string()))?
        .with_root_certificates(roots)
        .with_client_cert_resolver(resolver);
    client.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Loaded { server: Arc::new(server), client: Arc::new(client), facts, material })
}

fn material(chain: &[CertificateDer<'static>], roots: &rustls::RootCertStore) -> Vec<u8> {
    let anchors = roots.roots.iter().flat_map(|anchor| anchor.subject_public_key_info.as_ref().to_vec());
    chain.iter().flat_map(|certificate| certificate.as_ref().to_vec()).chain(anchors).collect()
}
