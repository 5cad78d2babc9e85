//! What goes wrong in this service, and what a caller reads of it.

use std::time::Duration;

use transponder_runtime::{Fault, config::BadValue, tls::TlsError};
use transponder_store::StoreError;

use crate::store;

/// When a caller may try again after our own trouble.
const RETRY_TROUBLE: Duration = Duration::from_secs(2);
/// When a caller may try again after a budget was spent: room comes with the sweeper.
const RETRY_BUDGET: Duration = Duration::from_secs(60);

/// What keeps the service from being built or from running on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A value of its configuration cannot be used.
    #[error(transparent)]
    Config(#[from] BadValue),
    /// The store cannot be opened or read.
    #[error("release-tracking: {0}")]
    Store(#[from] store::Error),
    /// The mesh certificate cannot be used.
    #[error("release-tracking: mesh certificate: {0}")]
    Mesh(#[from] TlsError),
    /// A listener cannot be opened.
    #[error("release-tracking: {0}")]
    Listen(#[source] std::io::Error),
    /// The operator's socket cannot be opened.
    #[error("release-tracking: operator's socket: {0}")]
    Operator(#[source] std::io::Error),
    /// The gRPC server failed as a whole.
    #[error("release-tracking: gRPC server: {0}")]
    Serve(#[from] tonic::transport::Error),
    /// A task that must run as long as the service does has died.
    #[error("release-tracking: the {task} has died: {problem}")]
    Task {
        /// The task.
        task: &'static str,
        /// How.
        problem: String,
    },
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::Store(error.into())
    }
}

impl From<store::Error> for Fault {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::Unavailable(_) | store::Error::Unreadable(_) => {
                // Paths and the words of the disk are for the log.
                tracing::error!(%error, "a call failed");
                Self::unavailable("the records cannot be read or written now")
                    .reason("STORE")
                    .retry_after(Some(RETRY_TROUBLE))
            }
            store::Error::Spent(spent) => Self::exhausted(spent.to_string())
                .reason("RECORDS_BUDGET")
                .metadata("limit", spent.limit)
                .retry_after(Some(RETRY_BUDGET)),
        }
    }
}
