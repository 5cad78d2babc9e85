//! What the receiver keeps.

use std::{collections::BTreeMap, fmt::Write as _, time::Instant};

use http::HeaderMap;
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::Span,
};

use crate::server::Connection;

/// The protocol of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OTLP/gRPC.
    Grpc,
    /// OTLP/HTTP with protobuf bodies.
    Http,
}

/// One export request.
#[derive(Clone, Debug)]
pub struct Export {
    /// When it had been read.
    pub at: Instant,
    /// The protocol.
    pub protocol: Protocol,
    /// The path that was called.
    pub path: String,
    /// Headers, or gRPC metadata.
    pub headers: HeaderMap,
    /// The message.
    pub request: ExportTraceServiceRequest,
    /// Whether the spans were stored, and so are in [`OtlpReceiver::spans`](crate::OtlpReceiver::spans).
    pub stored: bool,
    pub(super) connection: Connection,
}

/// One span, with what it belongs to. Attributes of any type are kept as text.
#[derive(Clone, Debug)]
pub struct ReceivedSpan {
    /// Attributes of the resource.
    pub resource: BTreeMap<String, String>,
    /// Schema URLs of the resource and of the scope.
    pub schema_urls: (String, String),
    /// Attributes of the span.
    pub attributes: BTreeMap<String, String>,
    /// The span itself.
    pub span: Span,
}

impl Export {
    /// Which connection it came on, counted from 1.
    #[must_use]
    pub fn connection(&self) -> u64 {
        self.connection.number
    }

    /// The spans of this export.
    #[must_use]
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        let mut spans = Vec::new();
        for group in &self.request.resource_spans {
            let resource = text(group.resource.as_ref().map_or(&[][..], |resource| &resource.attributes));
            for scope in &group.scope_spans {
                spans.extend(scope.spans.iter().map(|span| ReceivedSpan {
                    resource: resource.clone(),
                    schema_urls: (group.schema_url.clone(), scope.schema_url.clone()),
                    attributes: text(&span.attributes),
                    span: span.clone(),
                }));
            }
        }
        spans
    }
}

impl ReceivedSpan {
    /// The trace id as 32 hex digits.
    #[must_use]
    pub fn trace_id(&self) -> String {
        hex(&self.span.trace_id)
    }

    /// The span id as 16 hex digits.
    #[must_use]
    pub fn span_id(&self) -> String {
        hex(&self.span.span_id)
    }
}

fn text(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let value = |attribute: &KeyValue| match attribute.value.as_ref().and_then(|any| any.value.clone()) {
        Some(Value::StringValue(text)) => text,
        Some(Value::BoolValue(value)) => value.to_string(),
        Some(Value::IntValue(value)) => value.to_string(),
        Some(Value::DoubleValue(value)) => value.to_string(),
        other => format!("{other:?}"),
    };
    attributes.iter().map(|attribute| (attribute.key.clone(), value(attribute))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
