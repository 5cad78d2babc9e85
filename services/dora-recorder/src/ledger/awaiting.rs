//! Releases that await a sync of this cluster's own Argo CD.

use std::{collections::HashMap, sync::Arc};

use transponder_core::{Maker, Stream};

use super::Ledger;
use crate::{
    error::RecordError,
    state::{Awaited, Change, Disposition, Due, Expected, Instant, StreamState, Sync},
};

/// What is told of an Application.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    /// Its UID.
    pub(crate) application: String,
    /// Its last operations that have ended.
    pub(crate) ended: Vec<Sync>,
    /// What it says itself to be pending.
    pub(crate) annotated: Option<Awaited>,
}

impl Told {
    fn due(&self, state: &StreamState) -> Option<Due> {
        state.due(&self.application, &self.ended, self.annotated.as_ref())
    }
}

impl Ledger {
    /// A release becomes pending, with the operation that the Application had `ended` by then. Once begun it is carried
    /// through.
    pub(crate) async fn expect(
        self: &Arc<Self>,
        stream: Stream,
        maker: Maker,
        awaited: Awaited,
        ended: Option<Instant>,
        sure: bool,
    ) -> Result<Expected, RecordError> {
        let ledger = self.clone();
        let expecting = tokio::spawn(async move {
            let nothing_counted = |_: &_| None;
            let revised = ledger.revise(&stream, maker, nothing_counted, |state| {
                let (expected, changed) = state.expect(awaited.clone(), ended, sure);
                (expected, changed.then(Change::default))
            });
            revised.await
        });
        let expected = expecting.await.map_err(|_| RecordError::Stopping)?;
        if let Err(RecordError::Full { budget, .. }) = &expected {
            self.metrics.refused(*budget);
        }
        expected
    }

    /// The streams that await something, by the UID of the Application.
    pub(crate) fn awaiting(&self) -> HashMap<String, Vec<Stream>> {
        let mut awaiting = HashMap::<String, Vec<Stream>>::new();
        for (stream, slot) in self.book().all() {
            let committed = slot.committed();
            for awaited in committed.iter().flat_map(|committed| &committed.stored.state.syncs.awaited) {
                let streams = awaiting.entry(awaited.application.clone()).or_default();
                if streams.last() != Some(stream) {
                    streams.push(stream.clone());
                }
            }
        }
        awaiting
    }

    /// Counts one sync that this stream awaits, if one has ended. Asks nobody when none has; once begun it is carried
    /// through.
    pub(crate) async fn settle(
        self: &Arc<Self>,
        stream: &Stream,
        maker: Maker,
        told: &Told,
    ) -> Result<Option<Disposition>, RecordError> {
        if !self.has_due(stream, maker, told) {
            return Ok(None);
        }
        let (ledger, stream, told) = (self.clone(), stream.clone(), told.clone());
        let settling = tokio::spawn(async move {
            let now = ledger.clock.wall();
            let coming = |state: &_| told.due(state).map(|due| due.verdict(now));
            let revised = ledger.revise(&stream, maker, coming, |state| match told.due(state) {
                Some(due) => {
                    let judged = state.settle(&due, now);
                    (Some(judged.disposition), judged.change)
                }
                None => (None, None),
            });
            revised.await
        });
        let settled = settling.await.map_err(|_| RecordError::Stopping)?;
        match &settled {
            Ok(Some(disposition)) => self.metrics.judged(*disposition),
            Err(RecordError::Full { budget, .. }) => self.metrics.refused(*budget),
            Ok(None) | Err(_) => {}
        }
        settled
    }

    fn has_due(&self, stream: &Stream, maker: Maker, told: &Told) -> bool {
        let slot = self.book().find(stream);
        let known = slot.and_then(|slot| slot.committed().as_ref().map(|known| known.stored.state.clone()));
        let state = known.unwrap_or_else(|| Arc::new(self.new_state(stream, maker)));
        told.due(&state).is_some()
    }
}
