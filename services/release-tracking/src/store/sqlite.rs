//! The embedded store: one SQLite file, `tracking.db`.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use rusqlite::{Connection, OptionalExtension as _, ToSql, params, params_from_iter};
use tokio::sync::{Semaphore, watch};
use transponder_core::{ClusterName, Release, ReleaseId, ReleaseKey, Timestamp};
use transponder_runtime::crash;
use transponder_store::{Database, Health, Schema, StoreError, Writer};

use super::{Answer, Changed, Cursor, Filter, Move, Report, Store, Wanted, rows};
use crate::{
    budget::Budgets,
    change::{Change, What},
    record::Record,
    state::{Lifetime, State},
};

const SCHEMA: Schema = Schema { migrations: &[include_str!("schema.sql"), include_str!("rooms.sql")] };
/// Reads that run at a time. Each keeps a connection, and with it a cache.
const READERS: usize = 2;

/// The embedded store.
pub struct SqliteStore {
    writer: Writer,
    database: Database,
    budgets: Budgets,
    readers: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl SqliteStore {
    /// Opens the store in a data directory whose lock the caller holds.
    ///
    /// # Errors
    /// When the file cannot be opened, or was written by a newer version.
    pub fn open(directory: &Path, budgets: Budgets) -> Result<Self, StoreError> {
        let database = Database::open(directory, "tracking.db", SCHEMA)?;
        Ok(Self {
            writer: Writer::start(database.clone())?,
            database,
            budgets,
            readers: Arc::new(Semaphore::new(READERS)),
            idle: Arc::default(),
        })
    }

    /// How the store is.
    #[must_use]
    pub fn health(&self) -> watch::Receiver<Health> {
        self.writer.health()
    }

    /// Runs a read on the blocking pool. A connection that failed is not used again.
    async fn read<T: Send + 'static>(
        &self,
        action: &'static str,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let place = self.readers.clone().acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let (database, idle) = (self.database.clone(), self.idle.clone());
        let reading = tokio::task::spawn_blocking(move || {
            let _place = place;
            let kept = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = kept.map_or_else(|| database.connect_reader(), Ok)?;
            let result = read(&connection).map_err(|e| StoreError::unavailable(action, &e))?;
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            Ok(result)
        });
        reading.await.map_err(|e| StoreError::Unavailable { action, problem: e.to_string() })?
    }
}

/// The condition and its parameters that stand for an incomplete key.
fn condition(wanted: &Wanted) -> (String, Vec<String>) {
    let mut terms = Vec::new();
    let mut values = Vec::new();
    let mut term = |column: &str, value: Option<&str>| {
        if let Some(value) = value {
            values.push(value.to_owned());
            // That the column is not empty lets the partial index be used.
            terms.push(format!("{column} = ?{} AND {column} <> ''", values.len()));
        }
    };
    match &wanted.id {
        Some(ReleaseId::ChainId(id)) => term("chain_id", Some(id)),
        Some(ReleaseId::GitRevision(id)) => term("git_revision", Some(id)),
        Some(ReleaseId::EventId(id)) => term("event_id", Some(id)),
        None => {}
    }
    term("pr_url", wanted.pr_url.as_deref());
    term("app_namespace", wanted.app_namespace.as_ref().map(AsRef::as_ref));
    term("app", wanted.app.as_ref().map(AsRef::as_ref));
    term("env", wanted.env.as_ref().map(AsRef::as_ref));
    term("cluster", wanted.cluster.as_ref().map(AsRef::as_ref));
    (terms.join(" AND "), values)
}

/// One page, read state by state: each is an index walked from its end, so a page costs the same in a store of any size.
fn page(
    connection: &Connection,
    filter: &Filter,
    after: Option<Cursor>,
    limit: u32,
) -> rusqlite::Result<Vec<String>> {
    let states = if filter.states.is_empty() { &State::ALL[..] } else { &filter.states };
    let (namespace_term, namespace) = match &filter.app_namespace {
        Some(namespace) => ("AND app_namespace = ?5", Some(namespace.as_str())),
        None => ("", None),
    };
    let mut statement = connection.prepare_cached(&format!(
        "SELECT updated_at, key, document FROM record
         WHERE state = ?1 AND (updated_at, key) < (?2, ?3) {namespace_term}
         ORDER BY updated_at DESC, key DESC LIMIT ?4"
    ))?;
    // Above every place in the list, as a BLOB sorts after any of 20 bytes.
    let top = [0xff; 21];
    let (updated_at, key) = after
        .as_ref()
        .map_or((i64::MAX, &top[..]), |cursor| (rows::nanos(cursor.updated_at), &cursor.key.as_bytes()[..]));
    let mut found: Vec<(i64, [u8; 20], String)> = Vec::new();
    for state in states {
        let word = state.as_str();
        let mut parameters: Vec<&dyn ToSql> = vec![&word, &updated_at, &key, &limit];
        if let Some(namespace) = &namespace {
            parameters.push(namespace);
        }
        let listed =
            statement.query_map(&parameters[..], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        for row in listed {
            found.push(row?);
        }
    }
    found.sort_unstable_by_key(|row| std::cmp::Reverse((row.0, row.1)));
    found.truncate(limit as usize);
    Ok(found.into_iter().map(|(_, _, document)| document).collect())
}

impl Store for SqliteStore {
    fn get(&self, key: ReleaseKey) -> Answer<'_, Option<Record>> {
        Box::pin(async move {
            let document = self.read("read a record", move |c| rows::load(c, &key)).await?;
            document.as_deref().map(rows::parse).transpose()
        })
    }

    fn find(&self, wanted: Wanted, limit: u32) -> Answer<'_, Vec<Record>> {
        Box::pin(async move {
            let (terms, mut values) = condition(&wanted);
            if terms.is_empty() {
                return Ok(Vec::new());
            }
            values.push(limit.to_string());
            let documents = self
                .read("find a record", move |c| {
                    let sql = format!(
                        "SELECT document FROM record WHERE {terms} LIMIT CAST(?{} AS INTEGER)",
                        values.len()
                    );
                    rows::documents(c.prepare_cached(&sql)?, params_from_iter(values))
                })
                .await?;
            rows::parse_all(&documents)
        })
    }

    fn list(&self, filter: Filter, after: Option<Cursor>, limit: u32) -> Answer<'_, Vec<Record>> {
        Box::pin(async move {
            let documents = self.read("list records", move |c| page(c, &filter, after, limit)).await?;
            rows::parse_all(&documents)
        })
    }

    fn change(&self, change: Change) -> Answer<'_, Changed> {
        let budgets = self.budgets;
        Box::pin(async move {
            crash::point("tracking.commit.before");
            let changed = self
                .writer
                .write(move |c| {
                    let stored = match rows::load(c, &change.release.key())?.as_deref().map(rows::parse) {
                        Some(Err(error)) => return Ok(Err(error)),
                        Some(Ok(record)) => Some(record),
                        None => None,
                    };
                    let decision = change.decide(stored);
                    let moves = match &decision {
                        Some(decision) => rows::write_decision(c, decision, &budgets, change.now)?,
                        None => Ok(Vec::new()),
                    };
                    // An event is the edge's word, so its cluster has proved who it is; a Task's is no report.
                    if let What::Observed(observation) = &change.what
                        && observation.event.is_some()
                    {
                        let cluster = change.release.stream.cluster.clone();
                        let report = Report { cluster, at: observation.received_at };
                        rows::write_report(c, &report, change.now)?;
                    }
                    Ok(moves.map(|moves| Changed { record: decision.map(|d| d.record), moves }))
                })
                .await;
            crash::point("tracking.commit.after");
            changed?
        })
    }

    fn delete(&self, key: ReleaseKey) -> Answer<'_, Option<State>> {
        Box::pin(async move {
            let word: Option<String> = self
                .writer
                .write(move |c| {
                    c.prepare_cached("DELETE FROM record WHERE key = ?1 RETURNING state")?
                        .query_row([key.as_bytes()], |row| row.get(0))
                        .optional()
                })
                .await?;
            word.as_deref().map(rows::state).transpose()
        })
    }

    fn silent(&self, before: Timestamp, limit: u32) -> Answer<'_, Vec<Release>> {
        Box::pin(async move {
            let documents = self
                .read("look for silence", move |c| {
                    let statement = c.prepare_cached(
                        "SELECT document FROM record WHERE quiet_since <= ?1 ORDER BY quiet_since LIMIT ?2",
                    )?;
                    rows::documents(statement, params![rows::nanos(before), limit])
                })
                .await?;
            let release = |document: &String| match rows::parse(document) {
                Ok(record) => Some(record.release),
                // One that cannot be read must not hide the silence of the others.
                Err(error) => {
                    tracing::error!(%error, "left out of the look for silence");
                    None
                }
            };
            Ok(documents.iter().filter_map(release).collect())
        })
    }

    fn expire(&self, lifetime: Lifetime, before: Timestamp, limit: u32) -> Answer<'_, u32> {
        Box::pin(async move {
            let removed = self.writer.write(move |c| {
                let mut statement = c.prepare_cached(
                    "DELETE FROM record WHERE key IN
                     (SELECT key FROM record WHERE state = ?1 AND updated_at < ?2 ORDER BY updated_at LIMIT ?3)",
                )?;
                let mut removed = 0u32;
                for state in State::ALL.into_iter().filter(|state| state.lifetime() == lifetime) {
                    let left = limit.saturating_sub(removed);
                    let count = statement.execute(params![state.as_str(), rows::nanos(before), left])?;
                    removed = removed.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
                }
                Ok(removed)
            });
            Ok(removed.await?)
        })
    }

    fn finish(&self, _: Timestamp, _: u32) -> Answer<'_, Vec<Move>> {
        // One commit holds all of a change.
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn tally(&self) -> Answer<'_, Vec<(State, u64)>> {
        Box::pin(async move {
            let counted: Vec<(String, i64)> = self
                .read("count records", |c| {
                    c.prepare_cached("SELECT name, count FROM tally WHERE owner = 'state'")?
                        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
                        .collect()
                })
                .await?;
            let state =
                |(word, count): (String, i64)| Ok((rows::state(&word)?, u64::try_from(count).unwrap_or(0)));
            counted.into_iter().map(state).collect()
        })
    }

    fn reported(&self, report: Report, now: Timestamp) -> Answer<'_, ()> {
        Box::pin(async move { Ok(self.writer.write(move |c| rows::write_report(c, &report, now)).await?) })
    }

    fn reports(&self) -> Answer<'_, Vec<Report>> {
        Box::pin(async move {
            let reports: Vec<(String, i64)> = self
                .read("read the clusters' last reports", |c| {
                    c.prepare_cached("SELECT cluster, at FROM report ORDER BY cluster")?
                        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
                        .collect()
                })
                .await?;
            let report = |(name, at): (String, i64)| {
                let cluster = ClusterName::new(&name).map_err(|_| rows::unknown_word("cluster", &name))?;
                Ok(Report { cluster, at: rows::time(at) })
            };
            reports.into_iter().map(report).collect()
        })
    }

    fn forget_reports(&self, before: Timestamp) -> Answer<'_, u32> {
        let before = rows::nanos(before);
        Box::pin(async move {
            let sql = "DELETE FROM report WHERE at < ?1";
            let count = self.writer.write(move |c| c.execute(sql, [before])).await?;
            Ok(u32::try_from(count).unwrap_or(u32::MAX))
        })
    }

    fn probe(&self, now: Timestamp) -> Answer<'_, ()> {
        let now = rows::nanos(now);
        Box::pin(async move {
            let sql = "INSERT INTO probe (one, at) VALUES (1, ?1) ON CONFLICT DO UPDATE SET at = excluded.at";
            Ok(self.writer.write(move |c| c.execute(sql, [now]).map(|_| ())).await?)
        })
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async move { Ok(self.writer.close().await?) })
    }
}

#[cfg(test)]
#[path = "sqlite_tests.rs"]
mod tests;
