//! The trace of an event: what its report and all calls for it record of themselves.

use std::time::SystemTime;

use http::StatusCode;
use transponder_core::{EventKey, ServiceName, Target};
use transponder_runtime::trace::{Kind, Span, TraceContext, Tracer};

use crate::outbox::NewEvent;

/// The event's trace and the span of its first report. Both follow from the key, so that calls that are made after a
/// restart belong to it as well.
fn of(key: EventKey, tracer: &Tracer) -> TraceContext {
    let bytes = key.as_bytes();
    let trace_id = std::array::from_fn(|i| bytes[i]);
    let span_id = std::array::from_fn(|i| bytes[i + 12]);
    TraceContext { trace_id, span_id, sampled: tracer.samples(trace_id) }
}

/// Records a report that has been answered with `status`.
pub(crate) fn reported(tracer: &Tracer, event: &Reported, status: StatusCode) {
    let name = "POST /outcome/{cluster}";
    let ids = of(event.key, tracer);
    let span = match status {
        StatusCode::ACCEPTED => tracer.root(ServiceName::Edge, Kind::Server, name, ids),
        StatusCode::OK => tracer.child(ServiceName::Edge, Kind::Server, name, ids),
        // It made no event, so it is in no event's trace.
        _ => tracer.root(ServiceName::Edge, Kind::Server, name, tracer.begin_trace()),
    };
    let mut span = span.since(event.arrived);
    span.set("http.request.method", || "POST");
    span.set("http.route", || "/outcome/{cluster}");
    span.set("http.response.status_code", || i64::from(status.as_u16()));
    span.set("transponder.event_key", || event.key.to_string());
    span.set("transponder.cluster", || event.cluster.clone());
    if let Some(flow) = TraceContext::parse(&event.traceparent) {
        span.link(flow);
    }
    if status.is_server_error() {
        span.failed(|| status.to_string());
    }
}

/// What a trace needs of a report.
pub(crate) struct Reported {
    key: EventKey,
    cluster: String,
    traceparent: String,
    arrived: SystemTime,
}

impl Reported {
    pub(crate) fn new(event: &NewEvent, arrived: SystemTime) -> Self {
        Self {
            key: event.key,
            cluster: event.cluster.to_string(),
            traceparent: event.report.as_ref().map(|report| report.traceparent.clone()).unwrap_or_default(),
            arrived,
        }
    }
}

/// A call to a target that begins now.
pub(crate) fn delivery(tracer: &Tracer, key: EventKey, target: Target) -> Span {
    let name = match target {
        Target::Broker => "deliver broker",
        Target::Tracking => "deliver tracking",
        Target::Dora => "deliver dora",
        Target::Span => "deliver span",
    };
    let mut span = tracer.child(ServiceName::Edge, Kind::Client, name, of(key, tracer));
    span.set("transponder.event_key", || key.to_string());
    span
}
