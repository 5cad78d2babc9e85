//! What keeps OutcomeSpan from starting or serving.

use transponder_runtime::{config::BadValue, tls::TlsError};

use crate::SettingError;

/// A failure to build or run the service.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A value of its configuration cannot be used.
    #[error(transparent)]
    Config(#[from] BadValue),
    /// Its mesh certificate cannot be used.
    #[error("outcome-span: {0}")]
    Tls(#[from] TlsError),
    /// One of the standard variables cannot be used.
    #[error("outcome-span: {0}")]
    Setting(#[from] SettingError),
    /// The address of ReleaseTracking is none.
    #[error("outcome_span.release_tracking: {0}")]
    ReleaseTracking(tonic::transport::Error),
    /// The listener cannot be bound.
    #[error("outcome-span: {0}")]
    Listen(#[from] std::io::Error),
    /// The gRPC server failed as a whole.
    #[error("outcome-span: gRPC server: {0}")]
    Serve(#[from] tonic::transport::Error),
}
