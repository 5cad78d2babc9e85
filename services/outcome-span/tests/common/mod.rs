//! An OutcomeSpan, its backend and its callers, all real and on loopback.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    reason = "helpers of tests, each used by some"
)]

#[path = "../../../forwarder/tests/common/http.rs"]
pub mod http;
#[path = "../../../forwarder/tests/common/mesh.rs"]
pub mod mesh;
pub mod otlp;
pub mod tracking;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use mesh::Mesh;
use opentelemetry_proto::tonic::{common::v1::any_value::Value, trace::v1::Span};
use tonic::Status;
use tracking::Tracking;
use transponder_core::{ServiceName, Timestamp};
use transponder_outcome_span::{App, Config, Settings};
use transponder_proto::{
    convert::to_proto_time,
    v1::{EmitRequest, EmitResponse, Phase, Release, outcome_span_client::OutcomeSpanClient},
};
use transponder_runtime::{Context, auth::TokenFile, grpc::MeshChannel};

pub struct Running {
    pub mesh: Mesh,
    pub tracking: Tracking,
    pub context: Context,
    pub address: SocketAddr,
    pub file: PathBuf,
    pub edge: OutcomeSpanClient<MeshChannel>,
}

impl Running {
    pub async fn start(settings: Settings) -> Self {
        let mesh = Mesh::new();
        let context = Context::new();
        let tracking = Tracking::start(&mesh, &context).await;
        let file = mesh.dir.path().join("data/spans.jsonl");
        let config = Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            release_tracking: tracking.address.clone(),
            file: file.clone(),
            ..Config::default()
        };
        let reviewer = TokenFile::load(&mesh.callers, &context).unwrap();
        let app = App::build(config, settings, &mesh.config, reviewer, &context).await.unwrap();
        let address = app.address();
        tokio::spawn(app.run());
        let edge = OutcomeSpanClient::new(mesh.channel(ServiceName::Edge, ServiceName::OutcomeSpan, address));
        Self { mesh, tracking, context, address, file, edge }
    }

    pub async fn emit(&self, request: EmitRequest) -> Result<EmitResponse, Status> {
        self.edge.clone().emit(request).await.map(tonic::Response::into_inner)
    }

    pub fn metrics(&self) -> String {
        self.context.metrics.expose("").unwrap().0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.context.shutdown.begin();
    }
}

/// Settings as the variables would give them; `OTEL_EXPORTER_OTLP_` is put in front of the names.
pub fn settings(variables: &[(&str, &str)]) -> Settings {
    let get = |name: &str| {
        let name = name.strip_prefix("OTEL_EXPORTER_OTLP_").unwrap_or(name);
        Ok(variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()))
    };
    let mut settings = Settings::from_variables(get).unwrap();
    settings.timeout = settings.timeout.min(Duration::from_secs(3));
    settings
}

/// Settings for gRPC to this address.
pub fn grpc(address: SocketAddr) -> Settings {
    settings(&[("PROTOCOL", "grpc"), ("ENDPOINT", &format!("http://{address}"))])
}

pub fn at(text: &str) -> Option<prost_types::Timestamp> {
    Some(to_proto_time(text.parse::<Timestamp>().unwrap()))
}

/// An outcome without a pull-request time and without an anchor.
pub fn outcome(event_id: &str) -> EmitRequest {
    EmitRequest {
        release: Some(Release {
            app_namespace: "app-shop-cicd".into(),
            app_name: "shop".into(),
            env: "prod".into(),
            cluster: "kind-prod".into(),
            chain_id: "chain-1".into(),
            git_revision: "abc".into(),
            event_id: event_id.into(),
        }),
        phase: Phase::Succeeded.into(),
        finished_at: at("2026-09-14T10:00:00Z"),
        flow_start_time: at("2026-09-14T09:00:00Z"),
        ..EmitRequest::default()
    }
}

/// The text of an attribute.
pub fn value(span: &Span, name: &str) -> Option<String> {
    let attribute = span.attributes.iter().find(|attribute| attribute.key == name)?;
    match attribute.value.clone()?.value? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}
