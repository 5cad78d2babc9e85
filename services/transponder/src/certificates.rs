//! Certificates of our own making, for the demo and for operators without a certificate authority at hand.

mod authority;

use std::{
    fs,
    path::{Path, PathBuf},
    slice,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use rustls::{
    CertificateError, RootCertStore,
    client::verify_server_cert_signed_by_trust_anchor,
    pki_types::{CertificateDer, UnixTime, pem::PemObject as _},
    server::ParsedCertificate,
};
use transponder_core::ServiceName;
use transponder_runtime::tls;

pub use authority::{Authority, Issued, Leaf};
use authority::{check_names, paths};

use crate::files::{read, write_public};

/// Names under which a certificate is good on the machine itself.
pub const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

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
    /// Whether to begin with a new authority; the one before stays trusted as `ca-previous.crt`, if it is still there.
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

/// What became of the trust in the authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Who trusted it before has nothing to do; or there was nobody.
    Kept,
    /// A new authority issues, and the one before is trusted as well.
    Both,
    /// A new authority issues, and who trusted the one before needs the new one.
    Lost,
}

/// What was written.
#[derive(Debug, Clone)]
pub struct Written {
    /// Each certificate, and for which names it is.
    pub issued: Vec<Issued>,
    /// What became of the trust in their authority.
    pub trust: Trust,
}

impl MeshCertificates<'_> {
    /// Writes `ca.crt`, `ca.key` and the certificate and key of each service.
    ///
    /// # Errors
    /// When a name is none, or a file cannot be written.
    pub fn write(&self) -> anyhow::Result<Written> {
        check_names(self.names)?;
        let services = ServiceName::ALL.map(|service| service.as_str());
        let previous = self.directory.join("ca-previous.crt");
        let trust = prepare(self.directory, "ca", &services, self.authority, Some(&previous))?;
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
        Ok(Written { issued, trust })
    }
}

/// Takes the authority that is not to issue any more out of the way, and says what that means for those who trust it.
/// With `previous` it stays trusted as that file until all have changed over; one of which only the key is left cannot.
fn prepare(
    directory: &Path,
    name: &str,
    leaves: &[&str],
    choice: Choice,
    previous: Option<&Path>,
) -> anyhow::Result<Trust> {
    let (certificate, key) = paths(directory, name);
    let gone = !certificate.exists() && !key.exists();
    let in_use = leaves.iter().any(|leaf| paths(directory, leaf).0.exists());
    if choice == Choice::Existing {
        return Ok(if gone && in_use { Trust::Lost } else { Trust::Kept });
    }
    // A directory in which nothing was ever issued is a mistyped one.
    ensure!(!gone || in_use, "there is no {} to be followed by a new one", certificate.display());
    let kept = previous.filter(|_| tls::load_certificates(&certificate).is_ok());
    if let Some(previous) = kept {
        write_public(previous, read(&certificate)?.as_bytes())?;
    }
    for path in [key, certificate] {
        if path.exists() {
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(if kept.is_some() { Trust::Both } else { Trust::Lost })
}

/// Writes the certificate that hooks see: `edge.crt`, `edge.key`, and the authority they must trust, `edge-ca.crt`.
///
/// # Errors
/// When a name is none, or a file cannot be written.
pub fn write_edge(
    directory: &Path,
    names: &[String],
    validity: Duration,
    choice: Choice,
) -> anyhow::Result<Written> {
    check_names(names)?;
    let trust = prepare(directory, "edge-ca", &["edge"], choice, None)?;
    let authority = Authority::open(directory, "edge-ca")?;
    let names: Vec<String> =
        LOCAL_NAMES.into_iter().map(str::to_owned).chain(names.iter().cloned()).collect();
    let leaf = Leaf { common_name: "transponder edge", names: &names, uri: None, validity };
    Ok(Written { issued: vec![authority.issue(directory, "edge", &leaf)?], trust })
}

/// The authority of our own making that signed the edge's certificate: no system knows it. `None` where the one that
/// lies beside the certificate did not.
#[must_use]
pub fn own_authority(edge_certificate: &Path) -> Option<PathBuf> {
    let authority = edge_certificate.with_file_name("edge-ca.crt");
    let roots = tls::load_roots(slice::from_ref(&authority)).ok()?;
    leads_to(edge_certificate, &roots)?.then_some(authority)
}

/// Whether the edge's certificate comes from one of the authorities of a PEM text, as a hook that is given them judges.
/// `None` where the certificate can be trusted by nobody: it cannot be read, or it is not its time.
#[must_use]
pub fn is_signed_by(edge_certificate: &Path, pem: &str) -> Option<bool> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem.as_bytes()).flatten());
    leads_to(edge_certificate, &roots)
}

fn leads_to(certificate: &Path, roots: &RootCertStore) -> Option<bool> {
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    let chain = tls::load_certificates(certificate).ok()?;
    let (leaf, intermediates) = chain.split_first()?;
    let leaf = ParsedCertificate::try_from(leaf).ok()?;
    let algorithms = tls::provider().signature_verification_algorithms.all;
    match verify_server_cert_signed_by_trust_anchor(&leaf, roots, intermediates, UnixTime::now(), algorithms)
    {
        Ok(()) => Some(true),
        Err(rustls::Error::InvalidCertificate(
            Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. },
        )) => None,
        Err(_) => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use transponder_runtime::{
        mesh::{self, MeshConfig},
        tls::{self, Usage},
    };

    use super::{authority::names_of, *};

    const DAY: Duration = Duration::from_hours(24);
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
            write_edge(directory.path(), &names, YEAR, Choice::Existing).unwrap().issued.remove(0)
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
    fn an_authority_of_which_a_part_is_lost_can_be_followed_by_a_new_one() {
        let everything = ["ca.crt", "ca.key"];
        let cases: [(&[&str], Trust); 3] = [
            (&["ca.crt"], Trust::Lost),
            // Its certificate is all that trusting it takes.
            (&["ca.key"], Trust::Both),
            (&everything, Trust::Lost),
        ];
        for (lost, expected) in cases {
            let directory = tempfile::tempdir().unwrap();
            let config = mesh_in(directory.path(), Choice::Existing);
            for file in lost {
                fs::remove_file(directory.path().join(file)).unwrap();
            }
            let set = |authority| MeshCertificates {
                directory: directory.path(),
                trust_domain: "a.example",
                names: &[],
                validity: YEAR,
                authority,
            };
            if lost.len() == 1 {
                let error = set(Choice::Existing).write().unwrap_err().to_string();
                assert!(error.contains(lost[0]) && error.contains("--new-authority"), "{error}");
            }
            assert_eq!(set(Choice::New).write().unwrap().trust, expected, "{lost:?}");
            mesh::check(ServiceName::Edge, &config).unwrap();
        }
    }

    #[test]
    fn a_bad_name_takes_no_authority_away() {
        let directory = tempfile::tempdir().unwrap();
        write_edge(directory.path(), &[], YEAR, Choice::Existing).unwrap();
        let ca = directory.path().join("edge-ca.crt");
        let before = read(&ca).unwrap();
        write_edge(directory.path(), &["no name!".into()], YEAR, Choice::New).unwrap_err();
        assert_eq!(read(&ca).unwrap(), before);
        let written = write_edge(directory.path(), &[], YEAR, Choice::New).unwrap();
        assert_eq!(written.trust, Trust::Lost);
        assert_ne!(read(&ca).unwrap(), before);
    }

    #[test]
    fn the_authority_beside_a_certificate_is_its_own_if_it_signed_it() {
        let (ours, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for directory in [&ours, &other] {
            write_edge(directory.path(), &[], YEAR, Choice::Existing).unwrap();
        }
        let (certificate, authority) = (ours.path().join("edge.crt"), ours.path().join("edge-ca.crt"));
        assert_eq!(own_authority(&certificate), Some(authority.clone()));
        // As when the platform's certificate takes the place of ours.
        fs::copy(other.path().join("edge.crt"), &certificate).unwrap();
        assert_eq!(own_authority(&certificate), None);
        fs::remove_file(authority).unwrap();
        assert_eq!(own_authority(&certificate), None);
    }

    #[test]
    fn a_certificate_is_signed_by_what_a_hook_is_given_or_not() {
        let directory = tempfile::tempdir().unwrap();
        write_edge(directory.path(), &[], YEAR, Choice::Existing).unwrap();
        let certificate = directory.path().join("edge.crt");
        let authority = read(&directory.path().join("edge-ca.crt")).unwrap();
        let mesh = tempfile::tempdir().unwrap();
        mesh_in(mesh.path(), Choice::Existing);
        let other = read(&mesh.path().join("ca.crt")).unwrap();
        assert_eq!(is_signed_by(&certificate, &authority), Some(true));
        assert_eq!(is_signed_by(&certificate, &format!("{other}{authority}")), Some(true));
        assert_eq!(is_signed_by(&certificate, &other), Some(false));
        assert_eq!(is_signed_by(&certificate, "no PEM"), Some(false));
        write_edge(directory.path(), &[], Duration::ZERO, Choice::Existing).unwrap();
        while is_signed_by(&certificate, &authority) == Some(true) {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(is_signed_by(&certificate, &authority), None, "out of its time");
        assert_eq!(is_signed_by(&directory.path().join("none.crt"), &authority), None);
    }

    #[test]
    fn a_clock_that_is_a_day_off_believes_what_was_issued_today() {
        let directory = tempfile::tempdir().unwrap();
        write_edge(directory.path(), &[], YEAR, Choice::Existing).unwrap();
        let file = |name: &str| directory.path().join(name);
        let roots = tls::load_roots(&[file("edge-ca.crt")]).unwrap();
        let chain = tls::load_certificates(&file("edge.crt")).unwrap();
        let leaf = ParsedCertificate::try_from(&chain[0]).unwrap();
        let algorithms = tls::provider().signature_verification_algorithms.all;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        for clock in [now - DAY, now, now + DAY] {
            let clock = UnixTime::since_unix_epoch(clock);
            verify_server_cert_signed_by_trust_anchor(&leaf, &roots, &[], clock, algorithms).unwrap();
        }
    }

    #[test]
    fn the_edge_gets_a_certificate_for_the_names_it_is_called_by() {
        let directory = tempfile::tempdir().unwrap();
        write_edge(directory.path(), &["relay.example".into(), "10.1.2.3".into()], YEAR, Choice::Existing)
            .unwrap();
        let file = |name: &str| directory.path().join(name);
        let (_, facts) = tls::load_pair(&file("edge.crt"), &file("edge.key"), Usage::Server).unwrap();
        assert_eq!(facts.names, ["localhost", "127.0.0.1", "::1", "relay.example", "10.1.2.3"]);
        assert!(facts.uris.is_empty());
    }
}
