//! Which CAs a server's certificate must come from.

use std::{io, path::Path};

use rustls::pki_types::{CertificateDer, pem::PemObject};
use ureq::tls::{Certificate, RootCerts};

/// CAs.
#[derive(Debug, Clone)]
pub struct Roots(RootCerts);

/// Why CAs cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
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

impl Roots {
    /// The CAs of a PEM text, and no others.
    ///
    /// # Errors
    /// When there is none in it.
    pub fn from_pem(pem: &[u8]) -> Result<Self, TrustError> {
        let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>()?;
        // What the TLS library would silently skip later is no CA: an empty set trusts nobody, and says so nowhere.
        let (usable, _) =
            rustls::RootCertStore::empty().add_parsable_certificates(certificates.iter().cloned());
        if usable == 0 {
            return Err(TrustError::NoCertificate);
        }
        Ok(Self::of(&certificates))
    }

    /// The CAs of a file; `None` when the file is missing or empty, as a mount whose Secret has not come yet.
    ///
    /// # Errors
    /// When the file is there and holds no CA.
    pub fn from_file(path: &Path) -> Result<Option<Self>, TrustError> {
        match std::fs::read(path) {
            Ok(pem) if pem.trim_ascii().is_empty() => Ok(None),
            Ok(pem) => Self::from_pem(&pem).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The system's CAs (`SSL_CERT_FILE` and `SSL_CERT_DIR` name others); Mozilla's where the system has none, as in
    /// an empty image.
    #[must_use]
    pub fn system() -> Self {
        let certificates = rustls_native_certs::load_native_certs().certs;
        if certificates.is_empty() { Self::built_in() } else { Self::of(&certificates) }
    }

    /// Mozilla's CAs, as compiled in.
    #[must_use]
    pub fn built_in() -> Self {
        Self(RootCerts::WebPki)
    }

    fn of(certificates: &[CertificateDer<'_>]) -> Self {
        Self(certificates.iter().map(|der| Certificate::from_der(der).to_owned()).collect::<Vec<_>>().into())
    }

    pub(crate) fn certificates(&self) -> RootCerts {
        self.0.clone()
    }
}
