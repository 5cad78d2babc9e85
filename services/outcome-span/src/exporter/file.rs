//! Without an endpoint: lines of OTLP/JSON in a file (OTLP specification, "JSON Protobuf encoding" and "OTLP file
//! exporter"): ids in hex, names in camelCase, 64-bit numbers as text, enumerations as numbers.

use std::{
    fs,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value as Any},
    trace::v1::{ResourceSpans, ScopeSpans, Span, span::Link},
};
use serde_json::{Map, Value, json};

use super::{Accepted, Exporter, Failure};

/// A file that spans are appended to. It is opened for each, so that it can be moved away at any time.
pub(super) struct File {
    path: PathBuf,
    /// One line at a time.
    turn: Arc<Mutex<()>>,
}

impl File {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), turn: Arc::default() }
    }
}

#[tonic::async_trait]
impl Exporter for File {
    async fn export(&self, request: &ExportTraceServiceRequest) -> Result<Accepted, Failure> {
        let mut line = to_json(request).to_string();
        line.push('\n');
        let (path, turn) = (self.path.clone(), self.turn.clone());
        let written = tokio::task::spawn_blocking(move || {
            let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
            append(&path, line.as_bytes())
        });
        let failed = |problem: String| {
            Failure::later(
                format!("the span file {} cannot be written: {problem}", self.path.display()),
                None,
                false,
            )
        };
        match written.await {
            Ok(Ok(())) => Ok(Accepted { warning: String::new() }),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

/// Appends a whole line, synced, or nothing.
fn append(path: &Path, line: &[u8]) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let mut file = fs::OpenOptions::new().create(true).read(true).append(true).mode(0o640).open(path)?;
    let length = file.seek(SeekFrom::End(0))?;
    let mut whole = Vec::with_capacity(line.len() + 1);
    if length > 0 {
        // A process that died while it wrote left half a line; the next one must not be lost with it.
        let mut last = [0];
        file.seek(SeekFrom::Start(length - 1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            whole.push(b'\n');
        }
    }
    whole.extend_from_slice(line);
    file.write_all(&whole).and_then(|()| file.sync_data()).inspect_err(|_| {
        // As on a full disk. Should this fail too, the half line is ended by the next one.
        let _ = file.set_len(length);
    })
}

fn to_json(request: &ExportTraceServiceRequest) -> Value {
    json!({ "resourceSpans": request.resource_spans.iter().map(resource_spans).collect::<Vec<_>>() })
}

fn resource_spans(spans: &ResourceSpans) -> Value {
    let attributes = spans.resource.as_ref().map(|resource| attributes(&resource.attributes));
    json!({
        "resource": { "attributes": attributes.unwrap_or_default() },
        "scopeSpans": spans.scope_spans.iter().map(scope_spans).collect::<Vec<_>>(),
        "schemaUrl": spans.schema_url,
    })
}

fn scope_spans(spans: &ScopeSpans) -> Value {
    let scope = spans.scope.as_ref();
    json!({
        "scope": {
            "name": scope.map(|scope| scope.name.as_str()).unwrap_or_default(),
            "version": scope.map(|scope| scope.version.as_str()).unwrap_or_default(),
        },
        "spans": spans.spans.iter().map(span).collect::<Vec<_>>(),
        "schemaUrl": spans.schema_url,
    })
}

fn span(span: &Span) -> Value {
    let status = span.status.clone().unwrap_or_default();
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    set("traceId", hex::encode(&span.trace_id).into());
    set("spanId", hex::encode(&span.span_id).into());
    set("flags", span.flags.into());
    set("name", span.name.as_str().into());
    set("kind", span.kind.into());
    set("startTimeUnixNano", span.start_time_unix_nano.to_string().into());
    set("endTimeUnixNano", span.end_time_unix_nano.to_string().into());
    set("attributes", attributes(&span.attributes).into());
    if !span.links.is_empty() {
        set("links", span.links.iter().map(link).collect());
    }
    set(
        "status",
        match status.message.as_str() {
            "" => json!({ "code": status.code }),
            message => json!({ "code": status.code, "message": message }),
        },
    );
    fields.into()
}

fn link(link: &Link) -> Value {
    json!({
        "traceId": hex::encode(&link.trace_id),
        "spanId": hex::encode(&link.span_id),
        "flags": link.flags,
    })
}

/// Our attributes are all text.
fn attributes(attributes: &[KeyValue]) -> Vec<Value> {
    let text = |attribute: &KeyValue| match attribute.value.as_ref().and_then(|any| any.value.as_ref()) {
        Some(Any::StringValue(text)) => text.clone(),
        _ => String::new(),
    };
    attributes
        .iter()
        .map(|attribute| json!({ "key": attribute.key, "value": { "stringValue": text(attribute) } }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_line_of_a_dead_process_costs_no_other_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/spans.jsonl");
        append(&path, b"{\"a\":1}\n").unwrap();
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"hal").unwrap();
        append(&path, b"{\"b\":2}\n").unwrap();
        append(&path, b"{\"c\":3}\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"a\":1}\n{\"hal\n{\"b\":2}\n{\"c\":3}\n");
    }
}
