//! Records that a later release of their stream supersedes, at once and, after a crash, by the sweeper.

use std::collections::HashMap;

use futures_util::{StreamExt as _, stream};
use transponder_core::{Release, ReleaseKey, StreamKey, Timestamp};
use transponder_kubernetes::Kind;

use super::{
    KubernetesStore,
    kept::Entry,
    write::{pause, readable},
};
use crate::{
    record::Record,
    store::{Error, Move},
};

/// Most releases that one observation supersedes; the sweeper takes the rest. Without a bound, an app could make one
/// report of its stream hold up all others.
const RIVALS: usize = 1000;
/// How often one is tried.
const TRIES: u32 = 5;
/// How many are written at a time.
const AT_A_TIME: usize = 8;

impl KubernetesStore {
    /// Marks what the first observation of a release, received at `at`, supersedes. The observation is on record and its
    /// caller is answered, so what fails here is left to the sweeper.
    pub(super) async fn supersede(&self, release: &Release, at: Timestamp, now: Timestamp) -> Vec<Move> {
        let waiting = self.cache.waiting(&release.stream).into_iter();
        let others = waiting.filter(|entry| entry.record.release.id != release.id);
        let due = others.filter(|entry| entry.record.last_sign().is_some_and(|sign| sign < at));
        let mut rivals: Vec<ReleaseKey> = due.map(|entry| entry.key()).collect();
        rivals.truncate(RIVALS);
        self.mark(rivals.into_iter().map(|key| (key, at)).collect(), now).await
    }

    /// Marks what should have been marked and was not, at most `limit`.
    pub(super) async fn finish(&self, now: Timestamp, limit: u32) -> Result<Vec<Move>, Error> {
        self.is_live()?;
        let mut overdue = overdue(&self.cache.pick(Sign::of));
        overdue.truncate(limit as usize);
        Ok(self.mark(overdue, now).await)
    }

    async fn mark(&self, overdue: Vec<(ReleaseKey, Timestamp)>, now: Timestamp) -> Vec<Move> {
        let marking = stream::iter(overdue).map(|(key, at)| async move {
            let marked = self.mark_one(&key, at, now).await;
            marked.unwrap_or_else(|error| {
                tracing::warn!(%error, release = %key, "not superseded yet: the next sweep tries again");
                None
            })
        });
        marking.buffer_unordered(AT_A_TIME).filter_map(async |moved| moved).collect().await
    }

    async fn mark_one(&self, key: &ReleaseKey, at: Timestamp, now: Timestamp) -> Result<Option<Move>, Error> {
        let _turn = self.turn(key).lock().await;
        let mut entry = self.cache.get(key);
        for again in 0..TRIES {
            let Some(mut rival) = entry.filter(|entry| !entry.is_newer()) else { return Ok(None) };
            let from = Some(rival.record.state());
            if !rival.record.supersede(at, now) {
                return Ok(None);
            }
            match self.requests.patch(&rival).await {
                Ok(kept) => {
                    self.cache.keep(kept.clone());
                    let to = readable(kept)?.record.state();
                    return Ok(Some(Move { from, to }));
                }
                Err(error) if matches!(error.kind, Kind::Conflict | Kind::NotFound) => {
                    pause(again).await;
                    entry = self.read(key).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }
}

/// The times of a record by which it supersedes, or is superseded.
#[derive(Clone, Copy)]
struct Sign {
    key: ReleaseKey,
    stream: StreamKey,
    first_observed_at: Option<Timestamp>,
    /// Last sign and last change, of one that can be superseded.
    waits: Option<(Timestamp, Timestamp)>,
}

impl Sign {
    fn of(entry: &Entry) -> Option<Self> {
        let record: &Record = &entry.record;
        let waits = record.last_sign().filter(|_| record.state().can_be_superseded());
        let sign = Self {
            key: entry.key(),
            stream: record.release.stream.key(),
            first_observed_at: record.first_observed_at,
            waits: waits.map(|sign| (sign, record.updated_at)),
        };
        (sign.waits.is_some() || sign.first_observed_at.is_some()).then_some(sign)
    }
}

/// The records that are due to be superseded, each with the time of the observation that does it.
///
/// It is due when another release of its stream was first observed after its last sign *and* after its last change. A
/// change since then has seen that observation go by: a merge that was told late, an observation of its own that
/// reopened the record, a mark of silence. Taking these back is not for the sweeper.
fn overdue(signs: &[Sign]) -> Vec<(ReleaseKey, Timestamp)> {
    // Of each stream the last two first observations: the last may be the record's own.
    let mut firsts: HashMap<StreamKey, [Option<(Timestamp, ReleaseKey)>; 2]> = HashMap::new();
    for sign in signs {
        let Some(at) = sign.first_observed_at else { continue };
        let [last, before] = firsts.entry(sign.stream).or_default();
        let this = Some((at, sign.key));
        if this > *last {
            *before = std::mem::replace(last, this);
        } else if this > *before {
            *before = this;
        }
    }
    let due = signs.iter().filter_map(|sign| {
        let (last_sign, last_change) = sign.waits?;
        let others = firsts.get(&sign.stream)?.iter().flatten().filter(|(_, key)| *key != sign.key);
        let (at, _) = others.max()?;
        (last_sign < *at && last_change <= *at).then_some((sign.key, *at))
    });
    due.collect()
}

#[cfg(test)]
#[path = "overdue_tests.rs"]
mod tests;
