//! The steps of `cargo xtask test` that are no tests: each looks at the whole tree and counts as one.

pub(crate) mod buf;
mod dependencies;
mod documents;
mod failure_modes;
mod permissions;
mod rust;
mod tree;

use std::path::Path;

use anyhow::Result;

use crate::{report::Outcome, tools::Toolbox};

/// What a check may use.
pub(crate) struct Context<'a> {
    /// The root of the workspace.
    pub(crate) root: &'a Path,
    /// The tools that were prepared.
    pub(crate) toolbox: &'a Toolbox,
}

/// One check.
pub(crate) struct Check {
    /// Its name for `--suite`.
    pub(crate) name: &'static str,
    /// The tools it needs.
    pub(crate) tools: &'static [&'static str],
    /// Does it.
    pub(crate) run: fn(&Context<'_>) -> Result<Outcome>,
}

/// All checks, quick ones first.
pub(crate) const CHECKS: &[Check] = &[
    Check { name: "rustfmt", tools: &[], run: rust::format },
    Check { name: "dependency-reasons", tools: &[], run: dependencies::reasons },
    Check { name: "licences", tools: &[], run: dependencies::licences },
    Check { name: "duplicates", tools: &[], run: dependencies::duplicates },
    Check { name: "links", tools: &[], run: documents::links },
    Check { name: "failure-modes", tools: &[], run: failure_modes::tests_exist },
    Check { name: "permissions", tools: &[], run: permissions::table_is_true },
    Check { name: "buf-lint", tools: &["buf"], run: buf::lint },
    Check { name: "buf-format", tools: &["buf"], run: buf::format },
    Check { name: "buf-breaking", tools: &["buf"], run: buf::breaking },
    Check { name: "clippy", tools: &[], run: rust::clippy },
    Check { name: "rustdoc", tools: &[], run: rust::doc },
];

/// Passed when there is nothing to complain about.
fn nothing(complaints: Vec<String>) -> Result<Outcome> {
    Ok(if complaints.is_empty() { Outcome::Passed } else { Outcome::Failed(complaints.join("\n")) })
}
