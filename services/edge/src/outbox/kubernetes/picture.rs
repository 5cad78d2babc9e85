//! What the holder of the Lease has in memory of the events that are open.
//!
//! The API server orders nothing for us: an event gets its sequence, and an observation its number, when they are first
//! seen here. Both are this process's own and mean nothing to the next holder.

use std::collections::{HashMap, HashSet};

use transponder_core::{EventKey, Target, TargetState, settle::Observation};

use super::{
    super::{OpenEvent, Place, Sequence, StoredObservation},
    edit::Facts,
    object::{Outcome, Status, statuses},
};

/// An event as it was read or written last.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub sequence: Sequence,
    pub uid: String,
    pub version: u64,
    /// The version in which the feed selected it no more.
    left_at: Option<u64>,
    pub facts: Facts,
    pub place: Option<Place>,
    pub status: Status,
    /// The number that is ours of each observation, and its number within the event.
    numbers: Vec<(i64, u32)>,
}

impl Known {
    /// The number within the event of the last observation that is not after `up_to`.
    pub(super) fn within(&self, up_to: i64) -> u32 {
        self.numbers.iter().filter(|(ours, _)| *ours <= up_to).map(|(_, number)| *number).max().unwrap_or(0)
    }

    /// Whatever is read next is believed.
    fn doubt(&mut self) {
        self.version = 0;
        self.left_at = None;
        self.numbers.clear();
    }
}

/// What is open.
#[derive(Debug, Default)]
pub(super) struct Picture {
    known: HashMap<EventKey, Known>,
    keys: HashMap<Sequence, EventKey>,
    last: i64,
    /// Place of the last verdict in the order of hand-overs.
    order: i64,
    newest: u64,
}

/// What is new in an object.
#[derive(Debug)]
pub(super) enum Seen {
    /// It was not known.
    New,
    /// These observations were not known of it.
    Observed(Vec<StoredObservation>),
    /// Nothing.
    Old,
}

impl Picture {
    pub(super) fn get(&self, key: EventKey) -> Option<&Known> {
        self.known.get(&key)
    }

    pub(super) fn key(&self, sequence: Sequence) -> Option<EventKey> {
        self.keys.get(&sequence).copied()
    }

    /// Whether a verdict of an event is still to settle.
    pub(super) fn waits_for_verdict(&self, key: EventKey) -> bool {
        let waits = |known: &Known| {
            statuses(&known.facts.targets, &known.status, known.facts.received_at)
                .iter()
                .any(|(target, status)| *target == Target::Dora && status.state == TargetState::Waiting)
        };
        self.get(key).is_some_and(waits)
    }

    /// The newest version that was seen of anything. A list that is older shows that the store was set back.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// Takes over a list of this version: what is not in it is gone, unless it has come since. An event that is older in
    /// it than it was known to be before was set back with the store, and is as the list says. Answers what is gone and
    /// was not known to have ended.
    pub(super) fn replace(
        &mut self,
        listed: &HashSet<EventKey>,
        version: u64,
        open: &[Outcome],
    ) -> Vec<EventKey> {
        let gone = self.known.iter().filter(|(key, known)| known.version <= version && !listed.contains(key));
        let gone: Vec<_> = gone.map(|(key, known)| (*key, known.status.ended.is_none())).collect();
        gone.iter().for_each(|(key, _)| self.forget(*key));
        for outcome in open {
            match self.known.get(&outcome.key) {
                Some(known) if (outcome.version + 1..=version).contains(&known.version) => {
                    self.set_back(outcome)
                }
                _ => drop(self.see(outcome)),
            }
        }
        gone.into_iter().filter_map(|(key, open)| open.then_some(key)).collect()
    }

    /// Believes nothing of what is known any more: the store was set back to a backup, and versions and numbers of
    /// observations come once more, for other things. A list is to follow.
    pub(super) fn doubt(&mut self) {
        self.known.values_mut().for_each(Known::doubt);
        self.newest = 0;
    }

    /// Believes what was read of an event although a later version was known.
    pub(super) fn set_back(&mut self, outcome: &Outcome) {
        if let Some(known) = self.known.get_mut(&outcome.key) {
            known.doubt();
        }
        self.see(outcome);
    }

    pub(super) fn forget(&mut self, key: EventKey) {
        if let Some(known) = self.known.remove(&key) {
            self.keys.remove(&known.sequence);
        }
    }

    /// A place in the order of hand-overs after every one that was given before, by whomever.
    pub(super) fn next_order(&mut self, now: i64) -> i64 {
        self.order = self.order.saturating_add(1).max(now);
        self.order
    }

    /// Takes over an object: its status unless what is known is as new, its observations in any case, since a write of
    /// our own that met a conflict has brought the version but told nobody of the news.
    pub(super) fn see(&mut self, outcome: &Outcome) -> Seen {
        self.newest = self.newest.max(outcome.version);
        self.order = self.order.max(outcome.status.verdict_order().unwrap_or(0));
        // It was deleted, and sent again since.
        if self.known.get(&outcome.key).is_some_and(|known| known.uid != outcome.uid) {
            self.forget(outcome.key);
        }
        let new = !self.known.contains_key(&outcome.key);
        let sequence = match self.known.get(&outcome.key) {
            Some(known) => known.sequence,
            None => self.count(),
        };
        self.keys.insert(sequence, outcome.key);
        let known = self.known.entry(outcome.key).or_insert_with(|| Known {
            sequence,
            uid: outcome.uid.clone(),
            version: 0,
            left_at: None,
            facts: outcome.facts(),
            place: outcome.place,
            status: Status::default(),
            numbers: Vec::new(),
        });
        if known.version < outcome.version {
            known.version = outcome.version;
            known.status = outcome.status.clone();
        }
        let mut observed = Vec::new();
        for (number, observation) in outcome.observations() {
            if known.numbers.iter().all(|(_, known)| *known != number) {
                self.last += 1;
                known.numbers.push((self.last, number));
                observed.extend(stored(known, self.last, observation));
            }
        }
        match (new, observed.is_empty()) {
            (true, _) => Seen::New,
            (false, true) => Seen::Old,
            (false, false) => Seen::Observed(observed),
        }
    }

    /// Notes what was written.
    pub(super) fn wrote(&mut self, key: EventKey, version: u64, status: &Status) {
        self.newest = self.newest.max(version);
        let Some(known) = self.known.get_mut(&key) else { return };
        if known.version < version {
            known.version = version;
            known.status = status.clone();
        }
        self.forget_what_left(key);
    }

    /// Takes note that an event is selected no more since this version. What was deleted while it was open is found out
    /// when the next thing is noted of it.
    pub(super) fn left(&mut self, key: EventKey, version: u64) {
        if let Some(known) = self.known.get_mut(&key) {
            known.left_at = Some(version);
        }
        self.forget_what_left(key);
    }

    /// The feed may tell of our own last write before it is answered.
    fn forget_what_left(&mut self, key: EventKey) {
        let ended = |known: &&Known| known.status.ended.is_some() && known.left_at >= Some(known.version);
        if self.known.get(&key).filter(ended).is_some() {
            self.forget(key);
        }
    }

    /// The event as the engine takes it up again. An observation that the feed has not told of yet is left to it: it must
    /// be settled, too.
    pub(super) fn take_up(&mut self, outcome: &Outcome) -> Option<OpenEvent> {
        self.wrote(outcome.key, outcome.version, &outcome.status);
        self.open(outcome)
    }

    /// The event as the engine takes it up, with what tracking has not been told.
    pub(super) fn open(&self, outcome: &Outcome) -> Option<OpenEvent> {
        let known = self.known.get(&outcome.key)?;
        let untracked = self.numbered(outcome, |number| number > outcome.status.tracked);
        Some(outcome.open_event(known.sequence, untracked))
    }

    /// The observations of an event that no verdict rests on yet.
    pub(super) fn unsettled(&self, outcome: &Outcome, settled: u32) -> Vec<StoredObservation> {
        self.numbered(outcome, |number| number > settled)
    }

    fn numbered(&self, outcome: &Outcome, wanted: impl Fn(u32) -> bool) -> Vec<StoredObservation> {
        let Some(known) = self.known.get(&outcome.key) else { return Vec::new() };
        let ours = |number: u32| known.numbers.iter().find(|(_, n)| *n == number).map(|(ours, _)| *ours);
        let observations = outcome.observations().into_iter().filter(|(number, _)| wanted(*number));
        observations.filter_map(|(number, seen)| stored(known, ours(number)?, seen)).collect()
    }

    fn count(&mut self) -> i64 {
        self.last += 1;
        self.last
    }
}

fn stored(known: &Known, number: i64, observation: Observation) -> Option<StoredObservation> {
    Some(StoredObservation { number, sequence: known.sequence, place: known.place?, observation })
}
