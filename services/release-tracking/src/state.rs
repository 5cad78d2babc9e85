//! Where a release stands.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a release stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its pull request is open.
    Expected,
    /// Its pull request is merged; a sync is awaited.
    Merged,
    /// A sync has begun.
    Progressing,
    /// The outcome that finished last is a success.
    Succeeded,
    /// The observation that finished last is a failure.
    Failed,
    /// Merged or begun, and then silence.
    Unreported,
    /// A later release of its stream was seen first.
    Superseded,
    /// Its pull request was closed without a merge.
    Closed,
}

/// How long a record is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Something is still awaited.
    Open,
    /// The release has ended.
    Ended,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Expected,
        Self::Merged,
        Self::Progressing,
        Self::Succeeded,
        Self::Failed,
        Self::Unreported,
        Self::Superseded,
        Self::Closed,
    ];

    /// The word for it, in the store, in metrics and for the operator.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expected => "expected",
            Self::Merged => "merged",
            Self::Progressing => "progressing",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Unreported => "unreported",
            Self::Superseded => "superseded",
            Self::Closed => "closed",
        }
    }

    /// Reads the word.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// How long a record in this state is kept.
    #[must_use]
    pub fn lifetime(self) -> Lifetime {
        match self {
            Self::Expected | Self::Merged | Self::Progressing | Self::Unreported => Lifetime::Open,
            Self::Succeeded | Self::Failed | Self::Superseded | Self::Closed => Lifetime::Ended,
        }
    }

    /// Whether the first observation of another release of the stream ends the wait for this one.
    #[must_use]
    pub fn can_be_superseded(self) -> bool {
        matches!(self, Self::Merged | Self::Progressing | Self::Unreported)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_reads_back_from_its_word_alone() {
        for state in State::ALL {
            assert_eq!(State::parse(state.as_str()), Some(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
        assert_eq!(State::parse("Merged"), None);
    }
}
