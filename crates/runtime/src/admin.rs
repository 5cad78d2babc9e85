//! The admin listener: `/healthz`, `/readyz`, `/metrics`. Reads only, never exposed.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use crate::{Metrics, Shutdown};

/// Which parts of the process are ready. Clones share it.
#[derive(Clone, Default)]
pub struct Readiness(Arc<Mutex<BTreeMap<&'static str, Result<(), String>>>>);

impl Readiness {
    /// Announces a part, which is not ready before it says so.
    #[must_use]
    pub fn part(&self, name: &'static str) -> Part {
        let part = Part { name, all: self.clone() };
        part.not_ready("starting");
        part
    }

    /// The parts that are not ready, with the reason.
    #[must_use]
    pub fn missing(&self) -> Vec<(&'static str, String)> {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parts.iter().filter_map(|(name, state)| Some((*name, state.clone().err()?))).collect()
    }
}

/// One part's say in readiness.
#[derive(Clone)]
pub struct Part {
    name: &'static str,
    all: Readiness,
}

impl Part {
    fn set(&self, state: Result<(), String>) {
        let mut parts = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = parts.insert(self.name, state.clone());
        if before.as_ref() != Some(&state) {
            match state {
                Ok(()) => tracing::info!(part = self.name, "ready"),
                // That a part starts is no trouble.
                Err(reason) if before.is_none() => tracing::debug!(part = self.name, reason, "not ready"),
                Err(reason) => tracing::warn!(part = self.name, reason, "not ready"),
            }
        }
    }

    /// The part is ready.
    pub fn ready(&self) {
        self.set(Ok(()));
    }

    /// The part is not ready, and why.
    pub fn not_ready(&self, reason: impl Into<String>) {
        self.set(Err(reason.into()));
    }
}

/// The bound admin listener.
pub struct Admin {
    listener: TcpListener,
    metrics: Metrics,
    readiness: Readiness,
    shutdown: Shutdown,
}

impl Admin {
    /// Binds the listener.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn bind(address: SocketAddr, context: &crate::Context) -> std::io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind(address).await?,
            metrics: context.metrics.clone(),
            readiness: context.readiness.clone(),
            shutdown: context.shutdown.clone(),
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the socket does not know.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves for as long as the process lives: probes and the last scrape come while it drains, too.
    pub async fn run(self) {
        let admin = Arc::new(self);
        loop {
            let Ok((stream, _)) = admin.listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let admin = admin.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let admin = admin.clone();
                    async move { Ok::<_, Infallible>(admin.answer(&request)) }
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(Duration::from_secs(10))
                    .serve_connection(TokioIo::new(stream), service);
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "admin connection");
                }
            });
        }
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        if !matches!(path, "/healthz" | "/readyz" | "/metrics") {
            return plain(StatusCode::NOT_FOUND, "not found\n");
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "reads only\n");
            response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match path {
            "/healthz" => plain(StatusCode::OK, "ok\n"),
            "/readyz" => self.readiness(),
            _ => self.metrics(request),
        }
    }

    fn readiness(&self) -> Response<Full<Bytes>> {
        if self.shutdown.has_begun() {
            return plain(StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
        }
        let missing = self.readiness.missing();
        if missing.is_empty() {
            return plain(StatusCode::OK, "ok\n");
        }
        let lines = missing.iter().map(|(part, why)| format!("{part}: {why}\n")).collect::<String>();
        plain(StatusCode::SERVICE_UNAVAILABLE, lines)
    }

    fn metrics(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let accept = request.headers().get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
        match self.metrics.expose(accept) {
            Ok((text, kind)) => {
                let mut response = plain(StatusCode::OK, text);
                response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
                response
            }
            Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        }
    }
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
