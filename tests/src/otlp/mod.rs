//! An OTLP trace backend that does as it is told.

mod answer;
mod received;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
    trace_service_server::{TraceService, TraceServiceServer},
};
use prost::Message as _;
use tonic::{Status, body::Body};
use tower::ServiceExt as _;

use crate::{
    eventually,
    server::{Connection, Handler, Server},
};
pub use answer::OtlpReply;
pub use received::{Export, Protocol, ReceivedSpan};

/// An OTLP receiver on a free port of 127.0.0.1, which speaks gRPC and HTTP/protobuf there. It stores every span until
/// it is told otherwise.
pub struct OtlpReceiver {
    server: Server<Script>,
}

#[derive(Clone, Default)]
struct Script {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    exports: Vec<Export>,
    queue: VecDeque<OtlpReply>,
    default: OtlpReply,
}

impl OtlpReceiver {
    /// Starts a receiver.
    pub async fn start() -> Self {
        Self { server: Server::start(Script::default()).await }
    }

    /// Its base URL, the same for both protocols; over HTTP the path `/v1/traces` is under it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// What it answers to the next export that has no reply queued yet.
    pub fn next(&self, reply: OtlpReply) {
        self.state().queue.push_back(reply);
    }

    /// What it answers to all other exports. Forgets the queue.
    pub fn always(&self, reply: OtlpReply) {
        let mut state = self.state();
        state.queue.clear();
        state.default = reply;
    }

    /// Cuts all connections and refuses new ones.
    pub async fn refuse(&self) {
        self.server.refuse().await;
    }

    /// Accepts connections again.
    pub async fn accept(&self) {
        self.server.accept().await;
    }

    /// All exports read so far, whatever was answered to them.
    #[must_use]
    pub fn exports(&self) -> Vec<Export> {
        self.state().exports.clone()
    }

    /// All spans stored so far, one sent twice being there twice.
    #[must_use]
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        self.state().exports.iter().filter(|export| export.stored).flat_map(Export::spans).collect()
    }

    /// Waits until at least `count` spans are stored, and returns all.
    ///
    /// # Panics
    ///
    /// When that takes longer than `timeout`.
    pub async fn wait_for_spans(&self, count: usize, timeout: Duration) -> Vec<ReceivedSpan> {
        eventually(&format!("{count} spans at the receiver"), timeout, || async {
            let spans = self.spans();
            if spans.len() >= count { Ok(spans) } else { Err(format!("{} spans", spans.len())) }
        })
        .await
    }

    /// Waits until at least `count` exports have been read, and returns all.
    ///
    /// # Panics
    ///
    /// When that takes longer than `timeout`.
    pub async fn wait_for_exports(&self, count: usize, timeout: Duration) -> Vec<Export> {
        eventually(&format!("{count} exports at the receiver"), timeout, || async {
            let exports = self.exports();
            if exports.len() >= count { Ok(exports) } else { Err(format!("{} exports", exports.len())) }
        })
        .await
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.server.handler().state()
    }
}

impl Script {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an export, then does what the reply says short of putting the answer into words.
    async fn receive(&self, export: Export, reply: &OtlpReply) -> Result<ExportTraceServiceResponse, Status> {
        let connection = export.connection.clone();
        self.state().exports.push(export);
        match reply {
            OtlpReply::Slow(delay) => tokio::time::sleep(*delay).await,
            OtlpReply::Hang => return std::future::pending().await,
            OtlpReply::CutBeforeReading | OtlpReply::CutAfterReading => return connection.cut().await,
            _ => {}
        }
        reply.result()
    }

    async fn grpc(&self, mut request: Request<Incoming>, context: Context) -> Response<Body> {
        request.extensions_mut().insert(context);
        let server = TraceServiceServer::new(self.clone());
        match server.oneshot(request.map(Body::new)).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    async fn http(&self, request: Request<Incoming>, context: Context) -> Response<Body> {
        let (head, body) = request.into_parts();
        let Ok(body) = body.collect().await else { return context.connection.cut().await };
        let path = head.uri.path();
        if path.matches("/v1/traces").count() != 1 || !path.ends_with("/v1/traces") {
            return answer::bare(StatusCode::NOT_FOUND);
        }
        if head.headers.get("content-type").is_none_or(|value| value != "application/x-protobuf") {
            return answer::bare(StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
        let Ok(message) = ExportTraceServiceRequest::decode(body.to_bytes()) else {
            return answer::bare(StatusCode::BAD_REQUEST);
        };
        let export = context.export(Protocol::Http, path, head.headers.clone(), message);
        let result = self.receive(export, &context.reply).await;
        answer::http(&context.reply, result)
    }
}

impl Handler for Script {
    async fn handle(&self, request: Request<Incoming>, connection: Connection) -> Response<Body> {
        let reply = {
            let mut state = self.state();
            state.queue.pop_front().unwrap_or_else(|| state.default.clone())
        };
        let context = Context { connection, reply };
        let grpc = request
            .headers()
            .get("content-type")
            .is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"));
        match &context.reply {
            OtlpReply::CutBeforeReading => context.connection.cut().await,
            // What a proxy in between answers, over gRPC too.
            OtlpReply::Http(status) if grpc => answer::bare(*status),
            _ if grpc => self.grpc(request, context).await,
            _ => self.http(request, context).await,
        }
    }
}

#[tonic::async_trait]
impl TraceService for Script {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, Status> {
        let (metadata, mut extensions, message) = request.into_parts();
        let context: Context = extensions.remove().expect("the handler put it there");
        let path = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
        let export = context.export(Protocol::Grpc, path, metadata.into_headers(), message);
        self.receive(export, &context.reply).await.map(tonic::Response::new)
    }
}

/// What goes with a request from the listener to the answer.
#[derive(Clone)]
struct Context {
    connection: Connection,
    reply: OtlpReply,
}

impl Context {
    fn export(
        &self,
        protocol: Protocol,
        path: &str,
        headers: HeaderMap,
        request: ExportTraceServiceRequest,
    ) -> Export {
        Export {
            at: Instant::now(),
            connection: self.connection.clone(),
            protocol,
            path: path.to_owned(),
            headers,
            request,
            stored: self.reply.stores(),
        }
    }
}
