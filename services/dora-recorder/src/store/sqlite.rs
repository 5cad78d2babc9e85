//! Streams in a SQLite file: a small row per stream and one per release, so that a verdict writes two rows and not the
//! whole window. Times are nanoseconds since 1970.

use std::{collections::HashMap, path::Path, sync::Arc, time::Duration};

use rusqlite::{Connection, OptionalExtension as _, Row, named_params, params, types::Type};
use tokio::sync::watch;
use transponder_core::{AppName, AppNamespace, ClusterName, EnvName, Maker, NameError, ReleaseKey, Stream};
use transponder_runtime::crash;
use transponder_store::{Database, Health, Schema, StoreError, Writer};

use super::{Answer, Everything, Saved, Stored, StreamStore, Update};
use crate::state::{Hold, Instant, Known, StreamState, Syncs, Window};

/// The file in the data directory.
const FILE: &str = "dora.db";

const SCHEMA: Schema = Schema {
    migrations: &[
        "
CREATE TABLE stream (
  id INTEGER PRIMARY KEY,
  key BLOB NOT NULL UNIQUE,
  app_namespace TEXT NOT NULL,
  app TEXT NOT NULL,
  env TEXT NOT NULL,
  cluster TEXT NOT NULL,
  version INTEGER NOT NULL,
  first_verdict_at INTEGER NOT NULL,
  hold INTEGER NOT NULL,
  totals TEXT NOT NULL,
  failing_since INTEGER,
  succeeded_until INTEGER,
  forgotten_until INTEGER
) STRICT;
CREATE TABLE release (
  stream INTEGER NOT NULL REFERENCES stream (id),
  key BLOB NOT NULL,
  finished_at INTEGER NOT NULL,
  succeeded_at INTEGER,
  failed INTEGER NOT NULL,
  conflict INTEGER NOT NULL,
  PRIMARY KEY (stream, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE probe (id INTEGER PRIMARY KEY CHECK (id = 0), times INTEGER NOT NULL) STRICT;
",
        // Whether a Task of the app made the stream. Who made the older ones is not known: the platform, as the edge is
        // who mostly does.
        "ALTER TABLE stream ADD COLUMN by_app INTEGER NOT NULL DEFAULT 0",
    ],
};

const STREAMS: &str = "SELECT id, app_namespace, app, env, cluster, version, first_verdict_at, hold, totals,
  failing_since, succeeded_until, forgotten_until, by_app FROM stream";
const RELEASES: &str = "SELECT stream, key, finished_at, succeeded_at, failed, conflict FROM release";

/// The embedded store.
pub struct SqliteStore {
    database: Database,
    writer: Writer,
}

impl SqliteStore {
    /// Opens or makes the file in a data directory that the caller has locked.
    ///
    /// # Errors
    /// When it cannot be opened, or was written by a newer version.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        let database = Database::open(directory, FILE, SCHEMA)?;
        let writer = Writer::start(database.clone())?;
        Ok(Self { database, writer })
    }
}

impl StreamStore for SqliteStore {
    fn load(&self) -> Answer<'_, Everything> {
        let database = self.database.clone();
        Box::pin(async move {
            let read = move || -> Result<_, StoreError> {
                let connection = database.connect_reader()?;
                load(&connection).map_err(|e| StoreError::unavailable("read its streams", &e))
            };
            let streams = tokio::task::spawn_blocking(read).await.map_err(|_| StoreError::Closed)??;
            Ok(Everything { streams, imports: Vec::new() })
        })
    }

    fn find<'a>(&'a self, stream: &'a Stream) -> Answer<'a, Option<Stored>> {
        let key = *stream.key().as_bytes();
        Box::pin(self.writer.write(move |connection| find(connection, &key)))
    }

    fn save(&self, update: Update) -> Answer<'_, Saved> {
        Box::pin(async move {
            crash::point("dora.commit.before");
            let saved = self.writer.write(move |connection| save(connection, &update)).await;
            crash::point("dora.commit.after");
            saved
        })
    }

    fn shorten_holds(&self, longest: Duration) -> Answer<'_, ()> {
        let sql = "UPDATE stream SET hold = ?1 WHERE hold > ?1";
        Box::pin(self.writer.write(move |connection| connection.execute(sql, [nanos(longest)]).map(drop)))
    }

    fn probe(&self) -> Answer<'_, ()> {
        let sql = "INSERT INTO probe VALUES (0, 1) ON CONFLICT DO UPDATE SET times = times + 1";
        Box::pin(self.writer.write(move |connection| connection.execute(sql, []).map(drop)))
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.writer.health()
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(self.writer.close())
    }
}

fn load(connection: &Connection) -> rusqlite::Result<Vec<Stored>> {
    // One transaction: streams and releases of the same moment.
    let transaction = connection.unchecked_transaction()?;
    let mut windows: HashMap<i64, Vec<Known>> = HashMap::new();
    let mut statement = transaction.prepare(RELEASES)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        windows.entry(row.get(0)?).or_default().push(known(row)?);
    }
    let mut statement = transaction.prepare(STREAMS)?;
    let streams = statement.query_map([], |row| {
        let mut releases = windows.remove(&row.get(0)?).unwrap_or_default();
        releases.shrink_to_fit();
        stored(row, releases)
    })?;
    streams.collect()
}

fn find(connection: &Connection, key: &[u8]) -> rusqlite::Result<Option<Stored>> {
    let mut statement = connection.prepare_cached(&format!("{RELEASES} WHERE stream = ?1"))?;
    let mut releases = |id: i64| statement.query_map([id], known)?.collect::<rusqlite::Result<Vec<_>>>();
    let sql = format!("{STREAMS} WHERE key = ?1");
    connection.query_row(&sql, [key], |row| stored(row, releases(row.get(0)?)?)).optional()
}

fn save(connection: &Connection, update: &Update) -> rusqlite::Result<Saved> {
    let state = &update.next;
    let totals = serde_json::to_string(&state.totals)
        .map_err(|e| rusqlite::Error::ToSqlConversionFailure(Box::new(e)))?;
    let changing = (
        totals,
        state.failing_since.map(Instant::as_nanos),
        state.succeeded_until.map(Instant::as_nanos),
        state.window.forgotten_until().map(Instant::as_nanos),
    );
    let id: Option<i64> = match update.read {
        None => insert(connection, state, &changing)?,
        Some(version) => connection
            .prepare_cached(
                "UPDATE stream SET version = version + 1, totals = :totals, failing_since = :failing,
                   succeeded_until = :succeeded, forgotten_until = :forgotten
                 WHERE key = :key AND version = :version RETURNING id",
            )?
            .query_row(
                named_params! {
                    ":key": state.stream.key().as_bytes(), ":version": i64::try_from(version).unwrap_or(i64::MAX), ":totals": changing.0,
                    ":failing": changing.1, ":succeeded": changing.2, ":forgotten": changing.3,
                },
                |row| row.get(0),
            )
            .optional()?,
    };
    let Some(id) = id else { return Ok(Saved::Stale) };
    for key in &update.change.forgotten {
        let mut delete = connection.prepare_cached("DELETE FROM release WHERE stream = ?1 AND key = ?2")?;
        delete.execute(params![id, key.as_bytes()])?;
    }
    if let Some(known) = &update.change.release {
        let mut put =
            connection.prepare_cached("INSERT OR REPLACE INTO release VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
        put.execute(params![
            id,
            known.key.as_bytes(),
            known.finished_at.as_nanos(),
            known.succeeded_at.map(Instant::as_nanos),
            known.failed,
            known.conflict
        ])?;
    }
    Ok(Saved::As(update.read.unwrap_or(0) + 1))
}

/// Makes the row of a new stream; `None` when there is one already.
fn insert(
    connection: &Connection,
    state: &StreamState,
    (totals, failing, succeeded, forgotten): &(String, Option<i64>, Option<i64>, Option<i64>),
) -> rusqlite::Result<Option<i64>> {
    let stream = &state.stream;
    connection
        .prepare_cached(
            "INSERT INTO stream (key, app_namespace, app, env, cluster, version, first_verdict_at, hold, totals,
               failing_since, succeeded_until, forgotten_until, by_app)
             VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT DO NOTHING RETURNING id",
        )?
        .query_row(
            params![
                stream.key().as_bytes(),
                stream.app_namespace.as_str(),
                stream.app.as_str(),
                stream.env.as_str(),
                stream.cluster.as_str(),
                state.hold.since.as_nanos(),
                nanos(state.hold.length),
                totals,
                failing,
                succeeded,
                forgotten,
                state.maker == Maker::App
            ],
            |row| row.get(0),
        )
        .optional()
}

/// A length as the store keeps it: nobody lives to see the end of one that does not fit.
fn nanos(length: Duration) -> i64 {
    i64::try_from(length.as_nanos()).unwrap_or(i64::MAX)
}

fn stored(row: &Row<'_>, releases: Vec<Known>) -> rusqlite::Result<Stored> {
    let totals: String = row.get(8)?;
    let state = StreamState {
        stream: Stream {
            app_namespace: name(row, 1, AppNamespace::new)?,
            app: name(row, 2, AppName::new)?,
            env: name(row, 3, EnvName::new)?,
            cluster: name(row, 4, ClusterName::new)?,
        },
        maker: if row.get(12)? { Maker::App } else { Maker::Platform },
        hold: Hold { since: instant(row, 6)?, length: Duration::from_nanos(unsigned(row, 7)?) },
        totals: serde_json::from_str(&totals).map_err(|e| unreadable(8, e))?,
        window: Window::new(releases, optional_instant(row, 11)?),
        failing_since: optional_instant(row, 9)?,
        succeeded_until: optional_instant(row, 10)?,
        // Imports and Applications are a cluster's objects, so there are none here.
        inherited: None,
        syncs: Syncs::default(),
    };
    Ok(Stored { version: unsigned(row, 5)?, state: Arc::new(state), sealed: None })
}

fn known(row: &Row<'_>) -> rusqlite::Result<Known> {
    Ok(Known {
        key: ReleaseKey::from_bytes(row.get(1)?),
        finished_at: instant(row, 2)?,
        succeeded_at: optional_instant(row, 3)?,
        failed: row.get(4)?,
        conflict: row.get(5)?,
    })
}

fn unreadable(column: usize, error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
}

fn name<T>(row: &Row<'_>, column: usize, read: fn(&str) -> Result<T, NameError>) -> rusqlite::Result<T> {
    read(row.get_ref(column)?.as_str()?).map_err(|e| unreadable(column, e))
}

fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}

fn optional_instant(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Instant>> {
    let nanos: Option<i64> = row.get(column)?;
    nanos
        .map(|nanos| {
            Instant::from_nanos(nanos).ok_or(rusqlite::Error::IntegralValueOutOfRange(column, nanos))
        })
        .transpose()
}

fn instant(row: &Row<'_>, column: usize) -> rusqlite::Result<Instant> {
    optional_instant(row, column)?.ok_or_else(|| rusqlite::Error::IntegralValueOutOfRange(column, 0))
}

#[cfg(test)]
#[path = "sqlite_tests.rs"]
mod tests;
