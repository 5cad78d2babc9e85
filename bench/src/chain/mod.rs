//! The calls that one outcome costs, and nothing else: HTTPS in, Forward with its post, Observe, RecordOutcome and
//! Emit with its export, each over the mesh's own gRPC with mutual TLS. Nothing is parsed, checked or stored.

mod services;

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use bytes::Bytes;
use serde_json::json;
use transponder_core::{ServiceName, Timestamp};
use transponder_proto::{
    convert::to_proto_time,
    v1::{
        self, dora_recorder_client::DoraRecorderClient, forwarder_client::ForwarderClient,
        outcome_span_client::OutcomeSpanClient, release_tracking_client::ReleaseTrackingClient,
    },
};
use transponder_runtime::{
    Context,
    auth::{CallersConfig, TokenFile},
    grpc::{MeshChannel, Server, channel},
    mesh::{MeshConfig, MeshIdentity},
};

use crate::{listener, listener::Listener};

/// Where the chain ends.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    listener: listener::Arguments,
    /// Directory of the mesh's identities
    #[arg(long)]
    mesh: PathBuf,
    /// The broker
    #[arg(long)]
    broker: SocketAddr,
    /// The tracing backend
    #[arg(long)]
    otlp: SocketAddr,
}

/// Serves until killed.
pub(crate) async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let context = Context::new();
    let mesh = MeshConfig { directory: arguments.mesh.clone(), ..MeshConfig::default() };
    let callers = CallersConfig::default();
    let reviewer = TokenFile::load(&callers, &context).map_err(anyhow::Error::msg)?;
    let bind = async |service| {
        let identity = MeshIdentity::load(service, &mesh, &context)?;
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Server::bind(address, identity, reviewer.clone(), &context).await?;
        let address = server.address()?.to_string();
        anyhow::Ok((server, address))
    };
    let (forwarder, forwarder_at) = bind(ServiceName::Forwarder).await?;
    let (tracking, tracking_at) = bind(ServiceName::ReleaseTracking).await?;
    let (dora, dora_at) = bind(ServiceName::DoraRecorder).await?;
    let (span, span_at) = bind(ServiceName::OutcomeSpan).await?;
    tokio::spawn(forwarder.serve(services::forwarder(arguments.broker)?));
    tokio::spawn(tracking.serve(services::tracking()));
    tokio::spawn(dora.serve(services::dora()));
    tokio::spawn(span.serve(services::span(arguments.otlp)?));

    let edge = MeshIdentity::load(ServiceName::Edge, &mesh, &context)?;
    let to = |address: &str, service| channel(address, service, edge.clone());
    let calls = Arc::new(Calls {
        forwarder: ForwarderClient::new(to(&forwarder_at, ServiceName::Forwarder)?),
        tracking: ReleaseTrackingClient::new(to(&tracking_at, ServiceName::ReleaseTracking)?),
        dora: DoraRecorderClient::new(to(&dora_at, ServiceName::DoraRecorder)?),
        span: OutcomeSpanClient::new(to(&span_at, ServiceName::OutcomeSpan)?),
    });
    let listener = Listener::bind(&arguments.listener).await?;
    crate::say(&json!({ "edge": listener.address()? }));
    listener
        .serve(move |body| {
            let calls = calls.clone();
            // To its end, as the edge does, even if the client has gone.
            async move { tokio::spawn(async move { calls.make(body).await }).await? }
        })
        .await
}

struct Calls {
    forwarder: ForwarderClient<MeshChannel>,
    tracking: ReleaseTrackingClient<MeshChannel>,
    dora: DoraRecorderClient<MeshChannel>,
    span: OutcomeSpanClient<MeshChannel>,
}

/// A key, as long as every key.
const KEY: &str = "0123456789abcdef0123456789abcdef01234567";

impl Calls {
    async fn make(&self, body: Bytes) -> anyhow::Result<()> {
        let now = Some(to_proto_time(Timestamp::now()));
        let forward = v1::ForwardRequest {
            event: body,
            content_type: "application/cloudevents+json".into(),
            key: KEY.into(),
        };
        self.forwarder.clone().forward(forward).await?;
        let observe = v1::ObserveRequest {
            release: Some(services::release()),
            phase: v1::Phase::Succeeded.into(),
            finished_at: now,
            received_at: now,
            event_key: KEY.into(),
        };
        self.tracking.clone().observe(observe).await?;
        let record = v1::RecordOutcomeRequest {
            release: Some(services::release()),
            phase: v1::Phase::Succeeded.into(),
            finished_at: now,
            first_finished_at: now,
            flow_start_time: now,
            received_at: now,
        };
        self.dora.clone().record_outcome(record).await?;
        let emit = v1::EmitRequest {
            release: Some(services::release()),
            phase: v1::Phase::Succeeded.into(),
            finished_at: now,
            flow_start_time: now,
            pr_created_at: None,
            pr_url: String::new(),
            anchor: v1::Anchor::FlowStart.into(),
            event_key: KEY.into(),
            event_source: "/platform-cicd/app-0000-cicd/bench-0000-app-0000-prod-outcome".into(),
            git_url: "https://git.example.com/platform/app-0000.git".into(),
            traceparent: String::new(),
        };
        self.span.clone().emit(emit).await?;
        Ok(())
    }
}
