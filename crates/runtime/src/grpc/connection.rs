//! Accepting connections, and knowing who is at their other end.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context as TaskContext, Poll},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::transport::server::Connected;
use transponder_core::ServiceName;

use super::seats::{Seat, Seats};
use crate::{Shutdown, mesh::MeshIdentity};

/// Longest TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Shortest time between two lines about a want of room: strangers do not fill the log.
const CROWDED: Duration = Duration::from_secs(60);
/// Longest silence before the first byte of HTTP/2.
const PREFACE: Duration = Duration::from_secs(5);
/// Longest life of a connection that showed no certificate: a Task makes a call and goes.
const STRANGER_AGE: Duration = Duration::from_secs(600);

/// Accepts connections, each with a deadline for its handshake; a slow one delays no other.
pub(super) async fn accept(
    listener: TcpListener,
    identity: Arc<MeshIdentity>,
    seats: Arc<Seats>,
    sender: mpsc::Sender<std::io::Result<MeshStream>>,
    shutdown: Shutdown,
) {
    let mut said: Option<Instant> = None;
    while let Some(accepted) = shutdown.or(listener.accept()).await {
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, service = %identity.service(), "accept failed");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let taken = Seats::take(&seats);
        if !matches!(taken, Some((_, false))) && said.is_none_or(|at| at.elapsed() >= CROWDED) {
            said = Some(Instant::now());
            let service = identity.service();
            match &taken {
                Some(_) => {
                    tracing::warn!(%service, "all connections are taken: the oldest stranger makes room for a new one");
                }
                None => tracing::warn!(%service, "all connections are taken and kept: a new one is refused"),
            }
        }
        let Some((seat, _)) = taken else { continue };
        let (identity, sender) = (identity.clone(), sender.clone());
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            let evicted = seat.evicted();
            let handshake = TlsAcceptor::from(identity.server()).accept(stream);
            let handshake = evicted.run_until_cancelled(tokio::time::timeout(HANDSHAKE, handshake));
            match handshake.await {
                Some(Ok(Ok(tls))) => {
                    let peer = Peer::of(&identity, &tls);
                    let _ = sender.send(Ok(MeshStream::new(tls, peer, seat))).await;
                }
                Some(Ok(Err(error))) => tracing::debug!(%error, "TLS handshake failed"),
                Some(Err(_)) => tracing::debug!("TLS handshake took too long"),
                None => {}
            }
        });
    }
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone)]
pub(super) enum Peer {
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

/// What a call knows of the connection that it came by.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    /// Who is at its other end.
    pub(super) peer: Peer,
    seat: Arc<Seat>,
}

impl Connection {
    /// A call on it was authenticated: it is no stranger's any more. A part of the mesh never was one.
    pub(super) fn authenticated(&self) {
        if !matches!(self.peer, Peer::Service(_)) {
            self.seat.keep_for_task();
        }
    }
}

/// A TLS connection and who is at its other end, found out once.
pub(super) struct MeshStream {
    tls: TlsStream<TcpStream>,
    connection: Connection,
    /// When the connection ends in an error: at first until something was said, then at a stranger's age.
    deadline: Option<Pin<Box<tokio::time::Sleep>>>,
    silent: bool,
    /// Resolves when a stranger has to make room.
    evicted: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl MeshStream {
    fn new(tls: TlsStream<TcpStream>, peer: Peer, seat: Seat) -> Self {
        let deadline = Some(Box::pin(tokio::time::sleep(PREFACE)));
        let evicted = if matches!(peer, Peer::Service(_)) {
            seat.keep_for_service();
            None
        } else {
            Some(Box::pin(seat.evicted().cancelled_owned()))
        };
        let connection = Connection { peer, seat: Arc::new(seat) };
        Self { tls, connection, deadline, silent: true, evicted }
    }

    /// Whether the connection has to end. Asked before whatever is done with it: one that sends without a pause, or
    /// takes nothing, ends as well.
    fn check(&mut self, cx: &mut TaskContext<'_>) -> std::io::Result<()> {
        if self.evicted.as_mut().is_some_and(|evicted| evicted.as_mut().poll(cx).is_ready()) {
            return Err(std::io::ErrorKind::ConnectionAborted.into());
        }
        if self.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready()) {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

impl Connected for MeshStream {
    type ConnectInfo = Connection;

    fn connect_info(&self) -> Connection {
        self.connection.clone()
    }
}

impl AsyncRead for MeshStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        self.check(cx)?;
        let before = buf.filled().len();
        let read = Pin::new(&mut self.tls).poll_read(cx, buf);
        if self.silent && buf.filled().len() > before {
            self.silent = false;
            // A connection of the mesh lives on.
            self.deadline = self.evicted.as_ref().map(|_| Box::pin(tokio::time::sleep(STRANGER_AGE)));
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
        self.check(cx)?;
        Pin::new(&mut self.tls).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<std::io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.tls).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<std::io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.tls).poll_shutdown(cx)
    }
}
