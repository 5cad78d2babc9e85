//! What reads the outbox.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use transponder_core::{ClusterName, EventKey, ReleaseKey, Report, StreamKey, Target, TargetState};

use super::{
    super::{Backlog, Filter, Loaded, OpenEvent, Place, Sequence, StoredObservation, TargetStatus, View},
    rows::{OBSERVATION, STATUS, bits, broken, event_key, json, observation, status, time},
};

/// Of `event JOIN content`.
const EVENT: &str = "sequence, key, cluster, kind, id, source, report, received_at, bytes, observations";

pub(super) fn knows(connection: &Connection, key: EventKey) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM event WHERE key = ?1")?.exists([key.as_bytes()])
}

fn cluster(text: &str, column: usize) -> rusqlite::Result<ClusterName> {
    ClusterName::new(text).map_err(|e| broken(column, &e.to_string()))
}

fn row_to_view(row: &Row<'_>) -> rusqlite::Result<View> {
    Ok(View {
        sequence: row.get(0)?,
        key: event_key(row, 1)?,
        cluster: cluster(&row.get::<_, String>(2)?, 2)?,
        kind: row.get(3)?,
        id: row.get(4)?,
        source: row.get(5)?,
        report: json::<Report>(row.get(6)?, 6)?,
        received_at: time(row.get(7)?),
        bytes: row.get::<_, i64>(8)?.unsigned_abs(),
        observations: row.get(9)?,
        targets: Vec::new(),
    })
}

fn targets_of(connection: &Connection, sequence: Sequence) -> rusqlite::Result<Vec<(Target, TargetStatus)>> {
    let sql = format!("SELECT {STATUS} FROM status WHERE sequence = ?1");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut targets =
        statement.query_map([sequence], |row| status(row, 0))?.collect::<rusqlite::Result<Vec<_>>>()?;
    targets.sort_by_key(|(target, _)| *target);
    Ok(targets)
}

pub(super) fn view(connection: &Connection, key: EventKey) -> rusqlite::Result<Option<View>> {
    let sql = format!("SELECT {EVENT} FROM event JOIN content USING (sequence) WHERE key = ?1");
    let mut found = connection.prepare_cached(&sql)?.query_row([key.as_bytes()], row_to_view).optional()?;
    if let Some(view) = &mut found {
        view.targets = targets_of(connection, view.sequence)?;
    }
    Ok(found)
}

pub(super) fn list(connection: &Connection, filter: &Filter) -> rusqlite::Result<Vec<View>> {
    let in_state = |state: TargetState| match state {
        // These have an index.
        TargetState::Dead => "sequence IN (SELECT sequence FROM delivery WHERE state = 'dead')".to_owned(),
        state => format!(
            "EXISTS (SELECT 1 FROM status WHERE status.sequence = event.sequence AND state = '{state}')"
        ),
    };
    let condition = filter.state.map_or_else(|| "1".to_owned(), in_state);
    let sql = format!(
        "SELECT {EVENT} FROM event JOIN content USING (sequence) \
         WHERE (?1 IS NULL OR cluster = ?1) AND {condition} ORDER BY sequence DESC LIMIT ?2"
    );
    let mut views = connection
        .prepare(&sql)?
        .query_map(
            params![
                filter.cluster.as_ref().map(ClusterName::as_str),
                i64::try_from(filter.limit).unwrap_or(i64::MAX)
            ],
            row_to_view,
        )?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    for view in &mut views {
        view.targets = targets_of(connection, view.sequence)?;
    }
    Ok(views)
}

pub(super) fn load(connection: &Connection, sequence: Sequence) -> rusqlite::Result<Option<Loaded>> {
    connection
        .prepare_cached(
            "SELECT key, content_type, body, received_at, report, id, source \
             FROM event JOIN content USING (sequence) WHERE sequence = ?1",
        )?
        .query_row([sequence], |row| {
            Ok(Loaded {
                key: event_key(row, 0)?,
                content_type: row.get(1)?,
                body: Bytes::from(row.get::<_, Option<Vec<u8>>>(2)?.unwrap_or_default()),
                received_at: time(row.get(3)?),
                report: json(row.get(4)?, 4)?,
                id: row.get(5)?,
                source: row.get(6)?,
            })
        })
        .optional()
}

/// What the engine keeps of an event: no report is read for it.
const OPEN: &str = "sequence, key, cluster, release, stream, received_at, bytes";

fn row_to_open(row: &Row<'_>) -> rusqlite::Result<OpenEvent> {
    let release: Option<[u8; 20]> = row.get(3)?;
    let stream: Option<[u8; 20]> = row.get(4)?;
    Ok(OpenEvent {
        sequence: row.get(0)?,
        key: event_key(row, 1)?,
        cluster: cluster(&row.get::<_, String>(2)?, 2)?,
        place: release.zip(stream).map(|(release, stream)| Place {
            release: ReleaseKey::from_bytes(release),
            stream: StreamKey::from_bytes(stream),
        }),
        received_at: time(row.get(5)?),
        bytes: row.get::<_, i64>(6)?.unsigned_abs(),
        targets: Vec::new(),
        untracked: Vec::new(),
        event: None,
    })
}

pub(super) fn open(connection: &Connection, sequence: Sequence) -> rusqlite::Result<Option<OpenEvent>> {
    let sql = format!("SELECT {OPEN} FROM event WHERE sequence = ?1");
    let Some(mut open) = connection.prepare_cached(&sql)?.query_row([sequence], row_to_open).optional()?
    else {
        return Ok(None);
    };
    open.targets = targets_of(connection, sequence)?;
    let sql = format!(
        "SELECT {OBSERVATION} FROM observation o JOIN event e USING (sequence) \
         WHERE o.sequence = ?1 AND o.tracked = 0 ORDER BY o.number"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    open.untracked = statement.query_map([sequence], observation)?.collect::<rusqlite::Result<_>>()?;
    Ok(Some(open))
}

pub(super) fn backlog(connection: &Connection) -> rusqlite::Result<Backlog> {
    // One picture: nothing may change between the three queries.
    let transaction = connection.unchecked_transaction()?;
    let mut untracked: HashMap<Sequence, Vec<StoredObservation>> = HashMap::new();
    let sql = format!(
        "SELECT {OBSERVATION} FROM event e JOIN observation o USING (sequence) \
         WHERE e.final_at IS NULL AND o.tracked = 0 ORDER BY o.number"
    );
    for row in transaction.prepare(&sql)?.query_map([], observation)? {
        let stored = row?;
        untracked.entry(stored.sequence).or_default().push(stored);
    }
    let sql = format!("SELECT {OPEN} FROM event WHERE final_at IS NULL ORDER BY sequence");
    let mut events = Vec::new();
    for row in transaction.prepare(&sql)?.query_map([], row_to_open)? {
        let mut open = row?;
        open.targets = targets_of(&transaction, open.sequence)?;
        open.untracked = untracked.remove(&open.sequence).unwrap_or_default();
        events.push(open);
    }
    let sql = format!(
        "SELECT {OBSERVATION}, e.targets & ?1 FROM observation o JOIN event e USING (sequence) \
         WHERE o.settled = 0 ORDER BY o.number"
    );
    let mut waiting = HashSet::new();
    let mut unsettled = Vec::new();
    for row in transaction
        .prepare(&sql)?
        .query_map([bits(&[Target::Dora])], |row| Ok((observation(row)?, row.get::<_, i64>(8)? != 0)))?
    {
        let (stored, for_dora) = row?;
        if for_dora {
            waiting.insert(stored.place.release);
        }
        unsettled.push(stored);
    }
    // Of releases with an open verdict, all that is not settled; of the others, a Syncing alone opens nothing.
    unsettled.retain(|stored| waiting.contains(&stored.place.release));
    Ok(Backlog { events, unsettled })
}
