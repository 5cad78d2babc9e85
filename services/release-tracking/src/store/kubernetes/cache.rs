//! What this replica knows of all records: a copy that a watch feeds, and that may lag behind.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use transponder_core::{ClusterName, Maker, ReleaseId, ReleaseKey, Stream, StreamKey, Timestamp};
use transponder_kubernetes::{ApiError, watch::News};

use super::kept::{Entry, Kept, Version};
use crate::{
    budget::{Budgets, Owner, Spent},
    record::Record,
    store::{Report, Wanted},
};

/// How much the copy is worth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// There is none yet, and why.
    Unlisted(Option<ApiError>),
    /// Changes come in.
    Live,
    /// Changes may be missing: what is here is true no longer than until somebody else writes.
    Lost,
}

#[derive(Default)]
pub(super) struct Cache(Mutex<Inner>);

struct Inner {
    standing: Standing,
    entries: HashMap<ReleaseKey, Box<Entry>>,
    /// Names of objects that cannot be read, with what was said of them in the log.
    broken: HashMap<String, String>,
    rooms: HashMap<Owner, u64>,
    /// Of each stream, the releases that an observation of another one would supersede: few, and asked for with each
    /// release that is first seen.
    waiting: HashMap<StreamKey, Vec<ReleaseKey>>,
    /// The last report of each cluster, from the records and from what this replica heard.
    reports: HashMap<ClusterName, Timestamp>,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            standing: Standing::Unlisted(None),
            entries: HashMap::new(),
            broken: HashMap::new(),
            rooms: HashMap::new(),
            waiting: HashMap::new(),
            reports: HashMap::new(),
        }
    }
}

impl Cache {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn standing(&self) -> Standing {
        self.lock().standing.clone()
    }

    /// Takes in what a watch tells.
    pub(super) fn tell(&self, news: News<Kept>) {
        let mut inner = self.lock();
        match news {
            News::All(all) => inner.replace(all),
            News::Changed(kept) => {
                inner.keep(kept);
                inner.standing = Standing::Live;
            }
            News::Gone(kept) => {
                inner.broken.remove(kept.name());
                if let Ok(key) = kept.name().parse() {
                    let gone = kept.entry.ok().and_then(|entry| entry.version);
                    inner.forget(&key, gone.as_ref());
                }
                inner.standing = Standing::Live;
            }
            News::Lost(error) => {
                inner.standing = match inner.standing {
                    Standing::Unlisted(_) => Standing::Unlisted(Some(error)),
                    Standing::Live | Standing::Lost => Standing::Lost,
                };
            }
        }
    }

    /// Takes in what a request answered.
    pub(super) fn keep(&self, kept: Kept) {
        self.lock().keep(kept);
    }

    /// Forgets a record that is gone.
    pub(super) fn forget(&self, key: &ReleaseKey) {
        self.lock().forget(key, None);
    }

    pub(super) fn get(&self, key: &ReleaseKey) -> Option<Entry> {
        self.lock().entries.get(key).map(|entry| (**entry).clone())
    }

    /// What `pick` makes of each record.
    pub(super) fn pick<T>(&self, pick: impl FnMut(&Entry) -> Option<T>) -> Vec<T> {
        self.lock().entries.values().map(|entry| &**entry).filter_map(pick).collect()
    }

    /// What waits in a stream.
    pub(super) fn waiting(&self, stream: &Stream) -> Vec<Entry> {
        let inner = self.lock();
        let keys = inner.waiting.get(&stream.key()).into_iter().flatten();
        keys.filter_map(|key| inner.entries.get(key)).map(|entry| (**entry).clone()).collect()
    }

    /// Records that match, at most `limit`.
    pub(super) fn find(&self, wanted: &Wanted, limit: usize) -> Vec<Record> {
        let inner = self.lock();
        let records = inner.entries.values().map(|entry| &entry.record);
        records.filter(|record| matches(wanted, record)).take(limit).cloned().collect()
    }

    /// The budget that has no room for another record, if one has none. Between replicas it is as true as the watch is
    /// quick.
    pub(super) fn spent(&self, stream: &Stream, maker: Maker, budgets: &Budgets) -> Option<Spent> {
        let inner = self.lock();
        let rooms = rooms(stream, maker).into_iter().map(|owner| {
            let limit = match &owner {
                Owner::AppNamespace(..) | Owner::AppTasks(_) => budgets.app_namespace,
                Owner::Cluster(_) => budgets.cluster,
                Owner::Store => budgets.store,
            };
            (inner.rooms.get(&owner).copied().unwrap_or(0), owner, limit)
        });
        let mut rooms = rooms.chain([(inner.entries.len() as u64, Owner::Store, budgets.store)]);
        rooms.find(|(count, _, limit)| count >= limit).map(|(_, owner, limit)| Spent { owner, limit })
    }

    /// Notes that a cluster reported.
    pub(super) fn reported(&self, report: &Report, now: Timestamp) {
        let mut inner = self.lock();
        let last = inner.reports.entry(report.cluster.clone()).or_insert(report.at);
        // One from the future, which a wall clock that jumped has left behind, gives way.
        if report.at > *last || *last > now {
            *last = report.at;
        }
    }

    pub(super) fn reports(&self) -> Vec<Report> {
        let inner = self.lock();
        let report = |(cluster, at): (&ClusterName, &Timestamp)| Report { cluster: cluster.clone(), at: *at };
        let mut reports: Vec<Report> = inner.reports.iter().map(report).collect();
        reports.sort_unstable_by(|a, b| a.cluster.cmp(&b.cluster));
        reports
    }

    pub(super) fn forget_reports(&self, before: Timestamp) -> usize {
        let mut inner = self.lock();
        let count = inner.reports.len();
        inner.reports.retain(|_, at| *at >= before);
        count - inner.reports.len()
    }
}

impl Inner {
    /// A list is the truth, even where it is older than what was written here: an etcd that was restored has lost that. A
    /// write that came after the list comes again with the watch that begins there.
    fn replace(&mut self, all: Vec<Kept>) {
        self.entries.clear();
        self.rooms.clear();
        self.waiting.clear();
        self.entries.reserve(all.len());
        let broken = std::mem::take(&mut self.broken);
        for kept in all {
            if let Some((name, said)) = broken.get_key_value(kept.name()) {
                self.broken.insert(name.clone(), said.clone());
            }
            self.keep(kept);
        }
        self.standing = Standing::Live;
    }

    fn keep(&mut self, kept: Kept) {
        let name = kept.name().to_owned();
        let entry = match kept.entry {
            Ok(entry) => entry,
            Err(problem) => {
                if self.broken.get(&name) != Some(&problem) {
                    tracing::error!(
                        release = name,
                        problem,
                        "an object cannot be read: it is left out until it is mended or deleted"
                    );
                }
                if let Ok(key) = name.parse() {
                    self.forget(&key, None);
                }
                self.broken.insert(name, problem);
                return;
            }
        };
        self.broken.remove(&name);
        let key = entry.key();
        if let Some(known) = self.entries.get(&key)
            && is_before(entry.version.as_ref(), known.version.as_ref())
        {
            return;
        }
        if let Some(at) = entry.reported_at {
            let cluster = &entry.record.release.stream.cluster;
            match self.reports.get_mut(cluster) {
                Some(last) => *last = at.max(*last),
                None => drop(self.reports.insert(cluster.clone(), at)),
            }
        }
        self.forget(&key, None);
        self.insert(entry);
    }

    fn insert(&mut self, entry: Box<Entry>) {
        for owner in rooms(&entry.record.release.stream, entry.maker) {
            *self.rooms.entry(owner).or_default() += 1;
        }
        let key = entry.key();
        if entry.record.state().can_be_superseded() {
            self.waiting.entry(entry.record.release.stream.key()).or_default().push(key);
        }
        self.entries.insert(key, entry);
    }

    /// Takes a record out, unless what is here is newer than what is gone.
    fn forget(&mut self, key: &ReleaseKey, gone: Option<&Version>) {
        if self.entries.get(key).is_some_and(|known| is_before(gone, known.version.as_ref())) {
            return;
        }
        let Some(entry) = self.entries.remove(key) else { return };
        for owner in rooms(&entry.record.release.stream, entry.maker) {
            if let Some(count) = self.rooms.get_mut(&owner) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.rooms.remove(&owner);
                }
            }
        }
        let stream = entry.record.release.stream.key();
        if let Some(waiting) = self.waiting.get_mut(&stream) {
            waiting.retain(|waits| waits != key);
            if waiting.is_empty() {
                self.waiting.remove(&stream);
            }
        }
    }
}

fn is_before(this: Option<&Version>, other: Option<&Version>) -> bool {
    matches!((this, other), (Some(this), Some(other)) if this.is_before(other))
}

/// Whose room a record takes. A Task of an app may name any cluster, so what it makes takes no cluster's.
fn rooms(stream: &Stream, maker: Maker) -> Vec<Owner> {
    let Stream { app_namespace, cluster, .. } = stream;
    match maker {
        Maker::Platform => {
            vec![Owner::AppNamespace(app_namespace.clone(), cluster.clone()), Owner::Cluster(cluster.clone())]
        }
        Maker::App => vec![Owner::AppTasks(app_namespace.clone())],
    }
}

/// Whether a record is one of those that an incomplete key means.
pub(super) fn matches(wanted: &Wanted, record: &Record) -> bool {
    fn fits<T: PartialEq>(wanted: Option<&T>, value: &T) -> bool {
        wanted.is_none_or(|wanted| wanted == value)
    }
    let stream = &record.release.stream;
    let id = match &wanted.id {
        Some(ReleaseId::GitRevision(revision)) => *revision == record.git_revision,
        id => fits(id.as_ref(), &record.release.id),
    };
    id && fits(wanted.pr_url.as_ref(), &record.pr_url)
        && fits(wanted.app_namespace.as_ref(), &stream.app_namespace)
        && fits(wanted.app.as_ref(), &stream.app)
        && fits(wanted.env.as_ref(), &stream.env)
        && fits(wanted.cluster.as_ref(), &stream.cluster)
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
