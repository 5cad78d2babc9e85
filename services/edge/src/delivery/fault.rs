//! Whose fault a failed call is: the event's, which is dead at once, or anybody else's, which is tried again.

use std::time::Duration;

use tonic::{Code, Status};
use transponder_runtime::error::PeerFailure;

/// Whose fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// The event's: it would fail for ever.
    Event,
    /// Ours or the target's.
    Ours,
}

/// A failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub whose: Whose,
    /// A fixed code for the receipt.
    pub code: &'static str,
    /// The peer's words, for the operator.
    pub message: String,
    /// How long it asks to wait.
    pub retry_after: Option<Duration>,
}

impl Failure {
    pub(super) fn ours(code: &'static str, message: impl Into<String>) -> Self {
        Self { whose: Whose::Ours, code, message: message.into(), retry_after: None }
    }

    /// Whether the failure says anything of the target: not if the event is wrong, our own store could not be read, or
    /// the budget of one cluster or app namespace is spent there.
    pub(super) fn concerns_target(&self) -> bool {
        self.whose == Whose::Ours && !matches!(self.code, "store" | "exhausted")
    }

    pub(super) fn event(code: &'static str, message: impl Into<String>) -> Self {
        Self { whose: Whose::Event, code, message: message.into(), retry_after: None }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let peer = PeerFailure::from(&status);
        let (whose, code) = match peer.code {
            Code::InvalidArgument if peer.reason == "SPAN_REJECTED" => (Whose::Event, "rejected"),
            Code::InvalidArgument => (Whose::Event, "refused"),
            Code::Unavailable => (Whose::Ours, "unavailable"),
            Code::DeadlineExceeded | Code::Cancelled => (Whose::Ours, "timeout"),
            Code::FailedPrecondition => (Whose::Ours, "precondition"),
            Code::PermissionDenied | Code::Unauthenticated => (Whose::Ours, "denied"),
            Code::Unimplemented => (Whose::Ours, "unimplemented"),
            Code::ResourceExhausted => (Whose::Ours, "exhausted"),
            _ => (Whose::Ours, "internal"),
        };
        Self { whose, code, message: peer.message, retry_after: peer.retry_after }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_wrong_event_is_dead_at_once() {
        for code in (0..17).map(Code::from_i32).filter(|code| *code != Code::Ok) {
            let whose = if code == Code::InvalidArgument { Whose::Event } else { Whose::Ours };
            assert_eq!(Failure::from(Status::new(code, "")).whose, whose, "{code:?}");
        }
    }
}
