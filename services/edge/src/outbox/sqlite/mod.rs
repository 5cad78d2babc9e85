//! The outbox in an SQLite file.

mod read;
mod rows;
#[cfg(test)]
mod tests;
mod write;

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::future::BoxFuture;
use rusqlite::Connection;
use tokio::sync::{Semaphore, watch};
use transponder_core::{EventKey, Target, Timestamp};
use transponder_store::{Database, Health, Schema, StoreError, Writer};

use super::{
    Accepted, Backlog, Decided, Decision, Filter, Loaded, NewEvent, OpenEvent, Outbox, Replayed, Sequence,
    SweepBefore, View,
};

const SCHEMA: Schema = Schema { migrations: &[include_str!("schema.sql")] };

/// Reads that run at a time. Each keeps a connection, and with it a cache: opening one costs more than most reads.
const READERS: usize = 2;

/// The outbox in `outbox.db` of a data directory.
pub(crate) struct SqliteOutbox {
    writer: Writer,
    database: Database,
    readers: Arc<Semaphore>,
    /// Connections that were opened and are not in use.
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl SqliteOutbox {
    /// Opens it.
    pub(crate) fn open(directory: &Path) -> Result<Self, StoreError> {
        let database = Database::open(directory, "outbox.db", SCHEMA)?;
        let writer = Writer::start(database.clone())?;
        Ok(Self { writer, database, readers: Arc::new(Semaphore::new(READERS)), idle: Arc::default() })
    }

    /// Reads on the blocking pool.
    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let place = self.readers.clone().acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let (database, idle) = (self.database.clone(), self.idle.clone());
        let work = move || {
            let _place = place;
            let kept = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = kept.map_or_else(|| database.connect_reader(), Ok)?;
            let result = query(&connection).map_err(|e| StoreError::unavailable("read", &e))?;
            // A connection that failed is not kept.
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            Ok(result)
        };
        tokio::task::spawn_blocking(work).await.unwrap_or(Err(StoreError::Closed))
    }
}

impl Outbox for SqliteOutbox {
    fn accept(&self, event: Arc<NewEvent>) -> BoxFuture<'_, Result<Accepted, StoreError>> {
        Box::pin(self.writer.write(move |connection| write::accept(connection, &event)))
    }

    fn knows(&self, key: EventKey) -> BoxFuture<'_, Result<bool, StoreError>> {
        Box::pin(self.read(move |connection| read::knows(connection, key)))
    }

    fn backlog(&self) -> BoxFuture<'_, Result<Backlog, StoreError>> {
        Box::pin(self.read(read::backlog))
    }

    fn load(&self, sequence: Sequence) -> BoxFuture<'_, Result<Option<Loaded>, StoreError>> {
        Box::pin(self.read(move |connection| read::load(connection, sequence)))
    }

    fn open(&self, sequence: Sequence) -> BoxFuture<'_, Result<Option<OpenEvent>, StoreError>> {
        Box::pin(self.read(move |connection| read::open(connection, sequence)))
    }

    fn decide(&self, decisions: Vec<Decision>, at: Timestamp) -> BoxFuture<'_, Result<Decided, StoreError>> {
        Box::pin(self.writer.write(move |connection| write::decide(connection, &decisions, at)))
    }

    fn replay(
        &self,
        key: EventKey,
        target: Option<Target>,
        at: Timestamp,
    ) -> BoxFuture<'_, Result<Option<Replayed>, StoreError>> {
        Box::pin(self.writer.write(move |connection| write::replay(connection, key, target, at)))
    }

    fn view(&self, key: EventKey) -> BoxFuture<'_, Result<Option<View>, StoreError>> {
        Box::pin(self.read(move |connection| read::view(connection, key)))
    }

    fn list(&self, filter: Filter) -> BoxFuture<'_, Result<Vec<View>, StoreError>> {
        Box::pin(self.read(move |connection| read::list(connection, &filter)))
    }

    fn sweep(&self, before: SweepBefore) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(self.writer.write(move |connection| write::sweep(connection, &before)))
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.writer.health()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.writer.close())
    }
}
