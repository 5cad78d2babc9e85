//! A change of one record, as data: a store with optimistic concurrency can decide it again after a conflict.

use transponder_core::{Maker, Phase, Release, ReleaseId, Timestamp};

use crate::{
    record::{Noted, Observation, PullRequest, Record},
    state::State,
};

/// What is to be done to the record of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The release.
    pub release: Release,
    /// Revision of the app's own repository, empty when unknown.
    pub git_revision: String,
    /// What happened.
    pub what: What,
    /// What to do when there is no record.
    pub unknown: Unknown,
    /// The time now.
    pub now: Timestamp,
}

/// What happened to a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A Task told of its pull request.
    Put(PullRequest),
    /// It was observed.
    Observed(Observation),
    /// It may have been quiet since this time or longer.
    Silent(Timestamp),
}

/// What to do when there is no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// Make one, in the room of whoever makes it.
    Create(Maker),
    /// Nothing.
    Leave,
}

/// A record after a change, and what must be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The record as it is now.
    pub record: Record,
    /// Its state before; `None` when there was no record.
    pub before: Option<State>,
    /// Who makes it; `None` when there was a record.
    pub maker: Option<Maker>,
    /// Whether it differs from what is stored.
    pub changed: bool,
    /// When the first observation of its release was received, if this is it: it supersedes others.
    pub supersedes: Option<Timestamp>,
}

impl Change {
    /// An observation makes a record, except a PreSync that has neither chain id nor revision: the outcome that follows
    /// it has another event id, so the two would never meet. Only the edge observes.
    #[must_use]
    pub fn unknown_for(id: &ReleaseId, phase: Phase) -> Unknown {
        match (id, phase) {
            (ReleaseId::EventId(_), Phase::Syncing) => Unknown::Leave,
            _ => Unknown::Create(Maker::Platform),
        }
    }

    /// Decides the change from what is stored; `None` when there is no record and none is to be made.
    #[must_use]
    pub fn decide(&self, stored: Option<Record>) -> Option<Decision> {
        let before = stored.as_ref().map(Record::state);
        let (mut record, maker) = match (stored, self.unknown) {
            (Some(record), _) => (record, None),
            (None, Unknown::Create(maker)) => (Record::new(self.release.clone(), self.now), Some(maker)),
            (None, Unknown::Leave) => return None,
        };
        let mut supersedes = None;
        let changed = match &self.what {
            What::Put(pull_request) => record.put(pull_request, &self.git_revision, self.now),
            What::Observed(observation) => {
                let noted = record.observe(observation, &self.git_revision, self.now);
                supersedes = (noted == Noted::First).then_some(observation.received_at.min(self.now));
                noted != Noted::Repeated
            }
            What::Silent(before) => record.fall_silent(*before, self.now),
        };
        Some(Decision { changed: changed || before.is_none(), record, before, maker, supersedes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::fixture::{at, observed, release};

    const CREATE: Unknown = Unknown::Create(Maker::Platform);

    fn change(what: What, unknown: Unknown) -> Change {
        Change { release: release("c-1"), git_revision: String::new(), what, unknown, now: at(100) }
    }

    #[test]
    fn a_record_is_made_only_where_one_is_to_be_made() {
        let what = What::Observed(observed(1, Phase::Succeeded, 10, 11));
        assert_eq!(change(what.clone(), Unknown::Leave).decide(None), None);
        let made = change(what, CREATE).decide(None).unwrap();
        assert_eq!((made.before, made.changed, made.supersedes), (None, true, Some(at(11))));
    }

    #[test]
    fn an_observation_that_is_known_writes_nothing_and_supersedes_nothing() {
        let change = change(What::Observed(observed(1, Phase::Succeeded, 10, 11)), CREATE);
        let record = change.decide(None).unwrap().record;
        let again = change.decide(Some(record.clone())).unwrap();
        assert_eq!((again.changed, again.supersedes), (false, None));
        assert_eq!(again.record, record);
    }

    #[test]
    fn only_a_presync_that_nothing_can_follow_makes_no_record() {
        let id = |chain, revision| ReleaseId::of(chain, revision, "e").unwrap();
        assert_eq!(Change::unknown_for(&id("", ""), Phase::Syncing), Unknown::Leave);
        assert_eq!(Change::unknown_for(&id("", ""), Phase::Failed), CREATE);
        assert_eq!(Change::unknown_for(&id("", "r"), Phase::Syncing), CREATE);
        assert_eq!(Change::unknown_for(&id("c", ""), Phase::Syncing), CREATE);
    }
}
