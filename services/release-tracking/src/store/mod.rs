//! Where records are kept. The trait is this service's own; each kind of store sits beside it.
//!
//! It is shaped so that one object per record with optimistic concurrency can stand behind it: changes are data that
//! can be decided again, a cursor is made of what a record carries, and no method needs a lock across records of two
//! streams.

pub mod kubernetes;
mod rows;
pub mod sqlite;

use std::pin::Pin;

use transponder_core::{
    AppName, AppNamespace, ClusterName, EnvName, Release, ReleaseId, ReleaseKey, Timestamp,
};
use transponder_store::StoreError;

use crate::{
    budget::Spent,
    change::Change,
    record::Record,
    state::{Lifetime, State},
};

/// What a method of a store returns.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Keeps records.
pub trait Store: Send + Sync + 'static {
    /// The record of a release.
    fn get(&self, key: ReleaseKey) -> Answer<'_, Option<Record>>;

    /// Records that match, at most `limit`.
    fn find(&self, wanted: Wanted, limit: u32) -> Answer<'_, Vec<Record>>;

    /// Records that pass the filter, last changed first, at most `limit`, from after the cursor on.
    fn list(&self, filter: Filter, after: Option<Cursor>, limit: u32) -> Answer<'_, Vec<Record>>;

    /// Changes one record and what follows from it for its stream, all or nothing or to be [finished](Self::finish) by the
    /// sweeper. Answers when it is kept.
    fn change(&self, change: Change) -> Answer<'_, Changed>;

    /// Removes the record of a release. Answers the state it had, if there was one.
    fn delete(&self, key: ReleaseKey) -> Answer<'_, Option<State>>;

    /// Releases of which an outcome is awaited since `before` or longer, the longest first, at most `limit`.
    fn silent(&self, before: Timestamp, limit: u32) -> Answer<'_, Vec<Release>>;

    /// Removes records of this lifetime that were last changed before `before`, at most `limit`. Answers how many.
    fn expire(&self, lifetime: Lifetime, before: Timestamp, limit: u32) -> Answer<'_, u32>;

    /// Finishes what a crash in the middle of a change of several records left undone, at most `limit` of them. Where such
    /// a change is all or nothing, there is nothing to finish.
    fn finish(&self, now: Timestamp, limit: u32) -> Answer<'_, Vec<Move>>;

    /// Number of records in each state.
    fn tally(&self) -> Answer<'_, Vec<(State, u64)>>;

    /// Notes that a cluster reported, where no record is concerned.
    fn reported(&self, report: Report, now: Timestamp) -> Answer<'_, ()>;

    /// The last report of each cluster.
    fn reports(&self) -> Answer<'_, Vec<Report>>;

    /// Forgets clusters that last reported before `before`.
    fn forget_reports(&self, before: Timestamp) -> Answer<'_, u32>;

    /// Writes something of no consequence: the proof that writing works again.
    fn probe(&self, now: Timestamp) -> Answer<'_, ()>;

    /// Leaves the store as somebody who copies it expects it; nothing is written after that.
    fn close(&self) -> Answer<'_, ()>;
}

/// What keeps a store from doing what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It cannot be read or written now.
    #[error(transparent)]
    Unavailable(#[from] StoreError),
    /// A record is there and cannot be read.
    #[error("a record that is stored cannot be read: {0}")]
    Unreadable(String),
    /// There is no room for another record.
    #[error(transparent)]
    Spent(#[from] Spent),
}

/// What came of a change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changed {
    /// The record as it is now; `None` when there was none and none was made.
    pub record: Option<Record>,
    /// The states that records left and entered, those of superseded ones included.
    pub moves: Vec<Move>,
}

/// One record's change of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The state before; `None` for a new record.
    pub from: Option<State>,
    /// The state now.
    pub to: State,
}

/// The last report of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The cluster.
    pub cluster: ClusterName,
    /// When it was received.
    pub at: Timestamp,
}

/// An incomplete key. What is not given matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The app namespace.
    pub app_namespace: Option<AppNamespace>,
    /// The app.
    pub app: Option<AppName>,
    /// The environment.
    pub env: Option<EnvName>,
    /// The cluster.
    pub cluster: Option<ClusterName>,
    /// What sets the release apart. A revision also matches a release that its chain id names.
    pub id: Option<ReleaseId>,
    /// URL of the pull request.
    pub pr_url: Option<String>,
}

/// Which records to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only this app namespace.
    pub app_namespace: Option<AppNamespace>,
    /// Only these states; all when empty.
    pub states: Vec<State>,
}

/// A place in the order of a list: last changed first, then by key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// Last change of the record before the place.
    pub updated_at: Timestamp,
    /// Its key.
    pub key: ReleaseKey,
}

impl Cursor {
    /// The place after a record.
    #[must_use]
    pub fn after(record: &Record) -> Self {
        Self { updated_at: record.updated_at, key: record.release.key() }
    }
}
