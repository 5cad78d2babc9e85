//! Where streams are kept. This service owns the trait; an adapter sits beside it.
//!
//! One object per stream, replaced as a whole or by what changed, guarded by its version: of two writers that read the
//! same version, one is told to read again. A SQLite file does that, and so does an object of the Kubernetes API.

pub mod kubernetes;
mod sqlite;

use std::{pin::Pin, sync::Arc, time::Duration};

use tokio::sync::watch;
use transponder_core::{Stream, StreamKey};
use transponder_store::{Health, StoreError};

use crate::state::{Change, Imported, StreamState};

pub use kubernetes::KubernetesStore;
pub use sqlite::SqliteStore;

/// What a store's method returns.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A stream as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Grows with each change.
    pub version: u64,
    /// The stream's state.
    pub state: Arc<StreamState>,
    /// Why it is shown and not written: a newer version wrote it.
    pub sealed: Option<StoreError>,
}

/// What was imported of an app, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredImport {
    /// Grows with each change.
    pub version: u64,
    /// What was imported.
    pub import: Arc<Imported>,
}

/// All that is kept.
#[derive(Debug, Clone, Default)]
pub struct Everything {
    /// The streams.
    pub streams: Vec<Stored>,
    /// What was imported.
    pub imports: Vec<StoredImport>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A stream.
    Stream(Stored),
    /// What was imported of an app.
    Import(StoredImport),
}

impl Extend<Item> for Everything {
    fn extend<I: IntoIterator<Item = Item>>(&mut self, items: I) {
        for item in items {
            match item {
                Item::Stream(stored) => self.streams.push(stored),
                Item::Import(stored) => self.imports.push(stored),
            }
        }
    }
}

impl FromIterator<Item> for Everything {
    fn from_iter<I: IntoIterator<Item = Item>>(items: I) -> Self {
        let mut everything = Self::default();
        everything.extend(items);
        everything
    }
}

/// A change of one stream.
#[derive(Debug, Clone)]
pub struct Update {
    /// The version that was read; `None`: there was no such stream.
    pub read: Option<u64>,
    /// The state as it will be.
    pub next: Arc<StreamState>,
    /// What is different in it.
    pub change: Change,
}

/// What became of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saved {
    /// It is on disk, as this version.
    As(u64),
    /// The stream was changed since it was read: nothing was written.
    Stale,
}

/// Keeps streams.
pub trait StreamStore: Send + Sync + 'static {
    /// All streams, and what was imported.
    ///
    /// # Errors
    /// When they cannot be read: never taken for absence.
    fn load(&self) -> Answer<'_, Everything>;

    /// One stream; `None` when it is not known.
    ///
    /// # Errors
    /// When it cannot be read: never taken for absence.
    fn find<'a>(&'a self, stream: &'a Stream) -> Answer<'a, Option<Stored>>;

    /// Writes a change as one, and answers when it is on disk.
    ///
    /// # Errors
    /// When that cannot be told. The change may be there nevertheless.
    fn save(&self, update: Update) -> Answer<'_, Saved>;

    /// Shortens the hold of all streams whose hold is longer than this. They stay the same version: no other write
    /// changes a hold.
    ///
    /// # Errors
    /// When that cannot be told. It may be done nevertheless.
    fn shorten_holds(&self, longest: Duration) -> Answer<'_, ()>;

    /// Writes something that says nothing, to find out whether writing works again.
    ///
    /// # Errors
    /// When it does not.
    fn probe(&self) -> Answer<'_, ()>;

    /// How the store is, and how that changes.
    fn health(&self) -> watch::Receiver<Health>;

    /// Leaves the store as somebody who copies it expects it; nothing is written after that.
    ///
    /// # Errors
    /// When it cannot: what is kept is whole, but not in one file.
    fn close(&self) -> Answer<'_, ()>;
}

/// Keeps what was imported of apps.
pub trait Imports: Send + Sync + 'static {
    /// Keeps what was imported of an app, unless something is kept of it already.
    ///
    /// # Errors
    /// When that cannot be told. It may be there nevertheless.
    fn import<'a>(&'a self, import: &'a Imported) -> Answer<'a, ()>;

    /// Notes that the failure is ended in this stream. Answers what is kept now, by whomever it was noted.
    ///
    /// # Errors
    /// When that cannot be told. It may be noted nevertheless.
    fn claim<'a>(&'a self, import: &'a StoredImport, by: StreamKey) -> Answer<'a, Option<StoredImport>>;
}
