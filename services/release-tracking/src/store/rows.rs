//! Between records and rows.

use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Params, params};
use transponder_core::{Maker, ReleaseId, ReleaseKey, Stream, StreamKey, Timestamp};

use super::{Error, Move, Report};
use crate::{
    budget::{Budgets, Owner, Spent},
    change::Decision,
    record::Record,
    state::State,
};

/// Most releases that one observation supersedes; the next one takes the rest. Without a bound, an app could make one
/// report of its stream hold up all others.
const RIVALS: u32 = 1000;

/// A time as the store keeps it. Times are plausible before they come here, so they fit.
pub(super) fn nanos(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanosecond()).unwrap_or(if time.as_second() < 0 { i64::MIN } else { i64::MAX })
}

/// A time from the store.
pub(super) fn time(nanos: i64) -> Timestamp {
    // 64 bits of nanoseconds are well within the range of a timestamp.
    Timestamp::from_nanosecond(i128::from(nanos)).unwrap_or_default()
}

/// Reads the one document that a statement finds.
pub(super) fn load(connection: &Connection, key: &ReleaseKey) -> rusqlite::Result<Option<String>> {
    connection
        .prepare_cached("SELECT document FROM record WHERE key = ?1")?
        .query_row([key.as_bytes()], |row| row.get(0))
        .optional()
}

/// Reads the documents that a statement finds.
pub(super) fn documents(
    mut statement: CachedStatement<'_>,
    parameters: impl Params,
) -> rusqlite::Result<Vec<String>> {
    statement.query_map(parameters, |row| row.get(0))?.collect()
}

/// Reads a record from its document.
pub(super) fn parse(document: &str) -> Result<Record, Error> {
    serde_json::from_str(document).map_err(|error| Error::Unreadable(error.to_string()))
}

/// Reads records from their documents.
pub(super) fn parse_all(documents: &[String]) -> Result<Vec<Record>, Error> {
    documents.iter().map(|document| parse(document)).collect()
}

fn write(record: &Record) -> rusqlite::Result<String> {
    serde_json::to_string(record).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

/// Writes what was decided. Nothing is written unless all of it is.
pub(super) fn write_decision(
    connection: &Connection,
    decision: &Decision,
    budgets: &Budgets,
    now: Timestamp,
) -> rusqlite::Result<Result<Vec<Move>, Error>> {
    let record = &decision.record;
    let mut moves = Vec::new();
    if !decision.changed {
        return Ok(Ok(moves));
    }
    if let Some(maker) = decision.maker
        && let Some(spent) = spent_budget(connection, record, maker, budgets)?
    {
        return Ok(Err(spent.into()));
    }
    // Rivals are read before anything is written: one that cannot be read must leave nothing half done.
    let rivals = match decision.supersedes {
        Some(at) => match parse_all(&rivals(connection, record, at)?) {
            Ok(rivals) => rivals,
            Err(error) => return Ok(Err(error)),
        },
        None => Vec::new(),
    };
    match decision.maker {
        Some(maker) => insert(connection, record, maker)?,
        None => update(connection, record)?,
    }
    if decision.before != Some(record.state()) {
        moves.push(Move { from: decision.before, to: record.state() });
    }
    for mut rival in rivals {
        let from = Some(rival.state());
        if decision.supersedes.is_some_and(|at| rival.supersede(at, now)) {
            update(connection, &rival)?;
            moves.push(Move { from, to: rival.state() });
        }
    }
    Ok(Ok(moves))
}

fn rivals(connection: &Connection, record: &Record, at: Timestamp) -> rusqlite::Result<Vec<String>> {
    let stream: StreamKey = record.release.stream.key();
    let statement = connection.prepare_cached(
        "SELECT document FROM record WHERE stream = ?1 AND state IN ('merged', 'progressing', 'unreported')
         AND sign_at < ?2 AND key <> ?3 ORDER BY sign_at LIMIT ?4",
    )?;
    documents(statement, params![stream.as_bytes(), nanos(at), record.release.key().as_bytes(), RIVALS])
}

fn spent_budget(
    connection: &Connection,
    record: &Record,
    maker: Maker,
    budgets: &Budgets,
) -> rusqlite::Result<Option<Spent>> {
    let Stream { app_namespace, cluster, .. } = &record.release.stream;
    // A Task of an app may name any cluster, so what it makes takes no cluster's room.
    let owners = match maker {
        Maker::Platform => {
            vec![Owner::AppNamespace(app_namespace.clone(), cluster.clone()), Owner::Cluster(cluster.clone())]
        }
        Maker::App => vec![Owner::AppTasks(app_namespace.clone())],
    };
    for owner in owners.into_iter().chain([Owner::Store]) {
        let (count, limit) = match &owner {
            Owner::AppNamespace(namespace, cluster) => {
                (room(connection, cluster.as_str(), namespace.as_str())?, budgets.app_namespace)
            }
            Owner::AppTasks(namespace) => (room(connection, "", namespace.as_str())?, budgets.app_namespace),
            Owner::Cluster(cluster) => (room(connection, cluster.as_str(), "")?, budgets.cluster),
            Owner::Store => (stored(connection)?, budgets.store),
        };
        if u64::try_from(count).is_ok_and(|count| count >= limit) {
            return Ok(Some(Spent { owner, limit }));
        }
    }
    Ok(None)
}

fn room(connection: &Connection, cluster: &str, app_namespace: &str) -> rusqlite::Result<i64> {
    let mut statement =
        connection.prepare_cached("SELECT count FROM room WHERE cluster = ?1 AND app_namespace = ?2")?;
    Ok(statement.query_row([cluster, app_namespace], |row| row.get(0)).optional()?.unwrap_or(0))
}

fn stored(connection: &Connection) -> rusqlite::Result<i64> {
    let mut statement = connection.prepare_cached("SELECT count FROM tally WHERE owner = 'store'")?;
    Ok(statement.query_row([], |row| row.get(0)).optional()?.unwrap_or(0))
}

fn insert(connection: &Connection, record: &Record, maker: Maker) -> rusqlite::Result<()> {
    let stream = &record.release.stream;
    let (chain_id, event_id) = match &record.release.id {
        ReleaseId::ChainId(id) => (id.as_str(), ""),
        ReleaseId::GitRevision(_) => ("", ""),
        ReleaseId::EventId(id) => ("", id.as_str()),
    };
    connection
        .prepare_cached(
            "INSERT INTO record (key, stream, app_namespace, app, env, cluster, chain_id, git_revision, event_id,
             pr_url, state, updated_at, sign_at, quiet_since, document, by_app)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
        )?
        .execute(params![
            record.release.key().as_bytes(),
            stream.key().as_bytes(),
            stream.app_namespace.as_str(),
            stream.app.as_str(),
            stream.env.as_str(),
            stream.cluster.as_str(),
            chain_id,
            record.git_revision,
            event_id,
            record.pr_url,
            record.state().as_str(),
            nanos(record.updated_at),
            record.last_sign().map(nanos),
            record.quiet_since().map(nanos),
            write(record)?,
            maker == Maker::App,
        ])?;
    Ok(())
}

fn update(connection: &Connection, record: &Record) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE record SET git_revision = ?2, pr_url = ?3, state = ?4, updated_at = ?5, sign_at = ?6,
             quiet_since = ?7, document = ?8 WHERE key = ?1",
        )?
        .execute(params![
            record.release.key().as_bytes(),
            record.git_revision,
            record.pr_url,
            record.state().as_str(),
            nanos(record.updated_at),
            record.last_sign().map(nanos),
            record.quiet_since().map(nanos),
            write(record)?,
        ])?;
    Ok(())
}

/// Notes a report. One from the future, which a wall clock that jumped has left behind, gives way.
pub(super) fn write_report(connection: &Connection, report: &Report, now: Timestamp) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO report (cluster, at) VALUES (?1, ?2)
             ON CONFLICT DO UPDATE SET at = excluded.at WHERE excluded.at > at OR at > ?3",
        )?
        .execute(params![report.cluster.as_str(), nanos(report.at.min(now)), nanos(now)])?;
    Ok(())
}

/// A word in the store that is none of ours.
pub(super) fn unknown_word(what: &'static str, word: &str) -> Error {
    Error::Unreadable(format!("'{word}' is no {what}"))
}

/// Reads a state.
pub(super) fn state(word: &str) -> Result<State, Error> {
    State::parse(word).ok_or_else(|| unknown_word("state", word))
}
