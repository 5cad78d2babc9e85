//! The listener under [`Broker`](crate::Broker) and [`OtlpReceiver`](crate::OtlpReceiver): HTTP/1.1 and HTTP/2 on one
//! port of 127.0.0.1, which can refuse and accept connections, and cut one in the middle of a request.

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use http::{Request, Response};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Mutex,
    task::{JoinHandle, JoinSet},
};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;

/// What answers the requests.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Answers one request. Its head has been read, its body has not.
    fn handle(
        &self,
        request: Request<Incoming>,
        connection: Connection,
    ) -> impl Future<Output = Response<Body>> + Send;
}

/// The connection that a request came on.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    /// Counts connections from 1.
    pub(crate) number: u64,
    cut: CancellationToken,
}

impl Connection {
    /// Closes the connection without another byte. Does not return: there is nobody to answer any more.
    pub(crate) async fn cut<T>(&self) -> T {
        self.cut.cancel();
        std::future::pending().await
    }
}

/// A listener with its connections.
pub(crate) struct Server<H> {
    address: SocketAddr,
    shared: Arc<Shared<H>>,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

struct Shared<H> {
    handler: H,
    connections: AtomicU64,
}

impl<H: Handler> Server<H> {
    /// Listens on a free port.
    pub(crate) async fn start(handler: H) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bind a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared { handler, connections: AtomicU64::new(0) });
        let accepting = Mutex::new(Some(tokio::spawn(accept(listener, Arc::clone(&shared)))));
        Self { address, shared, accepting }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn handler(&self) -> &H {
        &self.shared.handler
    }

    /// Cuts all connections and refuses new ones.
    pub(crate) async fn refuse(&self) {
        if let Some(task) = self.accepting.lock().await.take() {
            task.abort();
            // Ends as cancelled; after that the socket is closed.
            let _ = task.await;
        }
    }

    /// Accepts connections again, on the same port.
    pub(crate) async fn accept(&self) {
        let mut accepting = self.accepting.lock().await;
        if accepting.is_none() {
            let listener = TcpListener::bind(self.address).await.expect("bind the same port again");
            *accepting = Some(tokio::spawn(accept(listener, Arc::clone(&self.shared))));
        }
    }
}

impl<H> Drop for Server<H> {
    fn drop(&mut self) {
        if let Some(task) = self.accepting.get_mut().take() {
            task.abort();
        }
    }
}

/// Accepts until aborted; the set then drops, and with it every connection.
async fn accept<H: Handler>(listener: TcpListener, shared: Arc<Shared<H>>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let number = shared.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let connection = Connection { number, cut: CancellationToken::new() };
        connections.spawn(serve(stream, connection, Arc::clone(&shared)));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve<H: Handler>(stream: TcpStream, connection: Connection, shared: Arc<Shared<H>>) {
    let cut = connection.cut.clone();
    let service = service_fn(move |request| {
        let (shared, connection) = (Arc::clone(&shared), connection.clone());
        async move { Ok::<_, Infallible>(shared.handler.handle(request, connection).await) }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // How a client ends its connection is its own affair.
        _ = serving => {}
        () = cut.cancelled() => {}
    }
}
