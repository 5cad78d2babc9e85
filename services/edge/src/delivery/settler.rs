//! The open verdicts, and when each is handed over.

use std::{
    collections::{BTreeSet, HashMap},
    time::Instant,
};

use transponder_core::{
    EventKey, Phase, ReleaseKey, StreamKey, Timestamp,
    settle::{OpenVerdict, Windows},
};

use crate::outbox::{HandOver, Sequence, StoredObservation};

#[derive(Debug)]
struct Open {
    verdict: OpenVerdict,
    stream: StreamKey,
    events: BTreeSet<Sequence>,
    up_to: i64,
    due: Instant,
}

#[derive(Debug)]
pub(super) struct Settler {
    windows: Windows,
    open: HashMap<ReleaseKey, Open>,
    due: BTreeSet<(Instant, ReleaseKey)>,
    streams: HashMap<StreamKey, BTreeSet<ReleaseKey>>,
}

impl Settler {
    pub(super) fn new(windows: Windows) -> Self {
        Self { windows, open: HashMap::new(), due: BTreeSet::new(), streams: HashMap::new() }
    }

    /// The windows.
    pub(super) fn windows(&self) -> Windows {
        self.windows
    }

    /// Number of open verdicts.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Takes in an observation. Answers the event that no longer is its release's candidate, if any.
    pub(super) fn observe(
        &mut self,
        stored: &StoredObservation,
        wall: Timestamp,
        now: Instant,
    ) -> Option<EventKey> {
        let place = stored.place;
        let mut overtaken = None;
        match self.open.get_mut(&place.release) {
            Some(open) => {
                overtaken = open.verdict.observe(stored.observation);
                open.events.insert(stored.sequence);
                open.up_to = open.up_to.max(stored.number);
                self.due.remove(&(open.due, place.release));
                open.due = now + open.verdict.due_in(&self.windows, wall);
                self.due.insert((open.due, place.release));
            }
            None => {
                // A Syncing alone opens nothing.
                let verdict = OpenVerdict::open(stored.observation)?;
                let due = now + verdict.due_in(&self.windows, wall);
                self.due.insert((due, place.release));
                self.streams.entry(place.stream).or_default().insert(place.release);
                let open = Open {
                    verdict,
                    stream: place.stream,
                    events: BTreeSet::from([stored.sequence]),
                    up_to: stored.number,
                    due,
                };
                self.open.insert(place.release, open);
            }
        }
        overtaken
    }

    /// The verdicts that are due, in the order in which DORA is to have them. A success first hands over the open
    /// failures of other releases of its stream that finished before it, oldest first: the restore time rests on it.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<HandOver> {
        let mut handed = Vec::new();
        while let Some((due, release)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            let Some(open) = self.open.get(&release) else {
                self.due.remove(&(due, release));
                continue;
            };
            if open.verdict.candidate().phase == Phase::Succeeded {
                for failed in self.failed_before(release, open) {
                    handed.extend(self.close(failed));
                }
            }
            handed.extend(self.close(release));
        }
        handed
    }

    fn failed_before(&self, release: ReleaseKey, succeeded: &Open) -> Vec<ReleaseKey> {
        let finish = succeeded.verdict.candidate().finish();
        let others = self.streams.get(&succeeded.stream).into_iter().flatten();
        let mut failed: Vec<_> = others
            .filter(|other| **other != release)
            .filter_map(|other| {
                let candidate = self.open.get(other)?.verdict.candidate();
                let before = candidate.phase == Phase::Failed && candidate.finish() < finish;
                before.then_some((candidate.finish(), *other))
            })
            .collect();
        failed.sort();
        failed.into_iter().map(|(_, release)| release).collect()
    }

    fn close(&mut self, release: ReleaseKey) -> Option<HandOver> {
        let open = self.open.remove(&release)?;
        self.due.remove(&(open.due, release));
        if let Some(releases) = self.streams.get_mut(&open.stream) {
            releases.remove(&release);
            if releases.is_empty() {
                self.streams.remove(&open.stream);
            }
        }
        let events = open.events.into_iter().collect();
        Some(HandOver { verdict: open.verdict.verdict(), events, up_to: open.up_to })
    }

    /// When the next verdict is due.
    pub(super) fn wake(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use transponder_core::settle::Observation;

    use crate::outbox::Place;

    use super::*;

    const WINDOWS: Windows = Windows {
        succeeded: Duration::ZERO,
        failed: Duration::from_secs(1200),
        max: Duration::from_secs(7200),
    };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn place(release: u8) -> Place {
        Place { release: ReleaseKey::from_bytes([release; 20]), stream: StreamKey::from_bytes([1; 20]) }
    }

    fn observed(number: i64, release: u8, phase: Phase, second: i64) -> StoredObservation {
        StoredObservation {
            number,
            sequence: number,
            place: place(release),
            observation: Observation {
                event: EventKey::from_bytes([u8::try_from(number).unwrap(); 20]),
                phase,
                finished_at: at(second),
                received_at: at(second),
            },
        }
    }

    #[test]
    fn a_success_first_hands_over_the_older_failures_of_its_stream() {
        let (mut settler, now) = (Settler::new(WINDOWS), Instant::now());
        for (number, release, second) in [(1, 2, 20), (2, 1, 10), (3, 4, 99)] {
            settler.observe(&observed(number, release, Phase::Failed, second), at(second), now);
        }
        assert!(settler.take_due(now).is_empty());
        settler.observe(&observed(4, 3, Phase::Succeeded, 30), at(30), now);
        let order: Vec<_> = settler.take_due(now).iter().map(|h| h.events.clone()).collect();
        assert_eq!(order, [[2], [1], [4]]);
        assert_eq!(settler.len(), 1);
    }

    #[test]
    fn a_failure_that_ends_in_a_success_is_overtaken_and_counted_nowhere() {
        let (mut settler, now) = (Settler::new(WINDOWS), Instant::now());
        settler.observe(&observed(1, 1, Phase::Failed, 1), at(1), now);
        let overtaken = settler.observe(&observed(2, 1, Phase::Succeeded, 5), at(5), now);
        assert_eq!(overtaken, Some(EventKey::from_bytes([1; 20])));
        let handed = settler.take_due(now);
        assert_eq!((handed.len(), handed[0].verdict.phase, handed[0].up_to), (1, Phase::Succeeded, 2));
        assert_eq!(handed[0].events, [1, 2]);
    }

    proptest! {
        #[test]
        fn every_open_verdict_is_handed_over_once_within_the_longest_window(
            observations in prop::collection::vec((0u8..4, 0u8..3, 0i64..7000), 1..60)
        ) {
            let (mut settler, start) = (Settler::new(WINDOWS), Instant::now());
            let mut handed = Vec::new();
            let mut sorted = observations;
            sorted.sort_by_key(|(_, _, second)| *second);
            let mut terminal = std::collections::HashSet::new();
            let mut releases = HashMap::new();
            for (number, (release, phase, second)) in (1..).zip(sorted) {
                let phase = [Phase::Syncing, Phase::Succeeded, Phase::Failed][usize::from(phase)];
                let now = start + Duration::from_secs(second.unsigned_abs());
                handed.extend(settler.take_due(now));
                settler.observe(&observed(number, release, phase, second), at(second), now);
                releases.insert(number, place(release).release);
                if phase.is_terminal() {
                    terminal.insert(place(release).release);
                }
            }
            handed.extend(settler.take_due(start + Duration::from_secs(7000) + WINDOWS.max));
            prop_assert_eq!(settler.len(), 0);
            let seen: std::collections::HashSet<_> =
                handed.iter().flat_map(|h| &h.events).map(|number| releases[number]).collect();
            prop_assert_eq!(seen, terminal);
            let events: std::collections::HashSet<_> = handed.iter().map(|h| h.verdict.event).collect();
            prop_assert_eq!(events.len(), handed.len());
        }
    }
}
