//! Certificates of our own making, for the demo and for operators without a certificate authority at hand.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, bail, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use transponder_core::ServiceName;
use transponder_runtime::tls;

use crate::files::{make_directory, read, write_private, write_public};

/// How long an authority is valid.
const AUTHORITY_VALIDITY: Duration = Duration::from_hours(10 * 365 * 24);
/// Allowance for clocks that go behind ours.
const BACKDATE: Duration = Duration::from_mins(5);

/// Names under which a certificate is good on the machine itself.
pub const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

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
        if !certificate.exists() && !key.exists() {
            make_directory(directory)?;
            let (certificate_pem, key_pem) = generate(name)?;
            write_private(&key, key_pem.as_bytes())?;
            write_public(&certificate, certificate_pem.as_bytes())?;
        }
        let certificate_pem = read(&certificate)?;
        let pair = KeyPair::from_pem(&read(&key)?)
            .with_context(|| format!("{} holds no private key", key.display()))?;
        let issuer = Issuer::from_ca_cert_pem(&certificate_pem, pair)
            .with_context(|| format!("{} is no certificate authority", certificate.display()))?;
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
fn names_of(certificate: &Path) -> Vec<String> {
    let chain = tls::load_certificates(certificate).unwrap_or_default();
    chain.first().and_then(|leaf| tls::facts(leaf).ok()).map(|facts| facts.names).unwrap_or_default()
}

fn paths(directory: &Path, name: &str) -> (PathBuf, PathBuf) {
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

fn params(common_name: &str, names: &[String], validity: Duration) -> anyhow::Result<CertificateParams> {
    if let Some(bad) = names.iter().find(|name| !is_name(name)) {
        bail!("'{bad}' is neither a DNS name nor an address");
    }
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, common_name);
    let now = SystemTime::now();
    params.not_before = (now - BACKDATE).into();
    params.not_after = (now + validity).into();
    Ok(params)
}

/// The identities of the mesh.
#[derive(Debug, Clone)]
pub struct MeshCertificates<'a> {
    /// Where they lie: `mesh.directory`.
    pub directory: &'a Path,
    /// The trust domain of their URI names.
    pub trust_domain: &'a str,
    /// Names of the services beside their own and the machine's.
    pub names: &'a [String],
    /// How long they are valid.
    pub validity: Duration,
    /// Whether to begin with a new authority; the one before stays trusted as `ca-previous.crt`.
    pub authority: Choice,
}

/// Which authority issues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The one that is there, or a new one if there is none.
    Existing,
    /// A new one.
    New,
}

impl MeshCertificates<'_> {
    /// Writes `ca.crt`, `ca.key` and the certificate and key of each service; answers for which names.
    ///
    /// # Errors
    /// When a name is none, or a file cannot be written.
    pub fn write(&self) -> anyhow::Result<Vec<Issued>> {
        if self.authority == Choice::New {
            retire(self.directory)?;
        }
        let authority = Authority::open(self.directory, "ca")?;
        let mut issued = Vec::new();
        for service in ServiceName::ALL {
            let names: Vec<String> = std::iter::once(service.as_str())
                .chain(LOCAL_NAMES)
                .map(str::to_owned)
                .chain(self.names.iter().cloned())
                .collect();
            let leaf = Leaf {
                common_name: service.as_str(),
                names: &names,
                uri: Some(service.spiffe_id(self.trust_domain)),
                validity: self.validity,
            };
            let written = authority.issue(self.directory, service.as_str(), &leaf);
            issued.push(written.with_context(|| format!("certificate of {service}"))?);
        }
        Ok(issued)
    }
}

/// Keeps the authority that issued what is in use as `ca-previous.crt`: both are trusted until all have changed over.
fn retire(directory: &Path) -> anyhow::Result<()> {
    let (certificate, key) = paths(directory, "ca");
    ensure!(certificate.exists(), "there is no {} to be followed by a new one", certificate.display());
    write_public(&directory.join("ca-previous.crt"), read(&certificate)?.as_bytes())?;
    for path in [key, certificate] {
        if path.exists() {
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}

/// Writes the certificate that hooks see: `edge.crt`, `edge.key`, and the authority they must trust, `edge-ca.crt`.
///
/// # Errors
/// When a name is none, or a file cannot be written.
pub fn write_edge(directory: &Path, names: &[String], validity: Duration) -> anyhow::Result<Issued> {
    let authority = Authority::open(directory, "edge-ca")?;
    let names: Vec<String> =
        LOCAL_NAMES.into_iter().map(str::to_owned).chain(names.iter().cloned()).collect();
    let leaf = Leaf { common_name: "transponder edge", names: &names, uri: None, validity };
    authority.issue(directory, "edge", &leaf)
}

#[cfg(test)]
mod tests {
    use transponder_runtime::{
        mesh::{self, MeshConfig},
        tls::{self, Usage},
    };

    use super::*;

    const YEAR: Duration = Duration::from_hours(365 * 24);

    fn mesh_in(directory: &Path, authority: Choice) -> MeshConfig {
        let trust_domain = "a.example";
        let names = ["edge.platform-system.svc".to_owned()];
        MeshCertificates { directory, trust_domain, names: &names, validity: YEAR, authority }
            .write()
            .unwrap();
        MeshConfig { trust_domain: trust_domain.into(), directory: directory.to_owned() }
    }

    #[test]
    fn the_services_accept_the_identities_that_are_written() {
        let directory = tempfile::tempdir().unwrap();
        let config = mesh_in(directory.path(), Choice::Existing);
        for service in ServiceName::ALL {
            let facts = mesh::check(service, &config).unwrap();
            assert!(facts.names.contains(&service.to_string()), "{facts:?}");
            assert!(facts.names.contains(&"edge.platform-system.svc".to_owned()), "{facts:?}");
        }
    }

    #[test]
    fn certificates_are_renewed_by_the_same_authority_and_a_new_one_leaves_the_old_trusted() {
        let directory = tempfile::tempdir().unwrap();
        let ca = directory.path().join("ca.crt");
        mesh_in(directory.path(), Choice::Existing);
        let first = read(&ca).unwrap();
        mesh_in(directory.path(), Choice::Existing);
        assert_eq!(read(&ca).unwrap(), first);
        let config = mesh_in(directory.path(), Choice::New);
        assert_ne!(read(&ca).unwrap(), first);
        assert_eq!(read(&directory.path().join("ca-previous.crt")).unwrap(), first);
        assert_eq!(config.ca_files().len(), 2);
        mesh::check(ServiceName::Edge, &config).unwrap();
    }

    #[test]
    fn a_renewed_certificate_keeps_its_names_and_gets_those_that_are_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let renew = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            write_edge(directory.path(), &names, YEAR).unwrap()
        };
        assert_eq!(renew(&["relay.example", "fd00::1"]).kept, Vec::<String>::new());
        let second = renew(&["Relay.example", "other.example"]);
        assert_eq!(second.kept, ["fd00::1"]);
        let third = renew(&[]);
        assert_eq!(third.kept, ["Relay.example", "other.example", "fd00::1"]);
        assert_eq!(third.names, names_of(&directory.path().join("edge.crt")));
        // The way to drop one: the certificate before is not there to keep it.
        fs::remove_file(directory.path().join("edge.crt")).unwrap();
        assert_eq!(renew(&["relay.example"]).names, ["localhost", "127.0.0.1", "::1", "relay.example"]);
    }

    #[test]
    fn the_edge_gets_a_certificate_for_the_names_it_is_called_by() {
        let directory = tempfile::tempdir().unwrap();
        write_edge(directory.path(), &["relay.example".into(), "10.1.2.3".into()], YEAR).unwrap();
        let file = |name: &str| directory.path().join(name);
        let (_, facts) = tls::load_pair(&file("edge.crt"), &file("edge.key"), Usage::Server).unwrap();
        assert_eq!(facts.names, ["localhost", "127.0.0.1", "::1", "relay.example", "10.1.2.3"]);
        assert!(facts.uris.is_empty());
    }
}
