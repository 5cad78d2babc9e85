//! Holds: for how long the series of a new stream stand at 0, so that Prometheus sees its first count as an increase.

use std::time::Duration;

use transponder_core::{Maker, Stream};

use super::Ledger;
use crate::{
    showing::Showing,
    state::{Change, Hold, StreamState},
};

impl Ledger {
    /// A hold that was configured too long once must not keep series at 0 for ever. The shorter one is written before
    /// anything is shown by it: with a longer configuration at the next start, the series would fall back to 0.
    pub(super) async fn shorten_holds(&self) {
        if let Err(error) = self.store.shorten_holds(self.zero_hold).await {
            tracing::warn!(%error, "streams keep the zero_hold that they were born with until the next start");
        }
    }

    /// Writes down which holds are over, and by that lets their totals be shown: whatever clock the next one to show
    /// them has, it does not take them back. For as long as `may` says, and while the store works.
    pub(crate) async fn end_holds(&self, may: impl Fn() -> bool) {
        let now = self.clock.monotonic();
        let over: Vec<_> = {
            let book = self.book();
            let over = book.all().filter(|(_, slot)| slot.hold_is_over(now));
            over.map(|(stream, slot)| (stream.clone(), slot.clone())).collect()
        };
        for (stream, slot) in over {
            let _turn = slot.turn.lock().await;
            if !may() || self.store.health().borrow().problem.is_some() {
                return;
            }
            let Some(committed) = slot.committed().clone().filter(|committed| committed.present) else {
                continue;
            };
            let mut next = StreamState::clone(&committed.stored.state);
            next.hold.length = Duration::ZERO;
            // If it was changed meanwhile, its hold is over in a moment, too.
            if let Err(error) = self.write(&slot, Some(&committed), next, Change::default()).await {
                tracing::debug!(%error, source = stream.source(), "the end of a hold is not written");
            }
        }
    }

    pub(super) fn new_state(&self, stream: &Stream, maker: Maker) -> StreamState {
        let hold = Hold { since: self.clock.wall().into(), length: self.zero_hold };
        StreamState::new(stream.clone(), maker, hold)
    }

    /// A hold that was configured too long once must not keep series at 0 for ever.
    pub(super) fn longest_hold(&self) -> Duration {
        match self.showing {
            // Holds on disk were shortened, or could not be, and then they are what must be kept to.
            Showing::Alone => Duration::MAX,
            Showing::InTerm(_) => self.zero_hold,
        }
    }
}
