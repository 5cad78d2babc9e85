//! Recording spans.
//!
//! Their ids are ours and not the SDK's: all calls for one event belong to one trace, also those made after a restart,
//! so the ids follow from the event. The SDK samples, queues and batches.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use opentelemetry::{
    InstrumentationScope, KeyValue, SpanId, TraceFlags, TraceId, Value,
    trace::{Link, SpanContext, SpanKind, Status, TraceState},
};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SamplingDecision, ShouldSample as _, SpanData,
    SpanEvents, SpanLinks, SpanProcessor as _,
};
use transponder_core::ServiceName;

use super::{
    TraceContext, TracesConfig, TracesError,
    exporter::{Counted, Otlp},
};
use crate::Metrics;

/// Spans that wait to be sent; what comes beyond that is dropped and counted.
const QUEUE: usize = 4096;
/// Longest time that a span waits for others to be sent with.
const DELAY: Duration = Duration::from_secs(2);
/// Longest time that the end of the process waits for the last ones.
const FLUSH: Duration = Duration::from_secs(3);

/// Records own traces, or, as it stands by default, nothing.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<Recording>>);

struct Recording {
    processor: BatchSpanProcessor,
    sampler: Sampler,
    counted: Counted,
}

/// What stands on the two sides of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It answers a request.
    Server,
    /// It makes one.
    Client,
}

impl Tracer {
    /// Starts recording if there is an endpoint. To be called within the runtime that is to send.
    ///
    /// # Errors
    /// Names the key that cannot be used. A receiver that is away is no error.
    pub fn start(config: &TracesConfig, metrics: &Metrics) -> Result<Self, TracesError> {
        let Some(endpoint) = config.endpoint() else { return Ok(Self(None)) };
        let sampler = Sampler::TraceIdRatioBased(config.check_sample()?);
        let counted = Counted::register(metrics);
        let exporter = Otlp::new(config.channel(endpoint)?, config.metadata()?, counted.clone());
        // Said here, so that OTEL_BSP_… does not decide: those variables are the outcome span's neighbours.
        let batch = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE)
            .with_max_export_batch_size(512)
            .with_scheduled_delay(DELAY)
            .build();
        let processor = BatchSpanProcessor::builder(exporter).with_batch_config(batch).build();
        Ok(Self(Some(Arc::new(Recording { processor, sampler, counted }))))
    }

    /// Whether anything is recorded at all.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Whether a trace that begins here is recorded. All parts that sample alike decide alike.
    #[must_use]
    pub fn samples(&self, trace_id: [u8; 16]) -> bool {
        self.0.as_ref().is_some_and(|recording| {
            let trace = TraceId::from_bytes(trace_id);
            let result = recording.sampler.should_sample(None, trace, "", &SpanKind::Internal, &[], &[]);
            result.decision == SamplingDecision::RecordAndSample
        })
    }

    /// A trace that begins here, with ids by chance.
    #[must_use]
    pub fn begin_trace(&self) -> TraceContext {
        let ids = TraceContext::random();
        TraceContext { sampled: self.samples(ids.trace_id), ..ids }
    }

    /// A span without a parent, with these ids.
    pub fn root(&self, service: ServiceName, kind: Kind, name: &str, ids: TraceContext) -> Span {
        self.begin(service, kind, name, ids, SpanId::INVALID)
    }

    /// A span within another.
    pub fn child(&self, service: ServiceName, kind: Kind, name: &str, parent: TraceContext) -> Span {
        if self.0.is_none() || !parent.sampled {
            return Span { context: parent, recorded: None };
        }
        self.begin(service, kind, name, parent.child(), SpanId::from_bytes(parent.span_id))
    }

    fn begin(
        &self,
        service: ServiceName,
        kind: Kind,
        name: &str,
        ids: TraceContext,
        parent_span_id: SpanId,
    ) -> Span {
        let Some(recording) = self.0.clone().filter(|_| ids.sampled) else {
            return Span { context: ids, recorded: None };
        };
        let now = SystemTime::now();
        let data = SpanData {
            span_context: exported(ids, false),
            parent_span_id,
            parent_span_is_remote: kind == Kind::Server,
            span_kind: match kind {
                Kind::Server => SpanKind::Server,
                Kind::Client => SpanKind::Client,
            },
            name: name.to_owned().into(),
            start_time: now,
            end_time: now,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            // The exporter makes a resource of it: to whoever reads traces, each part is a service.
            instrumentation_scope: InstrumentationScope::builder(service.as_str()).build(),
        };
        Span { context: ids, recorded: Some((recording, Box::new(data))) }
    }

    /// Sends what is left, for a bounded time. Blocks.
    pub fn stop(&self) {
        if let Some(recording) = &self.0
            && let Err(error) = recording.processor.shutdown_with_timeout(FLUSH)
        {
            tracing::warn!(%error, "the last traces may not have been sent");
        }
    }
}

fn exported(ids: TraceContext, remote: bool) -> SpanContext {
    let flags = if ids.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let (trace, span) = (TraceId::from_bytes(ids.trace_id), SpanId::from_bytes(ids.span_id));
    SpanContext::new(trace, span, flags, remote, TraceState::NONE)
}

/// A span that is under way. It ends when it is dropped, so one that is given up is seen as well.
#[must_use]
pub struct Span {
    context: TraceContext,
    recorded: Option<(Arc<Recording>, Box<SpanData>)>,
}

impl Span {
    /// What its calls carry on.
    #[must_use]
    pub fn context(&self) -> TraceContext {
        self.context
    }

    /// Whether what is told of it goes anywhere.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.recorded.is_some()
    }

    /// Lets it begin earlier than now.
    pub fn since(mut self, start: SystemTime) -> Self {
        if let Some((_, data)) = &mut self.recorded {
            data.start_time = start;
        }
        self
    }

    /// Adds an attribute. The value is made only for a span that is recorded.
    pub fn set<V: Into<Value>>(&mut self, name: &'static str, value: impl FnOnce() -> V) {
        if let Some((_, data)) = &mut self.recorded {
            data.attributes.push(KeyValue::new(name, value()));
        }
    }

    /// Names a span of another trace that has to do with it.
    pub fn link(&mut self, other: TraceContext) {
        if let Some((_, data)) = &mut self.recorded {
            data.links.links.push(Link::with_context(exported(other, true)));
        }
    }

    /// It failed, in fixed words.
    pub fn failed(&mut self, why: impl FnOnce() -> String) {
        if let Some((_, data)) = &mut self.recorded {
            data.status = Status::error(why());
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some((recording, mut data)) = self.recorded.take() {
            data.end_time = SystemTime::now().max(data.start_time);
            recording.counted.ended();
            recording.processor.on_end(*data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_endpoint_nothing_is_recorded_and_contexts_pass_through() {
        let tracer = Tracer::start(&TracesConfig::default(), &Metrics::default()).unwrap();
        let parent = TraceContext { sampled: true, ..TraceContext::random() };
        let mut span = tracer.child(ServiceName::Edge, Kind::Client, "x", parent);
        span.set("key", || -> String { unreachable!("the value is not needed") });
        assert_eq!(span.context(), parent);
        assert!(!tracer.samples(parent.trace_id));
    }

    #[tokio::test]
    async fn a_share_of_the_traces_is_recorded_and_a_caller_s_decision_followed() {
        let config =
            TracesConfig { endpoint: Some("http://127.0.0.1:1".into()), sample: 0.25, ..Default::default() };
        let tracer = Tracer::start(&config, &Metrics::default()).unwrap();
        let sampled = (0..4000).filter(|_| tracer.samples(TraceContext::random().trace_id)).count();
        assert!((800..1200).contains(&sampled), "{sampled}");
        let parent = TraceContext { sampled: true, ..TraceContext::random() };
        let child = tracer.child(ServiceName::Edge, Kind::Server, "x", parent);
        assert!(child.recorded.is_some() && child.context().span_id != parent.span_id);
        assert_eq!(child.context().trace_id, parent.trace_id);
        let unsampled = TraceContext { sampled: false, ..parent };
        assert!(tracer.child(ServiceName::Edge, Kind::Server, "x", unsampled).recorded.is_none());
    }
}
