//! The doctor and the start agree on what cannot be used, and the doctor on what the start does not say.

#![expect(clippy::unwrap_used, reason = "in a test an unexpected failure should panic")]

use std::{
    path::PathBuf,
    process::{Command, Output},
};

use tempfile::TempDir;

/// An installation with one cluster.
struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        let bench = Self(tempfile::tempdir().unwrap());
        assert!(bench.run(&["init", "i"], &[]).status.success());
        let add =
            ["cluster", "add", "upper", "--url", "https://127.0.0.1:8443", "--ca", "i/edge/edge-ca.crt"];
        assert!(bench.run(&add, &[]).status.success());
        bench
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.path().join("i").join(below)
    }

    fn run(&self, args: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_transponder"));
        let ours = |name: &str| name.starts_with("TRANSPONDER_") || name.starts_with("OTEL_");
        for (name, _) in std::env::vars().filter(|(name, _)| ours(name)) {
            command.env_remove(name);
        }
        if self.path("transponder.toml").exists() {
            command.env("TRANSPONDER_CONFIG", self.path("transponder.toml"));
        }
        command.args(args).envs(variables.iter().copied()).current_dir(self.0.path()).output().unwrap()
    }

    /// The doctor's exit code and report, without a look at what runs.
    fn doctor(&self, options: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
        let output = self.run(&[&["doctor", "--offline"], options].concat(), variables);
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    }
}

#[test]
fn what_the_start_refuses_the_doctor_names() {
    let bench = Bench::new();
    let (code, well) = bench.doctor(&[], &[]);
    assert!(code == Some(0) && well.contains("every key is known and every value fits"), "{well}");
    assert!(well.contains("upper: entry, URL and token are in order"), "{well}");
    for (service, setting, expected) in [
        ("forwarder", "forwarder.broker_url=ftp://x", "forwarder.broker_url: 'ftp://x' must be an http or"),
        ("forwarder", "forwarder.broker_url=", "forwarder.broker_url: '' is no URL"),
        ("forwarder", "forwarder.broker_url=127.0.0.1:8080", "forwarder.broker_url: '127.0.0.1:8080' is no"),
        ("forwarder", "forwarder.ca_file=/nope", "forwarder.ca_file: '/nope' "),
        ("forwarder", "forwarder.timeout=0s", "forwarder.timeout: '0s' must be above zero"),
        ("forwarder", "log.filter=xx=yy", "log.filter: 'xx=yy' is no tracing filter"),
        ("forwarder", "traces.endpoint=collector:4317", "traces.endpoint: 'collector:4317' "),
        ("edge", "edge.data_directory=", "edge.data_directory: '' must be a path"),
        ("edge", "edge.delivery.call_timeout=0s", "edge.delivery.call_timeout: '0s' must be above zero"),
        ("edge", "edge.peers.forwarder=http://f:1", "'http://f:1' must be host:port, without 'http://'"),
        ("dora-recorder", "dora.data_directory=", "dora.data_directory: '' must be a path"),
        ("release-tracking", "release_tracking.data_directory=", "release_tracking.data_directory: '' must"),
        ("outcome-span", "outcome_span.release_tracking=rt", "outcome_span.release_tracking: 'rt' must be"),
        ("outcome-span", "outcome_span.file=", "outcome_span.file: '' must be a path"),
    ] {
        let (code, said) = bench.doctor(&["--set", setting], &[]);
        assert!(code == Some(1) && said.contains(expected), "{setting}: {said}");
        assert!(!said.contains("every value fits"), "{setting}: {said}");
        let start = bench.run(&[service, "--set", "admin.listen=127.0.0.1:0", "--set", setting], &[]);
        let said = String::from_utf8(start.stderr).unwrap();
        assert!(!start.status.success() && said.contains(expected), "{service} {setting}: {said}");
    }
}

#[test]
fn variables_of_the_shell_that_cannot_work_or_are_not_read_are_named() {
    let bench = Bench::new();
    let (code, said) = bench.doctor(&[], &[("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")]);
    assert!(code == Some(1) && said.contains("in this shell OTEL_EXPORTER_OTLP_PROTOCOL must be"), "{said}");
    let (code, said) = bench.doctor(&[], &[("TRANSPONDER_EDGE_LISTEN", "127.0.0.1:1")]);
    let expected = "TRANSPONDER_EDGE_LISTEN is not read: sections are parted by two underscores: TRANSPONDER_EDGE__LISTEN";
    assert!(code == Some(0) && said.contains(expected), "{said}");
}

#[test]
fn a_new_authority_of_the_edge_leaves_hooks_behind_and_the_doctor_says_so() {
    let bench = Bench::new();
    assert!(bench.run(&["edge-certs", "--directory", "i/edge", "--new-authority"], &[]).status.success());
    let (code, said) = bench.doctor(&[], &[]);
    assert!(code == Some(0) && said.contains("upper: hooks will not trust this edge"), "{said}");
    assert!(!said.contains("entry, URL and token are in order"), "{said}");
}

#[test]
fn a_data_file_that_is_none_is_named_by_doctor_and_start() {
    let bench = Bench::new();
    let file = bench.path("data/edge/outbox.db");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, [0xa5; 4096]).unwrap();
    let path = file.display().to_string();
    let (code, said) = bench.doctor(&[], &[]);
    assert!(code == Some(1) && said.contains(&format!("{path} is no SQLite database")), "{said}");
    let listen = ["--set", "admin.listen=127.0.0.1:0", "--set", "edge.listen=127.0.0.1:0"];
    let start = bench.run(&[&["edge"], &listen[..]].concat(), &[]);
    let said = String::from_utf8(start.stderr).unwrap();
    assert!(!start.status.success() && said.contains(&format!("{path}: file is not a database")), "{said}");
}

#[test]
fn services_that_were_not_asked_are_named_with_the_reason() {
    let bench = Bench::new();
    std::fs::remove_file(bench.path("mesh/edge.crt")).unwrap();
    // Port 1: nobody listens there, so that what else runs on this machine is not asked.
    let set = ["admin", "edge"].map(|section| format!("{section}.listen=127.0.0.1:1"));
    let output = bench.run(&["doctor", "--set", &set[0], "--set", &set[1]], &[]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.contains("forwarder, dora-recorder, release-tracking, outcome-span were not asked"),
        "{said}"
    );
    let neutral = "start 'transponder all', or the service whose admin.listen this is";
    assert!(said.contains(neutral), "{said}");
    let shell = "in this shell no OTEL_EXPORTER_OTLP_ENDPOINT is set";
    assert!(said.contains(shell), "{said}");
}
