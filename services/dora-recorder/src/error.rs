//! What goes wrong: at the start, and with one verdict.

use std::path::PathBuf;

use transponder_runtime::{Fault, config::BadValue, tls::TlsError};
use transponder_store::StoreError;

/// What keeps the service from starting or running.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A value of its configuration cannot be used.
    #[error(transparent)]
    Config(#[from] BadValue),
    /// The mesh identity cannot be used.
    #[error("dora-recorder: mesh identity: {0}")]
    Identity(#[from] TlsError),
    /// The store cannot be opened.
    #[error("dora-recorder: {}: {source}", directory.display())]
    Store {
        /// The data directory.
        directory: PathBuf,
        /// Why.
        source: StoreError,
    },
    /// The listener cannot be bound.
    #[error("dora-recorder: {0}")]
    Listen(#[from] std::io::Error),
    /// The server failed as a whole.
    #[error("dora-recorder: gRPC server: {0}")]
    Serve(#[from] tonic::transport::Error),
}

/// A budget of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Budget {
    All,
    Cluster,
    /// Of an app namespace on one cluster.
    AppNamespace,
    /// Of what the Tasks of an app namespace made, whatever cluster they named.
    AppTasks,
}

impl Budget {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Cluster => "cluster",
            Self::AppNamespace | Self::AppTasks => "app_namespace",
        }
    }

    fn setting(self) -> &'static str {
        match self {
            Self::All => "dora.budgets.streams",
            Self::Cluster => "dora.budgets.streams_per_cluster",
            Self::AppNamespace | Self::AppTasks => "dora.budgets.streams_per_app_namespace",
        }
    }

    fn whose(self) -> &'static str {
        match self {
            Self::All => "",
            Self::Cluster => " of this cluster",
            Self::AppNamespace => " of this app namespace on this cluster",
            Self::AppTasks => " made by Tasks of this app",
        }
    }
}

/// Why a verdict was not counted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RecordError {
    /// There is no room for another stream.
    #[error("no room for another stream{}: {} {limit} is reached", budget.whose(), budget.setting())]
    Full { budget: Budget, limit: u32 },
    /// It could not be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It is not known yet what was counted before.
    #[error("the streams have not been read yet")]
    Loading,
    /// Others kept changing the stream.
    #[error("the stream is being changed by others")]
    Contended,
    /// The process is stopping.
    #[error("the service is stopping")]
    Stopping,
}

impl From<RecordError> for Fault {
    fn from(error: RecordError) -> Self {
        match &error {
            // No RetryInfo: waiting makes no room, an operator does.
            RecordError::Full { .. } => Self::exhausted(error.to_string()).reason("LABEL_BUDGET"),
            // What the store says is for the log: it names paths and identities.
            RecordError::Store(_) => Self::unavailable("the count cannot be stored now").reason("STORE"),
            RecordError::Loading => Self::unavailable(error.to_string()).reason("STORE"),
            RecordError::Contended => Self::unavailable(error.to_string()).reason("CONTENDED"),
            RecordError::Stopping => Self::unavailable(error.to_string()).reason("STOPPING"),
        }
    }
}
