use std::{fs, path::PathBuf, time::Duration};

use rcgen::CertificateParams;
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
