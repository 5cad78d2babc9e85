//! An authority in a directory, and what it issues.

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, anyhow, bail};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use transponder_runtime::tls;

use crate::files::{make_directory, read, write_private, write_public};

/// How long an authority is valid.
const AUTHORITY_VALIDITY: Duration = Duration::from_hours(10 * 365 * 24);
/// Allowance for clocks that go behind ours: a day, and what passes until they are used.
const BACKDATE: Duration = Duration::from_hours(25);

/// A certificate authority in a directory: `<name>.crt` and `<name>.key`.
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate to be issued.
#[derive(Debug, Clone)]
pub struct Leaf<'a> {
    /// Common name, for people.
    pub common_name: &'a str,
    /// DNS names and addresses.
    pub names: &'a [String],
    /// The URI name of a part of the mesh, which is server and client both; `None` for a mere server.
    pub uri: Option<String>,
    /// How long it is valid.
    pub validity: Duration,
}

impl Authority {
    /// The authority of a directory, made if there is none.
    ///
    /// # Errors
    /// Names the file that cannot be read or written.
    pub fn open(directory: &Path, name: &str) -> anyhow::Result<Self> {
        let (certificate, key) = paths(directory, name);
        let alone = |there: &Path, lost: &Path| {
            let (there, lost) = (there.display(), lost.display());
            anyhow!(
                "{there} issues nothing without {lost}: put that back, or begin anew with --new-authority"
            )
        };
        match (certificate.exists(), key.exists()) {
            (true, true) => {}
            (true, false) => return Err(alone(&certificate, &key)),
            (false, true) => return Err(alone(&key, &certificate)),
            (false, false) => {
                make_directory(directory)?;
                let (certificate_pem, key_pem) = generate(name)?;
                write_private(&key, key_pem.as_bytes())?;
                write_public(&certificate, certificate_pem.as_bytes())?;
            }
        }
        let certificate_pem = read(&certificate)?;
        let pair = KeyPair::from_pem(&read(&key)?)
            .with_context(|| format!("{} holds no private key", key.display()))?;
        let issuer = Issuer::from_ca_cert_pem(&certificate_pem, pair)
            .with_context(|| format!("{} is no certificate authority", certificate.display()))
            .context("put back the authority's files, or begin anew with --new-authority")?;
        Ok(Self { certificate: certificate_pem, issuer })
    }

    /// Its certificate, as PEM.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Issues a certificate and writes it as `<name>.crt` and `<name>.key`. It keeps the names of the one that it
    /// replaces: who renews need not know them all.
    ///
    /// # Errors
    /// When a name is none, or a file cannot be written.
    pub fn issue(&self, directory: &Path, name: &str, leaf: &Leaf<'_>) -> anyhow::Result<Issued> {
        let (certificate, key) = paths(directory, name);
        let issued_names = Issued::new(name, leaf.names, names_of(&certificate));
        let mut params = params(leaf.common_name, &issued_names.names, leaf.validity)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        if let Some(uri) = &leaf.uri {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
            params.subject_alt_names.push(SanType::URI(uri.as_str().try_into()?));
        }
        params.use_authority_key_identifier_extension = true;
        let pair = KeyPair::generate()?;
        let issued = params.signed_by(&pair, &self.issuer)?;
        // A watcher that sees the new key with the old certificate keeps the last good pair until both are there.
        write_private(&key, pair.serialize_pem().as_bytes())?;
        write_public(&certificate, issued.pem().as_bytes())?;
        Ok(issued_names)
    }
}

/// For which names a certificate was issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// Its file's name without the ending.
    pub name: String,
    /// All its DNS names and addresses.
    pub names: Vec<String>,
    /// Those among them that nobody asked for: they stood in the certificate before.
    pub kept: Vec<String>,
}

impl Issued {
    fn new(name: &str, asked: &[String], before: Vec<String>) -> Self {
        let among = |names: &[String], name: &str| names.iter().any(|n| n.eq_ignore_ascii_case(name));
        let kept: Vec<String> = before.into_iter().filter(|name| !among(asked, name)).collect();
        let mut names = Vec::new();
        for name in asked.iter().chain(&kept) {
            if !among(&names, name) {
                names.push(name.clone());
            }
        }
        Self { name: name.to_owned(), names, kept }
    }
}

/// The names of the certificate in a file; none where there is none that can be read.
pub(super) fn names_of(certificate: &Path) -> Vec<String> {
    let chain = tls::load_certificates(certificate).unwrap_or_default();
    chain.first().and_then(|leaf| tls::facts(leaf).ok()).map(|facts| facts.names).unwrap_or_default()
}

pub(super) fn paths(directory: &Path, name: &str) -> (PathBuf, PathBuf) {
    (directory.join(format!("{name}.crt")), directory.join(format!("{name}.key")))
}

fn generate(name: &str) -> anyhow::Result<(String, String)> {
    let mut params = params(&format!("transponder {name}"), &[], AUTHORITY_VALIDITY)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let pair = KeyPair::generate()?;
    Ok((params.self_signed(&pair)?.pem(), pair.serialize_pem()))
}

/// Whether a text can be the name of a server: an address, or a DNS name, whose first label may be a `*`.
fn is_name(text: &str) -> bool {
    rustls::pki_types::ServerName::try_from(text.strip_prefix("*.").unwrap_or(text)).is_ok()
}

pub(super) fn check_names(names: &[String]) -> anyhow::Result<()> {
    if let Some(bad) = names.iter().find(|name| !is_name(name)) {
        bail!("'{bad}' is neither a DNS name nor an address");
    }
    Ok(())
}

fn params(common_name: &str, names: &[String], validity: Duration) -> anyhow::Result<CertificateParams> {
    check_names(names)?;
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, common_name);
    let now = SystemTime::now();
    params.not_before = (now - BACKDATE).into();
    params.not_after = (now + validity).into();
    Ok(params)
}
