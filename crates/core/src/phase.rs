//! The phase of a sync.

use std::fmt;

/// What one hook Job reports of a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Phase {
    /// The sync has begun (PreSync).
    Syncing,
    /// The sync and its hooks succeeded (PostSync).
    Succeeded,
    /// The sync failed (SyncFail).
    Failed,
}

impl Phase {
    /// Reads a phase as an event or a Task writes it; `Error` means the same as `Failed`.
    /// Unknown words are no phase, so they can never pass for a success.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Syncing" => Some(Self::Syncing),
            "Succeeded" => Some(Self::Succeeded),
            "Failed" | "Error" => Some(Self::Failed),
            _ => None,
        }
    }

    /// Whether the sync has ended.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        self != Self::Syncing
    }

    /// The phase as an event writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Syncing => "Syncing",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// The outcome that belongs to the phase.
    #[must_use]
    pub fn outcome(self) -> &'static str {
        match self {
            Self::Syncing => "in_progress",
            Self::Succeeded => "success",
            Self::Failed => "failure",
        }
    }

    /// The event type that belongs to the phase.
    #[must_use]
    pub fn event_type(self) -> &'static str {
        match self {
            Self::Syncing => "dev.cdevents.environment.deploying.0.1.0",
            Self::Succeeded | Self::Failed => "dev.cdevents.environment.deployed.0.1.0",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_word_is_never_a_success() {
        for word in ["", "success", "SUCCEEDED", "succeeded", "FAILURE", "Succeeded ", "Unknown"] {
            assert_eq!(Phase::parse(word), None, "{word}");
        }
        assert_eq!(Phase::parse("Error"), Some(Phase::Failed));
    }
}
