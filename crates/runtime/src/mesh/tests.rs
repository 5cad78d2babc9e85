use std::fs;

use rcgen::{BasicConstraints, IsCa, KeyUsagePurpose};

use super::*;
use crate::fixture::Authority;

const EDGE: ServiceName = ServiceName::Edge;

/// A mesh directory with the edge's identity.
struct Directory {
    held: tempfile::TempDir,
    config: MeshConfig,
    authority: Authority,
}

impl Directory {
    fn new() -> Self {
        let held = tempfile::tempdir().unwrap();
        let config = MeshConfig { directory: held.path().to_owned(), ..MeshConfig::default() };
        let this = Self { held, config, authority: Authority::new() };
        this.put("ca.crt", &this.authority.pem);
        this.authority.issue(this.held.path(), EDGE, |_| ());
        this
    }

    fn put(&self, name: &str, content: &str) {
        fs::write(self.held.path().join(name), content).unwrap();
    }

    fn check(&self) -> Result<(), String> {
        check(EDGE, &self.config).map(drop).map_err(|e| e.problem)
    }
}

const STRANGER: &str = "was issued by none of the authorities that are trusted (ca.crt, ca-previous.crt)";

#[test]
fn a_pair_that_the_trusted_authorities_did_not_issue_is_refused() {
    let directory = Directory::new();
    directory.check().unwrap();
    let other = Authority::new();
    other.issue(directory.held.path(), EDGE, |_| ());
    assert_eq!(directory.check().unwrap_err(), STRANGER);
    directory.authority.issue(directory.held.path(), EDGE, |_| ());
    directory.check().unwrap();
    directory.put("ca.crt", &other.pem);
    assert_eq!(directory.check().unwrap_err(), STRANGER);
}

#[test]
fn while_an_authority_is_replaced_pairs_of_both_are_good() {
    let directory = Directory::new();
    let next = Authority::new();
    directory.put("ca-previous.crt", &directory.authority.pem);
    directory.check().unwrap();
    directory.put("ca.crt", &next.pem);
    directory.check().unwrap();
    next.issue(directory.held.path(), EDGE, |_| ());
    directory.check().unwrap();
    fs::remove_file(directory.held.path().join("ca-previous.crt")).unwrap();
    directory.check().unwrap();
}

#[test]
fn an_identity_that_may_not_sign_or_is_an_authority_is_refused() {
    let directory = Directory::new();
    directory.authority.issue(directory.held.path(), EDGE, |params| {
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    });
    assert_eq!(directory.check().unwrap_err(), "must allow digital signatures in its key usage");
    directory.authority.issue(directory.held.path(), EDGE, |params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    });
    let error = directory.check().unwrap_err();
    assert!(error.contains("CA:TRUE"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pair_that_no_peer_believes_leaves_the_last_good_one_until_the_files_fit_again() {
    let directory = Directory::new();
    let context = Context::new();
    let identity = MeshIdentity::load(EDGE, &directory.config, &context).unwrap();
    let (metrics, first) = (context.certificates.clone(), identity.server());
    let next = Authority::new();
    next.issue(directory.held.path(), EDGE, |_| ());
    identity.reload(&metrics, "mesh/edge");
    assert!(Arc::ptr_eq(&identity.server(), &first), "the last good one stays");
    directory.put("ca.crt", &next.pem);
    directory.put("ca-previous.crt", &directory.authority.pem);
    identity.reload(&metrics, "mesh/edge");
    assert!(!Arc::ptr_eq(&identity.server(), &first), "the whole set is taken over");
    context.shutdown.begin();
}

#[test]
fn a_fault_of_a_certificate_is_news_once_until_it_changes_or_is_mended() {
    let metrics = Context::new().certificates;
    let fault = |problem: &str| TlsError { path: "edge.crt".into(), problem: problem.into() };
    assert!(metrics.failed("edge", &fault("expired")));
    assert!(!metrics.failed("edge", &fault("expired")));
    assert!(metrics.failed("mesh/edge", &fault("expired")));
    assert!(metrics.failed("edge", &fault("cut off")));
    metrics.works("edge");
    assert!(metrics.failed("edge", &fault("cut off")));
}
