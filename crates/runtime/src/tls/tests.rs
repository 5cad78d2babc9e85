use std::{fs, path::PathBuf, time::Duration};

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyUsagePurpose};
use tempfile::TempDir;
use transponder_core::ServiceName;

use super::*;
use crate::fixture::Authority;

/// An edge's pair in a directory of its own.
struct Pair(TempDir);

impl Pair {
    fn new(change: impl FnOnce(&mut CertificateParams)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Authority::new().issue(directory.path(), ServiceName::Edge, change);
        Self(directory)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn load(&self) -> Result<(), String> {
        load_pair(&self.file("edge.crt"), &self.file("edge.key"), Usage::Server)
            .map(drop)
            .map_err(|e| e.to_string())
    }
}

#[test]
fn a_certificate_that_no_server_may_use_is_refused() {
    Pair::new(|_| ()).load().unwrap();
    Pair::new(|params| params.key_usages.clear()).load().unwrap();
    let error = Pair::new(|params| params.key_usages = vec![KeyUsagePurpose::KeyCertSign]).load();
    assert!(error.unwrap_err().ends_with("must allow digital signatures in its key usage"));
    let authority = Pair::new(|params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages.push(KeyUsagePurpose::KeyCertSign);
    });
    let error = authority.load().unwrap_err();
    assert!(error.contains("CA:TRUE"), "{error}");
}

#[test]
fn every_certificate_of_a_chain_must_be_one() {
    let pair = Pair::new(|_| ());
    let good = fs::read_to_string(pair.file("edge.crt")).unwrap();
    let chain = |second: &str| {
        fs::write(pair.file("edge.crt"), format!("{good}{second}")).unwrap();
        pair.load()
    };
    chain(&Authority::new().pem).unwrap();
    let error = chain("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap_err();
    assert!(
        error.ends_with("edge.crt: has a certificate, number 2, that is not an X.509 certificate"),
        "{error}"
    );
}

#[test]
fn a_file_that_is_no_pem_is_described_in_words_and_nothing_of_it_is_quoted() {
    let pair = Pair::new(|_| ());
    let good = fs::read_to_string(pair.file("edge.key")).unwrap();
    let secret = good.lines().nth(1).unwrap();
    let joined = good.replace('\n', "");
    for (key, expected) in [
        ("", "holds no private key"),
        (&good[..good.len() / 2], "is cut off: a '-----BEGIN' line has no '-----END' line"),
        (&joined, "is cut off: a '-----BEGIN' line has no '-----END' line"),
        (&format!("-----BEGIN PRIVATE KEY-----{secret}"), "does not end in '-----'"),
        (&good.replace(secret, "no base64!"), "that is not base64"),
    ] {
        fs::write(pair.file("edge.key"), key).unwrap();
        let error = pair.load().unwrap_err();
        assert!(error.contains(expected), "{error}");
        let as_bytes = format!("{:?}", &secret.as_bytes()[..8]);
        let as_bytes = as_bytes.trim_matches(['[', ']']);
        assert!(!error.contains(&secret[..8]) && !error.contains(as_bytes), "{error}");
    }
}

#[test]
fn a_fifo_or_device_in_the_place_of_a_certificate_is_refused_at_once() {
    let pair = Pair::new(|_| ());
    let path = pair.file("edge.crt");
    fs::remove_file(&path).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let fifo = path.clone();
    std::thread::spawn(move || {
        sender.send((load_certificates(&fifo), load_certificates(Path::new("/dev/null"))))
    });
    let (fifo, device) = receiver.recv_timeout(Duration::from_secs(10)).expect("an answer");
    for loaded in [fifo, device] {
        let error = loaded.unwrap_err().to_string();
        assert!(error.ends_with("cannot be read: it is no regular file"), "{error}");
    }
}

#[test]
fn a_certificate_out_of_its_time_says_so_as_times_are_written_elsewhere() {
    let pair = Pair::new(|params| {
        (params.not_before, params.not_after) =
            (rcgen::date_time_ymd(2024, 1, 2), rcgen::date_time_ymd(2025, 10, 26));
    });
    let error = pair.load().unwrap_err();
    let expected = "is not valid now, but from 2024-01-02T00:00:00Z to 2025-10-26T00:00:00Z";
    assert!(error.ends_with(expected), "{error}");
}
