//! Delivery: from the outbox to the targets, each independent of the others.
//!
//! One task, the [`engine`], owns the picture of what is open and decides; calls run beside it, bounded per target;
//! one task writes what was decided, in order. So there is no lock that clusters share.

mod answers;
mod backlog;
mod call;
mod engine;
mod entry;
mod fault;
mod gate;
mod intake;
mod queue;
mod recorder;
mod settler;
mod terms;

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use transponder_core::Target;

pub(crate) use call::Peers;
pub(crate) use engine::Engine;
pub(crate) use entry::HELD;
pub(crate) use terms::Terms;

use crate::{
    budget::Budget,
    outbox::{Decision, HandedOver, NewEvent, OpenEvent, Sequence, StoredObservation},
};
use call::Called;

/// What the engine is told.
pub(crate) enum Message {
    /// An event was stored.
    Stored {
        event: Arc<NewEvent>,
        budget: Arc<Budget>,
        sequence: Sequence,
        observation: Option<StoredObservation>,
    },
    /// Another edge stored an event, or one is open again that was not.
    Found { open: Box<OpenEvent>, unsettled: Vec<StoredObservation> },
    /// A known event was observed again.
    Observed { sequence: Sequence, observation: StoredObservation },
    /// A call ended.
    Called { sequence: Sequence, target: Target, called: Called },
    /// The anchor of a span is on disk.
    Anchored { sequence: Sequence },
    /// Verdicts have their place in the order.
    HandedOver(Vec<HandedOver>),
    /// Events wait for no verdict any more.
    Replaced(Vec<Sequence>),
    /// An event was read that is open again; `None` when it is forgotten.
    Opened(Sequence, Option<Box<OpenEvent>>),
    /// Dead targets of an event are to be tried again.
    Replayed(Box<OpenEvent>, Vec<Target>),
    /// Everything that was decided before is on disk: the picture can be read anew.
    Flushed,
}

/// A hand to the engine. Clones share it.
#[derive(Clone)]
pub(crate) struct Delivery {
    messages: mpsc::UnboundedSender<Message>,
}

impl Delivery {
    /// A hand, and where what it is given arrives.
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Message>) {
        let (messages, inbox) = mpsc::unbounded_channel();
        (Self { messages }, inbox)
    }

    /// Bounded by the budgets: what is sent here was admitted and is on disk.
    pub(crate) fn send(&self, message: Message) {
        // The engine ends only with the process; what is on disk is taken up at the next start.
        let _ = self.messages.send(message);
    }
}

/// What is written, and what the engine is told once it is on disk.
pub(crate) enum Write {
    /// A decision.
    Decision(Decision, Option<Box<Message>>),
    /// Tells when everything before it is on disk.
    Flush,
    /// Tells a caller, at the end.
    Drained(oneshot::Sender<()>),
}
