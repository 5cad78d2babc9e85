//! What keeps the edge from starting or from accepting.

/// The edge cannot start, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A value of the configuration cannot be used.
    #[error(transparent)]
    Config(#[from] transponder_runtime::config::BadValue),
    /// A certificate cannot be used.
    #[error("edge: {0}")]
    Tls(#[from] transponder_runtime::tls::TlsError),
    /// The outbox cannot be opened.
    #[error("edge: {0}")]
    Store(#[from] transponder_store::StoreError),
    /// The listener cannot be bound.
    #[error("cannot listen on {address} (edge.listen): {source}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The operator's socket cannot be made.
    #[error("edge cannot make its operator socket: {0}")]
    Operator(std::io::Error),
    /// A peer's address is none.
    #[error("edge.peers.{peer} is no host:port: {source}")]
    Peer {
        /// The key.
        peer: &'static str,
        /// Why not.
        source: tonic::transport::Error,
    },
    /// Delivery died while the edge ran.
    #[error("delivery has died: what is accepted would stay where it is")]
    Delivery,
}
