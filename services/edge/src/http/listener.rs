//! The accept loop: TLS, deadlines for handshake, head and idleness, a cap on connections.
//!

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;
use transponder_runtime::Shutdown;

use super::{
    Handler,
    linger::Linger,
    seats::{Seat, Seats},
};
use crate::{
    config::HttpConfig,
    error::Error,
    metrics::{Closed, Metrics},
};

/// Largest request head.
const HEAD: usize = 16 * 1024;
/// Open files that are left to everything but connections.
const OTHER_FILES: u64 = 256;

pub(crate) struct Listener {
    listener: TcpListener,
    address: SocketAddr,
    tls: Arc<ServerConfig>,
    config: HttpConfig,
    metrics: Metrics,
}

impl Listener {
    pub(crate) async fn bind(
        address: SocketAddr,
        tls: Arc<ServerConfig>,
        config: HttpConfig,
        metrics: Metrics,
    ) -> Result<Self, Error> {
        let failed = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, tls, config, metrics })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// As many as are configured, if the limit on open files allows: without a file for the next connection there would
    /// be no choice of which one to close.
    fn most_connections(&self) -> usize {
        let wanted = self.config.max_connections;
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let room = connections_within(files.unwrap_or(u64::MAX));
        if room < wanted {
            tracing::warn!(wanted, room, "the limit on open files leaves room for fewer connections");
        }
        wanted.min(room)
    }

    /// Serves until shutdown, then lets requests in flight finish.
    pub(crate) async fn run(self, handler: Arc<Handler>, shutdown: Shutdown) {
        let seats = Arc::new(Seats::new(self.most_connections()));
        let connections = TaskTracker::new();
        while let Some(accepted) = shutdown.or(self.listener.accept()).await {
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, most likely: give those that are open a moment to close.
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Some((seat, evicted)) = Seats::take(&seats) else {
                self.metrics.closed(Closed::Evicted);
                continue;
            };
            if evicted {
                self.metrics.closed(Closed::Evicted);
            }
            let connection = Connection {
                tls: TlsAcceptor::from(self.tls.clone()),
                config: self.config.clone(),
                handler: handler.clone(),
                metrics: self.metrics.clone(),
                shutdown: shutdown.clone(),
                seat,
            };
            connections.spawn(connection.serve(stream));
        }
        drop(self.listener);
        connections.close();
        let _ = tokio::time::timeout(Duration::from_secs(12), connections.wait()).await;
    }
}

fn connections_within(files: u64) -> usize {
    let room = files.saturating_sub(OTHER_FILES).max(files / 2);
    usize::try_from(room).unwrap_or(usize::MAX).max(1)
}

struct Connection {
    tls: TlsAcceptor,
    config: HttpConfig,
    handler: Arc<Handler>,
    metrics: Metrics,
    shutdown: Shutdown,
    seat: Seat,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        self.metrics.connected();
        let evicted = self.seat.evicted();
        tokio::select! {
            () = evicted.cancelled() => {}
            () = self.talk(stream) => {}
        }
        self.metrics.disconnected();
    }

    async fn talk(&self, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        // A client that does not take its answer is dropped as one that does not ask: hyper has no deadline for writes.
        let unread = u32::try_from(self.config.idle_timeout.as_millis()).unwrap_or(u32::MAX);
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, unread);
        let handshake = tokio::time::timeout(self.config.handshake_timeout, self.tls.accept(stream));
        let Ok(Ok(stream)) = handshake.await else {
            self.metrics.closed(Closed::Handshake);
            return;
        };
        let service = service_fn(|request| {
            let handler = self.handler.clone();
            async move { Ok::<_, Infallible>(handler.answer(request, &self.seat).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.config.idle_timeout)
            .max_buf_size(HEAD)
            // A client may say that it sends no more, and wait for its answer.
            .half_close(true)
            .serve_connection(TokioIo::new(Linger::new(stream)), service);
        tokio::pin!(connection);
        let aged = tokio::time::sleep(self.config.connection_age);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.shutdown.wait() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
            () = aged => {
                connection.as_mut().graceful_shutdown();
                // Long enough for the request that is being answered.
                let last = self.config.body_timeout + self.config.idle_timeout;
                tokio::time::timeout(last, connection).await.unwrap_or(Ok(()))
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "connection ended");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_open_files_are_left_to_everything_else() {
        assert_eq!(connections_within(20_000), 19_744);
        assert_eq!(connections_within(300), 150);
        assert_eq!(connections_within(0), 1);
    }
}
