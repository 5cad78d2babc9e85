//! Where an event goes, and how far it has come there.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One destination of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// The platform's broker, by the Forwarder. Gets every event.
    Broker,
    /// ReleaseTracking. Gets every observation of the two types.
    Tracking,
    /// DoraRecorder. Gets verdicts.
    Dora,
    /// OutcomeSpan. Gets outcomes.
    Span,
}

impl Target {
    /// All targets, in the order in which a receipt lists them.
    pub const ALL: [Self; 4] = [Self::Broker, Self::Tracking, Self::Dora, Self::Span];

    /// The target's name in receipts, metrics, logs and configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Broker => "broker",
            Self::Tracking => "tracking",
            Self::Dora => "dora",
            Self::Span => "span",
        }
    }

    /// Reads a target's name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.as_str() == text)
    }

    /// The state in which every event begins with this target.
    #[must_use]
    pub fn begins(self) -> TargetState {
        match self {
            Self::Broker | Self::Tracking => TargetState::Stored,
            Self::Dora | Self::Span => TargetState::Waiting,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How far an event has come with one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetState {
    /// Stored, to be sent as soon as there is room.
    Stored,
    /// Waiting for something other than the target: a verdict to settle, an anchor to be known.
    Waiting,
    /// The target has it.
    Delivered,
    /// Overtaken by another observation of its release; counted nowhere. DORA only.
    Replaced,
    /// Tried without success; will be tried again.
    Retrying,
    /// Given up. Can be replayed.
    Dead,
}

impl TargetState {
    /// The state's name in receipts and listings.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Waiting => "waiting",
            Self::Delivered => "delivered",
            Self::Replaced => "replaced",
            Self::Retrying => "retrying",
            Self::Dead => "dead",
        }
    }

    /// Reads a state's name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Stored, Self::Waiting, Self::Delivered, Self::Replaced, Self::Retrying, Self::Dead]
            .into_iter()
            .find(|state| state.as_str() == text)
    }

    /// Whether something is still to be done: neither final nor given up.
    #[must_use]
    pub fn is_open(self) -> bool {
        !self.is_final() && self != Self::Dead
    }

    /// Whether nothing more is to be done: delivered or replaced.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Delivered | Self::Replaced)
    }
}

impl fmt::Display for TargetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
