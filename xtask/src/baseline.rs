//! `cargo xtask baseline`: the image of the released contract that `buf breaking` compares with.

use std::{fs, path::Path, process::ExitCode};

use anyhow::{Context as _, Result, bail};

use crate::{checks::buf, command, report, tools::Toolbox, workspace};

/// What `cargo xtask baseline` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The version being released: that of the workspace, with a heading of its own in CHANGELOG.md. Left out only
    /// while there is no baseline yet
    #[arg(long)]
    release: Option<String>,
}

/// Writes the baseline. An existing one is replaced only by a release: comparing with anything newer than what
/// callers run would let a breaking change through in two steps.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let root = workspace::root()?;
    match &arguments.release {
        Some(version) => must_be_released(&root, version)?,
        None if root.join(buf::BASELINE).exists() => {
            bail!("{} exists; it changes only with a release (--release VERSION)", buf::BASELINE)
        }
        None => {}
    }
    let buf = buf::program(&Toolbox::prepare(&["buf"])?).map_err(anyhow::Error::msg)?;
    let mut build = buf::command(&buf, &root);
    build.args(["build", "--exclude-source-info", "-o", buf::BASELINE]);
    command::succeed(&mut build, "buf build", buf::LIMIT)?;
    report::line(&format!("wrote {}", buf::BASELINE));
    Ok(ExitCode::SUCCESS)
}

fn must_be_released(root: &Path, version: &str) -> Result<()> {
    let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
    if !manifest.lines().any(|line| line == format!("version = \"{version}\"")) {
        bail!("the workspace's version is not {version}");
    }
    let changes = fs::read_to_string(root.join("CHANGELOG.md")).context("read CHANGELOG.md")?;
    let heading = |line: &str| line.starts_with("## ") && line.contains(version);
    if !changes.lines().any(heading) {
        bail!("CHANGELOG.md has no heading for {version}");
    }
    Ok(())
}
