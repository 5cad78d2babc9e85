//! An OTLP/gRPC backend that does as it is told.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    trace::v1::Span,
};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Request, Response, Status,
    metadata::MetadataMap,
    transport::{Identity, Server, ServerTlsConfig},
};

/// What the backend answers.
pub enum Answer {
    Partial(i64, &'static str),
    Status(Status),
    Hang,
}

#[derive(Default)]
struct State {
    seen: Vec<(MetadataMap, ExportTraceServiceRequest)>,
    script: VecDeque<Answer>,
    last: Option<Status>,
}

/// The backend. It answers what its script says, and after that OK or what it was told to answer for ever.
#[derive(Clone)]
pub struct Backend {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Backend {
    pub async fn start() -> Self {
        Self::with(None).await
    }

    pub async fn start_tls(certificate: &str, key: &str) -> Self {
        Self::with(Some(ServerTlsConfig::new().identity(Identity::from_pem(certificate, key)))).await
    }

    async fn with(tls: Option<ServerTlsConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let backend = Self { address: listener.local_addr().unwrap(), state: Arc::default() };
        let mut server = Server::builder();
        if let Some(tls) = tls {
            server = server.tls_config(tls).unwrap();
        }
        let routes = server.add_service(TraceServiceServer::new(backend.clone()));
        tokio::spawn(routes.serve_with_incoming(TcpListenerStream::new(listener)));
        backend
    }

    /// Adds to the script.
    pub fn then(&self, answer: Answer) -> &Self {
        self.state.lock().unwrap().script.push_back(answer);
        self
    }

    /// Answers this whenever the script is at its end.
    pub fn for_ever(&self, status: Option<Status>) {
        self.state.lock().unwrap().last = status;
    }

    pub fn count(&self) -> usize {
        self.state.lock().unwrap().seen.len()
    }

    /// The span of a request, counted from 0.
    pub fn span(&self, number: usize) -> Span {
        self.state.lock().unwrap().seen[number].1.resource_spans[0].scope_spans[0].spans[0].clone()
    }

    pub fn metadata(&self, number: usize) -> MetadataMap {
        self.state.lock().unwrap().seen[number].0.clone()
    }
}

#[tonic::async_trait]
impl TraceService for Backend {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let answer = {
            let mut state = self.state.lock().unwrap();
            state.seen.push((request.metadata().clone(), request.into_inner()));
            let last = state.last.clone().map(Answer::Status);
            state.script.pop_front().or(last)
        };
        let partial = match answer {
            None => None,
            Some(Answer::Status(status)) => return Err(status),
            Some(Answer::Hang) => std::future::pending().await,
            Some(Answer::Partial(rejected_spans, message)) => {
                Some(ExportTracePartialSuccess { rejected_spans, error_message: message.into() })
            }
        };
        Ok(Response::new(ExportTraceServiceResponse { partial_success: partial }))
    }
}
