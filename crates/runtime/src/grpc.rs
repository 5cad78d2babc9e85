//! gRPC between the parts and for Tasks: mutual TLS, callers, health, reflection, trace context, drain.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context as TaskContext, Poll},
    time::Duration,
};

use http::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
};
use tokio_rustls::{TlsAcceptor, TlsConnector, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Status,
    body::Body,
    server::NamedService,
    service::interceptor::InterceptedService,
    transport::{Channel, Endpoint, Uri, server::Connected},
};
use tower::{Layer, Service};
use tracing::Instrument as _;
use transponder_core::{Caller, ServiceName};

use crate::{Context, Fault, Shutdown, auth::TokenReviewer, mesh::MeshIdentity, trace::TraceContext};

/// Longest TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Connections that are served at a time.
const CONNECTIONS: usize = 1024;
/// Of these, connections that showed no certificate: strangers cannot keep the parts of the mesh from each other.
const STRANGERS: usize = 768;
/// Longest silence before the first byte of HTTP/2.
const PREFACE: Duration = Duration::from_secs(5);
/// Longest life of a connection that showed no certificate: a Task makes a call and goes.
const STRANGER_AGE: Duration = Duration::from_secs(600);
/// Streams of one connection at a time.
const STREAMS: u32 = 256;

/// A gRPC server of one service that is bound and not yet serving.
pub struct Server {
    listener: TcpListener,
    identity: Arc<MeshIdentity>,
    reviewer: Arc<dyn TokenReviewer>,
    shutdown: Shutdown,
}

impl Server {
    /// Binds the listener.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn bind(
        address: SocketAddr,
        identity: Arc<MeshIdentity>,
        reviewer: Arc<dyn TokenReviewer>,
        context: &Context,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await.map_err(|e| {
            std::io::Error::new(e.kind(), format!("{} cannot listen on {address}: {e}", identity.service()))
        })?;
        Ok(Self { listener, identity, reviewer, shutdown: context.shutdown.clone() })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the socket does not know.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until shutdown, then lets calls in flight finish.
    ///
    /// # Errors
    /// When the transport fails as a whole.
    pub async fn serve<S>(self, service: S) -> Result<(), tonic::transport::Error>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_serving::<S>().await;
        let shutdown = self.shutdown.clone();
        let stopping = async move {
            shutdown.wait().await;
            health.set_not_serving::<S>().await;
        };
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(transponder_proto::DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
                // So that a client can read the details of a refusal.
                .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
                .with_service_name(S::NAME)
                .with_service_name("grpc.health.v1.Health")
        };
        let mut server = tonic::transport::Server::builder()
            .max_concurrent_streams(STREAMS)
            .http2_keepalive_interval(Some(Duration::from_secs(30)))
            .http2_keepalive_timeout(Some(Duration::from_secs(10)))
            .timeout(Duration::from_secs(60))
            .layer(AuthLayer { reviewer: self.reviewer.clone() });
        let mut routes = server.add_service(health_service).add_service(service);
        match (reflection().build_v1(), reflection().build_v1alpha()) {
            (Ok(v1), Ok(alpha)) => routes = routes.add_service(v1).add_service(alpha),
            (Err(error), _) | (_, Err(error)) => tracing::error!(%error, "no reflection"),
        }
        let (sender, incoming) = mpsc::channel(16);
        let accepting = tokio::spawn(accept(self.listener, self.identity, sender, self.shutdown));
        let served = routes.serve_with_incoming_shutdown(ReceiverStream::new(incoming), stopping).await;
        accepting.abort();
        served
    }
}

/// Accepts connections, each with a deadline for its handshake; a slow one delays no other.
async fn accept(
    listener: TcpListener,
    identity: Arc<MeshIdentity>,
    sender: mpsc::Sender<std::io::Result<MeshStream>>,
    shutdown: Shutdown,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let strangers = Arc::new(Semaphore::new(STRANGERS));
    while let Some(accepted) = shutdown.or(listener.accept()).await {
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, service = %identity.service(), "accept failed");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            tracing::warn!(service = %identity.service(), "connection refused: all {CONNECTIONS} places are taken");
            continue;
        };
        let (identity, sender, strangers) = (identity.clone(), sender.clone(), strangers.clone());
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            let handshake = TlsAcceptor::from(identity.server()).accept(stream);
            match tokio::time::timeout(HANDSHAKE, handshake).await {
                Ok(Ok(tls)) => {
                    let peer = Peer::of(&identity, &tls);
                    let stranger = match &peer {
                        Peer::Service(_) => None,
                        Peer::Anonymous | Peer::Invalid(_) => match strangers.try_acquire_owned() {
                            Ok(place) => Some(place),
                            Err(_) => {
                                tracing::warn!(service = %identity.service(), "connection refused: too many strangers");
                                return;
                            }
                        },
                    };
                    let _ = sender.send(Ok(MeshStream::new(tls, peer, place, stranger))).await;
                }
                Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                Err(_) => tracing::debug!("TLS handshake took too long"),
            }
        });
    }
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone)]
pub enum Peer {
    /// Nobody that proved anything: a Task, or a health probe.
    Anonymous,
    /// A part of the mesh.
    Service(ServiceName),
    /// A client certificate that names no service, and why.
    Invalid(String),
}

impl Peer {
    fn of(identity: &MeshIdentity, tls: &TlsStream<TcpStream>) -> Self {
        match tls.get_ref().1.peer_certificates() {
            None => Self::Anonymous,
            Some(certificates) => identity.peer(certificates).map_or_else(Self::Invalid, Self::Service),
        }
    }
}

/// A TLS connection and who is at its other end, found out once.
struct MeshStream {
    tls: TlsStream<TcpStream>,
    peer: Peer,
    /// When reading ends in an error: at first until something was said, then at a stranger's age.
    deadline: Option<Pin<Box<tokio::time::Sleep>>>,
    silent: bool,
    _place: OwnedSemaphorePermit,
    stranger: Option<OwnedSemaphorePermit>,
}

impl MeshStream {
    fn new(
        tls: TlsStream<TcpStream>,
        peer: Peer,
        place: OwnedSemaphorePermit,
        stranger: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let deadline = Some(Box::pin(tokio::time::sleep(PREFACE)));
        Self { tls, peer, deadline, silent: true, _place: place, stranger }
    }
}

impl Connected for MeshStream {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for MeshStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.tls).poll_read(cx, buf);
        if read.is_pending() {
            if let Some(deadline) = &mut self.deadline
                && deadline.as_mut().poll(cx).is_ready()
            {
                return Poll::Ready(Err(std::io::ErrorKind::TimedOut.into()));
            }
        } else if self.silent && buf.filled().len() > before {
            self.silent = false;
            let age = self.stranger.as_ref().map(|_| tokio::time::sleep(STRANGER_AGE));
            self.deadline = age.map(Box::pin);
        }
        read
    }
}

impl AsyncWrite for MeshStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.tls).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.tls).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.tls).poll_shutdown(cx)
    }
}

/// Authenticates each call, puts the [`Caller`] into its extensions and runs it in its trace context.
#[derive(Clone)]
struct AuthLayer {
    reviewer: Arc<dyn TokenReviewer>,
}

impl<S> Layer<S> for AuthLayer {
    type Service = AuthService<S>;

    fn layer(&self, inner: S) -> AuthService<S> {
        AuthService { inner, reviewer: self.reviewer.clone() }
    }
}

#[derive(Clone)]
struct AuthService<S> {
    inner: S,
    reviewer: Arc<dyn TokenReviewer>,
}

impl<S> Service<Request<Body>> for AuthService<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        // The clone takes the place of the service that was polled ready.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let reviewer = self.reviewer.clone();
        Box::pin(async move {
            if !request.uri().path().starts_with("/grpc.health.v1.Health/") {
                let credentials = Credentials::of(&request);
                match authenticate(credentials, reviewer.as_ref()).await {
                    Ok(caller) => request.extensions_mut().insert(caller),
                    Err(fault) => return Ok(Status::from(fault).into_http()),
                };
            }
            let parent = request.headers().get("traceparent").and_then(|v| v.to_str().ok());
            let context = parent.and_then(TraceContext::parse).unwrap_or_else(TraceContext::random);
            // Every log line of the call carries its trace.
            let span = tracing::info_span!("call", trace_id = %hex::encode(context.trace_id));
            context.scope(inner.call(request).instrument(span)).await
        })
    }
}

/// What a call brings to prove who makes it.
enum Credentials {
    Peer(Peer),
    Token(String),
    Refused(Fault),
}

impl Credentials {
    fn of(request: &Request<Body>) -> Self {
        let refused = |message: &str, reason| Self::Refused(Fault::unauthenticated(message).reason(reason));
        let peer = request.extensions().get::<Peer>().cloned().unwrap_or(Peer::Anonymous);
        let mut headers = request.headers().get_all(http::header::AUTHORIZATION).iter();
        let (header, more) = (headers.next(), headers.next());
        let Some(header) = header else { return Self::Peer(peer) };
        if more.is_some() {
            return refused("there is more than one authorization header", "TWO_TOKENS");
        }
        if !matches!(peer, Peer::Anonymous) {
            return refused("a client certificate and a token on one call are refused", "TWO_IDENTITIES");
        }
        let token = header.to_str().ok().and_then(|text| {
            let (scheme, token) = text.split_once(' ')?;
            let token = token.trim();
            (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
        });
        token
            .map_or_else(|| refused("the authorization header is not 'Bearer <token>'", "TOKEN"), Self::Token)
    }
}

async fn authenticate(credentials: Credentials, reviewer: &dyn TokenReviewer) -> Result<Caller, Fault> {
    match credentials {
        Credentials::Refused(fault) => Err(fault),
        Credentials::Peer(Peer::Service(service)) => Ok(Caller::Service(service)),
        Credentials::Peer(Peer::Invalid(why)) => Err(Fault::unauthenticated(why).reason("CERTIFICATE")),
        Credentials::Peer(Peer::Anonymous) => {
            Err(Fault::unauthenticated("a client certificate or 'authorization: Bearer <token>' is required")
                .reason("NO_CALLER"))
        }
        Credentials::Token(token) => reviewer
            .review(&token)
            .await?
            .ok_or_else(|| Fault::unauthenticated("the token is not known").reason("TOKEN")),
    }
}

/// A channel to another part, with trace context.
pub type MeshChannel =
    InterceptedService<Channel, fn(tonic::Request<()>) -> Result<tonic::Request<()>, Status>>;

/// A channel to `service` at `host:port`. It connects when it is first used, looks the name up anew and checks who
/// answers each time it connects, and notices a dead peer within 15 s.
///
/// # Errors
/// When the address is none.
pub fn channel(
    address: &str,
    service: ServiceName,
    identity: Arc<MeshIdentity>,
) -> Result<MeshChannel, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?
        .connect_timeout(Duration::from_secs(5))
        .http2_keep_alive_interval(Duration::from_secs(10))
        .keep_alive_timeout(Duration::from_secs(5))
        .keep_alive_while_idle(true)
        .tcp_nodelay(true);
    let connector = tower::service_fn(move |uri: Uri| {
        let identity = identity.clone();
        async move { connect(&uri, service, &identity).await.map(TokioIo::new) }
    });
    let channel = endpoint.connect_with_connector_lazy(connector);
    Ok(InterceptedService::new(channel, pass_on_trace))
}

fn pass_on_trace(mut request: tonic::Request<()>) -> Result<tonic::Request<()>, Status> {
    if let Ok(value) = TraceContext::current().child().to_string().parse() {
        request.metadata_mut().insert("traceparent", value);
    }
    Ok(request)
}

async fn connect(
    uri: &Uri,
    service: ServiceName,
    identity: &MeshIdentity,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let authority = uri.authority().ok_or_else(|| std::io::Error::other("the address has no host"))?;
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let stream = TcpStream::connect((host.as_str(), authority.port_u16().unwrap_or(8444))).await?;
    stream.set_nodelay(true)?;
    let name = rustls_pki_types::ServerName::try_from(host).map_err(std::io::Error::other)?;
    let tls = TlsConnector::from(identity.client()).connect(name, stream).await?;
    let certificates = tls.get_ref().1.peer_certificates().unwrap_or_default();
    match identity.peer(certificates) {
        Ok(answers) if answers == service => Ok(tls),
        Ok(answers) => Err(std::io::Error::other(format!("{authority} is {answers}, not {service}"))),
        Err(why) => Err(std::io::Error::other(format!("{authority} is not {service}: {why}"))),
    }
}
