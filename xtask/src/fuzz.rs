//! `cargo xtask fuzz`: coverage-guided fuzzing on stable Rust.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result, ensure};

use crate::{report, workspace};

/// What makes rustc count which code an input reaches and what it is compared with. cargo-fuzz sets the same; it asks for a
/// nightly Rust only for the sanitizers, which safe code has little use for.
const FLAGS: &[&str] = &[
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// What `cargo xtask fuzz` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// What is fuzzed
    target: Target,
    /// For how many seconds
    #[arg(long, default_value_t = 60)]
    time: u64,
    /// Further arguments for libFuzzer, or the file of an input to be tried alone
    #[arg(last = true)]
    more: Vec<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Target {
    /// The event parser
    Event,
    /// The time parser
    Time,
    /// Retry-After, traceparent, durations
    Value,
    /// The edge's door: requests over TLS
    Door,
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Time => "time",
            Self::Value => "value",
            Self::Door => "door",
        }
    }
}

/// Builds the target and lets libFuzzer loose on it. Inputs that reach new code are kept in the cache, not in the tree.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let root = workspace::root()?;
    let name = arguments.target.name();
    let cache = workspace::cache_dir("transponder-fuzz");
    let program = build(&root, &cache, name)?;
    let (grown, artifacts) = (cache.join("corpus").join(name), cache.join("artifacts").join(name));
    for folder in [&grown, &artifacts] {
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    let temporary = tempfile::tempdir()?;
    let mut fuzzer = Command::new(program);
    // A file given is tried alone; else libFuzzer writes to the first folder and only reads the others.
    let alone = arguments.more.iter().any(|argument| !argument.starts_with('-'));
    if !alone {
        fuzzer.arg(&grown).arg(root.join("fuzz/corpus").join(name));
    }
    fuzzer
        .arg(format!("-dict={}", root.join("fuzz/dictionaries").join(format!("{name}.dict")).display()))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(format!("-max_total_time={}", arguments.time))
        .args(["-max_len=8192", "-timeout=25", "-print_final_stats=1"])
        .args(&arguments.more)
        .env("TMPDIR", temporary.path())
        .env("RUST_BACKTRACE", "1");
    let status = fuzzer.status().context("start the fuzzer")?;
    if status.success() {
        return Ok(ExitCode::SUCCESS);
    }
    report::line(&format!(
        "\n{name}: an input was not survived ({status}). It lies in {}. Once the fault is mended, put it into \
         fuzz/corpus/{name} under a name that says what it is: the tests try it from then on.",
        artifacts.display()
    ));
    Ok(ExitCode::FAILURE)
}

/// Builds in a folder of its own: with these flags nothing is shared with any other build. With a target triple, they
/// apply to what runs in the fuzzer, and not to build scripts, which could not be linked.
fn build(root: &Path, cache: &Path, name: &str) -> Result<PathBuf> {
    let target = cache.join("target");
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let bin = format!("fuzz-{name}");
    let status = workspace::cargo(root)
        .args([
            "build",
            "--profile",
            "fuzz",
            "-p",
            "transponder-fuzz",
            "--features",
            "libfuzzer",
            "--bin",
            &bin,
        ])
        .args(["--target", &triple, "--target-dir"])
        .arg(&target)
        .env("RUSTFLAGS", FLAGS.join(" "))
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()
        .context("start cargo")?;
    ensure!(status.success(), "the fuzz target cannot be built");
    Ok(target.join(triple).join("fuzz").join(bin))
}
