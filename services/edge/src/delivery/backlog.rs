//! Taking up what the store has: at the start, after a failure, or one event that is open again.

use std::time::{Duration, Instant};

use transponder_core::{Target, TargetState, Timestamp};
use transponder_store::StoreError;

use super::{
    Message, Write,
    engine::State,
    entry::{Entry, HELD, Slot, SlotState, index},
    settler::Settler,
};
use crate::outbox::{Decision, Detail, OpenEvent, Sequence};

/// Pause before an unreadable store is read again.
const REREAD: Duration = Duration::from_secs(1);

/// The part of `give_up` that an event is tried after a start at least, however long ago it failed first.
const LEFT: u32 = 24;

impl State {
    /// Everything that is open, from the store.
    pub(super) async fn read_backlog(&mut self) {
        let backlog = loop {
            match self.engine.outbox.backlog().await {
                Ok(backlog) => break backlog,
                Err(error) => {
                    self.engine.part.not_ready(error.to_string());
                    if self.engine.shutdown.or(tokio::time::sleep(REREAD)).await.is_none() {
                        return;
                    }
                }
            }
        };
        let (wall, now) = (self.engine.clock.wall(), Instant::now());
        self.engine.budgets.reset();
        self.entries.clear();
        self.held = 0;
        self.settler = Settler::new(self.settler.windows());
        for lane in &mut self.lanes {
            lane.queue.clear();
        }
        for stored in &backlog.unsettled {
            if let Some(overtaken) = self.settler.observe(stored, wall, now) {
                // Said before, as a rule, and not written: that it was decided is not known.
                self.write(Write::Decision(Decision::Replace(overtaken), None));
            }
        }
        let events = backlog.events.len();
        for event in backlog.events {
            self.open(event, wall, now);
        }
        tracing::info!(events, verdicts = self.settler.len(), "outbox read");
        self.engine.part.ready();
    }

    /// Takes up one event as the store has it.
    pub(super) fn open(&mut self, event: OpenEvent, wall: Timestamp, now: Instant) {
        let budget = self.engine.budgets.of(&event.cluster);
        budget.occupy(event.bytes);
        let age = Duration::try_from(wall.duration_since(event.received_at)).unwrap_or(Duration::ZERO);
        let since = now.checked_sub(age).unwrap_or(now);
        let mut entry = Entry {
            key: event.key,
            cluster: event.cluster,
            place: event.place,
            since,
            bytes: event.bytes,
            budget,
            held: event.event.filter(|_| self.held + event.bytes <= HELD),
            untracked: event.untracked,
            slots: Default::default(),
        };
        if entry.held.is_some() {
            self.held += event.bytes;
        }
        let mut queued = Vec::new();
        for (target, status) in event.targets {
            let slot = &mut entry.slots[index(target)];
            slot.attempts = status.attempts;
            slot.detail = status.detail;
            slot.first_failed = status.first_failed_at.map(|at| {
                let ago = Duration::try_from(wall.duration_since(at)).unwrap_or(Duration::ZERO);
                // The wall clock may be a day ahead: by itself it gives nothing up.
                let ago = ago.min(self.config.give_up - self.config.give_up / LEFT);
                (at, now.checked_sub(ago).unwrap_or(now))
            });
            slot.state = match status.state {
                TargetState::Delivered | TargetState::Replaced => SlotState::Done,
                TargetState::Dead => SlotState::Dead,
                TargetState::Waiting => SlotState::Waiting,
                TargetState::Stored | TargetState::Retrying => {
                    let remaining = status.next_at.map_or(Duration::ZERO, |next| {
                        Duration::try_from(next.duration_since(wall)).unwrap_or(Duration::ZERO)
                    });
                    queued.push((target, now + remaining.min(self.config.retry_cap)));
                    SlotState::Queued
                }
            };
        }
        let tracking_over = !entry.slots[index(Target::Tracking)].state.is_open();
        let span = &entry.slots[index(Target::Span)];
        let span_free = span.state == SlotState::Waiting && (tracking_over || span.detail != Detail::None);
        self.entries.insert(event.sequence, entry);
        if span_free {
            queued.push((Target::Span, now));
        }
        for (target, at) in queued {
            self.enqueue(event.sequence, target, Some(at), now);
        }
        self.close_if_done(event.sequence);
    }

    /// Reads an event that was final until now. If something happens to it meanwhile, it is read again: only then is
    /// all of it known.
    pub(super) fn reopen(&mut self, sequence: Sequence) {
        if let Some(again) = self.reopening.get_mut(&sequence) {
            *again = true;
            return;
        }
        self.reopening.insert(sequence, false);
        let (outbox, delivery) = (self.engine.outbox.clone(), self.delivery.clone());
        tokio::spawn(async move {
            let event = loop {
                match outbox.open(sequence).await {
                    Ok(event) => break event,
                    Err(StoreError::Closed) => return,
                    Err(error) => {
                        tracing::warn!(%error, sequence, "an event cannot be read; it is read again")
                    }
                }
                tokio::time::sleep(REREAD).await;
            };
            delivery.send(Message::Opened(sequence, event.map(Box::new)));
        });
    }

    pub(super) fn opened(&mut self, sequence: Sequence, event: Option<OpenEvent>, now: Instant) {
        let again = self.reopening.remove(&sequence).unwrap_or_default();
        if self.entries.contains_key(&sequence) {
            // The whole backlog was read in between.
            return;
        }
        match event {
            Some(_) if again => self.reopen(sequence),
            Some(event) => self.open(event, self.engine.clock.wall(), now),
            None => {}
        }
    }

    pub(super) fn replayed(&mut self, event: OpenEvent, targets: &[Target], now: Instant) {
        let sequence = event.sequence;
        let Some(entry) = self.entries.get_mut(&sequence) else {
            self.open(event, self.engine.clock.wall(), now);
            return;
        };
        for (target, status) in event.targets.into_iter().filter(|(target, _)| targets.contains(target)) {
            entry.slots[index(target)] =
                Slot { state: SlotState::Queued, detail: status.detail, ..Slot::default() };
        }
        targets.iter().for_each(|target| self.enqueue(sequence, *target, None, now));
    }
}
