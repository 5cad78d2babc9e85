//! The one task that knows what is open and decides what happens next.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, oneshot, watch};
use transponder_core::{
    ClusterName, EventKey, ReleaseKey, StreamKey, Target, TargetState, Timestamp, retry::Backoff,
};
use transponder_runtime::{Clock, Shutdown, admin::Part};
use transponder_store::Health;

use super::{
    Delivery, Message, Place, Write,
    call::{Called, Job, Peers, Success, call},
    fault::{Failure, Whose},
    gate::{Gate, Opened},
    queue::{Firm, Item, Order, Queue},
    recorder,
    settler::Settler,
};
use crate::{
    budget::{Budget, Budgets},
    config::{DeliveryConfig, SettleConfig},
    metrics::Metrics,
    outbox::{
        Detail, HandedOver, NewEvent, OpenEvent, Outbox, Sequence, StatusChange, StoredObservation,
        TargetStatus,
    },
};

/// Bytes of events that are kept in memory between their receipt and their delivery; more are read again.
const HELD: u64 = 8 * 1024 * 1024;
/// Longest time between two looks at the clock.
const TICK: Duration = Duration::from_secs(1);
/// Pause before an unreadable store is read again.
const REREAD: Duration = Duration::from_secs(1);

/// What the engine rests on.
pub(crate) struct Engine {
    pub outbox: Arc<dyn Outbox>,
    pub peers: Peers,
    pub budgets: Budgets,
    pub clock: Arc<dyn Clock>,
    pub metrics: Metrics,
    pub part: Part,
    pub shutdown: Shutdown,
}

/// An event that is open.
struct Entry {
    key: EventKey,
    cluster: ClusterName,
    place: Option<Place>,
    since: Instant,
    bytes: u64,
    budget: Arc<Budget>,
    held: Option<Arc<NewEvent>>,
    untracked: Vec<StoredObservation>,
    slots: [Slot; 4],
}

/// How far it is with one target.
#[derive(Default)]
struct Slot {
    state: SlotState,
    attempts: u32,
    first_failed: Option<(Timestamp, Instant)>,
    detail: Detail,
}

#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
enum SlotState {
    /// Not a target of the event, or done with it.
    #[default]
    Done,
    /// Given up.
    Dead,
    /// For a verdict to settle, or an anchor to be known.
    Waiting,
    /// In the target's queue, or on its way.
    Queued,
}

/// One target.
struct Lane {
    queue: Queue,
    gate: Gate,
    /// The last success, and the last one of another stream before it.
    taken: [Option<(Option<StreamKey>, Instant)>; 2],
}

struct State {
    engine: Engine,
    config: DeliveryConfig,
    delivery: Delivery,
    writes: mpsc::UnboundedSender<Write>,
    entries: HashMap<Sequence, Entry>,
    lanes: [Lane; 4],
    settler: Settler,
    out: HashSet<(Sequence, Target)>,
    held: u64,
    health: watch::Receiver<Health>,
    generation: u64,
    flushing: bool,
}

impl Engine {
    /// Reads the backlog and starts to deliver. The receiver resolves after shutdown, once everything is written.
    pub(crate) fn start(
        self,
        config: &DeliveryConfig,
        settle: &SettleConfig,
    ) -> (Delivery, oneshot::Receiver<()>) {
        let (messages, inbox) = mpsc::unbounded_channel();
        let (writes, decisions) = mpsc::unbounded_channel();
        let (drained, done) = oneshot::channel();
        let delivery = Delivery { messages };
        let health = self.outbox.health();
        let generation = health.borrow().generation;
        tokio::spawn(recorder::run(self.outbox.clone(), self.clock.clone(), decisions, delivery.clone()));
        let orders = [Order::For(config.order_for), Order::None, Order::Strict, Order::None];
        let lanes = orders.map(|order| Lane {
            queue: Queue::new(order),
            gate: Gate::new(config.concurrency),
            taken: [None, None],
        });
        let state = State {
            settler: Settler::new(settle.windows()),
            config: config.clone(),
            delivery: delivery.clone(),
            writes,
            entries: HashMap::new(),
            lanes,
            out: HashSet::new(),
            held: 0,
            generation,
            health,
            flushing: false,
            engine: self,
        };
        tokio::spawn(state.run(inbox, drained));
        (delivery, done)
    }
}

impl State {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Message>, drained: oneshot::Sender<()>) {
        self.read_backlog().await;
        let shutdown = self.engine.shutdown.clone();
        let mut messages = Vec::with_capacity(64);
        loop {
            let wake = tokio::time::Instant::from_std(self.wake());
            tokio::select! {
                biased;
                () = shutdown.wait() => break,
                _ = inbox.recv_many(&mut messages, 64) => {}
                changed = self.health.changed() => if changed.is_err() { break },
                () = tokio::time::sleep_until(wake) => {}
            }
            for message in messages.drain(..) {
                self.take(message).await;
            }
            self.watch_store();
            self.settle();
            self.pump();
            self.show();
        }
        // No new calls. Those that are out have a moment to end, so that their effect is not repeated at the next start.
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        while !self.out.is_empty() {
            match tokio::time::timeout_at(deadline, inbox.recv()).await {
                Ok(Some(message)) => self.take(message).await,
                _ => break,
            }
        }
        let _ = self.writes.send(Write::Drained(drained));
    }

    /// Everything that is open, from the store.
    async fn read_backlog(&mut self) {
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
        let streams: HashMap<ReleaseKey, StreamKey> = backlog
            .events
            .iter()
            .filter_map(|event| event.release.as_ref().map(|r| (r.key(), r.stream.key())))
            .collect();
        for stored in &backlog.unsettled {
            if let Some(stream) = streams.get(&stored.release) {
                let place = Place { release: stored.release, stream: *stream };
                self.settler.observe(place, stored, wall, now);
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
    fn open(&mut self, event: OpenEvent, wall: Timestamp, now: Instant) {
        let budget = self.engine.budgets.of(&event.cluster);
        budget.occupy(event.bytes);
        let age = Duration::try_from(wall.duration_since(event.received_at)).unwrap_or(Duration::ZERO);
        let since = now.checked_sub(age).unwrap_or(now);
        let place = event.release.as_ref().map(|r| Place { release: r.key(), stream: r.stream.key() });
        let mut entry = Entry {
            key: event.key,
            cluster: event.cluster,
            place,
            since,
            bytes: event.bytes,
            budget,
            held: None,
            untracked: event.untracked,
            slots: Default::default(),
        };
        let mut queued = Vec::new();
        for (target, status) in event.targets {
            let slot = &mut entry.slots[index(target)];
            slot.attempts = status.attempts;
            slot.detail = status.detail;
            slot.first_failed = status.first_failed_at.map(|at| {
                let ago = Duration::try_from(wall.duration_since(at)).unwrap_or(Duration::ZERO);
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
        let tracking_over =
            matches!(entry.slots[index(Target::Tracking)].state, SlotState::Done | SlotState::Dead);
        let span = &entry.slots[index(Target::Span)];
        let span_free = span.state == SlotState::Waiting && (tracking_over || span.detail != Detail::None);
        self.entries.insert(event.sequence, entry);
        if span_free {
            queued.push((Target::Span, now));
        }
        for (target, at) in queued {
            self.enqueue(event.sequence, target, Some(at), now);
        }
    }

    async fn take(&mut self, message: Message) {
        let now = Instant::now();
        match message {
            Message::Stored { event, budget, sequence, observation } => {
                self.stored(event, budget, sequence, observation, now);
            }
            Message::Observed { sequence, stream, observation } => {
                self.observed(sequence, stream, observation, now)
            }
            Message::Called { sequence, target, called } => {
                self.out.remove(&(sequence, target));
                self.called(sequence, target, called, now);
            }
            Message::Anchored { sequence } => self.enqueue(sequence, Target::Span, None, now),
            Message::HandedOver(handed) => handed.into_iter().for_each(|one| self.handed_over(one, now)),
            Message::Replaced(sequences) => {
                sequences.into_iter().for_each(|sequence| self.replaced(sequence))
            }
            Message::Opened(event) => {
                if !self.entries.contains_key(&event.sequence) {
                    self.open(*event, self.engine.clock.wall(), now);
                }
            }
            Message::Replayed(event, targets) => self.replayed(*event, &targets, now),
            Message::Flushed => {
                self.flushing = false;
                self.read_backlog().await;
            }
        }
    }

    fn stored(
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
        let place = event.release().zip(event.stream()).map(|(release, stream)| Place { release, stream });
        let bytes = event.body.len() as u64;
        let hold = self.held + bytes <= HELD;
        let mut entry = Entry {
            key: event.key,
            cluster: event.cluster.clone(),
            place,
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
        for (target, state) in &event.targets {
            entry.slots[index(*target)].state =
                if *state == TargetState::Waiting { SlotState::Waiting } else { SlotState::Queued };
        }
        self.entries.insert(sequence, entry);
        for (target, state) in &event.targets {
            if *state != TargetState::Waiting {
                self.enqueue(sequence, *target, None, now);
            }
        }
        if let (Some(place), Some(observation)) = (place, observation) {
            self.settle_observation(place, &observation, now);
        }
    }

    fn observed(
        &mut self,
        sequence: Sequence,
        stream: StreamKey,
        observation: StoredObservation,
        now: Instant,
    ) {
        let place = Place { release: observation.release, stream };
        self.settle_observation(place, &observation, now);
        let Some(entry) = self.entries.get_mut(&sequence) else {
            self.reopen(sequence);
            return;
        };
        entry.untracked.push(observation);
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

    fn replayed(&mut self, event: OpenEvent, targets: &[Target], now: Instant) {
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

    fn settle_observation(&mut self, place: Place, observation: &StoredObservation, now: Instant) {
        if !self.config.targets.contains(&Target::Dora) {
            return;
        }
        let wall = self.engine.clock.wall();
        let Some(overtaken) = self.settler.observe(place, observation, wall, now) else { return };
        self.write(Write::Replace(vec![overtaken]));
    }

    fn replaced(&mut self, sequence: Sequence) {
        let Some(entry) = self.entries.get_mut(&sequence) else { return };
        let slot = &mut entry.slots[index(Target::Dora)];
        if slot.state == SlotState::Waiting {
            slot.state = SlotState::Done;
            self.close_if_done(sequence);
        }
    }

    /// Reads an event that was final until now.
    fn reopen(&self, sequence: Sequence) {
        let (outbox, delivery) = (self.engine.outbox.clone(), self.delivery.clone());
        tokio::spawn(async move {
            match outbox.open(sequence).await {
                Ok(Some(event)) => delivery.send(Message::Opened(Box::new(event))),
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(%error, sequence, "an event cannot be read; it is taken up at the next start")
                }
            }
        });
    }

    fn handed_over(&mut self, handed: HandedOver, now: Instant) {
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

    fn enqueue(&mut self, sequence: Sequence, target: Target, until: Option<Instant>, now: Instant) {
        let Some(entry) = self.entries.get_mut(&sequence) else { return };
        let slot = &mut entry.slots[index(target)];
        if matches!(slot.state, SlotState::Done | SlotState::Dead) {
            return;
        }
        slot.state = SlotState::Queued;
        if self.out.contains(&(sequence, target)) {
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

    fn called(&mut self, sequence: Sequence, target: Target, called: Called, now: Instant) {
        let lane = &mut self.lanes[index(target)];
        let stream = self.entries.get(&sequence).and_then(|entry| entry.place).map(|place| place.stream);
        match &called.result {
            Ok(_) => {
                if lane.gate.succeeded() == Opened::Now {
                    tracing::info!(%target, "target is back");
                    lane.queue.hurry(now);
                }
                if lane.taken[0].is_none_or(|(last, _)| last != stream || stream.is_none()) {
                    lane.taken[1] = lane.taken[0];
                }
                lane.taken[0] = Some((stream, now));
            }
            Err(failure) if !failure.concerns_target() => lane.gate.neither(),
            Err(failure) => {
                if lane.gate.failed(now, failure.retry_after, fastrand::f64()) {
                    let waiting = lane.queue.len();
                    tracing::warn!(%target, code = failure.code, error = failure.message, waiting, "target does not take events");
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
                self.failed(sequence, target, failure, called.tracked, called.detail, &called.app, now)
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one answer")]
    fn succeeded(
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
    fn free_span(
        &mut self,
        sequence: Sequence,
        anchor: Option<crate::outbox::Anchor>,
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
    fn failed(
        &mut self,
        sequence: Sequence,
        target: Target,
        failure: Failure,
        tracked: Vec<i64>,
        detail: Detail,
        app: &str,
        now: Instant,
    ) {
        let at = self.engine.clock.wall();
        let backoff: Backoff = self.config.backoff();
        let Some(entry) = self.entries.get_mut(&sequence) else { return };
        let (key, cluster) = (entry.key, entry.cluster.clone());
        let stream = entry.place.map(|place| place.stream);
        let slot = &mut entry.slots[index(target)];
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
    fn requeue(&mut self, sequence: Sequence, target: Target, now: Instant) {
        self.lanes[index(target)].queue.remove(sequence, now);
        self.enqueue(sequence, target, None, now);
    }

    fn status(
        &self,
        sequence: Sequence,
        target: Target,
        status: TargetStatus,
        tracked: Vec<i64>,
        then: Option<Message>,
    ) {
        let change = Box::new(StatusChange { sequence, target, status, tracked });
        self.write(Write::Status { change, then: then.map(Box::new) });
    }

    fn write(&self, write: Write) {
        // The recorder outlives the engine.
        let _ = self.writes.send(write);
    }

    fn close_if_done(&mut self, sequence: Sequence) {
        let Some(entry) = self.entries.get(&sequence) else { return };
        if !entry.slots.iter().all(|slot| matches!(slot.state, SlotState::Done | SlotState::Dead)) {
            return;
        }
        if let Some(entry) = self.entries.remove(&sequence) {
            entry.budget.give_back(entry.bytes);
            if entry.held.is_some() {
                self.held = self.held.saturating_sub(entry.bytes);
            }
        }
    }

    /// A store that has failed is read anew once it writes again and everything decided before is on it.
    fn watch_store(&mut self) {
        let health = self.health.borrow_and_update().clone();
        match health.problem {
            Some(problem) => self.engine.part.not_ready(problem.to_string()),
            None if health.generation != self.generation => {
                self.generation = health.generation;
                self.flushing = true;
                self.write(Write::Flush);
            }
            None if !self.flushing => self.engine.part.ready(),
            None => {}
        }
    }

    fn can_start(&self) -> bool {
        !self.flushing && self.health.borrow().problem.is_none()
    }

    fn settle(&mut self) {
        if !self.can_start() {
            return;
        }
        let handed = self.settler.take_due(Instant::now());
        if !handed.is_empty() {
            self.write(Write::HandOver(handed));
        }
    }

    /// Starts what may start. Nothing does while the store cannot say how it ended.
    fn pump(&mut self) {
        if !self.can_start() {
            return;
        }
        let now = Instant::now();
        for target in Target::ALL {
            self.lanes[index(target)].queue.advance(now);
            while self.lanes[index(target)].gate.admits(now) {
                let Some(sequence) = self.lanes[index(target)].queue.pop() else { break };
                self.start_call(sequence, target, now);
            }
        }
    }

    fn start_call(&mut self, sequence: Sequence, target: Target, now: Instant) {
        let Some(entry) = self.entries.get(&sequence) else {
            self.lanes[index(target)].queue.remove(sequence, now);
            return;
        };
        let job = Job {
            sequence,
            target,
            held: entry.held.clone(),
            untracked: if target == Target::Tracking { entry.untracked.clone() } else { Vec::new() },
            detail: entry.slots[index(target)].detail.clone(),
        };
        self.lanes[index(target)].gate.started();
        self.out.insert((sequence, target));
        let (peers, outbox, delivery) =
            (self.engine.peers.clone(), self.engine.outbox.clone(), self.delivery.clone());
        tokio::spawn(async move {
            let called = call(peers, outbox, job).await;
            delivery.send(Message::Called { sequence, target, called });
        });
    }

    fn wake(&self) -> Instant {
        let now = Instant::now();
        let tick = now + TICK;
        if !self.can_start() {
            return tick;
        }
        let lanes = self.lanes.iter().flat_map(|lane| {
            // A gate that pauses matters only to what is ready.
            let gate = lane.gate.wake().filter(|_| lane.queue.has_ready());
            [lane.queue.wake(), gate]
        });
        lanes.chain([self.settler.wake()]).flatten().fold(tick, Instant::min)
    }

    fn show(&self) {
        let metrics = &self.engine.metrics;
        metrics.pending_verdicts(self.settler.len());
        for target in Target::ALL {
            let lane = &self.lanes[index(target)];
            metrics.waiting(target, lane.queue.len(), lane.gate.is_closed());
        }
    }
}

fn index(target: Target) -> usize {
    match target {
        Target::Broker => 0,
        Target::Tracking => 1,
        Target::Dora => 2,
        Target::Span => 3,
    }
}
