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
    // Programs and tests at once and always with `--workspace`, like every suite afterwards: any other choice of
    // packages and targets is another choice of features, and compiles the same crates again.
    let mut build = workspace::cargo(root);
    build.args([
        "build",
        "--workspace",
        "--lib",
        "--bins",
        "--tests",
        "--message-format=json-render-diagnostics",
    ]);
    let built = command::apart(&mut build, "build", LIMIT)?;
    products.extend(executables(&built.stdout));
    Ok(if built.success() { Outcome::Passed } else { Outcome::Failed(built.output) })
}

/// The products among cargo's messages, one JSON object per line.
fn executables(messages: &str) -> Vec<(&'static str, PathBuf)> {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let found = artifacts.filter_map(|message| {
        let path = message.get("executable")?.as_str()?;
        // A program's unit tests have its name, too.
        if message.get("profile")?.get("test")?.as_bool()? {
            return None;
        }
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
        let artifact = |name: &str, test: bool, executable: Value| {
            serde_json::json!({"target": {"name": name}, "profile": {"test": test}, "executable": executable})
                .to_string()
        };
        let messages = [
            artifact("xtask", false, "/t/xtask".into()),
            artifact("transponder", true, "/t/deps/transponder-1".into()),
            artifact("transponder", false, "/t/transponder".into()),
            artifact("transponder_core", false, Value::Null),
            "not json".to_owned(),
        ]
        .join("\n");
        assert_eq!(executables(&messages), [("TRANSPONDER_BIN", PathBuf::from("/t/transponder"))]);
    }
}
