//! One change of one record: decided, written with its version, and decided again when somebody else was quicker.

use std::time::Duration;

use transponder_core::{ReleaseKey, Timestamp, retry::Backoff};
use transponder_kubernetes::{ApiError, Kind};
use transponder_runtime::crash;
use transponder_store::StoreError;

use super::{
    KubernetesStore,
    kept::{Entry, Kept},
    object::SCHEMA,
};
use crate::{
    change::{Change, Decision, What},
    store::{Changed, Error, Move},
};

/// How often a change is decided before it is given up. Those that run into each other are as many as there are
/// replicas, since each replica's own wait for their turn.
const TRIES: u32 = 12;
/// Pauses before it is decided again.
const AGAIN: Backoff = Backoff { base: Duration::from_millis(20), cap: Duration::from_millis(400) };

/// What is known of the record that is to be changed.
enum Known {
    /// By the copy, which may lag behind.
    Copy(Option<Entry>),
    /// By the API server, just now.
    Fresh(Option<Entry>),
}

/// What came of a change, and when what it supersedes was overtaken. `None`: it must be read, and decided again.
type Tried = Option<(Changed, Option<Timestamp>)>;

impl KubernetesStore {
    /// Changes one record, and what follows from it for its stream.
    pub(super) async fn carry_out(&self, change: &Change) -> Result<Changed, Error> {
        self.is_live()?;
        let key = change.release.key();
        let (mut changed, supersedes) = {
            let _turn = self.turn(&key).lock().await;
            self.change_one(change, &key).await?
        };
        if let Some(at) = supersedes {
            crash::point("tracking.supersede.before");
            changed.moves.extend(self.supersede(&change.release, at, change.now).await);
        }
        Ok(changed)
    }

    async fn change_one(
        &self,
        change: &Change,
        key: &ReleaseKey,
    ) -> Result<(Changed, Option<Timestamp>), Error> {
        let mut known = Known::Copy(self.cache.get(key));
        for again in 0..TRIES {
            if again > 1 {
                pause(again).await;
            }
            match self.try_once(change, known).await? {
                Some(done) => return Ok(done),
                None => known = Known::Fresh(self.read(key).await?),
            }
        }
        Err(too_busy(key).into())
    }

    async fn try_once(&self, change: &Change, known: Known) -> Result<Tried, Error> {
        let (entry, fresh) = match known {
            Known::Copy(entry) => (entry, false),
            Known::Fresh(entry) => (entry, true),
        };
        let done = |record, moves, supersedes| Ok(Some((Changed { record, moves }, supersedes)));
        let Some(decision) = change.decide(entry.as_ref().map(|entry| entry.record.clone())) else {
            return if fresh { done(None, Vec::new(), None) } else { Ok(None) };
        };
        if !decision.changed {
            // What a Task merely looked at may be as old as a watch is slow. What it or the edge told may not: it would
            // be lost with a record that is gone, and the edge's answer settles where a span begins.
            let looks = match &change.what {
                What::Observed(observation) => observation.event.is_none(),
                What::Silent(_) => true,
                What::Put(_) => false,
            };
            let believed = fresh || (looks && self.is_live()?);
            return if believed { done(Some(decision.record), Vec::new(), None) } else { Ok(None) };
        }
        if let Some(newer) = entry.as_ref().filter(|entry| entry.is_newer()) {
            return Err(too_new(newer).into());
        }
        match self.write(change, &decision, entry.as_ref(), fresh).await {
            Ok(kept) => {
                self.cache.keep(kept);
                let to = decision.record.state();
                let moved = decision.before != Some(to);
                let moves = moved.then_some(Move { from: decision.before, to }).into_iter().collect();
                done(Some(decision.record), moves, decision.supersedes)
            }
            Err(Refusal::Stale) => Ok(None),
            Err(Refusal::Final(error)) => Err(error),
        }
    }

    async fn write(
        &self,
        change: &Change,
        decision: &Decision,
        before: Option<&Entry>,
        fresh: bool,
    ) -> Result<Kept, Refusal> {
        let entry = Entry::after(before, decision, change);
        crash::point("tracking.commit.before");
        let written = match before {
            Some(_) => self.requests.patch(&entry).await,
            None => {
                let stream = &entry.record.release.stream;
                if let Some(spent) = self.cache.spent(stream, entry.maker, &self.budgets) {
                    // It may be there already, and then it takes no room.
                    return Err(if fresh { Refusal::Final(spent.into()) } else { Refusal::Stale });
                }
                self.requests.create(entry).await
            }
        };
        crash::point("tracking.commit.after");
        written.map_err(Refusal::from)
    }

    /// Reads one record; `None` when there is none.
    pub(super) async fn read(&self, key: &ReleaseKey) -> Result<Option<Entry>, Error> {
        let Some(kept) = self.requests.get(key).await? else {
            self.cache.forget(key);
            return Ok(None);
        };
        self.cache.keep(kept.clone());
        readable(kept).map(Some)
    }
}

/// Why nothing was written.
enum Refusal {
    /// It is not as it was thought to be.
    Stale,
    Final(Error),
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        match error.kind {
            Kind::Conflict | Kind::Exists | Kind::NotFound => Self::Stale,
            Kind::Expired
            | Kind::Refused
            | Kind::Missing
            | Kind::Invalid
            | Kind::Busy
            | Kind::Unavailable => Self::Final(error.into()),
        }
    }
}

/// What an object says, or that it cannot be read.
pub(super) fn readable(kept: Kept) -> Result<Entry, Error> {
    let name = kept.name().to_owned();
    kept.entry.map(|entry| *entry).map_err(|problem| Error::Unreadable(format!("release {name}: {problem}")))
}

pub(super) async fn pause(again: u32) {
    tokio::time::sleep(AGAIN.delay(again, None, fastrand::f64())).await;
}

fn too_busy(key: &ReleaseKey) -> StoreError {
    let problem = format!("release {key} was changed by others {TRIES} times in between");
    StoreError::Unavailable { action: "change a release", problem }
}

fn too_new(entry: &Entry) -> StoreError {
    StoreError::Newer { file: format!("release {}", entry.key()), found: entry.schema, known: SCHEMA }
}
