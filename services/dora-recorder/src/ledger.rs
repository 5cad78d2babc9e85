//! The committed truth of all streams in memory, and the order of verdicts within each.
//!
//! What must hold: memory is never ahead of the disk. A verdict is judged on a copy, the copy is written, and only when
//! it is on disk does it take the place of what was there. When a write's end is unknown the version tells at the next
//! one whether it arrived, and [`Ledger::refresh`] reads what did.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use transponder_core::{AppNamespace, ClusterName, Maker, Stream};
use transponder_runtime::Clock;
use transponder_store::StoreError;

use crate::{
    config::{Budgets, Config},
    error::{Budget, RecordError},
    metrics::Metrics,
    state::{Disposition, Hold, StreamState, Totals, Verdict},
    store::{Saved, Stored, StreamStore, Update},
};

/// How often a verdict is judged anew because somebody else changed its stream meanwhile.
const ATTEMPTS: usize = 5;

/// All streams.
pub(crate) struct Ledger {
    store: Arc<dyn StreamStore>,
    clock: Arc<dyn Clock>,
    zero_hold: Duration,
    budgets: Budgets,
    metrics: Metrics,
    book: Arc<Mutex<Book>>,
}

/// What the exposition reads: no store, which must be free to close when the service ends.
#[derive(Clone)]
pub(crate) struct View {
    book: Arc<Mutex<Book>>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct Book {
    /// Sorted, so that the exposition is.
    streams: BTreeMap<Stream, Arc<Slot>>,
    /// Without those that Tasks of apps made: a Task may name any cluster, so it must not take one's room.
    per_cluster: HashMap<ClusterName, u32>,
    /// On each cluster, so that none takes another's room; without a cluster those that Tasks of the app made.
    per_app_namespace: HashMap<(Option<ClusterName>, AppNamespace), u32>,
}

/// A stream's place. It stays even when its first write fails: the budget counts who asked.
struct Slot {
    maker: Maker,
    /// Held while a verdict is judged and written.
    turn: tokio::sync::Mutex<()>,
    committed: Mutex<Option<Committed>>,
}

#[derive(Clone)]
struct Committed {
    stored: Stored,
    /// On the clock that never jumps.
    shown_from: Duration,
}

impl Slot {
    fn new(maker: Maker) -> Self {
        Self { maker, turn: tokio::sync::Mutex::default(), committed: Mutex::default() }
    }

    fn committed(&self) -> MutexGuard<'_, Option<Committed>> {
        self.committed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the exposition shows of a stream.
pub(crate) struct Shown {
    pub(crate) state: Arc<StreamState>,
    pub(crate) totals: Totals,
}

impl Ledger {
    /// Loads all streams.
    pub(crate) async fn load(
        store: Arc<dyn StreamStore>,
        config: &Config,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
    ) -> Result<Arc<Self>, StoreError> {
        let (zero_hold, budgets) = (config.zero_hold, config.budgets);
        let ledger = Arc::new(Self { store, clock, zero_hold, budgets, metrics, book: Arc::default() });
        ledger.shorten_holds().await;
        ledger.refresh().await?;
        Ok(ledger)
    }

    /// A hold that was configured too long once must not keep series at 0 for ever. The shorter one is written before
    /// anything is shown by it: with a longer configuration at the next start, the series would fall back to 0.
    async fn shorten_holds(&self) {
        if let Err(error) = self.store.shorten_holds(self.zero_hold).await {
            tracing::warn!(%error, "streams keep the zero_hold that they were born with until the next start");
        }
    }

    pub(crate) fn store(&self) -> &dyn StreamStore {
        self.store.as_ref()
    }

    /// Reads all streams again and takes over what is newer than what memory holds.
    pub(crate) async fn refresh(&self) -> Result<(), StoreError> {
        for stored in self.store.load().await? {
            let slot = self.book().place(&stored.state.stream, stored.state.maker);
            let _turn = slot.turn.lock().await;
            self.take_over(&slot, stored);
        }
        Ok(())
    }

    /// Counts a verdict, of a stream that `maker` makes if there is none, and answers when it is on disk. Verdicts of one
    /// stream wait for each other; those of different streams share commits. Once begun it is carried through, whether or
    /// not the caller still waits.
    pub(crate) async fn record(
        self: &Arc<Self>,
        stream: Stream,
        maker: Maker,
        verdict: Verdict,
    ) -> Result<Disposition, RecordError> {
        let ledger = self.clone();
        let recording = tokio::spawn(async move { ledger.judge_and_write(stream, maker, verdict).await });
        let recorded = recording.await.map_err(|_| RecordError::Stopping)?;
        match &recorded {
            Ok(disposition) => self.metrics.judged(*disposition),
            Err(RecordError::Full { budget, .. }) => self.metrics.refused(*budget),
            Err(_) => {}
        }
        recorded
    }

    async fn judge_and_write(
        &self,
        stream: Stream,
        maker: Maker,
        verdict: Verdict,
    ) -> Result<Disposition, RecordError> {
        let slot = self.book().place_within(&stream, maker, &self.budgets)?;
        let _turn = slot.turn.lock().await;
        for _ in 0..ATTEMPTS {
            let committed = slot.committed().clone();
            let (mut next, read) = match &committed {
                Some(committed) => {
                    (StreamState::clone(&committed.stored.state), Some(committed.stored.version))
                }
                None => (StreamState::new(stream.clone(), slot.maker, self.new_hold()), None),
            };
            let judged = next.apply(&verdict);
            let Some(change) = judged.change else { return Ok(judged.disposition) };
            let next = Arc::new(next);
            match self.store.save(Update { read, next: next.clone(), change }).await? {
                Saved::As(version) => {
                    self.take_over(&slot, Stored { version, state: next });
                    return Ok(judged.disposition);
                }
                Saved::Stale => {
                    // A write whose end was unknown had arrived, or there is another writer.
                    if let Some(stored) = self.store.find(&stream).await? {
                        self.take_over(&slot, stored);
                    }
                }
            }
        }
        Err(RecordError::Contended)
    }

    fn new_hold(&self) -> Hold {
        Hold { since: self.clock.wall().into(), length: self.zero_hold }
    }

    /// Puts in place what is on disk. The caller has the slot's turn.
    fn take_over(&self, slot: &Slot, stored: Stored) {
        let mut committed = slot.committed();
        match committed.as_mut() {
            Some(known) if known.stored.version >= stored.version => {}
            Some(known) => known.stored = stored,
            None => {
                let remaining = stored.state.hold.remaining(self.clock.wall());
                let shown_from = self.clock.monotonic().saturating_add(remaining);
                *committed = Some(Committed { stored, shown_from });
            }
        }
    }

    pub(crate) fn view(&self) -> View {
        View { book: self.book.clone(), clock: self.clock.clone() }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }
}

impl View {
    /// What is committed, with totals at zero for streams on hold.
    pub(crate) fn shown(&self) -> Vec<Shown> {
        let now = self.clock.monotonic();
        let slots: Vec<_> = lock(&self.book).streams.values().cloned().collect();
        slots
            .iter()
            .filter_map(|slot| {
                let committed = slot.committed().clone()?;
                let state = committed.stored.state;
                let totals = if now < committed.shown_from { Totals::default() } else { state.totals };
                Some(Shown { state, totals })
            })
            .collect()
    }
}

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Book {
    /// The place of a stream that is on disk: no budget takes it away.
    fn place(&mut self, stream: &Stream, maker: Maker) -> Arc<Slot> {
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
    fn place_within(
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

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
