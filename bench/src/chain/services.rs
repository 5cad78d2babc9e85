//! The four services with nothing behind them but what the product's own must send on.

use std::net::SocketAddr;

use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTraceServiceRequest, trace_service_client::TraceServiceClient},
    common::v1::{AnyValue, KeyValue, any_value::Value},
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span},
};
use tonic::{
    Request, Response, Status,
    transport::{Channel, Endpoint},
};
use transponder_proto::v1::{
    self,
    dora_recorder_server::{DoraRecorder, DoraRecorderServer},
    forwarder_server::{Forwarder, ForwarderServer},
    outcome_span_server::{OutcomeSpan, OutcomeSpanServer},
    release_tracking_server::{ReleaseTracking, ReleaseTrackingServer},
};

type Answer<T> = Result<Response<T>, Status>;

/// A release with names of a usual length.
pub(super) fn release() -> v1::Release {
    v1::Release {
        app_namespace: "app-0000-cicd".into(),
        app_name: "app-0000".into(),
        env: "prod".into(),
        cluster: "bench-0000".into(),
        chain_id: "0b9f6a5e-3d0c-4c52-9a07-5b0a1f0c7d11".into(),
        git_revision: "4f2d1c0b9a8e7f6d5c4b3a291807f6e5d4c3b2a1".into(),
        event_id: "0123456789abcdef0123".into(),
    }
}

pub(super) fn forwarder(broker: SocketAddr) -> anyhow::Result<ForwarderServer<Post>> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    Ok(ForwarderServer::new(Post { client, url: format!("http://{broker}/") }))
}

pub(super) fn tracking() -> ReleaseTrackingServer<Nothing> {
    ReleaseTrackingServer::new(Nothing)
}

pub(super) fn dora() -> DoraRecorderServer<Nothing> {
    DoraRecorderServer::new(Nothing)
}

pub(super) fn span(otlp: SocketAddr) -> anyhow::Result<OutcomeSpanServer<Export>> {
    let channel = Endpoint::from_shared(format!("http://{otlp}"))?.tcp_nodelay(true).connect_lazy();
    Ok(OutcomeSpanServer::new(Export { backend: TraceServiceClient::new(channel) }))
}

pub(super) struct Post {
    client: reqwest::Client,
    url: String,
}

#[tonic::async_trait]
impl Forwarder for Post {
    async fn forward(&self, request: Request<v1::ForwardRequest>) -> Answer<v1::ForwardResponse> {
        let request = request.into_inner();
        let post = self
            .client
            .post(&self.url)
            .header("content-type", request.content_type)
            .header("transponder-key", request.key)
            .body(request.event);
        let answer = post.send().await.map_err(|e| Status::unavailable(e.to_string()))?;
        let broker_status = answer.status().as_u16().into();
        answer.bytes().await.map_err(|e| Status::unavailable(e.to_string()))?;
        let broker_event_id = "00000000-0000-4000-8000-000000000001".into();
        Ok(Response::new(v1::ForwardResponse { broker_status, broker_event_id }))
    }
}

pub(super) struct Export {
    backend: TraceServiceClient<Channel>,
}

#[tonic::async_trait]
impl OutcomeSpan for Export {
    async fn emit(&self, request: Request<v1::EmitRequest>) -> Answer<v1::EmitResponse> {
        let request = request.into_inner();
        let text = |key: &str, value: &str| KeyValue {
            key: key.into(),
            value: Some(AnyValue { value: Some(Value::StringValue(value.into())) }),
            ..KeyValue::default()
        };
        let release = request.release.unwrap_or_default();
        let span = Span {
            trace_id: vec![1; 16],
            span_id: vec![1; 8],
            name: format!("release-outcome:{}/{} [Succeeded]", release.app_name, release.env),
            start_time_unix_nano: 1_788_595_200_000_000_000,
            end_time_unix_nano: 1_789_380_000_123_456_789,
            attributes: vec![
                text("platform.app_namespace", &release.app_namespace),
                text("platform.app_name", &release.app_name),
                text("platform.env", &release.env),
                text("platform.cluster", &release.cluster),
                text("platform.chain_id", &release.chain_id),
                text("platform.flow_start_time", "2026-09-14T09:00:00Z"),
                text("platform.event_id", &release.event_id),
                text("platform.span_anchor", "flow_start"),
                text("deployment.environment.name", &release.env),
                text("k8s.cluster.name", &release.cluster),
                text("vcs.repository.url.full", &request.git_url),
                text("vcs.ref.head.revision", &release.git_revision),
                text("cicd.pipeline.result", "success"),
            ],
            ..Span::default()
        };
        let export = ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(Resource {
                    attributes: vec![text("service.name", "transponder")],
                    ..Resource::default()
                }),
                scope_spans: vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }],
                ..ResourceSpans::default()
            }],
        };
        self.backend.clone().export(export).await?;
        Ok(Response::new(v1::EmitResponse {
            trace_id: "01".repeat(16),
            span_id: "01".repeat(8),
            anchor: request.anchor,
            warning: String::new(),
        }))
    }
}

pub(super) struct Nothing;

#[tonic::async_trait]
impl DoraRecorder for Nothing {
    async fn record_outcome(
        &self,
        _: Request<v1::RecordOutcomeRequest>,
    ) -> Answer<v1::RecordOutcomeResponse> {
        Ok(Response::new(v1::RecordOutcomeResponse { disposition: v1::Disposition::New.into() }))
    }

    async fn expect(&self, _: Request<v1::ExpectRequest>) -> Answer<v1::ExpectResponse> {
        Err(Status::unimplemented(""))
    }
}

#[tonic::async_trait]
impl ReleaseTracking for Nothing {
    async fn observe(&self, request: Request<v1::ObserveRequest>) -> Answer<v1::ObserveResponse> {
        let request = request.into_inner();
        let record = v1::ReleaseRecord {
            release: request.release,
            state: v1::ReleaseState::Succeeded.into(),
            last_phase: request.phase,
            last_finished_at: request.finished_at,
            first_observed_at: request.received_at,
            last_observed_at: request.received_at,
            observations: 1,
            created_at: request.received_at,
            updated_at: request.received_at,
            ..v1::ReleaseRecord::default()
        };
        Ok(Response::new(v1::ObserveResponse { found: true, record: Some(record) }))
    }

    async fn put(&self, _: Request<v1::PutRequest>) -> Answer<v1::PutResponse> {
        Err(Status::unimplemented(""))
    }

    async fn resolve(&self, _: Request<v1::ResolveRequest>) -> Answer<v1::ResolveResponse> {
        Err(Status::unimplemented(""))
    }

    async fn list(&self, _: Request<v1::ListRequest>) -> Answer<v1::ListResponse> {
        Err(Status::unimplemented(""))
    }

    async fn delete(&self, _: Request<v1::DeleteRequest>) -> Answer<v1::DeleteResponse> {
        Err(Status::unimplemented(""))
    }
}
