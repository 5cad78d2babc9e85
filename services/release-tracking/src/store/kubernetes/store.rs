//! The store's methods: from the copy where that is as good, from the API server where it is not.

use std::cmp::Reverse;

use futures_util::{StreamExt as _, stream};
use transponder_core::{Release, ReleaseKey, Timestamp};
use transponder_kubernetes::Kind;

use super::{KubernetesStore, cache::matches, kept::Version, requests::selector, write::readable};
use crate::{
    change::Change,
    record::Record,
    state::{Lifetime, State},
    store::{Answer, Changed, Cursor, Error, Filter, Move, Report, Store, Wanted},
};

/// How many records are deleted at a time.
const AT_A_TIME: usize = 8;

impl KubernetesStore {
    async fn ask(&self, wanted: &Wanted) -> Result<Vec<Record>, Error> {
        let mut found = Vec::new();
        for kept in self.requests.select(&selector(wanted)).await? {
            self.cache.keep(kept.clone());
            let record = readable(kept)?.record;
            if matches(wanted, &record) {
                found.push(record);
            }
        }
        Ok(found)
    }

    async fn remove_if(&self, key: &ReleaseKey, version: &Version) -> Result<bool, Error> {
        match self.requests.delete(key, Some(version)).await {
            Ok(()) => {
                self.cache.forget(key);
                Ok(true)
            }
            // It was changed in between, or somebody else removed it: the watch tells which.
            Err(error) if matches!(error.kind, Kind::Conflict | Kind::NotFound) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl Store for KubernetesStore {
    fn get(&self, key: ReleaseKey) -> Answer<'_, Option<Record>> {
        Box::pin(async move {
            if self.is_live()?
                && let Some(entry) = self.cache.get(&key)
            {
                return Ok(Some(entry.record));
            }
            Ok(self.read(&key).await?.map(|entry| entry.record))
        })
    }

    fn find(&self, wanted: Wanted, limit: u32) -> Answer<'_, Vec<Record>> {
        Box::pin(async move {
            if wanted == Wanted::default() {
                return Ok(Vec::new());
            }
            let limit = limit as usize;
            if self.is_live()? {
                let found = self.cache.find(&wanted, limit);
                if !found.is_empty() {
                    return Ok(found);
                }
            }
            let mut found = self.ask(&wanted).await?;
            found.truncate(limit);
            Ok(found)
        })
    }

    fn list(&self, filter: Filter, after: Option<Cursor>, limit: u32) -> Answer<'_, Vec<Record>> {
        Box::pin(async move {
            if !self.is_live()? {
                // What is not listed is absent to whoever reads it.
                for kept in self.requests.select("").await? {
                    self.cache.keep(kept);
                }
            }
            let mut places = self.cache.pick(|entry| passes(&filter, after, &entry.record));
            let limit = limit as usize;
            if places.len() > limit {
                places.select_nth_unstable_by_key(limit, |cursor| Reverse(*cursor));
                places.truncate(limit);
            }
            places.sort_unstable_by_key(|cursor| Reverse(*cursor));
            let records = places.iter().filter_map(|cursor| self.cache.get(&cursor.key));
            Ok(records.map(|entry| entry.record).collect())
        })
    }

    fn change(&self, change: Change) -> Answer<'_, Changed> {
        Box::pin(async move { self.carry_out(&change).await })
    }

    fn delete(&self, key: ReleaseKey) -> Answer<'_, Option<State>> {
        Box::pin(async move {
            self.is_live()?;
            let _turn = self.turn(&key).lock().await;
            let known = match self.cache.get(&key) {
                Some(entry) => Some(entry),
                None => self.read(&key).await?,
            };
            let Some(entry) = known else { return Ok(None) };
            match self.requests.delete(&key, None).await {
                Ok(()) => {
                    self.cache.forget(&key);
                    Ok(Some(entry.record.state()))
                }
                Err(error) if error.kind == Kind::NotFound => {
                    self.cache.forget(&key);
                    Ok(None)
                }
                Err(error) => Err(error.into()),
            }
        })
    }

    fn silent(&self, before: Timestamp, limit: u32) -> Answer<'_, Vec<Release>> {
        Box::pin(async move {
            self.is_live()?;
            let mut silent = self.cache.pick(|entry| {
                let since = entry.record.quiet_since().filter(|since| *since <= before)?;
                (!entry.is_newer()).then(|| (since, entry.record.release.clone()))
            });
            silent.sort_unstable();
            silent.truncate(limit as usize);
            Ok(silent.into_iter().map(|(_, release)| release).collect())
        })
    }

    fn expire(&self, lifetime: Lifetime, before: Timestamp, limit: u32) -> Answer<'_, u32> {
        Box::pin(async move {
            self.is_live()?;
            let mut old = self.cache.pick(|entry| {
                let record = &entry.record;
                let due = record.state().lifetime() == lifetime && record.updated_at < before;
                let version = entry.version.clone().filter(|_| due && !entry.is_newer())?;
                Some((record.updated_at, entry.key(), version))
            });
            old.sort_unstable_by_key(|(at, key, _)| (*at, *key));
            old.truncate(limit as usize);
            let removing = stream::iter(old)
                .map(|(_, key, version)| async move { self.remove_if(&key, &version).await });
            let removed: Vec<Result<bool, Error>> = removing.buffer_unordered(AT_A_TIME).collect().await;
            let mut count = 0;
            for ended in removed {
                count += u32::from(ended?);
            }
            Ok(count)
        })
    }

    fn finish(&self, now: Timestamp, limit: u32) -> Answer<'_, Vec<Move>> {
        Box::pin(self.finish(now, limit))
    }

    fn tally(&self) -> Answer<'_, Vec<(State, u64)>> {
        Box::pin(async move {
            self.is_live()?;
            let states = self.cache.pick(|entry| Some(entry.record.state()));
            let count = |state| states.iter().filter(|counted| **counted == state).count() as u64;
            Ok(State::ALL.map(|state| (state, count(state))).to_vec())
        })
    }

    fn reported(&self, report: Report, now: Timestamp) -> Answer<'_, ()> {
        // Not worth a request: the cluster's next report of a release says it durably.
        self.cache.reported(&Report { at: report.at.min(now), ..report }, now);
        Box::pin(std::future::ready(Ok(())))
    }

    fn reports(&self) -> Answer<'_, Vec<Report>> {
        Box::pin(async move { self.is_live().map(|_| self.cache.reports()) })
    }

    fn forget_reports(&self, before: Timestamp) -> Answer<'_, u32> {
        let forgotten = self.cache.forget_reports(before);
        Box::pin(std::future::ready(Ok(u32::try_from(forgotten).unwrap_or(u32::MAX))))
    }

    fn probe(&self, _: Timestamp) -> Answer<'_, ()> {
        Box::pin(async move { Ok(self.probe().await?) })
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The place of a record in a list, if it is in it.
fn passes(filter: &Filter, after: Option<Cursor>, record: &Record) -> Option<Cursor> {
    let cursor = Cursor::after(record);
    let fits = filter.app_namespace.as_ref().is_none_or(|ns| *ns == record.release.stream.app_namespace)
        && (filter.states.is_empty() || filter.states.contains(&record.state()))
        && after.is_none_or(|after| cursor < after);
    fits.then_some(cursor)
}
