//! Certificates: loading, checking when they are loaded, and replacing them while connections are served.

mod check;
mod files;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::ArcSwap;
use rustls::{
    RootCertStore,
    crypto::{CryptoProvider, ring},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use rustls_pki_types::CertificateDer;
use transponder_core::Timestamp;
use x509_parser::{extensions::GeneralName, prelude::*};

pub(crate) use check::believed;
pub use files::load_certificates;

/// A certificate, key or CA file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct TlsError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: String,
}

impl TlsError {
    fn new(path: &Path, problem: impl fmt::Display) -> Self {
        Self { path: path.to_owned(), problem: problem.to_string() }
    }
}

/// The one TLS provider.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// What a certificate is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// By a server.
    Server,
    /// By a part of the mesh, which is server and client both.
    Mesh,
}

/// What stands in a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// DNS names and IP addresses.
    pub names: Vec<String>,
    /// URI SANs.
    pub uris: Vec<String>,
    /// Until when it is valid.
    pub not_after: Timestamp,
}

/// Reads what stands in a certificate.
///
/// # Errors
/// Says what cannot be read.
pub fn facts(certificate: &CertificateDer<'_>) -> Result<Facts, String> {
    let parsed = parse(certificate)?;
    let mut facts = Facts {
        names: Vec::new(),
        uris: Vec::new(),
        not_after: Timestamp::from_second(parsed.validity().not_after.timestamp())
            .map_err(|e| e.to_string())?,
    };
    let names = parsed.subject_alternative_name().map_err(|e| format!("subject alternative names: {e}"))?;
    for name in names.iter().flat_map(|extension| &extension.value.general_names) {
        match name {
            GeneralName::DNSName(name) => facts.names.push((*name).to_owned()),
            GeneralName::URI(uri) => facts.uris.push((*uri).to_owned()),
            GeneralName::IPAddress(bytes) => facts.names.extend(address(bytes)),
            _ => {}
        }
    }
    Ok(facts)
}

fn address(bytes: &[u8]) -> Option<String> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(std::net::Ipv4Addr::from(v4).to_string());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|v6| std::net::Ipv6Addr::from(v6).to_string())
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, String> {
    match X509Certificate::from_der(certificate.as_ref()) {
        Ok(([], parsed)) => Ok(parsed),
        _ => Err("is not an X.509 certificate".into()),
    }
}

/// Loads a certificate chain and its key, and checks that they belong together, are valid now and may be used so.
///
/// # Errors
/// Names the file and what is wrong with it.
pub fn load_pair(certificate: &Path, key: &Path, usage: Usage) -> Result<(CertifiedKey, Facts), TlsError> {
    let chain = load_certificates(certificate)?;
    let private = files::load_key(key)?;
    let signing = provider().key_provider.load_private_key(private).map_err(|e| TlsError::new(key, e))?;
    check::usage(&chain, usage).map_err(|e| TlsError::new(certificate, e))?;
    let facts = facts(&chain[0]).map_err(|e| TlsError::new(certificate, e))?;
    if facts.names.is_empty() {
        return Err(TlsError::new(
            certificate,
            "has no DNS name or address among its subject alternative names",
        ));
    }
    let pair = CertifiedKey::new(chain, signing);
    pair.keys_match()
        .map_err(|e| TlsError::new(certificate, format!("does not belong to {}: {e}", key.display())))?;
    Ok((pair, facts))
}

/// Trust in the union of several CA files, current and previous.
///
/// # Errors
/// Names the file that cannot be used.
pub fn load_roots(paths: &[PathBuf]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for path in paths {
        for certificate in load_certificates(path)? {
            roots
                .add(certificate)
                .map_err(|e| TlsError::new(path, format!("holds what is no authority's certificate: {e}")))?;
        }
    }
    Ok(roots)
}

/// The system's CA roots, or the public ones that are built in where the system has none.
#[must_use]
pub fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}

/// A server certificate that can be replaced while the server runs.
pub struct LiveCertificate(ArcSwap<CertifiedKey>);

impl LiveCertificate {
    /// Starts with this certificate.
    #[must_use]
    pub fn new(pair: CertifiedKey) -> Self {
        Self(ArcSwap::from_pointee(pair))
    }

    /// Replaces it for new connections.
    pub fn replace(&self, pair: CertifiedKey) {
        self.0.store(Arc::new(pair));
    }
}

impl fmt::Debug for LiveCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LiveCertificate")
    }
}

impl ResolvesServerCert for LiveCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}
