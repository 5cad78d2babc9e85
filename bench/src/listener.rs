//! The edge's way of listening: TLS with its certificate, HTTP/1.1 with the same settings and deadlines.

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use transponder_runtime::tls::{LiveCertificate, Usage, load_pair, provider};

/// An answer as long as a receipt.
const RECEIPT: &str = r#"{"cluster":"bench-0000","finishedAt":"2026-09-14T10:00:00.123Z","id":"0123456789abcdef0123","identical":true,"key":"0123456789abcdef0123456789abcdef01234567","observations":1,"phase":"Succeeded","receivedAt":"2026-09-14T10:00:00.123456789Z","source":"/platform-cicd/app-0000-cicd/bench-0000-app-0000-prod-outcome","targets":{"broker":{"since":"2026-09-14T10:00:00.123456789Z","state":"stored"},"dora":{"since":"2026-09-14T10:00:00.123456789Z","state":"waiting"},"span":{"since":"2026-09-14T10:00:00.123456789Z","state":"waiting"},"tracking":{"since":"2026-09-14T10:00:00.123456789Z","state":"stored"}},"type":"dev.cdevents.environment.deployed.0.1.0"}"#;

/// Whose certificate is shown.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The edge's certificate chain
    #[arg(long)]
    certificate: PathBuf,
    /// Its key
    #[arg(long)]
    key: PathBuf,
}

/// Bound, and not yet serving.
pub(crate) struct Listener {
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    load: Arc<Load>,
}

/// What a listener has done.
#[derive(Default)]
pub(crate) struct Load {
    /// Nanoseconds that connections have kept it busy.
    pub(crate) busy: AtomicU64,
    /// Requests that were answered.
    pub(crate) served: AtomicU64,
}

impl Listener {
    /// Binds a free port of loopback.
    pub(crate) async fn bind(arguments: &Arguments) -> anyhow::Result<Self> {
        let (pair, _) = load_pair(&arguments.certificate, &arguments.key, Usage::Server)?;
        let mut tls = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(LiveCertificate::new(pair)));
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        Ok(Self { listener, tls: Arc::new(tls), load: Arc::default() })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// What it has done so far.
    pub(crate) fn load(&self) -> Arc<Load> {
        self.load.clone()
    }

    /// Serves for ever: reads each body, lets `work` have it, and answers as the edge would.
    pub(crate) async fn serve<W, F>(self, work: W) -> anyhow::Result<()>
    where
        W: Fn(Bytes) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        loop {
            let (stream, _) = self.listener.accept().await?;
            let load = self.load.clone();
            let connection = talk(TlsAcceptor::from(self.tls.clone()), stream, work.clone(), load.clone());
            tokio::spawn(Timed { future: Box::pin(connection), load });
        }
    }
}

async fn talk<W, F>(tls: TlsAcceptor, stream: TcpStream, work: W, load: Arc<Load>)
where
    W: Fn(Bytes) -> F + Clone,
    F: Future<Output = anyhow::Result<()>>,
{
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_secs(5), tls.accept(stream)).await else {
        return;
    };
    let service = service_fn(|request: Request<Incoming>| {
        let (work, load) = (work.clone(), load.clone());
        async move {
            let done = match request.into_body().collect().await {
                Ok(body) => work(body.to_bytes()).await,
                Err(error) => Err(error.into()),
            };
            load.served.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(answer(done))
        }
    });
    // How a client ends its connection is its own affair.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(30))
        .max_buf_size(16 * 1024)
        .half_close(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn answer(done: anyhow::Result<()>) -> Response<Full<Bytes>> {
    let (status, body) = match done {
        Ok(()) => (202, Bytes::from_static(RECEIPT.as_bytes())),
        Err(error) => (500, Bytes::from(error.to_string())),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let location = "/outcome/bench-0000/0123456789abcdef0123456789abcdef01234567";
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static(location));
    response
}

/// Adds up how long a future is busy.
struct Timed<F> {
    future: Pin<Box<F>>,
    load: Arc<Load>,
}

impl<F: Future> Future for Timed<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let started = Instant::now();
        let polled = self.future.as_mut().poll(context);
        let nanos = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.load.busy.fetch_add(nanos, Ordering::Relaxed);
        polled
    }
}
