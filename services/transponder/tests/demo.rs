//! The demo checks its own story; here it has to come out well.

use std::{process::Command, time::Instant};

#[test]
fn the_demo_ends_well_in_under_ten_seconds_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_transponder"))
        .args(["demo", "--exit"])
        // A tracing backend of the surroundings gets none of it.
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
        .env("TMPDIR", directory.path())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    assert!(started.elapsed().as_secs() < 10, "{:?}: {told}", started.elapsed());
    assert!(told.contains("expectations, all held") && !told.contains('✗'), "{told}");
    assert!(!told.contains('\x1b'), "no colour in a pipe: {told}");
    for part in ["curl -sS --cacert", "grpcurl -cacert", "dora_deployments_total{…} 2", "state unreported"]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(directory.path().read_dir().unwrap().count(), 0, "the demo's directory goes away");
}

#[test]
fn the_demo_fails_and_says_where_when_something_does_not_come_out_as_it_should() {
    let output = Command::new(env!("CARGO_BIN_EXE_transponder"))
        // The events of the story are larger.
        .args(["demo", "--exit", "--set", "edge.body_limit=600B"])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("expectations did not hold") && told.contains("expected 202, got 413"), "{told}");
}
