//! What was found.

use serde::Serialize;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// As it should be.
    Fine,
    /// Works, and deserves a look.
    Doubtful,
    /// Does not work.
    Wrong,
}

/// One finding.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// Which part it concerns.
    pub(super) area: &'static str,
    /// What is so.
    pub(super) what: String,
    /// Where.
    pub(super) at: String,
    /// How to mend it; empty when there is nothing to mend.
    pub(super) mend: String,
}

/// All findings, in the order of the checks.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<Finding>);

impl Findings {
    pub(super) fn fine(&mut self, area: &'static str, what: impl Into<String>, at: impl ToString) {
        self.add(Level::Fine, area, what.into(), at.to_string(), String::new());
    }

    pub(super) fn doubtful(&mut self, area: &'static str, what: &str, at: impl ToString, mend: &str) {
        self.add(Level::Doubtful, area, what.to_owned(), at.to_string(), mend.to_owned());
    }

    pub(super) fn wrong(&mut self, area: &'static str, what: &str, at: impl ToString, mend: &str) {
        self.add(Level::Wrong, area, what.to_owned(), at.to_string(), mend.to_owned());
    }

    pub(super) fn all(&self) -> &[Finding] {
        &self.0
    }

    pub(super) fn worst(&self) -> Level {
        self.0.iter().map(|finding| finding.level).max().unwrap_or(Level::Fine)
    }

    fn add(&mut self, level: Level, area: &'static str, what: String, at: String, mend: String) {
        self.0.push(Finding { level, area, what, at, mend });
    }
}
