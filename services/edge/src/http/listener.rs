//! The accept loop: TLS, deadlines for handshake, head and idleness, a cap on connections.
//!
//! At the cap, the connection that has waited longest without showing a valid token makes room: strangers that say
//! nothing, or little and slowly, cannot keep an honest client out.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use transponder_runtime::Shutdown;

use super::Handler;
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
        let places = Arc::new(Places::new(self.most_connections()));
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
            let (place, evicted) = Places::take(&places);
            if evicted {
                self.metrics.closed(Closed::Evicted);
            }
            let connection = Connection {
                tls: TlsAcceptor::from(self.tls.clone()),
                config: self.config.clone(),
                handler: handler.clone(),
                metrics: self.metrics.clone(),
                shutdown: shutdown.clone(),
                place,
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
    place: Place,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        self.metrics.connected();
        let evicted = self.place.evicted.clone();
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
            async move {
                let answer = handler.answer(request, &self.place.trusted).await;
                self.place.note_trust();
                Ok::<_, Infallible>(answer)
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.config.idle_timeout)
            .max_buf_size(HEAD)
            .half_close(false)
            .serve_connection(TokioIo::new(stream), service);
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

/// The places for connections. Those that have shown no valid token can be evicted, the oldest first.
struct Places {
    limit: usize,
    taken: Mutex<Taken>,
    next: AtomicU64,
}

#[derive(Default)]
struct Taken {
    all: usize,
    strangers: BTreeMap<u64, CancellationToken>,
}

impl Places {
    fn new(limit: usize) -> Self {
        Self { limit, taken: Mutex::default(), next: AtomicU64::new(0) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place, and says whether another connection lost its own for it.
    fn take(places: &Arc<Self>) -> (Place, bool) {
        let number = places.next.fetch_add(1, Ordering::Relaxed);
        let evicted = CancellationToken::new();
        let mut taken = places.lock();
        let mut full = taken.all >= places.limit;
        if full {
            match taken.strangers.pop_first() {
                Some((_, oldest)) => oldest.cancel(),
                None => full = false,
            }
        }
        taken.all += 1;
        taken.strangers.insert(number, evicted.clone());
        drop(taken);
        (
            Place {
                number,
                evicted,
                trusted: AtomicBool::new(false),
                noted: AtomicBool::new(false),
                places: places.clone(),
            },
            full,
        )
    }
}

struct Place {
    number: u64,
    evicted: CancellationToken,
    /// Whether the connection has shown a valid token.
    trusted: AtomicBool,
    noted: AtomicBool,
    places: Arc<Places>,
}

impl Place {
    /// A connection that has shown a valid token keeps its place.
    fn note_trust(&self) {
        if self.trusted.load(Ordering::Relaxed) && !self.noted.swap(true, Ordering::Relaxed) {
            self.places.lock().strangers.remove(&self.number);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.all -= 1;
        taken.strangers.remove(&self.number);
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

    #[test]
    fn at_the_limit_the_oldest_stranger_makes_room_and_nobody_with_a_token_does() {
        let places = Arc::new(Places::new(2));
        let (known, _) = Places::take(&places);
        known.trusted.store(true, Ordering::Relaxed);
        known.note_trust();
        let (stranger, evicted) = Places::take(&places);
        assert!(!evicted);
        let (_third, evicted) = Places::take(&places);
        assert!(evicted && stranger.evicted.is_cancelled() && !known.evicted.is_cancelled());
    }
}
