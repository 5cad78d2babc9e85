//! Ways to send a span.

mod file;
mod grpc;
mod http;

use std::{fmt::Display, path::Path, time::Duration};

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest,
};
use rustls::RootCertStore;
use transponder_runtime::tls;

use crate::{Protocol, SettingError, Settings};

/// Longest time to connect, TLS included.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest text of a backend that is passed on.
const TEXT: usize = 1024;

/// Sends one request, once.
#[tonic::async_trait]
pub(crate) trait Exporter: Send + Sync {
    /// Returns when the backend has it.
    async fn export(&self, request: &ExportTraceServiceRequest) -> Result<Accepted, Failure>;
}

/// The backend has the span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// What it warned of; empty for nothing.
    pub(crate) warning: String,
}

/// The backend has not said that it has the span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It refused the span itself: no repetition helps.
    Rejected(String),
    /// It refuses us: somebody must mend a setting or a right first.
    Refused(String),
    /// It does not have it now.
    Later {
        message: String,
        retry_after: Option<Duration>,
        /// Whether OTLP's table lets it be repeated at once.
        repeat: bool,
    },
    /// The request went out, and what became of it is unknown.
    Unknown(String),
}

impl Failure {
    fn later(message: impl Into<String>, retry_after: Option<Duration>, repeat: bool) -> Self {
        Self::Later { message: message.into(), retry_after, repeat }
    }
}

/// The exporter that the settings ask for; `file` is where spans go without an endpoint.
pub(crate) fn build(settings: &Settings, file: &Path) -> Result<Box<dyn Exporter>, SettingError> {
    Ok(match (&settings.endpoint, settings.protocol) {
        (None, _) => Box::new(file::File::new(file)),
        (Some(endpoint), Protocol::Grpc) => Box::new(grpc::Grpc::new(endpoint, settings)?),
        (Some(endpoint), Protocol::HttpProtobuf) => Box::new(http::Http::new(endpoint, settings)?),
    })
}

impl Settings {
    /// Checks what only a look at the files that they name can tell. To be called within a runtime.
    ///
    /// # Errors
    /// Names the variable that cannot be used.
    pub fn check(&self) -> Result<(), SettingError> {
        build(self, Path::new("")).map(drop)
    }
}

/// A partial success (OTLP specification): rejected spans are a failure, a message without them a warning.
fn judge(partial: Option<ExportTracePartialSuccess>) -> Result<Accepted, Failure> {
    let partial = partial.unwrap_or_default();
    let message = shown(&partial.error_message);
    if partial.rejected_spans > 0 {
        let message = if message.is_empty() { "it gave no reason".to_owned() } else { message };
        return Err(Failure::Rejected(message));
    }
    Ok(Accepted { warning: message })
}

fn roots(settings: &Settings) -> Result<RootCertStore, SettingError> {
    match &settings.certificate {
        None => Ok(tls::system_roots()),
        Some(path) => tls::load_roots(std::slice::from_ref(path)).map_err(|e| wrong("CERTIFICATE", e)),
    }
}

/// The variable is named by its general name: which of the two forms was used makes no difference to the file.
fn wrong(suffix: &str, problem: impl Display) -> SettingError {
    SettingError { variable: format!("OTEL_EXPORTER_OTLP_{suffix}"), problem: problem.to_string() }
}

/// A backend's words, fit for a message: bounded, and without control characters.
fn shown(text: &str) -> String {
    let end = text.floor_char_boundary(TEXT.min(text.len()));
    text[..end].trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// An error and all its causes in one line, each once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.contains(&said) {
            text.extend([": ", &said]);
        }
        source = cause.source();
    }
    shown(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_certificate_file_that_cannot_be_used_is_named() {
        let endpoint = "https://backend".parse().map(crate::Endpoint::Base).unwrap();
        for protocol in [Protocol::Grpc, Protocol::HttpProtobuf] {
            let settings = Settings { endpoint: Some(endpoint.clone()), protocol, ..Settings::default() };
            assert_eq!(settings.check(), Ok(()));
            let error = Settings { certificate: Some("/nope".into()), ..settings }.check().unwrap_err();
            assert!(error.to_string().starts_with("OTEL_EXPORTER_OTLP_CERTIFICATE /nope: "), "{error}");
        }
    }

    fn judged(rejected_spans: i64, message: &str) -> Result<Accepted, Failure> {
        judge(Some(ExportTracePartialSuccess { rejected_spans, error_message: message.into() }))
    }

    #[test]
    fn rejected_spans_are_a_failure_and_a_mere_message_a_warning() {
        assert_eq!(judge(None), Ok(Accepted { warning: String::new() }));
        assert_eq!(judged(0, ""), Ok(Accepted { warning: String::new() }));
        assert_eq!(judged(0, "slow\ndown"), Ok(Accepted { warning: "slow down".into() }));
        assert_eq!(judged(1, "too old"), Err(Failure::Rejected("too old".into())));
        assert_eq!(judged(2, ""), Err(Failure::Rejected("it gave no reason".into())));
    }
}
