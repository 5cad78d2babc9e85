//! Finding out who makes a call, before anything of it is looked at.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context as TaskContext, Poll},
};

use http::{Request, Response};
use tonic::{Code, Status, body::Body};
use tower::{Layer, Service};
use tracing::Instrument as _;
use transponder_core::{Caller, ServiceName};

use super::connection::{Connection, Peer};
use crate::{
    Fault,
    auth::TokenReviewer,
    trace::{Kind, Span, TraceContext, Tracer},
};

/// Authenticates each call, puts the [`Caller`] into its extensions and runs it in its trace context.
#[derive(Clone)]
pub(super) struct AuthLayer {
    pub(super) reviewer: Arc<dyn TokenReviewer>,
    pub(super) service: ServiceName,
    pub(super) tracer: Tracer,
}

impl<S> Layer<S> for AuthLayer {
    type Service = AuthService<S>;

    fn layer(&self, inner: S) -> AuthService<S> {
        AuthService { inner, layer: self.clone() }
    }
}

#[derive(Clone)]
pub(super) struct AuthService<S> {
    inner: S,
    layer: AuthLayer,
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
        let AuthLayer { reviewer, service, tracer } = self.layer.clone();
        Box::pin(async move {
            let uri = request.uri().clone();
            let anonymous = uri.path().starts_with("/grpc.health.v1.Health/");
            if !anonymous {
                let credentials = Credentials::of(&request);
                let caller = match authenticate(credentials, reviewer.as_ref()).await {
                    Ok(caller) => caller,
                    Err(fault) => return Ok(Status::from(fault).into_http()),
                };
                if let Some(connection) = request.extensions().get::<Connection>() {
                    connection.authenticated();
                }
                request.extensions_mut().insert(caller);
            }
            // A stranger fills no traces.
            let tracer = if anonymous { Tracer::default() } else { tracer };
            let parent = request.headers().get("traceparent").and_then(|v| v.to_str().ok());
            let name = uri.path().trim_start_matches('/');
            let mut span = match parent.and_then(TraceContext::parse) {
                Some(parent) => tracer.child(service, Kind::Server, name, parent),
                None => tracer.root(service, Kind::Server, name, tracer.begin_trace()),
            };
            // Every log line of the call carries its trace.
            let logged = tracing::info_span!("call", trace_id = %hex::encode(span.context().trace_id));
            let answer = span.context().scope(inner.call(request).instrument(logged)).await;
            describe(&mut span, name, &answer);
            answer
        })
    }
}

/// Attributes as the semantic conventions for RPC have them. A refusal stands in the head of the answer, success behind it.
fn describe<E>(span: &mut Span, name: &str, answer: &Result<Response<Body>, E>) {
    if !span.is_recorded() {
        return;
    }
    let (service, method) = name.split_once('/').unwrap_or((name, ""));
    span.set("rpc.system", || "grpc");
    span.set("rpc.service", || service.to_owned());
    span.set("rpc.method", || method.to_owned());
    let refusal = answer.as_ref().ok().and_then(|answer| Status::from_header_map(answer.headers()));
    let code = refusal.map_or(Code::Ok, |status| status.code());
    span.set("rpc.grpc.status_code", || i64::from(i32::from(code)));
    // Those that the conventions name for a server: the others are the caller's own fault.
    let ours = [
        Code::Unknown,
        Code::DeadlineExceeded,
        Code::Unimplemented,
        Code::Internal,
        Code::Unavailable,
        Code::DataLoss,
    ];
    if ours.contains(&code) {
        span.failed(|| code.description().to_owned());
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
        let connection = request.extensions().get::<Connection>();
        let peer = connection.map_or(Peer::Anonymous, |connection| connection.peer.clone());
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
