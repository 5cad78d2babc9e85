//! From an outcome to its span. Pure.
//!
//! Names of attributes are those of the OpenTelemetry semantic conventions where these have one, and `platform.…`
//! elsewhere.

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value},
    resource::v1::Resource,
    trace::v1::{
        ResourceSpans, ScopeSpans, Span, Status,
        span::{Link, SpanKind},
        status::StatusCode,
    },
};
use sha2::{Digest as _, Sha256};
use transponder_core::{EventKey, Phase, Stream, Timestamp};
use transponder_runtime::trace::TraceContext;
use url::Url;

/// The version of the semantic conventions that the attribute names come from.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.37.0";
/// Longest attribute value in bytes: backends cut at 2 KiB.
const VALUE: usize = 2047;
/// `SpanFlags`: sampled, and known not to have a remote parent.
const SPAN_FLAGS: u32 = 0x101;
/// `SpanFlags` of a link: known to be remote.
const LINK_FLAGS: u32 = 0x300;

/// An outcome, as far as a span shows it. Empty texts are unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) stream: Stream,
    pub(crate) phase: Phase,
    pub(crate) key: EventKey,
    pub(crate) finished_at: Timestamp,
    pub(crate) flow_start_time: Option<Timestamp>,
    pub(crate) pr_created_at: Option<Timestamp>,
    pub(crate) pr_url: String,
    pub(crate) chain_id: String,
    pub(crate) git_revision: String,
    pub(crate) git_url: String,
    pub(crate) event_id: String,
    pub(crate) traceparent: String,
}

/// Which time a span starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    PrCreated,
    FlowStart,
    Finished,
}

impl Anchor {
    fn as_str(self) -> &'static str {
        match self {
            Self::PrCreated => "pr_created",
            Self::FlowStart => "flow_start",
            Self::Finished => "finished",
        }
    }

    fn time(self, outcome: &Outcome) -> Timestamp {
        let known = match self {
            Self::PrCreated => outcome.pr_created_at,
            Self::FlowStart => outcome.flow_start_time,
            Self::Finished => None,
        };
        known.unwrap_or(outcome.finished_at)
    }
}

/// The ids of an outcome's span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ids {
    pub(crate) trace: [u8; 16],
    pub(crate) span: [u8; 8],
}

impl Ids {
    /// They derive from the event key, and so outlive this program. The app namespace is hashed in, although the key
    /// says which event it is, because a Task may give any key: so it can never place a span into another app's trace.
    pub(crate) fn of(outcome: &Outcome) -> Self {
        Self { trace: id("transponder.trace.v1", outcome), span: id("transponder.span.v1", outcome) }
    }
}

/// The first bytes of SHA-256 over tag, app namespace and key, each preceded by its length as a 64-bit big-endian
/// number. Never all zero: such an id is invalid (W3C trace context).
fn id<const N: usize>(tag: &str, outcome: &Outcome) -> [u8; N] {
    let namespace = outcome.stream.app_namespace.as_str();
    let mut sha = Sha256::new();
    for part in [tag.as_bytes(), namespace.as_bytes(), outcome.key.as_bytes()] {
        sha.update((part.len() as u64).to_be_bytes());
        sha.update(part);
    }
    let digest = sha.finalize();
    let mut id: [u8; N] = std::array::from_fn(|i| digest[i]);
    if id == [0; N] {
        id[N - 1] = 1;
    }
    id
}

/// The request that carries the span of an outcome.
pub(crate) fn request(outcome: &Outcome, anchor: Anchor, service_name: &str) -> ExportTraceServiceRequest {
    let scope = InstrumentationScope {
        name: "transponder".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        ..Default::default()
    };
    let resource = Resource { attributes: vec![text("service.name", service_name)], ..Default::default() };
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource),
            scope_spans: vec![ScopeSpans {
                scope: Some(scope),
                spans: vec![span(outcome, anchor)],
                schema_url: SCHEMA.into(),
            }],
            schema_url: SCHEMA.into(),
        }],
    }
}

fn span(outcome: &Outcome, anchor: Anchor) -> Span {
    let ids = Ids::of(outcome);
    let (stream, failed) = (&outcome.stream, outcome.phase == Phase::Failed);
    let (raw_start, end) = (anchor.time(outcome), outcome.finished_at);
    let start = raw_start.min(end);
    let mut attributes = attributes(outcome, anchor);
    if raw_start > end {
        // A span that ends before it starts makes duration queries of a backend's whole block come up empty.
        attributes.push(text("platform.raw_start_time", &raw_start.to_string()));
        attributes.push(text("platform.raw_end_time", &end.to_string()));
    }
    Span {
        trace_id: ids.trace.to_vec(),
        span_id: ids.span.to_vec(),
        flags: SPAN_FLAGS,
        name: format!("release-outcome:{}/{} [{}]", stream.app, stream.env, outcome.phase.as_str()),
        kind: SpanKind::Internal.into(),
        start_time_unix_nano: nanoseconds(start),
        end_time_unix_nano: nanoseconds(end),
        attributes,
        links: link(&outcome.traceparent).into_iter().collect(),
        status: Some(Status {
            code: if failed { StatusCode::Error } else { StatusCode::Ok }.into(),
            message: if failed { "the release failed".into() } else { String::new() },
        }),
        ..Default::default()
    }
}

fn attributes(outcome: &Outcome, anchor: Anchor) -> Vec<KeyValue> {
    let stream = &outcome.stream;
    let failed = outcome.phase == Phase::Failed;
    let flow_start_time = outcome.flow_start_time.map(|time| time.to_string()).unwrap_or_default();
    [
        ("platform.app_namespace", stream.app_namespace.as_str()),
        ("platform.app_name", stream.app.as_str()),
        ("platform.env", stream.env.as_str()),
        ("platform.cluster", stream.cluster.as_str()),
        ("platform.chain_id", &outcome.chain_id),
        ("platform.flow_start_time", &flow_start_time),
        ("platform.pr_url", &without_credentials(&outcome.pr_url)),
        ("platform.event_id", &outcome.event_id),
        ("platform.span_anchor", anchor.as_str()),
        ("deployment.environment.name", stream.env.as_str()),
        ("k8s.cluster.name", stream.cluster.as_str()),
        ("vcs.repository.url.full", &without_credentials(&outcome.git_url)),
        ("vcs.ref.head.revision", &outcome.git_revision),
        ("cicd.pipeline.result", if failed { "failure" } else { "success" }),
        ("error.type", if failed { "sync_failed" } else { "" }),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    .map(|(name, value)| text(name, value))
    .collect()
}

/// A URL may carry a user name and a token; a span must not.
fn without_credentials(text: &str) -> String {
    match Url::parse(text) {
        Ok(mut url) if !url.username().is_empty() || url.password().is_some() => {
            // Of a URL with a host neither can fail; of one without there is nothing to take away.
            let _ = url.set_password(None);
            let _ = url.set_username("");
            url.to_string()
        }
        _ => text.to_owned(),
    }
}

fn link(traceparent: &str) -> Option<Link> {
    let context = TraceContext::parse(traceparent)?;
    Some(Link {
        trace_id: context.trace_id.to_vec(),
        span_id: context.span_id.to_vec(),
        flags: LINK_FLAGS | u32::from(context.sampled),
        ..Default::default()
    })
}

fn text(name: &str, value: &str) -> KeyValue {
    let end = value.floor_char_boundary(VALUE.min(value.len()));
    let value = AnyValue { value: Some(Value::StringValue(value[..end].to_owned())) };
    KeyValue { key: name.to_owned(), value: Some(value), ..Default::default() }
}

/// Of a time that the door has checked to lie between 1970 and 2261.
fn nanoseconds(time: Timestamp) -> u64 {
    u64::try_from(time.as_nanosecond()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
