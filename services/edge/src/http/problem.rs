//! Errors as `application/problem+json` (RFC 9457). The one table from what went wrong to an HTTP status.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use serde_json::json;

/// What is wrong with a request, or with us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Problem {
    /// The event breaks the contract; names the field.
    Event { field: String, reason: String },
    /// No, a malformed or a wrong token, or no such cluster: one answer for all.
    Unauthorized,
    /// The cluster may not report for this app namespace.
    AppNamespace(String),
    /// There is nothing at this path.
    NotFound,
    /// The path knows only these methods.
    Method { allow: &'static str },
    /// The body did not arrive in time.
    Timeout,
    /// The same source and id were used for something else.
    Conflict,
    /// The body is larger than this many bytes.
    TooLarge { limit: u64 },
    /// The body takes more room in the store than there is for one.
    TooLargeToStore { bytes: u64, limit: u64 },
    /// The content type or encoding is not taken.
    MediaType(&'static str),
    /// The cluster's own budget is spent.
    Budget { what: &'static str, retry_after: Duration },
    /// We cannot decide or store.
    Unavailable(&'static str),
}

/// How long to wait when we cannot say better.
const RETRY: Duration = Duration::from_secs(2);

impl Problem {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Event { .. } => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::AppNamespace(_) => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Method { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::Timeout => StatusCode::REQUEST_TIMEOUT,
            Self::Conflict => StatusCode::CONFLICT,
            Self::TooLarge { .. } | Self::TooLargeToStore { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::MediaType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Budget { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::Event { field, reason } => format!("{field} {reason}"),
            Self::Unauthorized => "a valid relay token of this cluster is required".into(),
            Self::AppNamespace(namespace) => format!("this cluster may not report for {namespace}"),
            Self::NotFound => "there is nothing here".into(),
            Self::Method { allow } => format!("this path allows {allow}"),
            Self::Timeout => "the body did not arrive in time".into(),
            Self::Conflict => {
                "an event with this source and id is stored that reports another release, type or phase"
                    .into()
            }
            Self::TooLarge { limit } => format!("an event has at most {limit} bytes"),
            Self::TooLargeToStore { bytes, limit } => {
                format!(
                    "the event takes {bytes} bytes where it is stored, for its characters are escaped there; it may take {limit}"
                )
            }
            Self::MediaType(what) => (*what).into(),
            Self::Budget { what, .. } => format!("this cluster's budget is spent: {what}"),
            Self::Unavailable(what) => (*what).into(),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Budget { retry_after, .. } => Some(*retry_after),
            Self::Unavailable(_) => Some(RETRY),
            _ => None,
        }
    }

    /// The answer.
    pub(crate) fn into_response(self) -> Response<Full<Bytes>> {
        let status = self.status();
        let mut body = json!({
            "type": "about:blank",
            "title": status.canonical_reason().unwrap_or_default(),
            "status": status.as_u16(),
            "detail": self.detail(),
        });
        match &self {
            Self::Event { field, .. } => body["field"] = json!(field),
            Self::TooLarge { limit } => body["limit"] = json!(limit),
            _ => {}
        }
        let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(delay) = self.retry_after() {
            // Whole seconds, and never zero: an eager client would come back at once.
            let seconds = delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        match self {
            Self::Method { allow } => drop(headers.insert(header::ALLOW, HeaderValue::from_static(allow))),
            Self::Unauthorized => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}

impl From<transponder_core::EventError> for Problem {
    fn from(error: transponder_core::EventError) -> Self {
        Self::Event { field: error.field, reason: error.reason }
    }
}
