//! Writes what the engine decided, in the order in which it decided.
//!
//! What cannot be written is kept and tried again: an effect that has happened is not repeated because the disk was full.

use std::{sync::Arc, time::Duration};

use tokio::sync::mpsc;
use transponder_runtime::{Clock, crash};
use transponder_store::StoreError;

use super::{Delivery, Message, Write};
use crate::outbox::Outbox;

/// Most decisions in one write.
const BATCH: usize = 256;
/// Pause before a write is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Runs until the engine is gone and everything is written.
pub(super) async fn run(
    outbox: Arc<dyn Outbox>,
    clock: Arc<dyn Clock>,
    mut decisions: mpsc::UnboundedReceiver<Write>,
    delivery: Delivery,
) {
    let mut batch = Vec::with_capacity(BATCH);
    while decisions.recv_many(&mut batch, BATCH).await > 0 {
        let mut changes = Vec::new();
        let mut then = Vec::new();
        for write in batch.drain(..) {
            match write {
                Write::Status { change, then: message } => {
                    changes.push(*change);
                    then.extend(message.map(|message| *message));
                    continue;
                }
                other => {
                    statuses(outbox.as_ref(), &mut changes, &mut then, &delivery).await;
                    one(outbox.as_ref(), clock.as_ref(), other, &delivery).await;
                }
            }
        }
        statuses(outbox.as_ref(), &mut changes, &mut then, &delivery).await;
    }
}

async fn statuses(
    outbox: &dyn Outbox,
    changes: &mut Vec<crate::outbox::StatusChange>,
    then: &mut Vec<Message>,
    delivery: &Delivery,
) {
    if changes.is_empty() {
        return;
    }
    crash::point("status.before");
    let mut told = false;
    while let Err(error) = outbox.record(changes.clone()).await {
        if error == StoreError::Closed {
            return;
        }
        if !std::mem::replace(&mut told, true) {
            tracing::error!(%error, changes = changes.len(), "status cannot be written; it is kept and tried again");
        }
        tokio::time::sleep(AGAIN).await;
    }
    crash::point("status.after");
    changes.clear();
    then.drain(..).for_each(|message| delivery.send(message));
}

async fn one(outbox: &dyn Outbox, clock: &dyn Clock, write: Write, delivery: &Delivery) {
    let result = match write {
        Write::HandOver(verdicts) => {
            crash::point("hand-over.before");
            let handed = outbox.hand_over(verdicts, clock.wall()).await;
            crash::point("hand-over.after");
            handed.map(|handed| delivery.send(Message::HandedOver(handed)))
        }
        Write::Replace(keys) => {
            let replaced = outbox.replace(keys, clock.wall()).await;
            replaced.map(|replaced| delivery.send(Message::Replaced(replaced)))
        }
        Write::Flush => {
            delivery.send(Message::Flushed);
            Ok(())
        }
        Write::Drained(done) => {
            let _ = done.send(());
            Ok(())
        }
        Write::Status { .. } => Ok(()),
    };
    if let Err(error) = result {
        // The store opens its file anew and the engine reads it: an open verdict is still open there.
        tracing::error!(%error, "a verdict cannot be written; it is taken up again when the store is back");
    }
}
