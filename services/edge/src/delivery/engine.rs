//! The one task that knows what is open and decides what happens next.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, oneshot, watch};
use transponder_core::{ClusterName, StreamKey, Target};
use transponder_runtime::{Clock, Shutdown, admin::Part};
use transponder_store::Health;

use super::{
    Delivery, Message, Write,
    call::{Job, Peers, call},
    entry::{Entry, index},
    gate::Gate,
    queue::{Order, Queue},
    recorder,
    settler::Settler,
};
use crate::{
    budget::Budgets,
    config::{DeliveryConfig, SettleConfig},
    metrics::Metrics,
    outbox::{Decision, Outbox, Sequence},
};

/// Longest time between two looks at the clock.
const TICK: Duration = Duration::from_secs(1);

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

/// One target.
pub(super) struct Lane {
    pub queue: Queue,
    pub gate: Gate,
    /// The last success, and the last one of another stream before it.
    pub taken: [Option<(Option<StreamKey>, Instant)>; 2],
    /// Events that were refused as their own fault since the last success.
    pub refused: u32,
}

impl Lane {
    /// A target that finds fault with so many events in a row is more likely to be the wrong one.
    pub(super) const REFUSES_ALL: u32 = 10;

    /// Whether the target takes nobody's events.
    fn is_down(&self) -> bool {
        self.gate.is_down() || self.refused >= Self::REFUSES_ALL
    }
}

pub(super) struct State {
    pub engine: Engine,
    pub config: DeliveryConfig,
    pub delivery: Delivery,
    pub writes: mpsc::UnboundedSender<Write>,
    pub entries: HashMap<Sequence, Entry>,
    pub lanes: [Lane; 4],
    pub settler: Settler,
    /// The calls that are under way, each with the cluster that it is for.
    pub out: HashMap<(Sequence, Target), ClusterName>,
    /// Events that are being read, and whether something has happened to them since.
    pub reopening: HashMap<Sequence, bool>,
    pub held: u64,
    pub health: watch::Receiver<Health>,
    pub generation: u64,
    pub flushing: bool,
}

impl Engine {
    /// Reads the backlog and starts to deliver. The receiver resolves after shutdown, once everything is written, or with
    /// an error when delivery has died.
    pub(crate) fn start(
        self,
        config: &DeliveryConfig,
        settle: &SettleConfig,
    ) -> (Delivery, oneshot::Receiver<()>) {
        let (delivery, inbox) = Delivery::new();
        let (writes, decisions) = mpsc::unbounded_channel();
        let (drained, done) = oneshot::channel();
        let health = self.outbox.health();
        let generation = health.borrow().generation;
        tokio::spawn(recorder::run(self.outbox.clone(), self.clock.clone(), decisions, delivery.clone()));
        let orders = [Order::For(config.order_for), Order::None, Order::Strict, Order::None];
        let lanes = orders.map(|order| Lane {
            queue: Queue::new(order),
            gate: Gate::new(config.concurrency),
            taken: [None, None],
            refused: 0,
        });
        let state = State {
            settler: Settler::new(settle.windows()),
            config: config.clone(),
            delivery: delivery.clone(),
            writes,
            entries: HashMap::new(),
            lanes,
            out: HashMap::new(),
            reopening: HashMap::new(),
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
                // Who writes the decisions has died: without them on disk there is nothing to go on with.
                () = self.writes.closed() => break,
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

    async fn take(&mut self, message: Message) {
        let now = Instant::now();
        match message {
            Message::Stored { event, budget, sequence, observation } => {
                self.stored(event, budget, sequence, observation, now);
            }
            Message::Found { open, unsettled } => self.found(*open, &unsettled, now),
            Message::Observed { sequence, observation } => self.observed(sequence, observation, now),
            Message::Called { sequence, target, called } => {
                if let Some(cluster) = self.out.remove(&(sequence, target)) {
                    self.called(sequence, target, &cluster, called, now);
                }
            }
            Message::Anchored { sequence } => self.enqueue(sequence, Target::Span, None, now),
            Message::HandedOver(handed) => handed.into_iter().for_each(|one| self.handed_over(one, now)),
            Message::Replaced(sequences) => {
                sequences.into_iter().for_each(|sequence| self.replaced(sequence))
            }
            Message::Opened(sequence, event) => self.opened(sequence, event.map(|event| *event), now),
            Message::Replayed(event, targets) => self.replayed(*event, &targets, now),
            Message::Flushed => {
                self.flushing = false;
                self.read_backlog().await;
            }
        }
    }

    pub(super) fn write(&self, write: Write) {
        // The recorder outlives the engine.
        let _ = self.writes.send(write);
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
        for verdict in self.settler.take_due(Instant::now()) {
            self.write(Write::Decision(Decision::HandOver(verdict), None));
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
                let Lane { queue, gate, .. } = &mut self.lanes[index(target)];
                let next = queue.pop(|cluster| gate.admits_cluster(cluster, now));
                let Some(sequence) = next else { break };
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
        self.lanes[index(target)].gate.started(&entry.cluster);
        self.out.insert((sequence, target), entry.cluster.clone());
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
            let gate = lane.gate.wake(now).filter(|_| lane.queue.has_ready());
            [lane.queue.wake(), gate]
        });
        lanes.chain([self.settler.wake()]).flatten().fold(tick, Instant::min)
    }

    fn show(&self) {
        let metrics = &self.engine.metrics;
        metrics.pending_verdicts(self.settler.len());
        for target in Target::ALL {
            let lane = &self.lanes[index(target)];
            metrics.waiting(target, lane.queue.len(), lane.is_down());
        }
    }
}
