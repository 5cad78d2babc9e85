//! Times, lengths, counts and releases as they stand in an object: each reads back exactly.

use std::{fmt, time::Duration};

use jiff::SignedDuration;
use transponder_core::{ReleaseKey, Timestamp};

use crate::state::{Instant, Known};

/// What is wrong with a text, in words.
pub(super) type Problem = String;

pub(super) fn count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub(super) fn time(instant: Instant) -> String {
    Timestamp::from(instant).to_string()
}

/// A length that does not fit is one of which nobody lives to see the end.
pub(super) fn length(length: Duration) -> String {
    SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX).to_string()
}

pub(super) fn read_count(count: i64) -> Result<u64, Problem> {
    u64::try_from(count).map_err(|_| format!("{count} is below 0"))
}

pub(super) fn read_time(text: &str) -> Result<Instant, Problem> {
    let time: Timestamp = text.parse().map_err(|e| format!("'{text}' is no RFC 3339 time: {e}"))?;
    let instant = i64::try_from(time.as_nanosecond()).ok().and_then(Instant::from_nanos);
    instant.ok_or_else(|| format!("'{text}' is not between 1970 and 2262"))
}

pub(super) fn read_length(text: &str) -> Result<Duration, Problem> {
    let length: SignedDuration =
        text.parse().map_err(|e| format!("'{text}' is no ISO 8601 duration: {e}"))?;
    Duration::try_from(length).map_err(|_| format!("'{text}' is below 0"))
}

/// A release as one line.
pub(super) struct Line(pub(super) Known);

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(known) = self;
        write!(f, "{} {}", known.key, Timestamp::from(known.finished_at))?;
        if known.failed {
            f.write_str(" failed")?;
        }
        match known.succeeded_at {
            None => {}
            Some(at) if at == known.finished_at => f.write_str(" succeeded")?,
            Some(at) => write!(f, " succeeded={}", Timestamp::from(at))?,
        }
        if known.conflict {
            f.write_str(" conflict")?;
        }
        Ok(())
    }
}

impl Line {
    pub(super) fn read(line: &str) -> Result<Known, Problem> {
        let mut words = line.split(' ');
        let (Some(key), Some(finish)) = (words.next(), words.next()) else {
            return Err(format!("'{line}' has no finish"));
        };
        let key: ReleaseKey = key.parse().map_err(|e| format!("'{line}': {e}"))?;
        let finished_at = read_time(finish)?;
        let mut known = Known { key, finished_at, succeeded_at: None, failed: false, conflict: false };
        for word in words {
            match word.split_once('=') {
                None if word == "failed" => known.failed = true,
                None if word == "conflict" => known.conflict = true,
                None if word == "succeeded" => known.succeeded_at = Some(finished_at),
                Some(("succeeded", at)) => known.succeeded_at = Some(read_time(at)?),
                _ => return Err(format!("'{line}': '{word}' is not known")),
            }
        }
        Ok(known)
    }
}
