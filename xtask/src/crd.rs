//! `cargo xtask crd`: the definitions of the custom resources, as the program prints them, in a file of the repository.

use std::{fs, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result};

use crate::{command, report, workspace};

/// Where they are kept for those who apply files.
const FILE: &str = "deploy/kubernetes/crds.yaml";

/// Enough to compile the product from nothing on two busy cores.
const LIMIT: Duration = Duration::from_secs(40 * 60);

/// Writes the file. A unit test of the product fails while it differs.
pub(crate) fn run() -> Result<ExitCode> {
    let root = workspace::root()?;
    let mut print = workspace::cargo(&root);
    print.args(["run", "--quiet", "-p", "transponder", "--", "manifests", "crds"]);
    let definitions = command::succeed(&mut print, "transponder manifests crds", LIMIT)?;
    fs::write(root.join(FILE), definitions).with_context(|| format!("write {FILE}"))?;
    report::line(&format!("wrote {FILE}"));
    Ok(ExitCode::SUCCESS)
}
