//! The queue of one target: fair between clusters, in order within a stream where order is kept.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    time::{Duration, Instant},
};

use transponder_core::{ClusterName, StreamKey};

use crate::outbox::Sequence;

/// How long the head of a stream holds back what follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Not at all.
    None,
    /// While it is younger than this.
    For(Duration),
    /// Until it is done.
    Strict,
}

/// One event in the queue.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub sequence: Sequence,
    pub cluster: ClusterName,
    /// Its lane, if order matters to it.
    pub stream: Option<StreamKey>,
    /// Its place within the lane.
    pub place: i64,
    /// When it was received.
    pub since: Instant,
}

/// Whether a delay may be cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Firm {
    /// The target asked for it.
    Yes,
    /// It is our own schedule: pointless once the target is back.
    No,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Behind the head of its lane.
    Blocked,
    /// May go.
    Ready,
    /// Until then, not.
    Delayed(Instant, Firm),
    /// On its way.
    Out,
}

#[derive(Debug)]
pub(super) struct Queue {
    order: Order,
    items: HashMap<Sequence, (Item, State)>,
    ready: HashMap<ClusterName, VecDeque<Sequence>>,
    turns: VecDeque<ClusterName>,
    delayed: BTreeSet<(Instant, Sequence)>,
    lanes: HashMap<StreamKey, BTreeSet<(i64, Sequence)>>,
    /// When heads grow too old to hold others back.
    releases: BTreeSet<(Instant, Sequence)>,
}

impl Queue {
    pub(super) fn new(order: Order) -> Self {
        Self {
            order,
            items: HashMap::new(),
            ready: HashMap::new(),
            turns: VecDeque::new(),
            delayed: BTreeSet::new(),
            lanes: HashMap::new(),
            releases: BTreeSet::new(),
        }
    }

    /// Number of events that are not done.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.order);
    }

    /// Puts an event in, to go at once or not before `until`. One that is in already is moved.
    pub(super) fn push(&mut self, item: Item, until: Option<Instant>, now: Instant) {
        let sequence = item.sequence;
        self.remove(sequence, now);
        let lane = item.stream.filter(|_| self.order != Order::None);
        if let Some(stream) = lane {
            self.lanes.entry(stream).or_default().insert((item.place, sequence));
        }
        if let (Order::For(age), Some(_)) = (self.order, lane) {
            self.releases.insert((item.since + age, sequence));
        }
        self.items.insert(sequence, (item, State::Blocked));
        match until {
            Some(until) if until > now => self.delay(sequence, until, Firm::No),
            _ => self.admit(sequence, now),
        }
    }

    /// Makes an event ready if nothing holds it back.
    fn admit(&mut self, sequence: Sequence, now: Instant) {
        let Some((item, _)) = self.items.get(&sequence) else { return };
        let free = self.is_free(item, now);
        let cluster = item.cluster.clone();
        if let Some((_, state)) = self.items.get_mut(&sequence) {
            *state = if free { State::Ready } else { State::Blocked };
        }
        if free {
            let line = self.ready.entry(cluster.clone()).or_default();
            if line.is_empty() {
                self.turns.push_back(cluster);
            }
            line.push_back(sequence);
        }
    }

    fn is_free(&self, item: &Item, now: Instant) -> bool {
        let head = || {
            let lane = self.lanes.get(&item.stream?)?;
            self.items.get(&lane.first()?.1).map(|(head, _)| head)
        };
        match (self.order, head()) {
            (Order::None, _) | (_, None) => true,
            (_, Some(head)) if head.sequence == item.sequence => true,
            (Order::For(age), Some(head)) => head.since + age <= now,
            (Order::Strict, Some(_)) => false,
        }
    }

    /// The next event in turn of a cluster that is admitted; it is out until it is given back or removed.
    pub(super) fn pop(&mut self, admits: impl Fn(&ClusterName) -> bool) -> Option<Sequence> {
        // Each cluster once: those that are not admitted keep their turn.
        for _ in 0..self.turns.len() {
            let Some(cluster) = self.turns.pop_front() else { break };
            if !admits(&cluster) {
                self.turns.push_back(cluster);
                continue;
            }
            if let Some(sequence) = self.pop_of(cluster) {
                return Some(sequence);
            }
        }
        None
    }

    fn pop_of(&mut self, cluster: ClusterName) -> Option<Sequence> {
        let line = self.ready.get_mut(&cluster)?;
        let mut next = None;
        // Lines may hold what was moved or removed meanwhile.
        while let Some(sequence) = line.pop_front() {
            if let Some((_, state @ State::Ready)) = self.items.get_mut(&sequence) {
                *state = State::Out;
                next = Some(sequence);
                break;
            }
        }
        if line.is_empty() {
            self.ready.remove(&cluster);
        } else {
            self.turns.push_back(cluster);
        }
        next
    }

    /// Whether the event is in the queue.
    pub(super) fn contains(&self, sequence: Sequence) -> bool {
        self.items.contains_key(&sequence)
    }

    /// Whether an event is ready.
    pub(super) fn has_ready(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Gives back an event that was out, to go again at `until`. It keeps its place.
    pub(super) fn delay(&mut self, sequence: Sequence, until: Instant, firm: Firm) {
        if let Some((_, state)) = self.items.get_mut(&sequence) {
            *state = State::Delayed(until, firm);
            self.delayed.insert((until, sequence));
        }
    }

    /// Takes an event out for good; what it held back may go.
    pub(super) fn remove(&mut self, sequence: Sequence, now: Instant) {
        let Some((item, state)) = self.items.remove(&sequence) else { return };
        if let State::Delayed(until, _) = state {
            self.delayed.remove(&(until, sequence));
        }
        if let Order::For(age) = self.order {
            self.releases.remove(&(item.since + age, sequence));
        }
        let Some(stream) = item.stream else { return };
        let Some(lane) = self.lanes.get_mut(&stream) else { return };
        lane.remove(&(item.place, sequence));
        let head = lane.first().map(|(_, head)| *head);
        match head {
            Some(head) => self.unblock(head, now),
            None => drop(self.lanes.remove(&stream)),
        }
    }

    fn unblock(&mut self, sequence: Sequence, now: Instant) {
        if let Some((_, State::Blocked)) = self.items.get(&sequence) {
            self.admit(sequence, now);
        }
    }

    /// Makes ready what is due.
    pub(super) fn advance(&mut self, now: Instant) {
        while let Some((until, sequence)) = self.delayed.first().copied().filter(|(until, _)| *until <= now) {
            self.delayed.remove(&(until, sequence));
            self.admit(sequence, now);
        }
        while let Some((until, sequence)) = self.releases.first().copied().filter(|(until, _)| *until <= now)
        {
            self.releases.remove(&(until, sequence));
            let stream = self.items.get(&sequence).and_then(|(item, _)| item.stream);
            let Some(lane) = stream.and_then(|stream| self.lanes.get(&stream)) else { continue };
            if lane.first().is_some_and(|(_, head)| *head == sequence) {
                let behind: Vec<_> = lane.iter().map(|(_, sequence)| *sequence).collect();
                behind.into_iter().for_each(|sequence| self.unblock(sequence, now));
            }
        }
    }

    /// Makes ready what is delayed by our own schedule: the target is back.
    pub(super) fn hurry(&mut self, now: Instant) {
        for (until, sequence) in std::mem::take(&mut self.delayed) {
            match self.items.get(&sequence) {
                Some((_, State::Delayed(_, Firm::Yes))) => {
                    self.delayed.insert((until, sequence));
                }
                _ => self.admit(sequence, now),
            }
        }
    }

    /// When something becomes due.
    pub(super) fn wake(&self) -> Option<Instant> {
        let first = |set: &BTreeSet<(Instant, Sequence)>| set.first().map(|(until, _)| *until);
        [first(&self.delayed), first(&self.releases)].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(sequence: Sequence, cluster: &str, stream: u8, since: Instant) -> Item {
        Item {
            sequence,
            cluster: cluster.parse().unwrap(),
            stream: Some(StreamKey::from_bytes([stream; 20])),
            place: sequence,
            since,
        }
    }

    fn drain(queue: &mut Queue) -> Vec<Sequence> {
        std::iter::from_fn(|| queue.pop(|_| true)).collect()
    }

    #[test]
    fn a_flood_of_one_cluster_does_not_hold_up_another() {
        let now = Instant::now();
        let mut queue = Queue::new(Order::None);
        for n in 1..100 {
            queue.push(item(n, "loud", 1, now), None, now);
        }
        queue.push(item(1000, "quiet", 2, now), None, now);
        assert_eq!((queue.pop(|_| true), queue.pop(|_| true)), (Some(1), Some(1000)));
        let quiet: ClusterName = "quiet".parse().unwrap();
        queue.push(item(1001, "quiet", 2, now), None, now);
        queue.push(item(1002, "quiet", 2, now), None, now);
        let mut pop = || queue.pop(|cluster| *cluster == quiet);
        assert_eq!((pop(), pop(), pop()), (Some(1001), Some(1002), None));
        assert_eq!(queue.pop(|_| true), Some(2));
    }

    #[test]
    fn a_stream_keeps_its_order_until_its_head_is_old() {
        let now = Instant::now();
        let mut queue = Queue::new(Order::For(Duration::from_secs(120)));
        queue.push(item(1, "a", 1, now), None, now);
        queue.push(item(2, "a", 1, now), None, now);
        queue.push(item(3, "a", 2, now), None, now);
        assert_eq!(drain(&mut queue), [1, 3]);
        queue.delay(1, now + Duration::from_secs(500), Firm::No);
        queue.advance(now + Duration::from_secs(119));
        assert!(drain(&mut queue).is_empty());
        queue.advance(now + Duration::from_secs(120));
        assert_eq!(drain(&mut queue), [2]);
    }

    #[test]
    fn strict_order_waits_for_the_head_and_a_head_that_is_done_frees_the_next() {
        let now = Instant::now();
        let mut queue = Queue::new(Order::Strict);
        for n in [2, 1, 3] {
            queue.push(item(n, "a", 1, now), None, now);
        }
        // The first came alone and is on its way; an earlier place that comes later goes next.
        assert_eq!(drain(&mut queue), [2, 1]);
        queue.advance(now + Duration::from_secs(1_000_000));
        assert!(drain(&mut queue).is_empty());
        queue.remove(2, now);
        queue.remove(1, now);
        assert_eq!(drain(&mut queue), [3]);
        queue.remove(3, now);
        assert_eq!((queue.len(), queue.lanes.len()), (0, 0));
    }

    #[test]
    fn what_is_delayed_goes_when_it_is_due_or_when_the_target_is_back() {
        let now = Instant::now();
        let mut queue = Queue::new(Order::None);
        let due = now + Duration::from_secs(5);
        queue.push(item(1, "a", 1, now), Some(due), now);
        queue.push(item(2, "a", 2, now), Some(due + Duration::from_secs(60)), now);
        assert_eq!((drain(&mut queue), queue.wake()), (vec![], Some(due)));
        queue.advance(due);
        assert_eq!(drain(&mut queue), [1]);
        queue.delay(1, due + Duration::from_secs(30), Firm::Yes);
        queue.hurry(due);
        assert_eq!(drain(&mut queue), [2]);
        queue.advance(due + Duration::from_secs(30));
        assert_eq!(drain(&mut queue), [1]);
    }
}
