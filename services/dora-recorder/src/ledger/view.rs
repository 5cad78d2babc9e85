//! What the exposition reads of the ledger.

use std::sync::{Arc, Mutex};

use transponder_runtime::Clock;

use super::{book::Book, lock};
use crate::{
    showing::Showing,
    state::{Imported, StreamState, Totals},
};

/// What the exposition reads: no store, which must be free to close when the service ends.
#[derive(Clone)]
pub(crate) struct View {
    pub(super) book: Arc<Mutex<Book>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) showing: Showing,
}

/// What the exposition shows of a stream.
pub(crate) struct Shown {
    pub(crate) state: Arc<StreamState>,
    pub(crate) totals: Totals,
}

impl View {
    /// Whether totals are shown by this process at this moment.
    pub(crate) fn is_on(&self) -> bool {
        self.showing.is_on()
    }

    /// What was imported of apps.
    pub(crate) fn imports(&self) -> Vec<Arc<Imported>> {
        lock(&self.book).imports().map(|known| known.import.clone()).collect()
    }

    /// How many streams are held.
    pub(crate) fn streams(&self) -> usize {
        lock(&self.book).all().filter(|(_, slot)| slot.committed().is_some()).count()
    }

    /// What is committed, with totals at zero for streams on hold.
    pub(crate) fn shown(&self) -> Vec<Shown> {
        let now = self.clock.monotonic();
        let slots: Vec<_> = lock(&self.book).all().map(|(_, slot)| slot.clone()).collect();
        slots
            .iter()
            .filter_map(|slot| {
                let committed = slot.committed().clone()?;
                let state = committed.stored.state;
                let held = match self.showing {
                    Showing::Alone => now < committed.shown_from,
                    Showing::InTerm(_) => !state.hold.length.is_zero(),
                };
                let totals = if held { Totals::default() } else { state.totals };
                Some(Shown { state, totals })
            })
            .collect()
    }
}
