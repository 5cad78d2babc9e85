//! A Forwarder, its broker and its callers, all real and on loopback.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    reason = "helpers of tests, each used by some"
)]

pub mod http;
pub mod mesh;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::HttpServer;
use mesh::Mesh;
use tonic::Status;
use transponder_core::ServiceName;
use transponder_forwarder::{App, Config};
use transponder_proto::v1::{ForwardRequest, ForwardResponse, forwarder_client::ForwarderClient};
use transponder_runtime::{Context, auth::TokenFile, grpc::MeshChannel};

pub const KEY: &str = "b386512d3d7c808f87033846be5ca10c48d40bdf";

pub struct Running {
    pub mesh: Mesh,
    pub broker: HttpServer,
    pub context: Context,
    pub address: SocketAddr,
    pub token_file: PathBuf,
    pub edge: ForwarderClient<MeshChannel>,
}

impl Running {
    pub async fn start() -> Self {
        Self::with(HttpServer::start().await, |_| {}).await
    }

    pub async fn with(broker: HttpServer, change: impl FnOnce(&mut Config)) -> Self {
        let mesh = Mesh::new();
        let token_file = mesh.dir.path().join("broker-token");
        std::fs::write(&token_file, token("cdevents-broker", 4_000_000_000, 1)).unwrap();
        let mut config = Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            broker_url: format!("http://{}/hooks", broker.address),
            token_file: token_file.clone(),
            timeout: Duration::from_secs(2),
            ..Config::default()
        };
        change(&mut config);
        let context = Context::new();
        let reviewer = TokenFile::load(&mesh.callers, &context).unwrap();
        let app = App::build(config, &mesh.config, reviewer, &context).await.unwrap();
        let address = app.address();
        tokio::spawn(app.run());
        let edge = ForwarderClient::new(mesh.channel(ServiceName::Edge, ServiceName::Forwarder, address));
        Self { mesh, broker, context, address, token_file, edge }
    }

    /// One event, as the edge forwards it.
    pub async fn forward(&self) -> Result<ForwardResponse, Status> {
        self.edge.clone().forward(event()).await.map(tonic::Response::into_inner)
    }

    /// The metrics as text.
    pub fn metrics(&self) -> String {
        self.context.metrics.expose("").unwrap().0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.context.shutdown.begin();
    }
}

pub fn event() -> ForwardRequest {
    ForwardRequest {
        event: b"{\"a\" : 1e400,\t\"b\":\"\xc3\xa4\"}\r\n".to_vec().into(),
        content_type: "application/cloudevents+json; charset=utf-8".into(),
        key: KEY.into(),
    }
}

/// A JWT as a projected ServiceAccount token looks; `number` sets it apart.
pub fn token(audience: &str, expires: i64, number: u32) -> String {
    let claims = format!(r#"{{"aud":["{audience}"],"exp":{expires},"jti":"{number}"}}"#);
    format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
}
