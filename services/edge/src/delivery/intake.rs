//! What was stored or observed, and what it sets in motion.

use std::{sync::Arc, time::Instant};

use transponder_core::{Target, TargetState};

use super::{
    Write,
    engine::State,
    entry::{Entry, HELD, Slot, SlotState, index},
    queue::Item,
};
use crate::{
    budget::Budget,
    outbox::{Decision, Detail, HandedOver, NewEvent, OpenEvent, Sequence, StoredObservation},
};

impl State {
    pub(super) fn stored(
        &mut self,
        event: Arc<NewEvent>,
        budget: Arc<Budget>,
        sequence: Sequence,
        observation: Option<StoredObservation>,
        now: Instant,
    ) {
        if self.entries.contains_key(&sequence) {
            // Read from the store already, which counted its room.
            budget.give_back(event.body.len() as u64);
            return;
        }
        let bytes = event.body.len() as u64;
        let hold = self.held + bytes <= HELD;
        let mut entry = Entry {
            key: event.key,
            cluster: event.cluster.clone(),
            place: event.place,
            since: now,
            bytes,
            budget,
            held: hold.then(|| event.clone()),
            untracked: observation.iter().cloned().collect(),
            slots: Default::default(),
        };
        if hold {
            self.held += bytes;
        }
        let waits = |target: Target| target.begins() == TargetState::Waiting;
        for target in &event.targets {
            entry.slots[index(*target)].state =
                if waits(*target) { SlotState::Waiting } else { SlotState::Queued };
        }
        self.entries.insert(sequence, entry);
        for target in event.targets.iter().filter(|target| !waits(**target)) {
            self.enqueue(sequence, *target, None, now);
        }
        if let Some(observation) = observation {
            self.settle_observation(&observation, now);
        }
    }

    /// Takes up an event that this process did not accept, or not in this life of it.
    pub(super) fn found(&mut self, open: OpenEvent, unsettled: &[StoredObservation], now: Instant) {
        if self.entries.contains_key(&open.sequence) {
            // The whole backlog was read in between.
            return;
        }
        for observation in unsettled {
            self.settle_observation(observation, now);
        }
        self.open(open, self.engine.clock.wall(), now);
    }

    pub(super) fn observed(&mut self, sequence: Sequence, observation: StoredObservation, now: Instant) {
        self.settle_observation(&observation, now);
        let Some(entry) = self.entries.get_mut(&sequence) else {
            self.reopen(sequence);
            return;
        };
        // Told of twice when the backlog was read in between.
        if entry.untracked.iter().all(|known| known.number != observation.number) {
            entry.untracked.push(observation);
        }
        let dora = &mut entry.slots[index(Target::Dora)];
        if dora.state == SlotState::Done && self.config.targets.contains(&Target::Dora) {
            dora.state = SlotState::Waiting;
        }
        let tracking = &mut entry.slots[index(Target::Tracking)];
        if tracking.state == SlotState::Done {
            tracking.state = SlotState::Queued;
            self.enqueue(sequence, Target::Tracking, None, now);
        }
    }

    pub(super) fn settle_observation(&mut self, observation: &StoredObservation, now: Instant) {
        if !self.config.targets.contains(&Target::Dora) {
            return;
        }
        let wall = self.engine.clock.wall();
        let Some(overtaken) = self.settler.observe(observation, wall, now) else { return };
        self.write(Write::Decision(Decision::Replace(overtaken), None));
    }

    pub(super) fn replaced(&mut self, sequence: Sequence) {
        if let Some(again) = self.reopening.get_mut(&sequence) {
            *again = true;
        }
        let Some(entry) = self.entries.get_mut(&sequence) else { return };
        let slot = &mut entry.slots[index(Target::Dora)];
        if slot.state == SlotState::Waiting {
            slot.state = SlotState::Done;
            self.close_if_done(sequence);
        }
    }

    pub(super) fn handed_over(&mut self, handed: HandedOver, now: Instant) {
        let HandedOver { sequence, order, verdict } = handed;
        let Some(entry) = self.entries.get_mut(&sequence) else {
            self.reopen(sequence);
            return;
        };
        let slot = &mut entry.slots[index(Target::Dora)];
        *slot =
            Slot { state: SlotState::Queued, detail: Detail::Verdict { order, verdict }, ..Slot::default() };
        self.enqueue(sequence, Target::Dora, None, now);
    }

    pub(super) fn enqueue(
        &mut self,
        sequence: Sequence,
        target: Target,
        until: Option<Instant>,
        now: Instant,
    ) {
        let Some(entry) = self.entries.get_mut(&sequence) else { return };
        let slot = &mut entry.slots[index(target)];
        if !slot.state.is_open() {
            return;
        }
        slot.state = SlotState::Queued;
        if self.out.contains_key(&(sequence, target)) {
            // It goes again when the call that is out has ended.
            return;
        }
        let place = match &slot.detail {
            Detail::Verdict { order, .. } => *order,
            _ => sequence,
        };
        let item = Item {
            sequence,
            cluster: entry.cluster.clone(),
            stream: entry.place.map(|place| place.stream),
            place,
            since: entry.since,
        };
        self.lanes[index(target)].queue.push(item, until, now);
    }
}
