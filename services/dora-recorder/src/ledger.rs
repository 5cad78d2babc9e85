//! The committed truth of all streams in memory, and the order of verdicts within each.
//!
//! What must hold: memory is never ahead of the store. A verdict is judged on a copy, the copy is written, and only when
//! it is stored does it take the place of what was there. When a write's end is unknown the version tells at the next
//! one whether it arrived, and [`Ledger::refresh`] reads what did. The same goes for what other replicas write.

mod awaiting;
mod book;
mod holds;
mod view;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::watch;
use transponder_core::{Maker, Stream, retry::Backoff};
use transponder_runtime::Clock;
use transponder_store::StoreError;

use self::book::{Book, Slot};
pub(crate) use self::{awaiting::Told, view::View};
use crate::{
    config::{Budgets, Config},
    error::RecordError,
    import::App,
    metrics::Metrics,
    showing::Showing,
    state::{Change, Disposition, Hold, Instant, StreamState, Verdict},
    store::{Everything, Imports, Item, Saved, Stored, StreamStore, Update},
};

/// How often a verdict is judged anew because somebody else changed its stream meanwhile. Measured with eight writers that
/// never pause: nine in ten are through at once, and each further attempt leaves six in ten of the rest.
const ATTEMPTS: u32 = 30;
/// Pauses before that.
const AGAIN: Backoff = Backoff { base: Duration::from_millis(20), cap: Duration::from_millis(160) };

/// All streams.
pub(crate) struct Ledger {
    store: Arc<dyn StreamStore>,
    clock: Arc<dyn Clock>,
    zero_hold: Duration,
    budgets: Budgets,
    metrics: Metrics,
    showing: Showing,
    /// Where there are any.
    imports: Option<Arc<dyn Imports>>,
    /// Or why nothing is known yet.
    loaded: watch::Sender<Result<(), String>>,
    book: Arc<Mutex<Book>>,
}

#[derive(Clone)]
struct Committed {
    stored: Stored,
    /// Whether it is still in the store, as far as is known: somebody may have deleted it.
    present: bool,
    /// On the clock that never jumps.
    shown_from: Duration,
}

impl Ledger {
    /// Loads all streams from a store of this process alone.
    pub(crate) async fn load(
        store: Arc<dyn StreamStore>,
        config: &Config,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
    ) -> Result<Arc<Self>, StoreError> {
        let ledger = Self::new(store, None, config, clock, metrics, Showing::Alone);
        ledger.shorten_holds().await;
        ledger.refresh().await?;
        ledger.known();
        Ok(ledger)
    }

    /// Knows nothing yet: no verdict is taken before somebody says that it [does](Self::known).
    pub(crate) fn new(
        store: Arc<dyn StreamStore>,
        imports: Option<Arc<dyn Imports>>,
        config: &Config,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
        showing: Showing,
    ) -> Arc<Self> {
        let (zero_hold, budgets) = (config.zero_hold, config.budgets);
        let loaded = watch::Sender::new(Err("the streams have not been read yet".to_owned()));
        let book = Arc::default();
        Arc::new(Self { store, clock, zero_hold, budgets, metrics, showing, imports, loaded, book })
    }

    pub(crate) fn store(&self) -> &dyn StreamStore {
        self.store.as_ref()
    }

    /// Whether the streams are known, or why not.
    pub(crate) fn loaded(&self) -> watch::Receiver<Result<(), String>> {
        self.loaded.subscribe()
    }

    /// Everything that counts is known: verdicts are taken from now on.
    pub(crate) fn known(&self) {
        self.loaded.send_if_modified(|loaded| std::mem::replace(loaded, Ok(())).is_err());
    }

    /// The streams cannot be read. Once they are known that is no trouble here: each write finds out what has changed.
    pub(crate) fn unknown(&self, why: String) {
        self.loaded.send_if_modified(|loaded| {
            let news = loaded.as_ref().is_err_and(|known| *known != why);
            if news {
                *loaded = Err(why);
            }
            news
        });
    }

    /// Reads all streams again and takes over what is newer than what memory holds.
    pub(crate) async fn refresh(&self) -> Result<(), StoreError> {
        let all = self.store.load().await?;
        all.imports.into_iter().map(Item::Import).for_each(|item| self.know(item));
        all.streams.into_iter().map(Item::Stream).for_each(|item| self.know(item));
        Ok(())
    }

    /// Takes note of what is stored now, unless something later is known.
    pub(crate) fn know(&self, item: Item) {
        match item {
            Item::Import(stored) => self.book().know_import(stored),
            Item::Stream(stored) => self.know_stream(stored),
        }
    }

    fn know_stream(&self, stored: Stored) {
        let slot = self.book().place(&stored.state.stream, stored.state.maker);
        self.take_over(&slot, stored);
    }

    /// Takes note of all that is stored. What is not among it was deleted, and what is older than what was known is
    /// looked at again: it was read before the last write, or the store was set back.
    pub(crate) async fn know_all(&self, all: Everything) {
        all.imports.into_iter().map(Item::Import).for_each(|item| self.know(item));
        let known = |(stream, slot): (&Stream, &Arc<Slot>)| (stream.clone(), slot.clone());
        let mut missing: HashMap<_, _> = self.book().all().map(known).collect();
        for stored in all.streams {
            let stream = stored.state.stream.clone();
            let slot = missing.remove(&stream);
            let older = slot.filter(|slot| slot.version().is_some_and(|known| stored.version < known));
            let Some(slot) = older else {
                self.know_stream(stored);
                continue;
            };
            let _turn = slot.turn.lock().await;
            let known = slot.version();
            if let Err(error) = self.read_again(&slot, &stream, known).await {
                tracing::warn!(%error, source = stream.source(), "a stream cannot be read again");
            }
        }
        for slot in missing.into_values() {
            slot.gone(None);
        }
    }

    /// The apps of which something was imported.
    pub(crate) fn imported(&self) -> HashSet<App> {
        let book = self.book();
        book.imports().map(|known| (known.import.app_namespace.clone(), known.import.app.clone())).collect()
    }

    /// Somebody deleted the object of a stream. What is remembered of it is written anew with its next verdict.
    pub(crate) fn know_gone(&self, last: &Item) {
        // What was imported stays as it was: it changes no more.
        let Item::Stream(last) = last else { return };
        let slot = self.book().find(&last.state.stream);
        if slot.is_some_and(|slot| slot.gone(Some(last.version))) {
            let source = last.state.stream.source();
            tracing::warn!(
                source,
                "somebody deleted this stream: unless this process ends, its next verdict brings it back as it was"
            );
        }
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
        let apply = |state: &mut StreamState| {
            let judged = state.apply(&verdict);
            (judged.disposition, judged.change)
        };
        self.revise(&stream, maker, |_| Some(verdict), apply).await
    }

    /// Changes a stream by what `apply` makes of a copy of it, again for as long as others change it meanwhile; without
    /// a change nothing is written. `coming` is the verdict that will be applied, if there is one.
    async fn revise<T>(
        &self,
        stream: &Stream,
        maker: Maker,
        coming: impl Fn(&StreamState) -> Option<Verdict>,
        apply: impl Fn(&mut StreamState) -> (T, Option<Change>),
    ) -> Result<T, RecordError> {
        if self.loaded.borrow().is_err() {
            return Err(RecordError::Loading);
        }
        let slot = self.book().place_within(stream, maker, &self.budgets)?;
        let _turn = slot.turn.lock().await;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                tokio::time::sleep(AGAIN.delay(attempt, None, fastrand::f64())).await;
            }
            let committed = slot.committed().clone();
            let mut next = match &committed {
                Some(committed) => StreamState::clone(&committed.stored.state),
                None => self.new_state(stream, slot.maker),
            };
            if let Some(verdict) = coming(&next)
                && let Some(failure) = self.inheritance(&next, &verdict).await?
            {
                next.inherit(failure);
            }
            let (answer, change) = apply(&mut next);
            let Some(change) = change else { return Ok(answer) };
            if self.write(&slot, committed.as_ref(), next, change).await? {
                return Ok(answer);
            }
        }
        Err(RecordError::Contended)
    }

    /// The failure of the app, from before its environments were told apart, that this verdict ends. By then it is noted
    /// that this stream is the one in which it does: whoever dies between that and the count leaves it to the verdict's
    /// next coming, or to the stream's next success.
    async fn inheritance(
        &self,
        state: &StreamState,
        verdict: &Verdict,
    ) -> Result<Option<Instant>, StoreError> {
        let (stream, Some(imports)) = (&state.stream, &self.imports) else { return Ok(None) };
        let key = stream.key();
        for _ in 0..ATTEMPTS {
            let Some(known) = self.book().import_of(stream) else { return Ok(None) };
            let failure = known.import.failure_for(key).filter(|failure| state.would_end(*failure, verdict));
            if failure.is_none() || known.import.claimed_by.is_some() {
                return Ok(failure);
            }
            let Some(stored) = imports.claim(&known, key).await? else { return Ok(None) };
            self.know(Item::Import(stored));
        }
        Ok(None)
    }

    /// Writes what comes after `before`. `false`: that was not what is stored, and now it is known what is. The caller
    /// has the slot's turn.
    async fn write(
        &self,
        slot: &Slot,
        before: Option<&Committed>,
        next: StreamState,
        change: Change,
    ) -> Result<bool, StoreError> {
        if let Some(sealed) = before.and_then(|before| before.stored.sealed.clone()) {
            return Err(sealed);
        }
        let next = Arc::new(next);
        let read = before.filter(|before| before.present).map(|before| before.stored.version);
        match self.store.save(Update { read, next: next.clone(), change }).await? {
            Saved::As(version) => {
                self.take_over(slot, Stored { version, state: next, sealed: None });
                Ok(true)
            }
            Saved::Stale => {
                // A write whose end was unknown had arrived, or there is another writer.
                let known = before.map(|before| before.stored.version);
                self.read_again(slot, &next.stream, known).await?;
                Ok(false)
            }
        }
    }

    /// Reads a stream whose version `known` is not the one that is stored. The caller has the slot's turn.
    async fn read_again(&self, slot: &Slot, stream: &Stream, known: Option<u64>) -> Result<(), StoreError> {
        let Some(stored) = self.store.find(stream).await? else {
            slot.gone(known);
            return Ok(());
        };
        let (source, version) = (stream.source(), stored.version);
        if slot.set_back(known, stored.clone()) {
            tracing::warn!(
                source,
                version,
                known,
                "the store has an older state of this stream than it had before: counting goes on from there"
            );
        }
        self.take_over(slot, stored);
        Ok(())
    }

    /// Puts in place what is stored, unless something later is known.
    fn take_over(&self, slot: &Slot, stored: Stored) {
        let mut committed = slot.committed();
        match committed.as_mut() {
            Some(known) if known.stored.version > stored.version => {}
            Some(known) if known.present && known.stored.version == stored.version => {}
            Some(known) => {
                known.stored = stored;
                known.present = true;
            }
            None => {
                let hold = stored.state.hold;
                let hold = Hold { length: hold.length.min(self.longest_hold()), ..hold };
                let shown_from = self.clock.monotonic().saturating_add(hold.remaining(self.clock.wall()));
                *committed = Some(Committed { stored, present: true, shown_from });
            }
        }
    }

    pub(crate) fn view(&self) -> View {
        View { book: self.book.clone(), clock: self.clock.clone(), showing: self.showing.clone() }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }
}

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "ledger/shared_tests.rs"]
mod shared_tests;
#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
