//! HTTP clients that trust the edge.

use std::{path::Path, time::Duration};

/// A client with connections of its own.
pub(crate) fn client(tls: rustls::ClientConfig) -> reqwest::Client {
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .no_proxy()
        .timeout(Duration::from_secs(20))
        .build()
        .expect("a client")
}

/// TLS that trusts this authority.
pub(super) fn client_tls(ca: &Path) -> rustls::ClientConfig {
    use rustls_pki_types::{CertificateDer, pem::PemObject as _};
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca).expect("the edge's CA") {
        roots.add(certificate.expect("a certificate")).expect("a CA certificate");
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_root_certificates(roots)
        .with_no_client_auth()
}
