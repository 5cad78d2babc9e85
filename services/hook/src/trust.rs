//! Which CAs a server's certificate must come from.

use std::{io, path::Path};

use rustls::pki_types::{CertificateDer, pem::PemObject};
use ureq::tls::{Certificate, RootCerts};

/// CAs, and where they come from.
#[derive(Debug, Clone)]
pub struct Roots {
    certificates: RootCerts,
    name: String,
}

/// Why CAs cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// There is no such file.
    #[error("is not there")]
    Missing,
    /// Nothing but white space.
    #[error("is empty")]
    Empty,
    /// The file is there and cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// The text is not PEM.
    #[error("is not PEM: {0}")]
    NotPem(#[from] rustls::pki_types::pem::Error),
    /// The text holds no certificate that can be a CA.
    #[error("holds no usable certificate")]
    NoCertificate,
}

impl TrustError {
    /// Whether this is how a mount looks whose Secret has not come yet.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Missing | Self::Empty)
    }
}

impl Roots {
    /// The CAs of a PEM text, and no others.
    ///
    /// # Errors
    /// When there is none in it.
    pub fn from_pem(pem: &[u8]) -> Result<Self, TrustError> {
        if pem.trim_ascii().is_empty() {
            return Err(TrustError::Empty);
        }
        let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>()?;
        // What the TLS library would silently skip later is no CA: an empty set trusts nobody, and says so nowhere.
        let (usable, _) =
            rustls::RootCertStore::empty().add_parsable_certificates(certificates.iter().cloned());
        if usable == 0 {
            return Err(TrustError::NoCertificate);
        }
        Ok(Self::of(&certificates, "the given CA"))
    }

    /// The CAs of a file.
    ///
    /// # Errors
    /// When there is none in it, or no such file.
    pub fn from_file(path: &Path) -> Result<Self, TrustError> {
        let pem = std::fs::read(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => TrustError::Missing,
            _ => error.into(),
        })?;
        Self::from_pem(&pem)
    }

    /// The same CAs under another name, for messages.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The system's CAs (`SSL_CERT_FILE` and `SSL_CERT_DIR` name others); Mozilla's where the system has none, as in
    /// an empty image.
    #[must_use]
    pub fn system() -> Self {
        let certificates = rustls_native_certs::load_native_certs().certs;
        if certificates.is_empty() { Self::built_in() } else { Self::of(&certificates, "the system's roots") }
    }

    /// Mozilla's CAs, as compiled in.
    #[must_use]
    pub fn built_in() -> Self {
        Self { certificates: RootCerts::WebPki, name: "the built-in roots".to_owned() }
    }

    /// Where they come from, in words.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    fn of(certificates: &[CertificateDer<'_>], name: &str) -> Self {
        let certificates: Vec<_> =
            certificates.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
        Self { certificates: certificates.into(), name: name.to_owned() }
    }

    pub(crate) fn certificates(&self) -> RootCerts {
        self.certificates.clone()
    }
}
