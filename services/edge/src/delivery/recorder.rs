//! Writes what the engine decided, in the order in which it decided; many decisions share a commit.
//!
//! What cannot be written is kept and tried again: an effect that has happened is not repeated because the disk was full.

use std::{sync::Arc, time::Duration};

use tokio::sync::mpsc;
use transponder_runtime::{Clock, crash};
use transponder_store::StoreError;

use super::{Delivery, Message, Write};
use crate::outbox::{Decision, Outbox};

/// Pause before a write is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Runs until the engine is gone and everything is written.
pub(super) async fn run(
    outbox: Arc<dyn Outbox>,
    clock: Arc<dyn Clock>,
    mut decisions: mpsc::UnboundedReceiver<Write>,
    delivery: Delivery,
) {
    let (most, linger) = (outbox.batch(), outbox.linger());
    let mut recorder = Recorder { outbox, clock, delivery, decisions: Vec::new(), then: Vec::new() };
    let mut batch = Vec::with_capacity(most);
    while decisions.recv_many(&mut batch, most).await > 0 {
        if !linger.is_zero() {
            tokio::time::sleep(linger).await;
            let room = most.saturating_sub(batch.len());
            batch.extend(std::iter::from_fn(|| decisions.try_recv().ok()).take(room));
        }
        for write in batch.drain(..) {
            match write {
                Write::Decision(decision, then) => {
                    recorder.decisions.push(decision);
                    recorder.then.extend(then.map(|message| *message));
                }
                Write::Flush => {
                    recorder.write().await;
                    recorder.delivery.send(Message::Flushed);
                }
                Write::Drained(done) => {
                    recorder.write().await;
                    let _ = done.send(());
                }
            }
        }
        recorder.write().await;
    }
}

struct Recorder {
    outbox: Arc<dyn Outbox>,
    clock: Arc<dyn Clock>,
    delivery: Delivery,
    decisions: Vec<Decision>,
    /// What the engine is told once the decisions are on disk.
    then: Vec<Message>,
}

impl Recorder {
    async fn write(&mut self) {
        let mut told = false;
        while !self.decisions.is_empty() {
            self.crash_point("status.before", "hand-over.before");
            match self.outbox.decide(self.decisions.clone(), self.clock.wall()).await {
                Ok(decided) => {
                    self.crash_point("status.after", "hand-over.after");
                    self.decisions.clear();
                    if !decided.handed_over.is_empty() {
                        self.delivery.send(Message::HandedOver(decided.handed_over));
                    }
                    if !decided.replaced.is_empty() {
                        self.delivery.send(Message::Replaced(decided.replaced));
                    }
                    self.then.drain(..).for_each(|message| self.delivery.send(message));
                }
                Err(StoreError::Closed) => return,
                Err(error) => {
                    if !std::mem::replace(&mut told, true) {
                        let decisions = self.decisions.len();
                        tracing::error!(%error, decisions, "decisions cannot be written; what has happened is kept and tried again, what has not is decided anew");
                    }
                    // The store opens its file anew and the engine reads it: an open verdict is still open there.
                    self.decisions.retain(|decision| matches!(decision, Decision::Status(_)));
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    fn crash_point(&self, of_statuses: &'static str, of_verdicts: &'static str) {
        if self.decisions.iter().any(|decision| matches!(decision, Decision::Status(_))) {
            crash::point(of_statuses);
        }
        if self.decisions.iter().any(|decision| matches!(decision, Decision::HandOver(_))) {
            crash::point(of_verdicts);
        }
    }
}
