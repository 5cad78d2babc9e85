//! Certificate and key files: read without ever waiting, and what is wrong with one in words.

use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use rustix::fs::OFlags;
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject as _},
};

use super::TlsError;

/// Reads a regular file. Opening a FIFO waits for whoever writes into it, and reading a device may never end: a reload
/// that waits would be the last.
fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let content = || -> io::Result<Vec<u8>> {
        let nonblock = OFlags::NONBLOCK.bits().cast_signed();
        let mut file = File::options().read(true).custom_flags(nonblock).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        Ok(content)
    };
    content().map_err(|e| TlsError::new(path, format!("cannot be read: {e}")))
}

/// Loads all certificates of a PEM file.
///
/// # Errors
/// When the file cannot be read or holds none.
pub fn load_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = CertificateDer::pem_slice_iter(&read(path)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| TlsError::new(path, words(&e)))?;
    if certificates.is_empty() {
        return Err(TlsError::new(path, "holds no certificate"));
    }
    Ok(certificates)
}

pub(super) fn load_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|e| {
        let problem = if matches!(e, pem::Error::NoItemsFound) { "holds no private key" } else { words(&e) };
        TlsError::new(path, problem)
    })
}

/// Nothing of the file is quoted, as the errors' own texts do: in a key file that would be the key.
fn words(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => "is cut off: a '-----BEGIN' line has no '-----END' line",
        pem::Error::IllegalSectionStart { .. } => "has a '-----BEGIN' line that does not end in '-----'",
        pem::Error::Base64Decode(_) => "has text between its BEGIN and END lines that is not base64",
        _ => "is not a PEM file that can be read",
    }
}
