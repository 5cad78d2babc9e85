//! Between columns and types.

use rusqlite::{Row, types::Type};
use serde::de::DeserializeOwned;
use transponder_core::{
    EventKey, Phase, ReleaseKey, StreamKey, Target, TargetState, Timestamp, settle::Observation,
};

use super::super::{Detail, Place, StoredObservation, TargetStatus};

/// Nanoseconds since 1970: 64 bits hold the years 1678 to 2261, and the door lets no others in.
pub(super) fn nanos(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX)
}

pub(super) fn time(nanos: i64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(nanos)).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A column that does not hold what this version writes there.
pub(super) fn broken(column: usize, what: &str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, what.to_owned().into())
}

pub(super) fn event_key(row: &Row<'_>, column: usize) -> rusqlite::Result<EventKey> {
    row.get(column).map(EventKey::from_bytes)
}

pub(super) fn phase(text: &str, column: usize) -> rusqlite::Result<Phase> {
    Phase::parse(text).ok_or_else(|| broken(column, "no phase"))
}

pub(super) fn json<T: DeserializeOwned>(text: Option<String>, column: usize) -> rusqlite::Result<Option<T>> {
    text.map(|text| serde_json::from_str(&text).map_err(|e| broken(column, &e.to_string()))).transpose()
}

/// Writes what always can be written as JSON.
pub(super) fn to_json<T: serde::Serialize>(value: &T) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))
}

/// What stands for targets in a row of an event.
pub(super) fn bits(targets: &[Target]) -> i64 {
    let bit = |target: &Target| match target {
        Target::Broker => 1,
        Target::Tracking => 2,
        Target::Dora => 4,
        Target::Span => 8,
    };
    targets.iter().map(bit).sum()
}

/// Columns of the view `status`, from `first` on.
pub(super) const STATUS: &str =
    "target, state, attempts, updated_at, next_at, first_failed_at, code, error, detail";

pub(super) fn status(row: &Row<'_>, first: usize) -> rusqlite::Result<(Target, TargetStatus)> {
    let target: String = row.get(first)?;
    let state: String = row.get(first + 1)?;
    let status = TargetStatus {
        state: TargetState::parse(&state).ok_or_else(|| broken(first + 1, "no state"))?,
        attempts: row.get(first + 2)?,
        updated_at: time(row.get(first + 3)?),
        next_at: row.get::<_, Option<i64>>(first + 4)?.map(time),
        first_failed_at: row.get::<_, Option<i64>>(first + 5)?.map(time),
        code: row.get(first + 6)?,
        error: row.get(first + 7)?,
        detail: json(row.get(first + 8)?, first + 8)?.unwrap_or(Detail::None),
    };
    Ok((Target::parse(&target).ok_or_else(|| broken(first, "no target"))?, status))
}

/// Columns of an observation, its event's key included.
pub(super) const OBSERVATION: &str =
    "o.number, e.release, o.phase, o.finished_at, o.received_at, e.key, o.sequence, e.stream";

pub(super) fn observation(row: &Row<'_>) -> rusqlite::Result<StoredObservation> {
    let word: String = row.get(2)?;
    let observation = Observation {
        event: event_key(row, 5)?,
        phase: phase(&word, 2)?,
        finished_at: time(row.get(3)?),
        received_at: time(row.get(4)?),
    };
    let place =
        Place { release: ReleaseKey::from_bytes(row.get(1)?), stream: StreamKey::from_bytes(row.get(7)?) };
    Ok(StoredObservation { number: row.get(0)?, sequence: row.get(6)?, place, observation })
}
