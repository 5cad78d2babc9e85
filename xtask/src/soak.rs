//! `cargo xtask soak`: the suite's kills at random moments, as many as wanted.

use std::{
    io::{BufRead as _, BufReader},
    process::{ExitCode, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};

use crate::{report, workspace};

/// Where the product keeps its state in a soak.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Store {
    /// One process on its own files.
    Embedded,
    /// Replicas of each service on a Kubernetes API, which is killed as well.
    Kubernetes,
}

impl Store {
    /// The suite, and the test of it that is run.
    fn test(self) -> (&'static str, &'static str) {
        match self {
            Self::Embedded => ("crash", "kills_at_random_moments_lose_double_and_invent_nothing"),
            Self::Kubernetes => (
                "kubernetes_replicas",
                "whatever_is_killed_each_event_arrives_each_release_counts_once_and_each_outcome_has_one_span",
            ),
        }
    }
}

/// What `cargo xtask soak` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How often the mesh is killed while events come in
    #[arg(long, default_value_t = 200)]
    kills: usize,
    /// How many events are sent at least, however soon the kills are done
    #[arg(long, default_value_t = 0)]
    events: usize,
    /// What the product stands on
    #[arg(long, value_enum, default_value_t = Store::Embedded)]
    store: Store,
}

/// Builds optimised, runs the test with its output shown, and repeats at the end what it came to.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let root = workspace::root()?;
    let (suite, name) = arguments.store.test();
    // Packages by name: the product as it is shipped, without the named points to crash at, which this test does not need.
    for packages in [
        &["build", "--release", "-p", "transponder", "-p", "transponder-hook", "--bins"][..],
        &["test", "--release", "-p", "transponder-tests", "--test", suite, "--no-run"],
    ] {
        let built = workspace::cargo(&root).args(packages).status().context("start cargo")?;
        ensure!(built.success(), "the build failed");
    }
    let started = Instant::now();
    let mut test = workspace::cargo(&root);
    test.args([
        "test",
        "--release",
        "-p",
        "transponder-tests",
        "--test",
        suite,
        "--",
        "--exact",
        name,
        "--nocapture",
    ]);
    test.env("TRANSPONDER_SOAK_KILLS", arguments.kills.to_string());
    test.env("TRANSPONDER_SOAK_EVENTS", arguments.events.to_string());
    let mut child = test.stdout(Stdio::piped()).spawn().context("start cargo")?;
    let stdout = child.stdout.take().context("its output is a pipe")?;
    let mut told = Vec::new();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        report::line(&line);
        if line.contains(" kills, ") || line.starts_with("broker: ") || line.contains(" disturbances, ") {
            told.push(line);
        }
    }
    let passed = child.wait()?.success() && !told.is_empty();
    let verdict = if passed { "soak passed" } else { "soak FAILED" };
    report::line(&format!("\n{verdict} in {}: {}", report::duration(started.elapsed()), told.join("; ")));
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
