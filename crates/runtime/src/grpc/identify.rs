//! Finding out who makes a call, before anything of it is looked at.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context as TaskContext, Poll},
};

use http::{Request, Response};
use tonic::{Status, body::Body};
use tower::{Layer, Service};
use tracing::Instrument as _;
use transponder_core::Caller;

use super::connection::Peer;
use crate::{Fault, auth::TokenReviewer, trace::TraceContext};

/// Authenticates each call, puts the [`Caller`] into its extensions and runs it in its trace context.
#[derive(Clone)]
pub(super) struct AuthLayer {
    pub(super) reviewer: Arc<dyn TokenReviewer>,
}

impl<S> Layer<S> for AuthLayer {
    type Service = AuthService<S>;

    fn layer(&self, inner: S) -> AuthService<S> {
        AuthService { inner, reviewer: self.reviewer.clone() }
    }
}

#[derive(Clone)]
pub(super) struct AuthService<S> {
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
