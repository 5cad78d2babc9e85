//! Stopping: not ready first, listeners drain, then out.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Longest time from the signal to the end of the process, below the 30 s that Kubernetes gives.
pub const DRAIN: Duration = Duration::from_secs(20);

/// Tells every part when to stop. Clones share the signal.
#[derive(Debug, Clone, Default)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    /// A signal that also comes when this one does, and can come before.
    #[must_use]
    pub fn child(&self) -> Self {
        Self(self.0.child_token())
    }

    /// Stops everything that waits.
    pub fn begin(&self) {
        self.0.cancel();
    }

    /// Whether the process is stopping.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until the process stops.
    pub async fn wait(&self) {
        self.0.cancelled().await;
    }

    /// Runs a future until it ends or the process stops; `None` when it stopped.
    pub async fn or<F: Future>(&self, future: F) -> Option<F::Output> {
        self.0.run_until_cancelled(future).await
    }

    /// Begins on SIGTERM or SIGINT.
    ///
    /// # Errors
    /// When the handlers cannot be installed.
    pub fn on_signals(&self) -> std::io::Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let shutdown = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("stopping");
            shutdown.begin();
        });
        Ok(())
    }
}
