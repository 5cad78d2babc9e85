//! What a decision changes in the status of one event. Pure, so that it can be decided again after a conflict.

use std::time::Duration;

use transponder_core::{EventKey, Target, TargetState, Timestamp, settle::Verdict};

use super::{
    super::{Detail, TargetStatus},
    condition::Standing,
    object::{Status, statuses},
    resource::Ended,
};

/// A change of one event's status.
#[derive(Debug, Clone)]
pub(super) enum Edit {
    /// How far it has come with a target, and up to which observation tracking has been told.
    Status { target: Target, status: Box<TargetStatus>, tracked: u32 },
    /// Its verdict is handed over, and rests on its observations up to `settled` and on other events'.
    HandOver { order: i64, verdict: Verdict, settled: u32, rests_on: Vec<(EventKey, u32)> },
    /// It is overtaken by another observation of its release; `settled` when that has been handed over.
    Replace { settled: u32 },
    /// Its dead targets are taken up again, one or all, as an annotation asked.
    Replay { target: Option<Target>, asked: String },
    /// It was observed again.
    Observe { finished_at: Timestamp, received_at: Timestamp },
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Became {
    /// What it says.
    Changed,
    /// It was so already.
    Unchanged,
    /// The verdict as it stands now.
    HandedOver(Verdict),
    /// It waits for no verdict any more.
    Replaced,
    /// These targets are open again.
    Replayed(Vec<Target>),
    /// A new observation has this number.
    Observed(u32),
}

/// What an event is, as far as its status depends on it.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub targets: Vec<Target>,
    pub received_at: Timestamp,
    /// The finish that the event itself reports, if it reports a release.
    pub finished_at: Option<Timestamp>,
}

/// How long an event is remembered after its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keep {
    pub delivered: Duration,
    pub dead: Duration,
}

/// Observations of an event that are kept: the first and the last so many.
const KEPT: usize = 16;

impl Status {
    /// Changes the status as an edit says.
    pub(super) fn apply(&mut self, edit: &Edit, facts: &Facts, at: Timestamp, keep: Keep) -> Became {
        let became = match edit {
            Edit::Status { target, status, tracked } => self.record(*target, status, *tracked),
            Edit::HandOver { order, verdict, settled, rests_on } => {
                self.hand_over(*order, verdict, *settled, rests_on, facts, at)
            }
            Edit::Replace { settled } => self.replace(*settled, facts, at),
            Edit::Replay { target, asked } => self.replay(*target, asked, at),
            Edit::Observe { finished_at, received_at } => self.observe(*finished_at, *received_at, facts),
        };
        if became != Became::Unchanged {
            self.conclude(facts, at, keep);
        }
        became
    }

    fn record(&mut self, target: Target, status: &TargetStatus, tracked: u32) -> Became {
        // Of observations that went with a store that was set back nothing was told.
        self.tracked = self.tracked.max(tracked.min(self.observed));
        let mut status = status.clone();
        match (target, &status.detail) {
            // What came in while the call was out is still to be told: its end is not the event's.
            (Target::Tracking, _)
                if status.state == TargetState::Delivered && self.observed > self.tracked =>
            {
                status.state = TargetState::Stored;
            }
            (Target::Dora, Detail::Verdict { order, .. }) => {
                if self.verdict_order() > Some(*order) {
                    // What is told of is overtaken by a verdict that the caller did not know.
                    return Became::Changed;
                }
                if status.state.is_final() && self.observed > self.settled {
                    // Observed again since the verdict was handed over: that waits for the next one.
                    status.state = TargetState::Waiting;
                }
            }
            _ => {}
        }
        self.set(target, status, None);
        Became::Changed
    }

    /// The place of its verdict in the order of hand-overs, if one was handed over.
    pub(super) fn verdict_order(&self) -> Option<i64> {
        match &self.of(Target::Dora)?.detail {
            Detail::Verdict { order, .. } => Some(*order),
            _ => None,
        }
    }

    fn hand_over(
        &mut self,
        order: i64,
        verdict: &Verdict,
        settled: u32,
        rests_on: &[(EventKey, u32)],
        facts: &Facts,
        at: Timestamp,
    ) -> Became {
        if !facts.targets.contains(&Target::Dora) {
            // An event that was accepted while DORA was no target is none for it now.
            return Became::Unchanged;
        }
        self.settled = self.settled.max(settled.min(self.observed));
        let mut verdict = verdict.clone();
        let mut rests: Vec<_> = rests_on.to_vec();
        // A verdict of the same event that DORA has not taken yet becomes part of this one.
        if let Some(before) = self.targets.iter().find(|one| one.target == Target::Dora)
            && let Detail::Verdict { verdict: earlier, .. } = &before.status.detail
            && !before.status.state.is_final()
        {
            verdict.first_finished_at = verdict.first_finished_at.min(earlier.first_finished_at);
            let others = before.rests_on.iter();
            rests.extend(others.filter(|(event, _)| !rests_on.iter().any(|(other, _)| other == event)));
        }
        let mut status = TargetStatus::new(TargetState::Stored, at);
        status.detail = Detail::Verdict { order, verdict: verdict.clone() };
        self.set(Target::Dora, status, Some(rests));
        Became::HandedOver(verdict)
    }

    fn replace(&mut self, settled: u32, facts: &Facts, at: Timestamp) -> Became {
        if !facts.targets.contains(&Target::Dora) {
            return Became::Replaced;
        }
        let settled = settled.min(self.observed);
        let news = settled > self.settled;
        self.settled = self.settled.max(settled);
        match self.of(Target::Dora).map_or(Target::Dora.begins(), |status| status.state) {
            TargetState::Waiting => {
                self.set(Target::Dora, TargetStatus::new(TargetState::Replaced, at), Some(Vec::new()));
                Became::Replaced
            }
            // A verdict of it is on its way to DORA.
            TargetState::Stored | TargetState::Retrying if news => Became::Changed,
            TargetState::Stored | TargetState::Retrying => Became::Unchanged,
            TargetState::Delivered | TargetState::Replaced | TargetState::Dead => Became::Replaced,
        }
    }

    fn replay(&mut self, wanted: Option<Target>, asked: &str, at: Timestamp) -> Became {
        self.replayed = Some(asked.to_owned());
        let mut replayed = Vec::new();
        for Standing { target, status, .. } in &mut self.targets {
            if status.state == TargetState::Dead && wanted.is_none_or(|wanted| wanted == *target) {
                let detail = std::mem::take(&mut status.detail);
                *status = TargetStatus { detail, ..TargetStatus::new(TargetState::Stored, at) };
                replayed.push(*target);
            }
        }
        Became::Replayed(replayed)
    }

    /// A new observation concerns tracking and the verdict again, never broker or span.
    fn observe(&mut self, finished_at: Timestamp, received_at: Timestamp, facts: &Facts) -> Became {
        let Some(first) = facts.finished_at else { return Became::Unchanged };
        if first == finished_at || self.later.iter().any(|(_, known, _)| *known == finished_at) {
            return Became::Unchanged;
        }
        self.observed = self.observed.saturating_add(1);
        self.later.push((self.observed, finished_at, received_at));
        // The first one is in the event itself.
        if self.later.len() > 2 * KEPT - 1 {
            self.later.remove(KEPT - 1);
        }
        for Standing { target, status, .. } in &mut self.targets {
            if status.state.is_final() {
                match target {
                    Target::Dora => status.state = TargetState::Waiting,
                    Target::Tracking => status.state = TargetState::Stored,
                    Target::Broker | Target::Span => {}
                }
            }
        }
        Became::Observed(self.observed)
    }

    /// Notes how a target stands; what its verdict rests on stays unless something else is said.
    fn set(&mut self, target: Target, status: TargetStatus, rests_on: Option<Vec<(EventKey, u32)>>) {
        match self.targets.iter_mut().find(|one| one.target == target) {
            Some(one) => {
                one.status = status;
                if let Some(rests_on) = rests_on {
                    one.rests_on = rests_on;
                }
            }
            None => {
                self.targets.push(Standing { target, status, rests_on: rests_on.unwrap_or_default() });
                self.targets.sort_by_key(|one| one.target);
            }
        }
    }

    /// Notes whether anything is still open, and else from which day on the event may be forgotten.
    fn conclude(&mut self, facts: &Facts, at: Timestamp, keep: Keep) {
        let states: Vec<_> =
            statuses(&facts.targets, self, facts.received_at).into_iter().map(|(_, s)| s.state).collect();
        let ended = match () {
            () if states.iter().any(|state| state.is_open()) => None,
            () if states.contains(&TargetState::Dead) => Some(Ended::Dead),
            () => Some(Ended::Delivered),
        };
        if ended == self.ended && ended.is_some() {
            return;
        }
        self.ended = ended;
        self.forget_after = ended.map(|ended| {
            let kept = if ended == Ended::Dead { keep.dead.max(keep.delivered) } else { keep.delivered };
            day_after(at, kept)
        });
    }
}

/// The first day that begins after this time and that long: whole days, so that few selectors find what is old.
pub(super) fn day_after(at: Timestamp, kept: Duration) -> String {
    const DAY: Duration = Duration::from_hours(24);
    let later = jiff::SignedDuration::try_from(kept.saturating_add(DAY)).unwrap_or(jiff::SignedDuration::MAX);
    day(at.checked_add(later).unwrap_or(Timestamp::MAX))
}

/// The day of a time, in UTC, as in `2026-12-07`.
pub(super) fn day(at: Timestamp) -> String {
    // RFC 3339 begins with it.
    at.to_string().chars().take_while(|c| *c != 'T').collect()
}
