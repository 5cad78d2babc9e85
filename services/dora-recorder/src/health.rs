//! Readiness follows the store, and memory follows the disk after a failure.

use std::{sync::Arc, time::Duration};

use transponder_runtime::{Shutdown, admin::Part};

use crate::ledger::Ledger;

/// How often a store that failed is tried.
const PROBE: Duration = Duration::from_secs(1);

/// Watches the store until shutdown.
pub(crate) async fn watch(ledger: Arc<Ledger>, part: Part, shutdown: Shutdown) {
    let mut health = ledger.store().health();
    let mut read = health.borrow().generation;
    loop {
        let now = health.borrow_and_update().clone();
        if let Some(problem) = now.problem {
            part.not_ready(problem.to_string());
            // Whoever is not ready may be sent nothing that would show that writing works again.
            if shutdown.or(tokio::time::sleep(PROBE)).await.is_none() {
                return;
            }
            if let Err(error) = ledger.store().probe().await {
                tracing::debug!(%error, "the store still cannot write");
            }
            continue;
        }
        if now.generation != read {
            if let Err(error) = ledger.refresh().await {
                part.not_ready(error.to_string());
                if shutdown.or(tokio::time::sleep(PROBE)).await.is_none() {
                    return;
                }
                continue;
            }
            read = now.generation;
        }
        part.ready();
        match shutdown.or(health.changed()).await {
            Some(Ok(())) => {}
            Some(Err(_)) | None => return,
        }
    }
}
