//! The record of a release: facts, and the state that follows from them. Pure: no clock, no store.
//!
//! Each fact is merged so that order and repetition do not matter: set-once fields keep their first value, and of the
//! observations the one that finished last counts. The state is computed from the facts; only the two marks,
//! `unreported` and `superseded`, are put on by others, and an observation of the release's own takes them off.

use serde::{Deserialize, Serialize};
use transponder_core::{EventKey, Phase, Release, ReleaseId, Timestamp};

use crate::state::State;

/// Observations that are remembered one by one. An operation of Argo CD makes at most 15: three phases, five attempts.
pub(crate) const RECENT: usize = 32;

/// What is known of a release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The release.
    pub release: Release,
    /// Revision of the app's own repository, also where the chain id names the release. Empty when unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub git_revision: String,
    /// URL of the pull request. Empty when unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pr_url: String,
    /// Creation of the pull request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pr_created_at: Option<Timestamp>,
    /// Merge of the pull request, as it was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_at: Option<Timestamp>,
    /// The same, at most the time at which it was told: a git host's clock that is ahead postpones no silence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) merge_known_at: Option<Timestamp>,
    /// Close of the pull request without a merge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Timestamp>,
    /// The PreSync that finished last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sync: Option<Seen>,
    /// The outcome that finished last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<Seen>,
    /// The last observations, oldest first, to know a repeated one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) recent: Vec<Fingerprint>,
    /// Number of observations.
    #[serde(default)]
    pub observations: u32,
    /// When the first observation was received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_observed_at: Option<Timestamp>,
    /// When the last observation was received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_observed_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mark: Option<Mark>,
    /// When the record was made.
    pub created_at: Timestamp,
    /// When the record was last changed.
    pub updated_at: Timestamp,
}

/// What others have put on a release that is merged or progressing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mark {
    /// Merged or begun, and then silence.
    Unreported,
    /// A later release of its stream was seen first.
    Superseded,
}

/// An observation of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// The event that carries it; unknown when a Task tells of it.
    pub event: Option<EventKey>,
    /// What was reported.
    pub phase: Phase,
    /// The finish time that was reported.
    pub finished_at: Timestamp,
    /// When it was received.
    pub received_at: Timestamp,
}

/// What an observation leaves in the record when it finished last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// What was reported.
    pub phase: Phase,
    /// The finish time that was reported.
    pub finished_at: Timestamp,
    /// When it was received.
    pub received_at: Timestamp,
}

impl Seen {
    /// A finish after its receipt counts as the receipt: no cluster's clock can hold off later reports. On a tie the
    /// success counts, then the failure. The rest only makes the order total.
    fn rank(&self) -> (Timestamp, u8, Timestamp, Timestamp) {
        let phase = match self.phase {
            Phase::Syncing => 0,
            Phase::Failed => 1,
            Phase::Succeeded => 2,
        };
        (self.finished_at.min(self.received_at), phase, self.finished_at, self.received_at)
    }
}

/// What tells one observation from another: event, phase, finish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fingerprint(pub(crate) Option<EventKey>, pub(crate) Phase, pub(crate) Timestamp);

/// What a Task tells of a pull request. Absent means not told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PullRequest {
    /// Its URL; empty when not told.
    pub url: String,
    /// Its creation.
    pub created_at: Option<Timestamp>,
    /// Its merge.
    pub merged_at: Option<Timestamp>,
    /// Its close without a merge.
    pub closed_at: Option<Timestamp>,
}

impl PullRequest {
    /// Longest address, in characters.
    pub const MAX_ADDRESS: usize = 2048;

    /// Whether a text is the address of a pull request: an http or https URL.
    #[must_use]
    pub fn is_address(text: &str) -> bool {
        // The parser would quietly drop them, and what is kept is the text.
        let blank = text.chars().any(|c| c.is_whitespace() || c.is_control());
        let fits =
            url::Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        !blank && fits && text.chars().count() <= Self::MAX_ADDRESS
    }
}

/// What became of an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noted {
    /// The first one of its release.
    First,
    /// A further one.
    Further,
    /// It was known from a Task; now its event is known, too.
    Named,
    /// It was known.
    Repeated,
}

impl Record {
    /// A record of which nothing but its release is known.
    #[must_use]
    pub fn new(release: Release, now: Timestamp) -> Self {
        Self {
            git_revision: match &release.id {
                ReleaseId::GitRevision(revision) => revision.clone(),
                ReleaseId::ChainId(_) | ReleaseId::EventId(_) => String::new(),
            },
            release,
            pr_url: String::new(),
            pr_created_at: None,
            merged_at: None,
            merge_known_at: None,
            closed_at: None,
            sync: None,
            outcome: None,
            recent: Vec::new(),
            observations: 0,
            first_observed_at: None,
            last_observed_at: None,
            mark: None,
            created_at: now,
            updated_at: now,
        }
    }

    /// Where the release stands.
    #[must_use]
    pub fn state(&self) -> State {
        let state = self.reported().unwrap_or(match (self.merged_at, self.closed_at) {
            // A merge cannot be undone, so a close that is told with it was of the time before.
            (Some(_), _) => State::Merged,
            (None, Some(_)) => State::Closed,
            (None, None) => State::Expected,
        });
        match self.mark {
            Some(Mark::Unreported) if state.can_be_superseded() => State::Unreported,
            Some(Mark::Superseded) if state.can_be_superseded() => State::Superseded,
            _ => state,
        }
    }

    /// The state that the observations give, if there are any.
    fn reported(&self) -> Option<State> {
        match (self.sync, self.outcome) {
            (_, Some(outcome)) if outcome.phase == Phase::Succeeded => Some(State::Succeeded),
            (Some(sync), Some(outcome)) if sync.rank() < outcome.rank() => Some(State::Failed),
            (Some(_), _) => Some(State::Progressing),
            (None, Some(_)) => Some(State::Failed),
            (None, None) => None,
        }
    }

    /// The observation that finished last.
    #[must_use]
    pub fn last(&self) -> Option<Seen> {
        self.sync.into_iter().chain(self.outcome).max_by_key(Seen::rank)
    }

    /// Merges what a Task tells. Fields that are set stay; answers whether anything changed.
    pub fn put(&mut self, pull_request: &PullRequest, git_revision: &str, now: Timestamp) -> bool {
        let mut changed = self.learn_revision(git_revision);
        if self.pr_url.is_empty() && !pull_request.url.is_empty() {
            self.pr_url.clone_from(&pull_request.url);
            changed = true;
        }
        if self.merged_at.is_none() {
            self.merge_known_at = pull_request.merged_at.map(|at| at.min(now));
        }
        for (field, told) in [
            (&mut self.pr_created_at, pull_request.created_at),
            (&mut self.merged_at, pull_request.merged_at),
            (&mut self.closed_at, pull_request.closed_at),
        ] {
            if field.is_none() && told.is_some() {
                *field = told;
                changed = true;
            }
        }
        if changed {
            self.updated_at = now;
        }
        changed
    }

    /// The identity of a record never changes: a revision is only learnt where the chain id names the release.
    fn learn_revision(&mut self, git_revision: &str) -> bool {
        let learns = self.git_revision.is_empty()
            && !git_revision.is_empty()
            && matches!(self.release.id, ReleaseId::ChainId(_));
        if learns {
            git_revision.clone_into(&mut self.git_revision);
        }
        learns
    }

    /// Takes in an observation, once.
    pub fn observe(&mut self, observation: &Observation, git_revision: &str, now: Timestamp) -> Noted {
        if let Some(known) = self.known(observation) {
            return known;
        }
        self.recent.push(Fingerprint(observation.event, observation.phase, observation.finished_at));
        if self.recent.len() > RECENT {
            self.recent.remove(0);
        }
        let first = self.observations == 0;
        let received_at = observation.received_at.min(now);
        let seen = Seen { phase: observation.phase, finished_at: observation.finished_at, received_at };
        let slot = if seen.phase.is_terminal() { &mut self.outcome } else { &mut self.sync };
        if slot.is_none_or(|last| last.rank() < seen.rank()) {
            *slot = Some(seen);
        }
        self.observations = self.observations.saturating_add(1);
        self.first_observed_at =
            Some(self.first_observed_at.map_or(received_at, |known| known.min(received_at)));
        self.last_observed_at =
            Some(self.last_observed_at.map_or(received_at, |known| known.max(received_at)));
        self.mark = None;
        self.learn_revision(git_revision);
        self.updated_at = now;
        if first { Noted::First } else { Noted::Further }
    }

    /// Whether the observation was noted before. A Task knows no event key, so its word for an observation is that of
    /// any event with the same phase and finish.
    fn known(&mut self, observation: &Observation) -> Option<Noted> {
        let same = |f: &Fingerprint| f.1 == observation.phase && f.2 == observation.finished_at;
        let Some(event) = observation.event else {
            return self.recent.iter().any(same).then_some(Noted::Repeated);
        };
        if self.recent.iter().any(|f| same(f) && f.0 == Some(event)) {
            return Some(Noted::Repeated);
        }
        let told = self.recent.iter_mut().find(|f| same(f) && f.0.is_none())?;
        told.0 = Some(event);
        Some(Noted::Named)
    }

    /// Another release of the stream was first observed at `at`. Answers whether that changed anything.
    pub fn supersede(&mut self, at: Timestamp, now: Timestamp) -> bool {
        let before = self.last_sign().is_some_and(|sign| sign < at);
        if !self.state().can_be_superseded() || !before {
            return false;
        }
        self.mark = Some(Mark::Superseded);
        self.updated_at = now;
        true
    }

    /// When the release was last merged or observed.
    #[must_use]
    pub fn last_sign(&self) -> Option<Timestamp> {
        self.merge_known_at.max(self.last_observed_at)
    }

    /// Since when an outcome is awaited; `None` when none is.
    #[must_use]
    pub fn quiet_since(&self) -> Option<Timestamp> {
        match self.state() {
            State::Merged | State::Progressing => {
                self.merge_known_at.max(self.sync.map(|sync| sync.received_at))
            }
            _ => None,
        }
    }

    /// Marks the release as unreported if it has been quiet since `before` or longer. Answers whether it is so now and
    /// was not. No time and no result is made up.
    pub fn fall_silent(&mut self, before: Timestamp, now: Timestamp) -> bool {
        if self.quiet_since().is_none_or(|since| since > before) {
            return false;
        }
        self.mark = Some(Mark::Unreported);
        self.updated_at = now;
        true
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;

/// Records and observations for the tests of this crate.
#[cfg(test)]
pub(crate) mod fixture {
    use transponder_core::{AppName, AppNamespace, ClusterName, EnvName, Stream};

    use super::*;

    pub(crate) fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    pub(crate) fn release(chain_id: &str) -> Release {
        Release {
            stream: Stream {
                app_namespace: AppNamespace::new("app-shop-cicd").unwrap(),
                app: AppName::new("shop").unwrap(),
                env: EnvName::new("prod").unwrap(),
                cluster: ClusterName::new("kind-prod").unwrap(),
            },
            id: ReleaseId::ChainId(chain_id.to_owned()),
        }
    }

    pub(crate) fn record() -> Record {
        Record::new(release("c-1"), at(0))
    }

    pub(crate) fn observed(event: u8, phase: Phase, finished: i64, received: i64) -> Observation {
        Observation {
            event: Some(EventKey::from_bytes([event; 20])),
            phase,
            finished_at: at(finished),
            received_at: at(received),
        }
    }
}
