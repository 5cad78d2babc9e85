//! The built-in broker: takes events as a Tekton EventListener does and keeps what arrived.

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::{net::TcpListener, sync::watch};

/// One event that arrived.
#[derive(Debug, Clone)]
pub(super) struct Arrival {
    /// Header `Transponder-Key`.
    pub(super) key: String,
    pub(super) content_type: String,
    pub(super) body: Bytes,
}

/// The broker. Clones share what arrived.
#[derive(Clone)]
pub(super) struct Broker {
    address: SocketAddr,
    token: Arc<str>,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    count: Arc<watch::Sender<usize>>,
}

impl Broker {
    /// Starts it on a free port. `token` is the only one it takes.
    pub(super) async fn start(token: &str) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let broker = Self {
            address: listener.local_addr()?,
            token: token.into(),
            arrivals: Arc::default(),
            count: Arc::new(watch::Sender::new(0)),
        };
        tokio::spawn(broker.clone().accept(listener));
        Ok(broker)
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// What arrived, in order.
    pub(super) fn arrivals(&self) -> Vec<Arrival> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes with each arrival.
    pub(super) fn count(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }

    async fn accept(self, listener: TcpListener) {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let broker = self.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| broker.clone().take(request));
                let _ = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    }

    async fn take(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let (head, body) = request.into_parts();
        let text = |headers: &HeaderMap, name: &str| {
            headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let (status, answer) = match body.collect().await {
            _ if head.method != Method::POST => (StatusCode::METHOD_NOT_ALLOWED, json!({})),
            _ if text(&head.headers, "authorization") != format!("Bearer {}", self.token) => {
                (StatusCode::UNAUTHORIZED, json!({}))
            }
            Err(_) => (StatusCode::BAD_REQUEST, json!({})),
            Ok(body) => {
                let key = text(&head.headers, "transponder-key");
                let content_type = text(&head.headers, "content-type");
                self.keep(Arrival { key, content_type, body: body.to_bytes() });
                let event_id = format!("{:016x}", fastrand::u64(..));
                (StatusCode::ACCEPTED, json!({ "eventListener": "demo", "eventID": event_id }))
            }
        };
        let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
        *response.status_mut() = status;
        let json = header::HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        Ok(response)
    }

    fn keep(&self, arrival: Arrival) {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.push(arrival);
        self.count.send_replace(arrivals.len());
    }
}
