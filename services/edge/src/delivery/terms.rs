//! Delivery by one of several edges: an engine for each time that this one holds the Lease.

use std::sync::Arc;

use transponder_kubernetes::lease::Leadership;
use transponder_runtime::{Shutdown, admin::Part};

use super::Engine;
use crate::{
    config::{DeliveryConfig, SettleConfig},
    error::Error,
    outbox::{KubernetesOutbox, feed},
};

/// What an engine is started with, each time anew.
pub(crate) struct Terms {
    pub outbox: Arc<KubernetesOutbox>,
    pub leadership: Leadership,
    /// An engine that stops with this signal.
    pub engine: Box<dyn Fn(Shutdown) -> Engine + Send + Sync>,
    pub part: Part,
    pub delivery: DeliveryConfig,
    pub settle: SettleConfig,
    pub shutdown: Shutdown,
}

impl Terms {
    /// Delivers whenever the Lease is held, until shutdown. Ends when what was delivered is noted.
    ///
    /// # Errors
    /// When an engine has died.
    pub(crate) async fn run(mut self) -> Result<(), Error> {
        loop {
            // While another one delivers there is nothing to be ready for.
            self.part.ready();
            let Some(Some(mut term)) = self.shutdown.or(self.leadership.term()).await else { return Ok(()) };
            let stop = self.shutdown.child();
            self.outbox.begin(term.clone());
            let (delivery, mut drained) = (self.engine)(stop.clone()).start(&self.delivery, &self.settle);
            let feeding = tokio::spawn(feed(self.outbox.clone(), delivery, stop.clone()));
            let ended = tokio::select! {
                ended = &mut drained => ended,
                () = term.ended() => {
                    tracing::warn!("this edge delivers no more: another one may");
                    stop.begin();
                    // What it still decides is written by nobody: the next holder decides anew. No other term begins
                    // here before it has ended, or its decisions would be taken for those of the next.
                    self.outbox.end();
                    drained.await
                }
            };
            stop.begin();
            self.outbox.end();
            feeding.abort();
            ended.map_err(|_| Error::Delivery)?;
            if self.shutdown.has_begun() {
                return Ok(());
            }
        }
    }
}
