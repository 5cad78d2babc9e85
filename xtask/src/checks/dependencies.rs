//! What the workspace may depend on.

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::{Context as _, Result};
use serde_json::Value;
use spdx::{Expression, ParseMode};

use super::{Context, nothing};
use crate::{command, report::Outcome, workspace};

/// Licences that ask for no more than their notice, and MPL-2.0, which asks for the changes to its own files.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Two versions of these do not understand each other's types, or are two TLS stacks in one process.
const ONCE: &[&str] = &["tonic", "prost", "rustls", "opentelemetry"];

/// ring is the only TLS provider: the others need a C library of the system, or cmake and minutes of build.
const BANNED: &[&str] = &["openssl", "openssl-sys", "native-tls", "aws-lc-rs", "aws-lc-sys"];

/// Every dependency's licence is one that is allowed.
pub(super) fn licences(context: &Context<'_>) -> Result<Outcome> {
    let mut complaints = Vec::new();
    for package in packages(context)? {
        let text = |key: &str| package.get(key).and_then(Value::as_str).unwrap_or_default();
        if let Err(reason) = licence(text("license")) {
            complaints.push(format!("{} {}: {reason}", text("name"), text("version")));
        }
    }
    nothing(complaints)
}

/// One version of what must exist once, and none of what must not exist at all.
pub(super) fn duplicates(context: &Context<'_>) -> Result<Outcome> {
    let lock = fs::read_to_string(context.root.join("Cargo.lock")).context("read Cargo.lock")?;
    let mut versions = BTreeMap::<&str, usize>::new();
    for name in lock.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')) {
        *versions.entry(name).or_default() += 1;
    }
    let count = |name: &&&str| versions.get(**name).copied().unwrap_or_default();
    let twice =
        ONCE.iter().filter(|name| count(name) > 1).map(|name| format!("{name}: more than one version"));
    let banned = BANNED.iter().filter(|name| count(name) > 0).map(|name| format!("{name}: must not be here"));
    nothing(twice.chain(banned).collect())
}

/// Every dependency of the workspace says why it is there.
pub(super) fn reasons(context: &Context<'_>) -> Result<Outcome> {
    let manifest = fs::read_to_string(context.root.join("Cargo.toml")).context("read Cargo.toml")?;
    nothing(
        without_reason(&manifest).into_iter().map(|line| format!("no reason in a comment: {line}")).collect(),
    )
}

fn packages(context: &Context<'_>) -> Result<Vec<Value>> {
    let mut metadata = workspace::cargo(context.root);
    metadata.args(["metadata", "--format-version", "1", "--locked"]);
    let text = command::succeed(&mut metadata, "cargo metadata", Duration::from_secs(300))?;
    let mut parsed: Value = serde_json::from_str(&text).context("read what cargo metadata wrote")?;
    match parsed.get_mut("packages").map(Value::take) {
        Some(Value::Array(packages)) => Ok(packages),
        _ => anyhow::bail!("cargo metadata lists no packages"),
    }
}

fn licence(expression: &str) -> Result<(), String> {
    if expression.is_empty() {
        return Err("no licence expression".to_owned());
    }
    // Lax: older packages write `MIT/Apache-2.0`.
    let parsed =
        Expression::parse_mode(expression, ParseMode::LAX).map_err(|error| error.reason.to_string())?;
    let allowed =
        parsed.evaluate(|requirement| requirement.license.id().is_some_and(|id| ALLOWED.contains(&id.name)));
    if allowed { Ok(()) } else { Err(format!("`{expression}` is not allowed")) }
}

/// Lines of `[workspace.dependencies]` that name a package of a registry and no reason.
fn without_reason(manifest: &str) -> Vec<&str> {
    manifest
        .lines()
        .skip_while(|line| line.trim() != "[workspace.dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter(|line| line.contains(" = ") && !line.starts_with('#') && !line.contains("path = "))
        .filter(|line| line.split_once(" # ").is_none_or(|(_, reason)| reason.trim().is_empty()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_passes_when_one_allowed_way_through_it_exists() {
        assert_eq!(licence("MIT/Apache-2.0"), Ok(()));
        assert_eq!(licence("GPL-3.0-only OR MIT"), Ok(()));
        assert_eq!(licence("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT"), Ok(()));
        assert_eq!(licence("Apache-2.0 AND ISC"), Ok(()));
        assert!(licence("GPL-3.0-only AND MIT").is_err());
        assert!(licence("").is_err());
        assert!(licence("Ours").is_err());
    }

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let manifest = "[workspace.dependencies]\nours = { path = \"x\" }\na = \"1\" # because of that\n\
                        b = \"1\"\nc = \"1\" # \n\n[profile.dev]\nd = \"1\"\n";
        assert_eq!(without_reason(manifest), ["b = \"1\"", "c = \"1\" # "]);
    }
}
