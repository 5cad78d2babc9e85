//! A broker and an OTLP backend that take everything, count it and keep nothing.

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Instant,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
    trace_service_server::{TraceService, TraceServiceServer},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch};
use tonic::transport::server::TcpIncoming;

/// What has arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrived {
    /// Events at the broker.
    pub(crate) events: u64,
    /// Spans at the backend.
    pub(crate) spans: u64,
    /// When the last span came.
    pub(crate) last_span: Instant,
}

/// Both sinks, running.
pub(crate) struct Sinks {
    pub(crate) broker: SocketAddr,
    pub(crate) otlp: SocketAddr,
    pub(crate) arrived: watch::Receiver<Arrived>,
}

impl Sinks {
    /// Starts them on free ports of loopback.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let start = Arrived { events: 0, spans: 0, last_span: Instant::now() };
        let (arrive, arrived) = watch::channel(start);
        let arrive = Arc::new(arrive);
        let (events, seen) = (arrive.clone(), arrived.clone());
        let broker = plain(move |method, _| {
            if method == http::Method::GET {
                let now = *seen.borrow();
                return json!({ "events": now.events, "spans": now.spans });
            }
            events.send_modify(|now| now.events += 1);
            json!({ "eventListener": "cdevents-broker", "namespace": "platform-system",
                "eventListenerUID": "5f9fe9c2-6c3b-4c3e-8f0a-2f6d3f1a9b77",
                "eventID": "00000000-0000-4000-8000-000000000001" })
        })
        .await?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let otlp = listener.local_addr()?;
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let backend = TraceServiceServer::new(Backend { arrive });
        tokio::spawn(tonic::transport::Server::builder().add_service(backend).serve_with_incoming(incoming));
        Ok(Self { broker, otlp, arrived })
    }
}

/// Runs both until killed; a GET at the broker answers what has arrived.
pub(crate) async fn run() -> anyhow::Result<()> {
    let sinks = Sinks::start().await?;
    crate::say(&json!({ "broker": sinks.broker, "otlp": sinks.otlp }));
    std::future::pending().await
}

/// A plain HTTP/1.1 server that answers each request 202 with what `answer` says.
pub(crate) async fn plain(
    answer: impl Fn(&http::Method, &str) -> Value + Clone + Send + Sync + 'static,
) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = answer.clone();
                async move {
                    let (head, body) = request.into_parts();
                    let _ = body.collect().await;
                    let text = answer(&head.method, head.uri.path()).to_string();
                    let mut response = Response::new(Full::new(Bytes::from(text)));
                    *response.status_mut() = http::StatusCode::ACCEPTED;
                    Ok::<_, Infallible>(response)
                }
            });
            tokio::spawn(async move {
                let _ = stream.set_nodelay(true);
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    Ok(address)
}

struct Backend {
    arrive: Arc<watch::Sender<Arrived>>,
}

#[tonic::async_trait]
impl TraceService for Backend {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        let resources = request.into_inner().resource_spans;
        let spans = resources.iter().flat_map(|r| &r.scope_spans).map(|s| s.spans.len() as u64).sum::<u64>();
        self.arrive.send_modify(|now| {
            now.spans += spans;
            now.last_span = Instant::now();
        });
        Ok(tonic::Response::new(ExportTraceServiceResponse { partial_success: None }))
    }
}
