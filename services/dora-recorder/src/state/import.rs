//! What an older exporter had counted of an app, before its environments were told apart.

use transponder_core::{AppName, AppNamespace, StreamKey};

use super::{Finish, Instant, Outcome, StreamState, Totals, Verdict};

/// What was imported of an app. Its totals never change; it stands beside the streams of the app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// CI namespace of the app.
    pub app_namespace: AppNamespace,
    /// The app.
    pub app: AppName,
    /// Deployments, which were counted apart from the releases that succeeded.
    pub deployments: u64,
    /// The totals.
    pub totals: Totals,
    /// The last failure, if no success had followed: the app's first success ends it, in whatever environment.
    pub failing_since: Option<Instant>,
    /// The stream in which it does. Noted before that is counted, so that no other stream counts it, too.
    pub claimed_by: Option<StreamKey>,
}

impl Imported {
    /// Its key, which no stream has.
    #[must_use]
    pub fn key(&self) -> StreamKey {
        StreamKey::of_app(&self.app_namespace, &self.app)
    }

    /// The failure that this stream may end.
    #[must_use]
    pub fn failure_for(&self, stream: StreamKey) -> Option<Instant> {
        self.failing_since.filter(|_| self.claimed_by.is_none_or(|by| by == stream))
    }
}

impl StreamState {
    /// Whether this verdict would end a failure that was imported: it is a release's first success, and later.
    #[must_use]
    pub fn would_end(&self, failure: Instant, verdict: &Verdict) -> bool {
        let finish = Finish::of(verdict);
        let known = self.window.known().iter().find(|known| known.key == verdict.release);
        let first = match known {
            Some(known) => known.succeeded_at.is_none(),
            None => !self.window.is_late(finish.at),
        };
        verdict.outcome == Outcome::Succeeded && first && finish.at > failure && self.inherited.is_none()
    }

    /// Takes over a failure that was imported, as if it had been the stream's own.
    pub fn inherit(&mut self, failure: Instant) {
        self.failing_since = Some(self.failing_since.map_or(failure, |since| since.min(failure)));
        self.inherited = Some(failure);
    }
}
