//! Sending own traces by OTLP/gRPC.
//!
//! Not opentelemetry-otlp: it reads the OTEL_EXPORTER_OTLP_… variables, which belong to the outcome span, and would send
//! that backend's headers to this one.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTraceServiceRequest, trace_service_client::TraceServiceClient},
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value},
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans},
};
use opentelemetry_sdk::{
    error::{OTelSdkError, OTelSdkResult},
    trace::{SpanData, SpanExporter},
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};
use tokio::runtime::Handle;
use tonic::{Request, metadata::MetadataMap, transport::Channel};

use crate::{Metrics, outage::Outage};

/// Longest time for one batch.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Result {
    result: &'static str,
}

/// How many spans there were, and what became of them.
#[derive(Clone)]
pub(super) struct Counted(Family<Result, Counter>);

impl Counted {
    pub(super) fn register(metrics: &Metrics) -> Self {
        let family = Family::<Result, Counter>::default();
        metrics.register(|registry| {
            registry.register(
                "transponder_own_spans",
                "Spans of Transponder's own traces: ended, and of these sent or failed; the rest waits or was dropped",
                family.clone(),
            );
        });
        Self(family)
    }

    pub(super) fn ended(&self) {
        self.count("ended", 1);
    }

    fn count(&self, result: &'static str, spans: u64) {
        self.0.get_or_create(&Result { result }).inc_by(spans);
    }
}

/// Sends batches. A batch that cannot be sent is gone: nothing rests on these spans.
pub(super) struct Otlp {
    client: TraceServiceClient<Channel>,
    metadata: MetadataMap,
    /// The SDK calls from a thread of its own, and a channel needs its runtime's timers.
    runtime: Handle,
    outage: Arc<Outage>,
    counted: Counted,
}

impl Otlp {
    pub(super) fn new(channel: Channel, metadata: MetadataMap, counted: Counted) -> Self {
        Self {
            client: TraceServiceClient::new(channel),
            metadata,
            runtime: Handle::current(),
            outage: Arc::new(Outage::new("sending own traces")),
            counted,
        }
    }
}

impl fmt::Debug for Otlp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Otlp")
    }
}

impl SpanExporter for Otlp {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len() as u64;
        let mut request = Request::new(request(batch));
        *request.metadata_mut() = self.metadata.clone();
        let mut client = self.client.clone();
        let sending = self.runtime.spawn(async move {
            match tokio::time::timeout(TIMEOUT, client.export(request)).await {
                Ok(Ok(answer)) => match answer.into_inner().partial_success {
                    Some(partial) if partial.rejected_spans > 0 => {
                        Err(format!("{} spans rejected: {}", partial.rejected_spans, partial.error_message))
                    }
                    _ => Ok(()),
                },
                Ok(Err(status)) => Err(format!("{:?}: {}", status.code(), status.message())),
                Err(_) => Err(format!("no answer within {TIMEOUT:?}")),
            }
        });
        match sending.await.unwrap_or_else(|e| Err(e.to_string())) {
            Ok(()) => {
                self.outage.worked();
                self.counted.count("sent", spans);
                Ok(())
            }
            Err(problem) => {
                self.outage.failed(&problem.escape_debug());
                self.counted.count("failed", spans);
                Err(OTelSdkError::InternalFailure(problem))
            }
        }
    }
}

/// One resource per service: the parts of `all` are told apart as they are when each runs alone.
fn request(batch: Vec<SpanData>) -> ExportTraceServiceRequest {
    let mut services = BTreeMap::<String, Vec<_>>::new();
    for span in batch {
        services.entry(span.instrumentation_scope.name().to_owned()).or_default().push(span.into());
    }
    let resource_spans = services.into_iter().map(|(service, spans)| ResourceSpans {
        resource: Some(Resource {
            attributes: vec![
                text("service.name", format!("transponder-{service}")),
                text("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            ],
            ..Resource::default()
        }),
        scope_spans: vec![ScopeSpans {
            scope: Some(InstrumentationScope { name: "transponder".into(), ..Default::default() }),
            spans,
            ..ScopeSpans::default()
        }],
        ..ResourceSpans::default()
    });
    ExportTraceServiceRequest { resource_spans: resource_spans.collect() }
}

fn text(key: &str, value: String) -> KeyValue {
    let value = Some(AnyValue { value: Some(any_value::Value::StringValue(value)) });
    KeyValue { key: key.into(), value, ..KeyValue::default() }
}
