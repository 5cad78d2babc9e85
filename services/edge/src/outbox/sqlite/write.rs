//! What changes the outbox. Each function runs inside the transaction of a batch.

use rusqlite::{Connection, OptionalExtension as _, params};
use transponder_core::{EventKey, Target, TargetState, Timestamp};

use super::{
    super::{
        Accepted, Decided, Decision, Detail, HandOver, HandedOver, NewEvent, Sequence, StatusChange,
        SweepBefore, TargetStatus,
    },
    rows::{STATUS, bits, nanos, status, to_json},
};

/// Observations of an event that are kept: the first and the last so many.
const KEPT: i64 = 16;
/// Rows that one sweep takes at most, so that no accept waits long for it.
const SWEEP: i64 = 500;

pub(super) fn accept(connection: &Connection, event: &NewEvent) -> rusqlite::Result<Accepted> {
    let known = connection
        .prepare_cached("SELECT sequence, kind, release, phase, digest FROM event WHERE key = ?1")?
        .query_row([event.key.as_bytes()], |row| {
            let same = row.get::<_, String>(1)? == event.kind
                && row.get::<_, Option<[u8; 20]>>(2)? == event.place.map(|place| *place.release.as_bytes())
                && row.get::<_, Option<String>>(3)?.as_deref() == event.phase().map(|p| p.as_str());
            Ok((row.get::<_, Sequence>(0)?, same, row.get::<_, [u8; 32]>(4)? == event.digest))
        })
        .optional()?;
    match known {
        Some((_, false, _)) => Ok(Accepted::Conflict),
        Some((sequence, true, identical)) => {
            let observation = observe(connection, sequence, event)?;
            if observation.is_some() {
                reopen(connection, sequence)?;
            }
            Ok(Accepted::Known { sequence, observation, identical })
        }
        None => {
            let sequence = insert(connection, event)?;
            Ok(Accepted::New { sequence, observation: keep(connection, sequence, event)? })
        }
    }
}

fn insert(connection: &Connection, event: &NewEvent) -> rusqlite::Result<Sequence> {
    let report = event.report.as_ref().map(to_json).transpose()?;
    connection
        .prepare_cached(
            "INSERT INTO event (key, cluster, kind, source, id, content_type, digest, bytes, received_at, release, \
             stream, phase, targets, observations) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        )?
        .execute(params![
            event.key.as_bytes(),
            event.cluster.as_str(),
            event.kind,
            event.source,
            event.id,
            event.content_type,
            event.digest,
            i64::try_from(event.body.len()).unwrap_or(i64::MAX),
            nanos(event.received_at),
            event.place.map(|place| *place.release.as_bytes()),
            event.place.map(|place| *place.stream.as_bytes()),
            event.phase().map(|phase| phase.as_str()),
            bits(&event.targets),
            // The first one comes with the event.
            event.report.is_some(),
        ])?;
    let sequence = connection.last_insert_rowid();
    connection
        .prepare_cached("INSERT INTO content (sequence, report, body) VALUES (?1, ?2, ?3)")?
        .execute(params![sequence, report, event.body.as_ref()])?;
    Ok(sequence)
}

/// Keeps a finish time that is not known yet of the event; answers its number.
fn keep(connection: &Connection, sequence: Sequence, event: &NewEvent) -> rusqlite::Result<Option<i64>> {
    let Some(report) = &event.report else { return Ok(None) };
    let added = connection
        .prepare_cached(
            "INSERT INTO observation (sequence, phase, finished_at, received_at) \
             VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            sequence,
            report.phase.as_str(),
            nanos(report.finished_at),
            nanos(event.received_at),
        ])?;
    Ok((added > 0).then(|| connection.last_insert_rowid()))
}

/// Keeps one of an event that is known, and counts it.
fn observe(connection: &Connection, sequence: Sequence, event: &NewEvent) -> rusqlite::Result<Option<i64>> {
    let Some(number) = keep(connection, sequence, event)? else { return Ok(None) };
    let observations: i64 = connection
        .prepare_cached(
            "UPDATE event SET observations = observations + 1 WHERE sequence = ?1 RETURNING observations",
        )?
        .query_row([sequence], |row| row.get(0))?;
    if observations > 2 * KEPT {
        connection
            .prepare_cached(
                "DELETE FROM observation WHERE number = \
                 (SELECT number FROM observation WHERE sequence = ?1 ORDER BY number LIMIT 1 OFFSET ?2)",
            )?
            .execute([sequence, KEPT])?;
    }
    Ok(Some(number))
}

/// A new observation of an event concerns tracking and the verdict again, never broker or span.
fn reopen(connection: &Connection, sequence: Sequence) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE delivery SET state = CASE target WHEN 'dora' THEN 'waiting' ELSE 'stored' END \
             WHERE sequence = ?1 AND target IN ('dora', 'tracking') AND state IN ('delivered', 'replaced')",
        )?
        .execute([sequence])?;
    conclude(connection, sequence, None)
}

/// Notes whether anything of the event is still open. Its row is not written when nothing changes.
fn conclude(connection: &Connection, sequence: Sequence, at: Option<Timestamp>) -> rusqlite::Result<()> {
    let open: bool = connection
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM status WHERE sequence = ?1 AND state NOT IN ('delivered', 'replaced', 'dead'))",
        )?
        .query_row([sequence], |row| row.get(0))?;
    if open {
        let reopened = "UPDATE event SET final_at = NULL WHERE sequence = ?1 AND final_at IS NOT NULL";
        connection.prepare_cached(reopened)?.execute([sequence])?;
    } else {
        let ended = "UPDATE event SET final_at = coalesce(?2, final_at) WHERE sequence = ?1";
        connection.prepare_cached(ended)?.execute(params![sequence, at.map(nanos)])?;
    }
    Ok(())
}

pub(super) fn decide(
    connection: &Connection,
    decisions: &[Decision],
    at: Timestamp,
) -> rusqlite::Result<Decided> {
    let mut decided = Decided::default();
    for decision in decisions {
        match decision {
            Decision::Status(change) => record(connection, change)?,
            Decision::HandOver(verdict) => hand_over(connection, verdict, at, &mut decided)?,
            Decision::Replace(key) => {
                if let Some((sequence, status)) = dora_status(connection, *key)? {
                    replace(connection, sequence, &status, at, &mut decided)?;
                }
            }
        }
    }
    Ok(decided)
}

fn record(connection: &Connection, change: &StatusChange) -> rusqlite::Result<()> {
    let mut tracked = connection.prepare_cached("UPDATE observation SET tracked = 1 WHERE number = ?1")?;
    for number in &change.tracked {
        tracked.execute([number])?;
    }
    // What came in while the call was out is still to be told: its end is not the event's.
    match overtaken_by(connection, change)? {
        Some(Overtaken::Observation) => {
            let status = TargetStatus { state: TargetState::Stored, ..change.status.clone() };
            set_status(connection, change.sequence, change.target, &status)?;
        }
        Some(Overtaken::Verdict) => {}
        None => set_status(connection, change.sequence, change.target, &change.status)?,
    }
    if !change.status.state.is_open() {
        conclude(connection, change.sequence, Some(change.status.updated_at))?;
    }
    Ok(())
}

/// What the store has that the caller did not know of when the call went out.
enum Overtaken {
    Observation,
    Verdict,
}

fn overtaken_by(connection: &Connection, change: &StatusChange) -> rusqlite::Result<Option<Overtaken>> {
    match (change.target, &change.status.detail) {
        (Target::Tracking, _) if change.status.state == TargetState::Delivered => {
            let Some(last) = change.tracked.iter().max() else { return Ok(None) };
            let newer = connection
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM observation WHERE sequence = ?1 AND tracked = 0 AND number > ?2)",
                )?
                .query_row(params![change.sequence, last], |row| row.get::<_, bool>(0))?;
            Ok(newer.then_some(Overtaken::Observation))
        }
        (Target::Dora, Detail::Verdict { order, .. }) => {
            let stored = status_of(connection, change.sequence, Target::Dora)?;
            let newer =
                matches!(stored.map(|s| s.detail), Some(Detail::Verdict { order: o, .. }) if o > *order);
            Ok(newer.then_some(Overtaken::Verdict))
        }
        _ => Ok(None),
    }
}

fn set_status(
    connection: &Connection,
    sequence: Sequence,
    target: Target,
    status: &TargetStatus,
) -> rusqlite::Result<()> {
    let detail = match &status.detail {
        Detail::None => None,
        detail => Some(to_json(detail)?),
    };
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO delivery (sequence, target, state, attempts, updated_at, next_at, \
             first_failed_at, code, error, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?
        .execute(params![
            sequence,
            target.as_str(),
            status.state.as_str(),
            status.attempts,
            nanos(status.updated_at),
            status.next_at.map(nanos),
            status.first_failed_at.map(nanos),
            status.code,
            status.error,
            detail,
        ])?;
    Ok(())
}

fn hand_over(
    connection: &Connection,
    HandOver { verdict, events, up_to }: &HandOver,
    at: Timestamp,
    decided: &mut Decided,
) -> rusqlite::Result<()> {
    for sequence in events {
        connection
            .prepare_cached(
                "UPDATE observation SET settled = 1 WHERE sequence = ?1 AND settled = 0 AND number <= ?2",
            )?
            .execute([sequence, up_to])?;
    }
    let candidate = dora_status(connection, verdict.event)?;
    // Whatever became of the decision that overtook the others: once they are settled, nothing else would end their wait.
    for other in
        events.iter().filter(|other| candidate.as_ref().is_none_or(|(sequence, _)| sequence != *other))
    {
        if let Some(status) = status_of(connection, *other, Target::Dora)? {
            replace(connection, *other, &status, at, decided)?;
        }
    }
    // An event that was accepted while DORA was no target is none for it now.
    let Some((sequence, before)) = candidate else { return Ok(()) };
    let mut verdict = verdict.clone();
    // A verdict of the same event that DORA has not taken yet becomes part of this one.
    if let (Detail::Verdict { verdict: earlier, .. }, false) = (&before.detail, before.state.is_final()) {
        verdict.first_finished_at = verdict.first_finished_at.min(earlier.first_finished_at);
    }
    let order = next_order(connection)?;
    let mut status = TargetStatus::new(TargetState::Stored, at);
    status.detail = Detail::Verdict { order, verdict: verdict.clone() };
    set_status(connection, sequence, Target::Dora, &status)?;
    if !before.state.is_open() {
        conclude(connection, sequence, None)?;
    }
    decided.handed_over.push(HandedOver { sequence, order, verdict });
    Ok(())
}

fn status_of(
    connection: &Connection,
    sequence: Sequence,
    target: Target,
) -> rusqlite::Result<Option<TargetStatus>> {
    let sql = format!("SELECT {STATUS} FROM status WHERE sequence = ?1 AND target = ?2");
    connection
        .prepare_cached(&sql)?
        .query_row(params![sequence, target.as_str()], |row| Ok(status(row, 0)?.1))
        .optional()
}

fn dora_status(connection: &Connection, key: EventKey) -> rusqlite::Result<Option<(Sequence, TargetStatus)>> {
    let sql = format!(
        "SELECT sequence, {STATUS} FROM status WHERE target = 'dora' \
         AND sequence = (SELECT sequence FROM event WHERE key = ?1)"
    );
    connection
        .prepare_cached(&sql)?
        .query_row([key.as_bytes()], |row| Ok((row.get(0)?, status(row, 1)?.1)))
        .optional()
}

fn next_order(connection: &Connection) -> rusqlite::Result<i64> {
    connection
        .prepare_cached(
            "INSERT INTO counter (name, value) VALUES ('order', 1) \
             ON CONFLICT (name) DO UPDATE SET value = value + 1 RETURNING value",
        )?
        .query_row([], |row| row.get(0))
}

/// Ends the wait of an event that is not its release's candidate any more.
fn replace(
    connection: &Connection,
    sequence: Sequence,
    status: &TargetStatus,
    at: Timestamp,
    decided: &mut Decided,
) -> rusqlite::Result<()> {
    match status.state {
        TargetState::Waiting => {
            set_status(connection, sequence, Target::Dora, &TargetStatus::new(TargetState::Replaced, at))?;
            conclude(connection, sequence, Some(at))?;
        }
        // A verdict of it is on its way to DORA.
        TargetState::Stored | TargetState::Retrying => return Ok(()),
        TargetState::Delivered | TargetState::Replaced | TargetState::Dead => {}
    }
    decided.replaced.push(sequence);
    Ok(())
}

pub(super) fn replay(
    connection: &Connection,
    key: EventKey,
    target: Option<Target>,
    at: Timestamp,
) -> rusqlite::Result<Option<(Sequence, Vec<Target>)>> {
    let sequence: Option<Sequence> = connection
        .prepare_cached("SELECT sequence FROM event WHERE key = ?1")?
        .query_row([key.as_bytes()], |row| row.get(0))
        .optional()?;
    let Some(sequence) = sequence else { return Ok(None) };
    let sql = format!("SELECT {STATUS} FROM status WHERE sequence = ?1 AND state = 'dead'");
    let mut statement = connection.prepare_cached(&sql)?;
    let dead =
        statement.query_map([sequence], |row| status(row, 0))?.collect::<rusqlite::Result<Vec<_>>>()?;
    let mut replayed = Vec::new();
    for (dead, before) in dead {
        if target.is_none_or(|wanted| wanted == dead) {
            let mut status = TargetStatus::new(TargetState::Stored, at);
            status.detail = before.detail;
            set_status(connection, sequence, dead, &status)?;
            replayed.push(dead);
        }
    }
    conclude(connection, sequence, None)?;
    Ok(Some((sequence, replayed)))
}

pub(super) fn sweep(connection: &Connection, before: &SweepBefore) -> rusqlite::Result<usize> {
    let stale = connection
        .prepare_cached(
            "SELECT e.sequence FROM event e WHERE e.final_at < ?1 AND e.body_kept = 1 AND NOT EXISTS \
             (SELECT 1 FROM delivery d WHERE d.sequence = e.sequence AND d.state = 'dead') LIMIT ?2",
        )?
        .query_map(params![nanos(before.bodies), SWEEP], |row| row.get::<_, Sequence>(0))?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    for sequence in &stale {
        connection
            .prepare_cached("UPDATE content SET body = NULL WHERE sequence = ?1")?
            .execute([sequence])?;
        connection
            .prepare_cached("UPDATE event SET body_kept = 0 WHERE sequence = ?1")?
            .execute([sequence])?;
    }
    let forgotten = connection
        .prepare_cached(
            "SELECT e.sequence FROM event e WHERE e.final_at < ?1 AND (e.final_at < ?2 OR NOT EXISTS \
             (SELECT 1 FROM delivery d WHERE d.sequence = e.sequence AND d.state = 'dead')) LIMIT ?3",
        )?
        .query_map(params![nanos(before.delivered), nanos(before.dead), SWEEP], |row| {
            row.get::<_, Sequence>(0)
        })?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    for sequence in &forgotten {
        for table in ["event", "content", "delivery", "observation"] {
            connection
                .prepare_cached(&format!("DELETE FROM {table} WHERE sequence = ?1"))?
                .execute([sequence])?;
        }
    }
    Ok(stale.len() + forgotten.len())
}
