//! Why an outcome was not reported.

use std::fmt;

/// One fault of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable} {what}")]
pub struct Problem {
    /// What is to be mended: a variable, or a key of the Secret.
    pub variable: String,
    /// What is wrong with it. Never a secret value.
    pub what: String,
}

impl Problem {
    /// Names a fault.
    #[must_use]
    pub fn new(variable: impl Into<String>, what: impl Into<String>) -> Self {
        Self { variable: variable.into(), what: what.into() }
    }
}

/// Why an outcome was not reported.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is wrong. All faults that can be seen at once are named.
    #[error("wrong configuration: {}", List(.0))]
    Configuration(Vec<Problem>),
    /// The deadline is over, or too near for another attempt.
    #[error("no attempt more fits into the deadline of {total:?}; last: {last}")]
    Deadline {
        /// The whole deadline, from process start.
        total: std::time::Duration,
        /// What stood in the way last.
        last: String,
    },
    /// The answer will not change by asking again.
    #[error("{0}")]
    Final(String),
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Self::Configuration(vec![problem])
    }
}

struct List<'a>(&'a [Problem]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            write!(f, "{}{problem}", if at == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}
