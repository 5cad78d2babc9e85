//! An event that is open, and how far it is with each target.

use std::{sync::Arc, time::Instant};

use transponder_core::{ClusterName, EventKey, Target, Timestamp};

use crate::{
    budget::Budget,
    outbox::{Detail, NewEvent, Place, StoredObservation},
};

/// Bytes of events that are kept in memory between their receipt and their delivery; more are read again.
pub(crate) const HELD: u64 = 8 * 1024 * 1024;

/// An event that is open.
pub(super) struct Entry {
    pub key: EventKey,
    pub cluster: ClusterName,
    pub place: Option<Place>,
    pub since: Instant,
    pub bytes: u64,
    pub budget: Arc<Budget>,
    pub held: Option<Arc<NewEvent>>,
    pub untracked: Vec<StoredObservation>,
    pub slots: [Slot; 4],
}

/// How far it is with one target.
#[derive(Default)]
pub(super) struct Slot {
    pub state: SlotState,
    pub attempts: u32,
    pub first_failed: Option<(Timestamp, Instant)>,
    pub detail: Detail,
}

#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SlotState {
    /// Not a target of the event.
    #[default]
    Absent,
    /// Done with it, until it is observed again.
    Done,
    /// Given up.
    Dead,
    /// For a verdict to settle, or an anchor to be known.
    Waiting,
    /// In the target's queue, or on its way.
    Queued,
}

impl SlotState {
    /// Whether something is still to be done.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::Waiting | Self::Queued)
    }
}

/// Where the slot and the lane of a target are.
pub(super) fn index(target: Target) -> usize {
    match target {
        Target::Broker => 0,
        Target::Tracking => 1,
        Target::Dora => 2,
        Target::Span => 3,
    }
}
