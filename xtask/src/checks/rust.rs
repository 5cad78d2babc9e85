//! rustfmt, clippy and rustdoc over the workspace.

use std::{process::Command, time::Duration};

use anyhow::Result;

use super::Context;
use crate::{command, report::Outcome, workspace};

/// Enough to compile everything from nothing on two busy cores.
const LIMIT: Duration = Duration::from_secs(40 * 60);

pub(super) fn format(context: &Context<'_>) -> Result<Outcome> {
    passes(
        workspace::cargo(context.root).args(["fmt", "--all", "--check", "--", "--color", "never"]),
        "rustfmt",
    )
}

pub(super) fn clippy(context: &Context<'_>) -> Result<Outcome> {
    let mut clippy = workspace::cargo(context.root);
    clippy.args(["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]);
    passes(&mut clippy, "clippy")
}

pub(super) fn doc(context: &Context<'_>) -> Result<Outcome> {
    let mut doc = workspace::cargo(context.root);
    doc.args(["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings");
    passes(&mut doc, "rustdoc")
}

fn passes(program: &mut Command, name: &str) -> Result<Outcome> {
    let finished = command::merged(program, name, LIMIT)?;
    Ok(if finished.success() { Outcome::Passed } else { Outcome::Failed(finished.text()) })
}
