//! Accepting connections, and knowing who is at their other end.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context as TaskContext, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tonic::transport::server::Connected;
use transponder_core::ServiceName;

use crate::{Shutdown, mesh::MeshIdentity};

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

/// Accepts connections, each with a deadline for its handshake; a slow one delays no other.
pub(super) async fn accept(
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

/// A TLS connection and who is at its other end, found out once.
pub(super) struct MeshStream {
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
