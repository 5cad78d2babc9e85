//! Clients that misbehave: bytes on a TCP or TLS connection to the edge, as no HTTP client would send them.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use rustls_pki_types::{CertificateDer, ServerName};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::Mesh;

/// A TLS connection.
pub struct Wire {
    stream: TlsStream<TcpStream>,
}

impl Wire {
    /// Connects to the edge of a mesh.
    ///
    /// # Errors
    ///
    /// When the handshake fails.
    pub async fn connect(mesh: &Mesh) -> Result<Self, String> {
        let tls = Arc::new(mesh.client_tls());
        Self::connect_with(mesh.address("edge"), tls).await
    }

    /// Connects with these TLS settings: thousands of connections may share them.
    ///
    /// # Errors
    ///
    /// When the handshake fails.
    pub async fn connect_with(address: SocketAddr, tls: Arc<rustls::ClientConfig>) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await.map_err(|e| e.to_string())?;
        let name = ServerName::from(address.ip());
        let stream = TlsConnector::from(tls).connect(name, stream).await.map_err(|e| e.to_string())?;
        Ok(Self { stream })
    }

    /// The certificate that the server showed.
    ///
    /// # Panics
    ///
    /// When it showed none.
    #[must_use]
    pub fn certificate(&self) -> CertificateDer<'static> {
        let certificates = self.stream.get_ref().1.peer_certificates().expect("a server has a certificate");
        certificates[0].clone().into_owned()
    }

    /// Sends bytes.
    ///
    /// # Errors
    ///
    /// When the connection is closed.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> Result<(), String> {
        self.stream.write_all(bytes.as_ref()).await.map_err(|e| e.to_string())?;
        self.stream.flush().await.map_err(|e| e.to_string())
    }

    /// Says that nothing more will be sent.
    ///
    /// # Errors
    ///
    /// When the connection is closed.
    pub async fn finish(&mut self) -> Result<(), String> {
        self.stream.shutdown().await.map_err(|e| e.to_string())
    }

    /// Reads until the other side closes, or for so long. Answers what came, and whether it was closed.
    pub async fn read_for(&mut self, during: Duration) -> (String, bool) {
        let mut bytes = Vec::new();
        let mut buffer = [0; 4096];
        let reading = async {
            loop {
                match self.stream.read(&mut buffer).await {
                    Ok(0) | Err(_) => return,
                    Ok(read) => bytes.extend_from_slice(&buffer[..read]),
                }
            }
        };
        let closed = tokio::time::timeout(during, reading).await.is_ok();
        (String::from_utf8_lossy(&bytes).into_owned(), closed)
    }

    /// Reads until this text has come. Answers all that came.
    ///
    /// # Panics
    ///
    /// When it does not come within the time.
    pub async fn read_until(&mut self, text: &str, within: Duration) -> String {
        let mut bytes = Vec::new();
        let mut buffer = [0; 4096];
        let reading = async {
            while !String::from_utf8_lossy(&bytes).contains(text) {
                match self.stream.read(&mut buffer).await {
                    Ok(0) | Err(_) => return false,
                    Ok(read) => bytes.extend_from_slice(&buffer[..read]),
                }
            }
            true
        };
        let came = tokio::time::timeout(within, reading).await;
        let all = String::from_utf8_lossy(&bytes).into_owned();
        assert_eq!(came, Ok(true), "'{text}' did not come, but: {all}");
        all
    }
}
