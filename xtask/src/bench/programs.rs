//! Everything that is run, built or set up before the clock starts.

use std::{
    env,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::keys::Group;
use crate::{command, report, tools::Toolbox, workspace};

/// Enough to compile everything optimised from nothing on two busy cores.
const LIMIT: Duration = Duration::from_secs(60 * 60);

/// What measures the product on a Kubernetes API.
pub(super) const MEASURER: &str = "transponder-bench-kubernetes";

/// Where the programs are.
pub(super) struct Programs {
    pub(super) transponder: PathBuf,
    pub(super) bench: PathBuf,
    /// The static one, where it is measured.
    pub(super) hook: PathBuf,
    pub(super) wrk: PathBuf,
    pub(super) vegeta: PathBuf,
    /// The target directory.
    pub(super) target: PathBuf,
}

impl Programs {
    /// Builds, or finds as they were built before, and sets up what the groups need.
    pub(super) fn prepare(root: &Path, groups: &[Group], build: bool) -> Result<Self> {
        let toolbox = Toolbox::prepare(&["curl", "jq", "wrk", "vegeta"])?;
        let with_hook = groups.contains(&Group::Hook);
        let [transponder, bench] =
            if build { products(root)? } else { found(root, ["transponder", "transponder-bench"]) };
        let target =
            transponder.parent().and_then(Path::parent).context("no target directory")?.to_path_buf();
        let hook = match (with_hook, build) {
            (true, true) => hook(root, &target)?,
            _ => target.join(triple()).join("hook/transponder-hook"),
        };
        let tool = |name: &'static str| {
            let programs = toolbox.wait(name).map_err(anyhow::Error::msg)?;
            Ok::<_, anyhow::Error>(programs.first().context("no program")?.path.clone())
        };
        tool("curl")?;
        tool("jq")?;
        Ok(Self { transponder, bench, hook, wrk: tool("wrk")?, vegeta: tool("vegeta")?, target })
    }
}

fn products(root: &Path) -> Result<[PathBuf; 2]> {
    report::line("   …  building");
    // Not the whole workspace: the tests' features (named points to crash at) are not the product's.
    let messages = built(root, &["-p", "transponder", "-p", "transponder-bench", "--bins"])?;
    let program = |name: &str| executable(&messages, name).with_context(|| format!("no {name} was built"));
    Ok([program("transponder")?, program("transponder-bench")?])
}

/// The product, and apart from it, with the tests' features, what measures it on a Kubernetes API.
pub(super) fn on_kubernetes(root: &Path) -> Result<[PathBuf; 2]> {
    report::line("   …  building");
    let program = |package: &str, name: &str| {
        let messages = built(root, &["-p", package, "--bin", name])?;
        executable(&messages, name).with_context(|| format!("no {name} was built"))
    };
    Ok([program("transponder", "transponder")?, program("transponder-tests", MEASURER)?])
}

/// Builds packages as they are shipped, and answers cargo's messages.
fn built(root: &Path, packages: &[&str]) -> Result<String> {
    let mut build = workspace::cargo(root);
    build.args(["build", "--release"]).args(packages);
    build.arg("--message-format=json-render-diagnostics");
    command::succeed(&mut build, "build", LIMIT)
}

/// The programs of the last build.
pub(super) fn found(root: &Path, names: [&str; 2]) -> [PathBuf; 2] {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    names.map(|name| target.join("release").join(name))
}

fn triple() -> String {
    format!("{}-unknown-linux-gnu", env::consts::ARCH)
}

/// The hook as it is shipped: small and without a library.
fn hook(root: &Path, target: &Path) -> Result<PathBuf> {
    let mut build = workspace::cargo(root);
    build
        .args(["build", "--profile", "hook", "-p", "transponder-hook", "--bin", "transponder-hook"])
        .args(["--target", &triple(), "--message-format=json-render-diagnostics", "--target-dir"])
        .arg(target)
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    let messages = command::succeed(&mut build, "build of the hook", LIMIT)?;
    executable(&messages, "transponder-hook").context("no hook was built")
}

/// A program among cargo's messages, one JSON object per line.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut found = artifacts.filter_map(|message| {
        let path = message.get("executable")?.as_str()?.to_owned();
        (message.get("target")?.get("name")?.as_str()? == name).then(|| PathBuf::from(path))
    });
    found.next()
}
