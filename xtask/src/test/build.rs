//! Builds what the suites run: the product's programs and the tests themselves.

use std::{path::Path, path::PathBuf, time::Duration};

use anyhow::Result;
use serde_json::Value;

use crate::{command, report::Outcome, workspace};

/// Enough to compile everything from nothing on two busy cores.
const LIMIT: Duration = Duration::from_secs(40 * 60);

/// The product's programs, each with the variable by which tests find it.
const PRODUCTS: &[(&str, &str)] =
    &[("transponder", "TRANSPONDER_BIN"), ("transponder-hook", "TRANSPONDER_HOOK_BIN")];

/// Builds all programs and all tests. The products found are added to `products`, with their variables.
pub(super) fn run(root: &Path, products: &mut Vec<(&'static str, PathBuf)>) -> Result<Outcome> {
    // Always with `--workspace`: choosing packages would choose other features, and compile everything twice.
    let mut build = workspace::cargo(root);
    build.args(["build", "--workspace", "--bins", "--message-format=json-render-diagnostics"]);
    let built = command::apart(&mut build, "build", LIMIT)?;
    products.extend(executables(&built.stdout));
    if !built.success() {
        return Ok(Outcome::Failed(built.output));
    }
    let mut tests = workspace::cargo(root);
    tests.args(["test", "--workspace", "--lib", "--bins", "--tests", "--no-run", "--quiet"]);
    let built = command::merged(&mut tests, "build of the tests", LIMIT)?;
    Ok(if built.success() { Outcome::Passed } else { Outcome::Failed(built.text()) })
}

/// The products among cargo's messages, one JSON object per line.
fn executables(messages: &str) -> Vec<(&'static str, PathBuf)> {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let found = artifacts.filter_map(|message| {
        let path = message.get("executable")?.as_str()?;
        let name = message.get("target")?.get("name")?.as_str()?;
        let (_, variable) = PRODUCTS.iter().find(|(product, _)| *product == name)?;
        Some((*variable, PathBuf::from(path)))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_found_among_what_cargo_says() {
        let messages = "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"xtask\"},\"executable\":\"/t/xtask\"}\n\
            {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"transponder\"},\"executable\":\"/t/transponder\"}\n\
            {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"transponder_core\"},\"executable\":null}\nnot json";
        assert_eq!(executables(messages), [("TRANSPONDER_BIN", PathBuf::from("/t/transponder"))]);
    }
}
