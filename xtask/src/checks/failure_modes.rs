//! `docs/failure-modes.md` names a test for each thing that can go wrong: those tests must exist.

use std::{collections::BTreeSet, fs};

use anyhow::{Context as _, Result};

use super::{Context, nothing, tree};
use crate::report::Outcome;

const DOCUMENT: &str = "docs/failure-modes.md";

/// Every test that the document names is a function somewhere in the repository.
pub(super) fn tests_exist(context: &Context<'_>) -> Result<Outcome> {
    let text = fs::read_to_string(context.root.join(DOCUMENT)).with_context(|| format!("read {DOCUMENT}"))?;
    let named = named_tests(&text);
    if named.is_empty() {
        return nothing(vec![format!("{DOCUMENT} has no table with a column `Test` that names any")]);
    }
    let mut functions = BTreeSet::new();
    for file in tree::files(context.root, "rs")? {
        functions.extend(functions_of(&fs::read_to_string(&file)?));
    }
    let missing = named.into_iter().filter(|(_, test)| !functions.contains(last(test)));
    nothing(missing.map(|(line, test)| format!("{DOCUMENT}:{line}: there is no test `{test}`")).collect())
}

/// What stands in backticks in the columns headed `Test` or `Tests`, each with the number of its line.
fn named_tests(text: &str) -> Vec<(usize, String)> {
    let mut named = Vec::new();
    let mut column = None;
    for (index, line) in text.lines().enumerate() {
        if !line.trim_start().starts_with('|') {
            column = None;
            continue;
        }
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let head = cells.iter().position(|cell| matches!(cell.to_lowercase().as_str(), "test" | "tests"));
        column = column.or(head);
        if let (None, Some(cell)) = (head, column.and_then(|at: usize| cells.get(at))) {
            named.extend(cell.split('`').skip(1).step_by(2).map(|test| (index + 1, test.to_owned())));
        }
    }
    named
}

/// A test may be named with its suite or module in front: `crash::nothing_is_lost`.
fn last(test: &str) -> &str {
    test.rsplit("::").next().unwrap_or(test)
}

fn functions_of(source: &str) -> impl Iterator<Item = String> {
    source
        .split("fn ")
        .skip(1)
        .map(|rest| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_read_from_the_column_that_names_them_and_from_no_other() {
        let text = "| What | Holds | Test |\n|---|---|---|\n| `x` | `y` | `a_b`, `edge::c` |\n\nText `no`.\n| a | b |\n| `no` | `no` |\n";
        assert_eq!(named_tests(text), [(3, "a_b".to_owned()), (3, "edge::c".to_owned())]);
        assert_eq!(last("edge::c"), "c");
    }

    #[test]
    fn functions_are_found_by_their_names() {
        let source = "async fn one() {}\n    fn two<T>() {}";
        assert_eq!(functions_of(source).collect::<Vec<_>>(), ["one", "two"]);
    }
}
