//! One place turns what went wrong into a gRPC status.

use std::{collections::HashMap, time::Duration};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};
use transponder_proto::convert::FieldError;

/// The `domain` of `google.rpc.ErrorInfo`.
pub const DOMAIN: &str = "transponder";

/// A failure as a client may read it. What only the log may read stays with the error it was made from.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}", .0.message)]
pub struct Fault(Box<Parts>);

#[derive(Debug, Clone)]
struct Parts {
    code: Code,
    message: String,
    field: Option<FieldError>,
    reason: Option<&'static str>,
    metadata: HashMap<String, String>,
    retry_after: Option<Duration>,
}

impl Fault {
    fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(Parts {
            code,
            message: message.into(),
            field: None,
            reason: None,
            metadata: HashMap::new(),
            retry_after: None,
        }))
    }

    /// The request is wrong, whoever sends it and when.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// The caller gave no proof of who it is, or a wrong one.
    #[must_use]
    pub fn unauthenticated(message: impl Into<String>) -> Self {
        Self::new(Code::Unauthenticated, message)
    }

    /// The caller may not do this.
    #[must_use]
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(Code::PermissionDenied, message)
    }

    /// There is no such thing.
    #[must_use]
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    /// Something must be put right by an operator first.
    #[must_use]
    pub fn precondition(message: impl Into<String>) -> Self {
        Self::new(Code::FailedPrecondition, message)
    }

    /// A budget is spent.
    #[must_use]
    pub fn exhausted(message: impl Into<String>) -> Self {
        Self::new(Code::ResourceExhausted, message)
    }

    /// We, or what we depend on, cannot do it now.
    #[must_use]
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Code::Unavailable, message)
    }

    /// With `ErrorInfo`: a fixed reason in UPPER_SNAKE_CASE.
    #[must_use]
    pub fn reason(mut self, reason: &'static str) -> Self {
        self.0.reason = Some(reason);
        self
    }

    /// With an entry of `ErrorInfo.metadata`.
    #[must_use]
    pub fn metadata(mut self, name: &str, value: impl ToString) -> Self {
        self.0.metadata.insert(name.to_owned(), value.to_string());
        self
    }

    /// With `RetryInfo`.
    #[must_use]
    pub fn retry_after(mut self, delay: Option<Duration>) -> Self {
        self.0.retry_after = delay;
        self
    }
}

impl From<FieldError> for Fault {
    fn from(field: FieldError) -> Self {
        let mut fault = Self::invalid(field.to_string());
        fault.0.field = Some(field);
        fault
    }
}

impl From<Fault> for Status {
    fn from(Fault(fault): Fault) -> Self {
        let mut details = ErrorDetails::new();
        if let Some(field) = &fault.field {
            details.add_bad_request_violation(&field.field, &field.reason);
        }
        if let Some(reason) = fault.reason {
            details.set_error_info(reason, DOMAIN, fault.metadata);
        }
        if let Some(delay) = fault.retry_after {
            details.set_retry_info(Some(delay));
        }
        Self::with_error_details(fault.code, fault.message, details)
    }
}

/// What a peer's status says of a failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerFailure {
    /// Canonical code.
    pub code: Code,
    /// The peer's words.
    pub message: String,
    /// `ErrorInfo.reason`, empty when there is none.
    pub reason: String,
    /// `RetryInfo`.
    pub retry_after: Option<Duration>,
}

impl From<&Status> for PeerFailure {
    fn from(status: &Status) -> Self {
        let details = status.get_error_details();
        Self {
            code: status.code(),
            message: status.message().to_owned(),
            reason: details.error_info().map(|info| info.reason.clone()).unwrap_or_default(),
            retry_after: details.retry_info().and_then(|info| info.retry_delay),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_reads_what_a_fault_says() {
        let fault =
            Fault::unavailable("busy").reason("BROKER_STATUS").retry_after(Some(Duration::from_secs(7)));
        let read = PeerFailure::from(&Status::from(fault));
        assert_eq!((read.code, read.retry_after), (Code::Unavailable, Some(Duration::from_secs(7))));
        assert_eq!((read.message.as_str(), read.reason.as_str()), ("busy", "BROKER_STATUS"));
    }

    #[test]
    fn a_wrong_field_is_named_in_the_details() {
        let status = Status::from(Fault::from(FieldError::required("release.env")));
        let details = status.get_error_details();
        assert_eq!(status.message(), "release.env is required");
        assert_eq!(details.bad_request().unwrap().field_violations[0].field, "release.env");
    }
}
