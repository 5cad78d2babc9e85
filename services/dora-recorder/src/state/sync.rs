//! Syncs of this cluster's own Argo CD that a stream awaits, and what is needed to count none of them twice.
//!
//! What must hold: an awaited sync is forgotten in the same write that counts it, so that nobody counts it again, and an
//! operation that started no later than the baseline is never one: self-heals, and syncs of before, are such.

use transponder_core::{ReleaseKey, Timestamp};

use super::{Instant, Judged, Outcome, StreamState, Verdict};

/// Applications of which a stream remembers what was counted. More than one is rare: an Application that was made anew.
const REMEMBERED: usize = 16;

/// What a stream awaits of Applications.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Syncs {
    /// Releases whose sync has not been counted.
    pub awaited: Vec<Awaited>,
    /// Per Application the last operation that was counted.
    pub counted: Vec<Counted>,
}

/// A release that awaits its sync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Awaited {
    /// UID of the Application.
    pub application: String,
    /// Start of its last operation when the release became pending; `None`: there had been none.
    pub baseline: Option<Instant>,
    /// The release.
    pub release: ReleaseKey,
    /// When its flow began, if that is known.
    pub flow_start: Option<Instant>,
}

/// An operation that was counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// UID of the Application.
    pub application: String,
    /// Start of the operation.
    pub started_at: Instant,
}

/// An operation of an Application that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sync {
    /// When it started.
    pub started_at: Instant,
    /// When it finished.
    pub finished_at: Instant,
    /// What it came to.
    pub outcome: Outcome,
}

/// What becomes of an expectation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The sync after this one is awaited.
    After(Option<Instant>),
    /// The sync after that baseline was counted already: what was read of the Application is too old.
    Outdated,
}

/// An awaited sync that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    awaited: Awaited,
    sync: Sync,
}

impl Due {
    /// What it comes to.
    #[must_use]
    pub fn verdict(&self, received_at: Timestamp) -> Verdict {
        let finished_at = self.sync.finished_at.into();
        Verdict {
            release: self.awaited.release,
            outcome: self.sync.outcome,
            finished_at,
            first_finished_at: finished_at,
            flow_start: self.awaited.flow_start.map(Timestamp::from),
            received_at,
        }
    }
}

impl Awaited {
    fn is_after(&self, started_at: Instant) -> bool {
        self.baseline.is_none_or(|baseline| started_at > baseline)
    }

    /// The first operation that started strictly after the baseline.
    fn first_of<'a>(&self, ended: &'a [Sync]) -> Option<&'a Sync> {
        let after = ended.iter().filter(|sync| self.is_after(sync.started_at));
        after.min_by_key(|sync| sync.started_at)
    }

    fn same_sync(&self, other: &Self) -> bool {
        self.application == other.application && self.baseline == other.baseline
    }
}

impl Syncs {
    fn counted(&self, application: &str) -> Option<Instant> {
        let counted = self.counted.iter().find(|counted| counted.application == application);
        counted.map(|counted| counted.started_at)
    }

    /// Whether the sync that this one awaits was counted.
    fn was_counted(&self, awaited: &Awaited) -> bool {
        self.counted(&awaited.application).is_some_and(|started_at| awaited.is_after(started_at))
    }

    fn note(&mut self, application: &str, started_at: Instant) {
        let known = self.counted(application);
        self.counted.retain(|counted| counted.application != application);
        let started_at = known.map_or(started_at, |known| known.max(started_at));
        self.counted.push(Counted { application: application.to_owned(), started_at });
        let excess = self.counted.len().saturating_sub(REMEMBERED);
        self.counted.drain(..excess);
    }
}

impl StreamState {
    /// A release becomes pending: `awaited` as the Application was just read, with the operation that had `ended` by
    /// then. Answers whether that changes anything, too.
    ///
    /// One that is pending already keeps its baseline for as long as the sync after that has not ended. Of two releases
    /// that await the same sync the later one counts: it is what will be synced.
    ///
    /// `sure` is who has read the Application anew after being told that it was outdated: then its operations run
    /// backwards, by a clock that was set back, and that is no reason to wait for the clock.
    pub fn expect(&mut self, awaited: Awaited, ended: Option<Instant>, sure: bool) -> (Expected, bool) {
        let pending = self.syncs.awaited.iter().find(|known| {
            known.application == awaited.application
                && known.release == awaited.release
                && !ended.is_some_and(|started_at| known.is_after(started_at))
        });
        if let Some(known) = pending {
            return (Expected::After(known.baseline), false);
        }
        if !sure && self.syncs.was_counted(&awaited) {
            return (Expected::Outdated, false);
        }
        let baseline = awaited.baseline;
        // An Application has one UID at a time: what awaited one that is gone awaits nothing any more.
        self.syncs
            .awaited
            .retain(|known| known.application == awaited.application && !known.same_sync(&awaited));
        self.syncs.awaited.push(awaited);
        let excess = self.syncs.awaited.len().saturating_sub(REMEMBERED);
        self.syncs.awaited.drain(..excess);
        (Expected::After(baseline), true)
    }

    /// What awaits one of these operations of an Application, if anything does. `annotated` is what the Application
    /// itself says to be pending.
    #[must_use]
    pub fn due(&self, application: &str, ended: &[Sync], annotated: Option<&Awaited>) -> Option<Due> {
        let own = self.syncs.awaited.iter().filter(|awaited| awaited.application == application);
        // Counted by the name that `Expect` gave, if the release became pending in both ways; and first, since after any
        // other count it could not be told from one that was counted.
        let annotated = annotated.filter(|annotated| {
            !self.syncs.was_counted(annotated) && !own.clone().any(|awaited| awaited.same_sync(annotated))
        });
        annotated.into_iter().chain(own).find_map(|awaited| {
            let sync = *awaited.first_of(ended)?;
            Some(Due { awaited: awaited.clone(), sync })
        })
    }

    /// Counts an awaited sync and awaits it no more. Always a change.
    pub fn settle(&mut self, due: &Due, received_at: Timestamp) -> Judged {
        let judged = self.apply(&due.verdict(received_at));
        self.syncs.awaited.retain(|awaited| *awaited != due.awaited);
        self.syncs.note(&due.awaited.application, due.sync.started_at);
        Judged { change: Some(judged.change.unwrap_or_default()), ..judged }
    }
}

#[cfg(test)]
#[path = "sync_tests.rs"]
mod tests;
