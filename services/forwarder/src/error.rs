//! What keeps the Forwarder from starting or serving.

use transponder_runtime::{config::BadValue, tls::TlsError};

/// A failure to build or run the service.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its mesh certificate or the broker's CA cannot be used.
    #[error("forwarder: {0}")]
    Tls(#[from] TlsError),
    /// A value of its configuration cannot be used.
    #[error(transparent)]
    Config(#[from] BadValue),
    /// The TLS library refuses to work.
    #[error("forwarder: TLS: {0}")]
    Rustls(rustls::Error),
    /// The listener cannot be bound.
    #[error("forwarder: {0}")]
    Listen(#[from] std::io::Error),
    /// The HTTP client cannot be made.
    #[error("forwarder: HTTP client: {0}")]
    Client(#[from] reqwest::Error),
    /// The gRPC server failed as a whole.
    #[error("forwarder: gRPC server: {0}")]
    Serve(#[from] tonic::transport::Error),
}
