//! Which streams there are, and whose room they take.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use transponder_core::{AppName, AppNamespace, ClusterName, Maker, Stream};

use super::Committed;
use crate::{
    config::Budgets,
    error::{Budget, RecordError},
    store::{Stored, StoredImport},
};

/// All streams that are known or were asked for.
#[derive(Default)]
pub(super) struct Book {
    /// Sorted, so that the exposition is.
    streams: BTreeMap<Stream, Arc<Slot>>,
    /// Without those that Tasks of apps made: a Task may name any cluster, so it must not take one's room.
    per_cluster: HashMap<ClusterName, u32>,
    /// On each cluster, so that none takes another's room; without a cluster those that Tasks of the app made.
    per_app_namespace: HashMap<(Option<ClusterName>, AppNamespace), u32>,
    /// What was imported of each app.
    imports: BTreeMap<(AppNamespace, AppName), StoredImport>,
}

/// A stream's place. It stays even when its first write fails: the budget counts who asked.
pub(super) struct Slot {
    pub(super) maker: Maker,
    /// Held while a verdict is judged and written.
    pub(super) turn: tokio::sync::Mutex<()>,
    committed: Mutex<Option<Committed>>,
}

impl Slot {
    fn new(maker: Maker) -> Self {
        Self { maker, turn: tokio::sync::Mutex::default(), committed: Mutex::default() }
    }

    pub(super) fn committed(&self) -> MutexGuard<'_, Option<Committed>> {
        self.committed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The latest version that is known.
    pub(super) fn version(&self) -> Option<u64> {
        self.committed().as_ref().map(|committed| committed.stored.version)
    }

    /// Takes note that it is not stored any more, unless it was stored again after version `until`. Says whether that
    /// is news. What is remembered of it stays, and is shown: no series is taken back.
    pub(super) fn gone(&self, until: Option<u64>) -> bool {
        let mut committed = self.committed();
        let known = committed.as_mut().filter(|known| known.present);
        let gone = known.filter(|known| until.is_none_or(|until| known.stored.version <= until));
        gone.map(|known| known.present = false).is_some()
    }

    /// Puts an older state in place of the version `known`, if that is still what is known: it was read later.
    pub(super) fn set_back(&self, known: Option<u64>, stored: Stored) -> bool {
        let mut committed = self.committed();
        let latest = committed.as_mut().filter(|latest| Some(latest.stored.version) == known);
        let older = latest.filter(|latest| stored.version < latest.stored.version);
        older.map(|latest| (latest.stored, latest.present) = (stored, true)).is_some()
    }

    /// Whether its hold has passed and is not yet written down as over.
    pub(super) fn hold_is_over(&self, now: Duration) -> bool {
        self.committed().as_ref().is_some_and(|committed| {
            !committed.stored.state.hold.length.is_zero() && now >= committed.shown_from
        })
    }
}

impl Book {
    /// All places, in the order of their streams.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Stream, &Arc<Slot>)> {
        self.streams.iter()
    }

    /// The place of a stream, if it has one.
    pub(super) fn find(&self, stream: &Stream) -> Option<Arc<Slot>> {
        self.streams.get(stream).cloned()
    }

    /// Takes note of what was imported of an app, unless something later is known.
    pub(super) fn know_import(&mut self, stored: StoredImport) {
        let app = (stored.import.app_namespace.clone(), stored.import.app.clone());
        let known = self.imports.get(&app);
        if known.is_none_or(|known| known.version < stored.version) {
            self.imports.insert(app, stored);
        }
    }

    /// What was imported of all apps.
    pub(super) fn imports(&self) -> impl Iterator<Item = &StoredImport> {
        self.imports.values()
    }

    /// What was imported of an app.
    pub(super) fn import_of(&self, stream: &Stream) -> Option<StoredImport> {
        self.imports.get(&(stream.app_namespace.clone(), stream.app.clone())).cloned()
    }

    /// The place of a stream that is stored: no budget takes it away.
    pub(super) fn place(&mut self, stream: &Stream, maker: Maker) -> Arc<Slot> {
        if let Some(slot) = self.streams.get(stream) {
            return slot.clone();
        }
        let slot = Arc::new(Slot::new(maker));
        if maker == Maker::Platform {
            *self.per_cluster.entry(stream.cluster.clone()).or_default() += 1;
        }
        *self.per_app_namespace.entry(share(stream, maker)).or_default() += 1;
        self.streams.insert(stream.clone(), slot.clone());
        slot
    }

    /// The place of a stream, a new one only while there is room.
    pub(super) fn place_within(
        &mut self,
        stream: &Stream,
        maker: Maker,
        budgets: &Budgets,
    ) -> Result<Arc<Slot>, RecordError> {
        if !self.streams.contains_key(stream) {
            let all = u32::try_from(self.streams.len()).unwrap_or(u32::MAX);
            let namespace = self.per_app_namespace.get(&share(stream, maker)).copied().unwrap_or(0);
            let of_namespace = |budget| (budget, namespace, budgets.streams_per_app_namespace);
            let rooms = match maker {
                Maker::Platform => {
                    let cluster = self.per_cluster.get(&stream.cluster).copied().unwrap_or(0);
                    vec![
                        of_namespace(Budget::AppNamespace),
                        (Budget::Cluster, cluster, budgets.streams_per_cluster),
                    ]
                }
                Maker::App => vec![of_namespace(Budget::AppTasks)],
            };
            for (budget, used, limit) in rooms.into_iter().chain([(Budget::All, all, budgets.streams)]) {
                if used >= limit {
                    return Err(RecordError::Full { budget, limit });
                }
            }
        }
        Ok(self.place(stream, maker))
    }
}

/// Which share of the room of its app namespace a stream takes.
fn share(stream: &Stream, maker: Maker) -> (Option<ClusterName>, AppNamespace) {
    let cluster = match maker {
        Maker::Platform => Some(stream.cluster.clone()),
        Maker::App => None,
    };
    (cluster, stream.app_namespace.clone())
}
