//! What the receiver can answer, and how each protocol says it.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use prost::Message as _;
use tonic::{Code, Status, body::Body};
use tonic_types::{ErrorDetails, StatusExt as _};

/// What the receiver does with one export.
#[derive(Clone, Debug, Default)]
pub enum OtlpReply {
    /// Stores the spans.
    #[default]
    Accept,
    /// Stores the spans and says this (a partial success with nothing rejected).
    Warn(String),
    /// Rejects so many spans, for this reason (a partial success). Stores none.
    Reject(i64, String),
    /// Fails with this code, and when to come back: `RetryInfo` over gRPC, `Retry-After` over HTTP.
    Fail(Code, String, Option<Duration>),
    /// Answers this HTTP status with nothing else, as a proxy in between would, over gRPC too.
    Http(StatusCode),
    /// Stores the spans, and says so this much later.
    Slow(Duration),
    /// Reads and never answers. Stores nothing.
    Hang,
    /// Closes the connection when the head of the request has arrived.
    CutBeforeReading,
    /// Stores the spans, then closes the connection without an answer.
    CutAfterReading,
}

impl OtlpReply {
    /// UNAVAILABLE over gRPC, 503 over HTTP.
    #[must_use]
    pub fn unavailable(retry_after: Option<Duration>) -> Self {
        Self::Fail(Code::Unavailable, "come back later".to_owned(), retry_after)
    }

    /// Whether the backend has the spans afterwards.
    pub(super) fn stores(&self) -> bool {
        matches!(self, Self::Accept | Self::Warn(_) | Self::Slow(_) | Self::CutAfterReading)
    }

    /// The answer in gRPC's terms.
    pub(super) fn result(&self) -> Result<ExportTraceServiceResponse, Status> {
        let partial = |rejected_spans, error_message: &str| ExportTracePartialSuccess {
            rejected_spans,
            error_message: error_message.to_owned(),
        };
        let partial_success = match self {
            Self::Warn(message) => Some(partial(0, message)),
            Self::Reject(spans, message) => Some(partial(*spans, message)),
            Self::Fail(code, message, None) => return Err(Status::new(*code, message)),
            Self::Fail(code, message, retry_after) => {
                let details = ErrorDetails::with_retry_info(*retry_after);
                return Err(Status::with_error_details(*code, message, details));
            }
            _ => None,
        };
        Ok(ExportTraceServiceResponse { partial_success })
    }
}

/// The answer over HTTP: the message of OTLP, or a `google.rpc.Status` with the status code that goes with it.
pub(super) fn http(reply: &OtlpReply, result: Result<ExportTraceServiceResponse, Status>) -> Response<Body> {
    if let OtlpReply::Http(status) = reply {
        return bare(*status);
    }
    let (code, body) = match result {
        Ok(message) => (StatusCode::OK, message.encode_to_vec()),
        Err(status) => {
            let message = tonic_types::Status {
                code: status.code().into(),
                message: status.message().to_owned(),
                details: Vec::new(),
            };
            (http_status(status.code()), message.encode_to_vec())
        }
    };
    let mut response = Response::builder().status(code).header("content-type", "application/x-protobuf");
    if let OtlpReply::Fail(_, _, Some(after)) = reply {
        response = response.header("retry-after", after.as_secs());
    }
    response.body(Body::new(Full::new(Bytes::from(body)))).expect("status and headers are valid")
}

/// A status and nothing else.
pub(super) fn bare(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn http_status(code: Code) -> StatusCode {
    match code {
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
