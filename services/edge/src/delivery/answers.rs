//! What the answer to a call means for its event and its target.

use std::time::Instant;

use transponder_core::{ClusterName, Target, TargetState, Timestamp};

use super::{
    Message, Write,
    call::{Called, Success},
    engine::{Lane, State},
    entry::{SlotState, index},
    fault::{Failure, Whose},
    gate::Opened,
    queue::Firm,
};
use crate::outbox::{Anchor, Decision, Detail, Sequence, StatusChange, TargetStatus};

impl State {
    pub(super) fn called(
        &mut self,
        sequence: Sequence,
        target: Target,
        cluster: &ClusterName,
        called: Called,
        now: Instant,
    ) {
        let lane = &mut self.lanes[index(target)];
        let stream = self.entries.get(&sequence).and_then(|entry| entry.place).map(|place| place.stream);
        match &called.result {
            Ok(_) => {
                lane.refused = 0;
                if lane.gate.succeeded(cluster) == Opened::Now {
                    tracing::info!(%target, "target is back");
                    lane.queue.hurry(now);
                }
                if lane.taken[0].is_none_or(|(last, _)| last != stream || stream.is_none()) {
                    lane.taken[1] = lane.taken[0];
                }
                lane.taken[0] = Some((stream, now));
            }
            Err(failure) if !failure.concerns_target() => {
                lane.gate.neither(cluster);
                lane.refused += u32::from(failure.whose == Whose::Event);
                if failure.whose == Whose::Event && lane.refused == Lane::REFUSES_ALL {
                    tracing::error!(%target, code = failure.code, error = failure.message, refused = lane.refused, "target refuses every event: is its address right?");
                }
            }
            Err(failure) => {
                if lane.gate.failed(cluster, now, failure.retry_after, fastrand::f64()) {
                    let waiting = lane.queue.len();
                    tracing::warn!(%target, %cluster, code = failure.code, error = failure.message, waiting, "target does not take events");
                }
            }
        }
        let Some(entry) = self.entries.get_mut(&sequence) else { return };
        entry.untracked.retain(|stored| !called.tracked.contains(&stored.number));
        match called.result {
            Ok(success) => self.succeeded(
                sequence,
                target,
                success,
                called.tracked,
                called.order,
                called.detail,
                &called.app,
                now,
            ),
            Err(failure) => {
                self.failed(
                    sequence,
                    target,
                    failure,
                    called.tracked,
                    called.order,
                    called.detail,
                    &called.app,
                    now,
                );
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one answer")]
    pub(super) fn succeeded(
        &mut self,
        sequence: Sequence,
        target: Target,
        success: Success,
        tracked: Vec<i64>,
        order: i64,
        detail: Detail,
        app: &str,
        now: Instant,
    ) {
        let at = self.engine.clock.wall();
        let Some(entry) = self.entries.get_mut(&sequence) else { return };
        let (key, cluster) = (entry.key, entry.cluster.clone());
        let slot = &mut entry.slots[index(target)];
        let superseded = matches!(&slot.detail, Detail::Verdict { order: newer, .. } if *newer != order);
        let more = target == Target::Tracking && !entry.untracked.is_empty();
        let attempts = slot.attempts + 1;
        self.engine.metrics.delivered(target);
        tracing::info!(%target, %key, %cluster, app, attempts, note = success.note, "delivered");
        if superseded || more {
            if more {
                let mut status = TargetStatus::new(TargetState::Stored, at);
                status.detail = detail;
                self.status(sequence, target, status, tracked, None);
            }
            self.requeue(sequence, target, now);
            return;
        }
        slot.state = SlotState::Done;
        slot.attempts = 0;
        slot.first_failed = None;
        slot.detail = detail.clone();
        let mut status = TargetStatus::new(TargetState::Delivered, at);
        (status.attempts, status.detail) = (attempts, detail);
        self.lanes[index(target)].queue.remove(sequence, now);
        self.status(sequence, target, status, tracked, None);
        if target == Target::Tracking {
            self.free_span(sequence, success.anchor, at, now);
        }
        self.close_if_done(sequence);
    }

    /// The span may go once its anchor is on disk.
    pub(super) fn free_span(
        &mut self,
        sequence: Sequence,
        anchor: Option<Anchor>,
        at: Timestamp,
        now: Instant,
    ) {
        let Some(entry) = self.entries.get_mut(&sequence) else { return };
        let slot = &mut entry.slots[index(Target::Span)];
        if slot.state != SlotState::Waiting {
            return;
        }
        match anchor {
            Some(anchor) => {
                slot.detail = Detail::Anchor(anchor);
                let mut status = TargetStatus::new(TargetState::Stored, at);
                status.detail = slot.detail.clone();
                self.status(sequence, Target::Span, status, Vec::new(), Some(Message::Anchored { sequence }));
            }
            None => self.enqueue(sequence, Target::Span, None, now),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one answer")]
    pub(super) fn failed(
        &mut self,
        sequence: Sequence,
        target: Target,
        failure: Failure,
        tracked: Vec<i64>,
        order: i64,
        detail: Detail,
        app: &str,
        now: Instant,
    ) {
        let at = self.engine.clock.wall();
        let backoff = self.config.backoff();
        let Some(entry) = self.entries.get_mut(&sequence) else { return };
        let (key, cluster) = (entry.key, entry.cluster.clone());
        let stream = entry.place.map(|place| place.stream);
        let slot = &mut entry.slots[index(target)];
        if matches!(&slot.detail, Detail::Verdict { order: newer, .. } if *newer != order) {
            // What failed is overtaken: its failure is not that of the verdict that took its place.
            self.engine.metrics.failed(target);
            self.requeue(sequence, target, now);
            return;
        }
        slot.attempts = slot.attempts.saturating_add(1);
        let (first_at, first) = *slot.first_failed.get_or_insert((at, now));
        if matches!(detail, Detail::Anchor(_)) {
            slot.detail = detail;
        }
        let others = self.lanes[index(target)].taken.iter().flatten();
        let took_another = others.clone().any(|(s, when)| (*s != stream || s.is_none()) && *when > first);
        let given_up = now.duration_since(first) >= self.config.give_up && took_another;
        let dead = failure.whose == Whose::Event || given_up;
        let mut status = TargetStatus::new(if dead { TargetState::Dead } else { TargetState::Retrying }, at);
        status.attempts = slot.attempts;
        status.first_failed_at = Some(first_at);
        status.code = failure.code.to_owned();
        status.error = failure.message.chars().take(500).collect();
        status.detail = slot.detail.clone();
        self.engine.metrics.failed(target);
        if dead {
            slot.state = SlotState::Dead;
            tracing::error!(%target, %key, %cluster, app, attempts = slot.attempts, code = failure.code, error = status.error, "dead");
            self.engine.metrics.dead(target);
            self.lanes[index(target)].queue.remove(sequence, now);
            self.status(sequence, target, status, tracked, None);
            if target == Target::Tracking {
                self.free_span(sequence, None, at, now);
            }
            self.close_if_done(sequence);
            return;
        }
        let delay = backoff.delay(slot.attempts, failure.retry_after, fastrand::f64());
        tracing::debug!(%target, %key, %cluster, app, attempts = slot.attempts, code = failure.code, error = status.error, ?delay, "will be tried again");
        status.next_at = at.checked_add(jiff::SignedDuration::try_from(delay).unwrap_or_default()).ok();
        let queue = &mut self.lanes[index(target)].queue;
        if queue.contains(sequence) {
            let firm = if failure.retry_after.is_some() { Firm::Yes } else { Firm::No };
            queue.delay(sequence, now + delay, firm);
        } else {
            // The picture was read anew while the call was out.
            self.enqueue(sequence, target, Some(now + delay), now);
        }
        self.status(sequence, target, status, tracked, None);
    }

    /// Puts an event whose call has ended into the queue again, at its new place.
    pub(super) fn requeue(&mut self, sequence: Sequence, target: Target, now: Instant) {
        self.lanes[index(target)].queue.remove(sequence, now);
        self.enqueue(sequence, target, None, now);
    }

    pub(super) fn status(
        &self,
        sequence: Sequence,
        target: Target,
        status: TargetStatus,
        tracked: Vec<i64>,
        then: Option<Message>,
    ) {
        let change = Box::new(StatusChange { sequence, target, status, tracked });
        self.write(Write::Decision(Decision::Status(change), then.map(Box::new)));
    }

    pub(super) fn close_if_done(&mut self, sequence: Sequence) {
        let Some(entry) = self.entries.get(&sequence) else { return };
        if entry.slots.iter().any(|slot| slot.state.is_open()) {
            return;
        }
        if let Some(entry) = self.entries.remove(&sequence) {
            entry.budget.give_back(entry.bytes);
            if entry.held.is_some() {
                self.held = self.held.saturating_sub(entry.bytes);
            }
        }
    }
}
