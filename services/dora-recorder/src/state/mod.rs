//! The state of one stream, and what a verdict changes in it. Pure: no clock, no I/O.
//!
//! Verdicts are taken in the order in which they come; what they say of time is their own finish, never their arrival.
//! Streams know nothing of each other, so no interleaving of them changes a total.

mod import;
mod instant;
#[cfg(test)]
mod properties;
mod sync;
mod totals;
mod window;

use std::time::Duration;

use transponder_core::{Maker, Phase, ReleaseKey, Stream, Timestamp};

pub use import::Imported;
pub use instant::Instant;
pub use sync::{Awaited, Counted, Due, Expected, Sync, Syncs};
pub use totals::{Discarded, Histogram, LEAD_TIME_BOUNDS, RESTORE_BOUNDS, Sample, Totals};
pub use window::{HELD, HELD_WITH_TIES, Known, Window};

/// How far a finish may lie ahead of its receipt and still be believed.
const AHEAD: Duration = Duration::from_secs(600);

/// How a release ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
}

impl Outcome {
    /// The outcome of a terminal phase.
    #[must_use]
    pub fn of(phase: Phase) -> Option<Self> {
        match phase {
            Phase::Succeeded => Some(Self::Succeeded),
            Phase::Failed => Some(Self::Failed),
            Phase::Syncing => None,
        }
    }
}

/// What a release came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// The release.
    pub release: ReleaseKey,
    /// What it came to.
    pub outcome: Outcome,
    /// When it finished; of a failure, its last finish.
    pub finished_at: Timestamp,
    /// Of a failure, its first finish.
    pub first_finished_at: Timestamp,
    /// When its flow began, if that is known.
    pub flow_start: Option<Timestamp>,
    /// When it was received.
    pub received_at: Timestamp,
}

/// What became of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Disposition {
    /// Counted now.
    New,
    /// Counted before.
    Repeated,
    /// A failure that is part of the release's counted success.
    Absorbed,
    /// A failure after the release's counted success.
    Conflict,
    /// Unknown, and older than all that is known.
    Late,
}

/// The first moments of a stream's series, in which they stand at 0 although more is committed already: a series that
/// is born at 1 is invisible to `increase()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// The stream's first verdict.
    pub since: Instant,
    /// How long the hold lasts. Kept with the stream and only ever shortened: a longer one in a new configuration must
    /// not take back what was shown.
    pub length: Duration,
}

impl Hold {
    /// What is left of it, by a wall clock that may have jumped: never more than its length.
    #[must_use]
    pub fn remaining(&self, now: Timestamp) -> Duration {
        match Instant::from(now).since(self.since) {
            Some(elapsed) => self.length.saturating_sub(elapsed),
            None => self.length,
        }
    }
}

/// The state of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamState {
    /// The stream.
    pub stream: Stream,
    /// Who made it.
    pub maker: Maker,
    /// When its totals are first shown.
    pub hold: Hold,
    /// What it adds up to.
    pub totals: Totals,
    /// Its last releases.
    pub window: Window,
    /// First finish of the first failure that no success has followed.
    pub failing_since: Option<Instant>,
    /// Latest finish of a success.
    pub succeeded_until: Option<Instant>,
    /// The imported failure of the app that a success of this stream ended.
    pub inherited: Option<Instant>,
    /// Syncs of this cluster's own Argo CD that it awaits.
    pub syncs: Syncs,
}

/// What a verdict changed, for a store that writes no more than that.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// The release that is new or known better now.
    pub release: Option<Known>,
    /// Releases that are no longer held.
    pub forgotten: Vec<ReleaseKey>,
}

/// A judged verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// What became of it.
    pub disposition: Disposition,
    /// What it changed; `None` when all was known.
    pub change: Option<Change>,
}

impl Judged {
    fn unchanged(disposition: Disposition) -> Self {
        Self { disposition, change: None }
    }
}

impl StreamState {
    /// A stream without a verdict.
    #[must_use]
    pub fn new(stream: Stream, maker: Maker, hold: Hold) -> Self {
        Self {
            stream,
            maker,
            hold,
            totals: Totals::default(),
            window: Window::default(),
            failing_since: None,
            succeeded_until: None,
            inherited: None,
            syncs: Syncs::default(),
        }
    }

    /// Takes in a verdict.
    pub fn apply(&mut self, verdict: &Verdict) -> Judged {
        let finish = Finish::of(verdict);
        let Some(known) = self.window.find_mut(verdict.release) else {
            return self.apply_unknown(verdict, finish);
        };
        let newer = finish.at > known.finished_at;
        let disposition = judge_known(known, verdict.outcome, finish);
        if disposition == Disposition::New {
            self.count(verdict, finish);
        } else if disposition == Disposition::Conflict && !known.conflict {
            known.conflict = true;
            self.totals.conflicts += 1;
        } else if !newer || !finish.plausible {
            // Said before, or a finish that is made up anew from each receipt: nothing to learn.
            return Judged::unchanged(disposition);
        } else if verdict.outcome == Outcome::Succeeded {
            self.success(finish);
        }
        let Some(known) = self.window.find_mut(verdict.release) else {
            return Judged::unchanged(disposition);
        };
        known.finished_at = known.finished_at.max(finish.at);
        if disposition == Disposition::New {
            mark(known, verdict.outcome, finish.at);
        }
        let release = Some(*known);
        Judged { disposition, change: Some(Change { release, forgotten: Vec::new() }) }
    }

    fn apply_unknown(&mut self, verdict: &Verdict, finish: Finish) -> Judged {
        if self.window.is_late(finish.at) {
            self.totals.late += 1;
            return Judged { disposition: Disposition::Late, change: Some(Change::default()) };
        }
        self.count(verdict, finish);
        let mut release = Known {
            key: verdict.release,
            finished_at: finish.at,
            succeeded_at: None,
            failed: false,
            conflict: false,
        };
        mark(&mut release, verdict.outcome, finish.at);
        let forgotten = self.window.insert(release);
        Judged { disposition: Disposition::New, change: Some(Change { release: Some(release), forgotten }) }
    }

    /// Counts a release for the first time with this outcome.
    fn count(&mut self, verdict: &Verdict, finish: Finish) {
        match verdict.outcome {
            Outcome::Succeeded => {
                self.totals.succeeded += 1;
                if let Some(start) = verdict.flow_start {
                    self.totals.lead_time(finish.sample_from(Instant::from(start)));
                }
                self.success(finish);
            }
            Outcome::Failed => {
                self.totals.failed += 1;
                self.failure(finish);
            }
        }
    }

    /// A success ends what failed before it.
    fn success(&mut self, finish: Finish) {
        self.succeeded_until = self.succeeded_until.max(Some(finish.at));
        if let Some(since) = self.failing_since {
            let sample = finish.sample_from(since);
            self.totals.restore(sample);
            // A success that finished before the failure did not restore it: the next one may.
            if sample != Sample::Negative {
                self.failing_since = None;
            }
        }
    }

    /// A failure begins an outage, unless there is one, or a success that finished later is known already.
    fn failure(&mut self, finish: Finish) {
        // A beginning that nobody can believe would make the end's sample a lie.
        if !finish.plausible || self.failing_since.is_some() {
            return;
        }
        let unrestored = |at: &Instant| self.succeeded_until.is_none_or(|until| *at > until);
        self.failing_since = [finish.first, finish.at].into_iter().find(unrestored);
    }
}

fn mark(known: &mut Known, outcome: Outcome, at: Instant) {
    match outcome {
        Outcome::Succeeded => known.succeeded_at = Some(at),
        Outcome::Failed => known.failed = true,
    }
}

fn judge_known(known: &Known, outcome: Outcome, finish: Finish) -> Disposition {
    match (outcome, known.succeeded_at) {
        (Outcome::Succeeded, None) => Disposition::New,
        (Outcome::Succeeded, Some(_)) => Disposition::Repeated,
        (Outcome::Failed, None) if known.failed => Disposition::Repeated,
        (Outcome::Failed, None) => Disposition::New,
        (Outcome::Failed, Some(succeeded)) => {
            // The counted failure may be said again after the success, with any finish that it had: only the last one is
            // kept, so whatever finished no later is taken for it. One that is made up from the receipt cannot be told
            // from a later one at all, and a counter cannot be taken back.
            let said_before = known.failed && (finish.at <= known.finished_at || !finish.plausible);
            match (finish.at > succeeded && (known.conflict || !said_before), known.failed) {
                (true, _) => Disposition::Conflict,
                (false, true) => Disposition::Repeated,
                (false, false) => Disposition::Absorbed,
            }
        }
    }
}

/// The finish of a verdict, as far as it can be believed.
#[derive(Debug, Clone, Copy)]
struct Finish {
    /// When: one that lies too far ahead of its receipt counts as the receipt, so that no wrong clock pushes the
    /// releases of months to come out of the window.
    at: Instant,
    first: Instant,
    plausible: bool,
}

impl Finish {
    fn of(verdict: &Verdict) -> Self {
        let (finished, received) = (Instant::from(verdict.finished_at), Instant::from(verdict.received_at));
        let plausible = finished <= received.plus(AHEAD);
        let at = if plausible { finished } else { received };
        Self { at, first: Instant::from(verdict.first_finished_at).min(at), plausible }
    }

    fn sample_from(self, start: Instant) -> Sample {
        if self.plausible { Sample::of(self.at.since(start)) } else { Sample::Implausible }
    }
}
