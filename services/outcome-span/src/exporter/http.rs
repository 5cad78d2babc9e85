//! OTLP/HTTP with protobuf.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode, header};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message as _;
use reqwest::{Client, Response, redirect};
use rustls::ClientConfig;
use rustls_pki_types::{PrivateKeyDer, pem::PemObject as _};
use serde_json::Value;
use transponder_runtime::{retry_after, tls};
use url::Url;

use super::{Accepted, CONNECT, Exporter, Failure, chain, judge, roots, shown, wrong};
use crate::{Endpoint, SettingError, Settings};

const PROTOBUF: &str = "application/x-protobuf";
/// How much of an answer is read.
const BODY: usize = 64 * 1024;

/// A backend that speaks HTTP.
pub(super) struct Http {
    client: Client,
    url: Url,
    headers: HeaderMap,
}

impl Http {
    pub(super) fn new(endpoint: &Endpoint, settings: &Settings) -> Result<Self, SettingError> {
        let client = Client::builder()
            .tls_backend_preconfigured(client_config(settings)?)
            .no_proxy()
            .redirect(redirect::Policy::none())
            .referer(false)
            .retry(reqwest::retry::never())
            .user_agent(concat!("transponder-outcome-span/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            // An idle connection that the backend closes just as it is used would leave the end of a send unknown, and
            // that costs the span a wait. Spans are few; each has a connection of its own.
            .pool_max_idle_per_host(0)
            .build()
            .map_err(|e| wrong("ENDPOINT", chain(&e)))?;
        Ok(Self { client, url: endpoint.http_url(), headers: settings.headers.clone() })
    }
}

fn client_config(settings: &Settings) -> Result<ClientConfig, SettingError> {
    let builder = ClientConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()
        .map_err(|e| wrong("CERTIFICATE", e))?
        .with_root_certificates(roots(settings)?);
    let Some((certificate, key)) = &settings.client_identity else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = tls::load_certificates(certificate).map_err(|e| wrong("CLIENT_CERTIFICATE", e))?;
    let key = PrivateKeyDer::from_pem_file(key)
        .map_err(|e| wrong("CLIENT_KEY", format!("{}: {e}", key.display())))?;
    builder.with_client_auth_cert(chain, key).map_err(|e| wrong("CLIENT_CERTIFICATE", e))
}

#[tonic::async_trait]
impl Exporter for Http {
    async fn export(&self, request: &ExportTraceServiceRequest) -> Result<Accepted, Failure> {
        let sending = self
            .client
            .post(self.url.clone())
            .headers(self.headers.clone())
            .header(header::CONTENT_TYPE, PROTOBUF)
            .body(request.encode_to_vec())
            .send();
        let response = match sending.await {
            Ok(response) => response,
            Err(error) if error.is_connect() => {
                let error = chain(&error.without_url());
                let message = format!("the tracing backend cannot be reached: {error}");
                return Err(Failure::later(message, None, true));
            }
            Err(error) => return Err(broke(error)),
        };
        let status = response.status();
        let text = |name| {
            let value = response.headers().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let kind = text(header::CONTENT_TYPE);
        let delay = retry_after::parse(&text(header::RETRY_AFTER), SystemTime::now());
        match (status.is_success(), read(response).await) {
            (true, Ok(body)) => accepted(status, &kind, &body),
            // A success of which the half is missing may be a partial one.
            (true, Err(error)) => Err(broke(error)),
            (false, body) => Err(refused(status, &kind, &body.unwrap_or_default(), delay)),
        }
    }
}

fn broke(error: reqwest::Error) -> Failure {
    Failure::Unknown(format!("the connection to the tracing backend broke: {}", chain(&error.without_url())))
}

/// The body, as far as it is read.
async fn read(mut response: Response) -> Result<Vec<u8>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        let room = BODY - body.len();
        body.extend_from_slice(&chunk[..room.min(chunk.len())]);
        if body.len() == BODY {
            break;
        }
    }
    Ok(body)
}

/// A success must read like one of OTLP: any page of any server is a 200.
fn accepted(status: StatusCode, kind: &str, body: &[u8]) -> Result<Accepted, Failure> {
    let no_otlp = || {
        let message =
            format!("the tracing backend answered {status} with what is not OTLP; is the URL right?");
        Err(Failure::Refused(message))
    };
    if body.is_empty() {
        return judge(None);
    }
    if kind.starts_with("application/json") {
        return match serde_json::from_slice::<Value>(body) {
            Ok(Value::Object(response)) => judge(response.get("partialSuccess").map(partial)),
            _ => no_otlp(),
        };
    }
    if !kind.is_empty() && !kind.starts_with(PROTOBUF) {
        return no_otlp();
    }
    match ExportTraceServiceResponse::decode(body) {
        Ok(response) => judge(response.partial_success),
        Err(_) => no_otlp(),
    }
}

/// `partialSuccess` of OTLP/JSON, where a 64-bit number may be text.
fn partial(value: &Value) -> ExportTracePartialSuccess {
    let rejected = &value["rejectedSpans"];
    let rejected = rejected.as_i64().or_else(|| rejected.as_str().and_then(|text| text.parse().ok()));
    let message = value["errorMessage"].as_str().unwrap_or_default();
    ExportTracePartialSuccess {
        rejected_spans: rejected.unwrap_or_default(),
        error_message: message.to_owned(),
    }
}

/// What an answer other than a success means: the table of the OTLP specification, "OTLP/HTTP response", and for what
/// that does not let us repeat, whose fault it is.
fn refused(status: StatusCode, kind: &str, body: &[u8], retry_after: Option<Duration>) -> Failure {
    let said = said(kind, body);
    let message = match said.as_str() {
        "" => format!("the tracing backend answered {status}"),
        text => format!("the tracing backend answered {status}: {text}"),
    };
    match status.as_u16() {
        429 | 503 => Failure::later(message, retry_after, true),
        // A gateway gave up on a request that it had passed on.
        502 | 504 => Failure::Unknown(message),
        400 | 413 | 422 => Failure::Rejected(if said.is_empty() { message } else { said }),
        408 | 425 | 500..=599 => Failure::later(message, retry_after, false),
        _ => Failure::Refused(message),
    }
}

/// The backend's own message: a `google.rpc.Status`, or plain text.
fn said(kind: &str, body: &[u8]) -> String {
    if kind.starts_with(PROTOBUF) {
        return tonic_types::Status::decode(body).map(|status| shown(&status.message)).unwrap_or_default();
    }
    if kind.starts_with("application/json") {
        let message = serde_json::from_slice::<Value>(body).ok();
        return message.and_then(|value| Some(shown(value["message"].as_str()?))).unwrap_or_default();
    }
    if kind.starts_with("text/plain") { shown(&String::from_utf8_lossy(body)) } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_one_meaning() {
        for (code, expected) in [
            (429, "repeat"),
            (503, "repeat"),
            (502, "unknown"),
            (504, "unknown"),
            (400, "rejected"),
            (413, "rejected"),
            (422, "rejected"),
            (408, "later"),
            (500, "later"),
            (301, "refused"),
            (401, "refused"),
            (403, "refused"),
            (404, "refused"),
            (405, "refused"),
            (415, "refused"),
        ] {
            let status = StatusCode::from_u16(code).unwrap();
            let text = match refused(status, "text/plain", b"why\n", Some(Duration::from_secs(3))) {
                Failure::Later { repeat, retry_after, message } => {
                    assert!(message.ends_with(": why"), "{message}");
                    assert_eq!(retry_after, Some(Duration::from_secs(3)));
                    if repeat { "repeat" } else { "later" }
                }
                Failure::Unknown(_) => "unknown",
                Failure::Rejected(message) => {
                    assert_eq!(message, "why");
                    "rejected"
                }
                Failure::Refused(_) => "refused",
            };
            assert_eq!(text, expected, "{code}");
        }
    }

    #[test]
    fn a_success_must_be_one_of_otlp() {
        let status = StatusCode::OK;
        let partial = |rejected_spans, message: &str| {
            let partial = ExportTracePartialSuccess { rejected_spans, error_message: message.into() };
            ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec()
        };
        let warned = |text: &str| Ok(Accepted { warning: text.into() });
        let rejected = |text: &str| Err(Failure::Rejected(text.into()));
        for (kind, body, expected) in [
            ("", vec![], warned("")),
            ("text/html", vec![], warned("")),
            (PROTOBUF, partial(0, "w"), warned("w")),
            (PROTOBUF, partial(1, "r"), rejected("r")),
            ("application/json", b"{}".to_vec(), warned("")),
            (
                "application/json",
                br#"{"partialSuccess":{"rejectedSpans":"1","errorMessage":"r"}}"#.to_vec(),
                rejected("r"),
            ),
            ("application/json", br#"{"partialSuccess":{"errorMessage":"w"}}"#.to_vec(), warned("w")),
        ] {
            assert_eq!(accepted(status, kind, &body), expected, "{kind}");
        }
        for (kind, body) in
            [("text/html", "<html>"), (PROTOBUF, "<html>"), ("application/json", "[]"), ("text/plain", "ok")]
        {
            assert!(matches!(accepted(status, kind, body.as_bytes()), Err(Failure::Refused(_))), "{kind}");
        }
    }

    #[test]
    fn the_backends_own_message_is_found() {
        let status = tonic_types::Status { message: "no tenant".into(), ..Default::default() };
        assert_eq!(said(PROTOBUF, &status.encode_to_vec()), "no tenant");
        assert_eq!(said("application/json", br#"{"code":3,"message":"no tenant"}"#), "no tenant");
        assert_eq!(said("text/plain; charset=utf-8", b" no\ntenant "), "no tenant");
        assert_eq!(said("text/html", b"<html>"), "");
    }
}
