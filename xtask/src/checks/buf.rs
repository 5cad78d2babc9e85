//! What buf says of the contract in `proto/`.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Result;

use super::Context;
use crate::{command as process, report::Outcome, tools::Toolbox};

/// The image of the contract as it was last released.
pub(crate) const BASELINE: &str = "proto/baseline.binpb";
/// buf takes a second or two.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Where buf is, or why it cannot be had.
pub(crate) fn program(toolbox: &Toolbox) -> Result<PathBuf, String> {
    let programs = toolbox.wait("buf")?;
    programs.into_iter().next().map(|program| program.path).ok_or_else(|| "buf has no program".to_owned())
}

/// buf at the root of the workspace.
pub(crate) fn command(buf: &Path, root: &Path) -> Command {
    let mut command = Command::new(buf);
    command.current_dir(root);
    command
}

pub(super) fn lint(context: &Context<'_>) -> Result<Outcome> {
    says_nothing(context, &["lint"])
}

pub(super) fn format(context: &Context<'_>) -> Result<Outcome> {
    says_nothing(context, &["format", "--diff", "--exit-code"])
}

pub(super) fn breaking(context: &Context<'_>) -> Result<Outcome> {
    says_nothing(context, &["breaking", "--against", BASELINE])
}

fn says_nothing(context: &Context<'_>, arguments: &[&str]) -> Result<Outcome> {
    let buf = match program(context.toolbox) {
        Ok(buf) => buf,
        Err(reason) => return Ok(Outcome::Skipped(reason)),
    };
    let finished = process::merged(command(&buf, context.root).args(arguments), "buf", LIMIT)?;
    Ok(if finished.success() { Outcome::Passed } else { Outcome::Failed(finished.text()) })
}
