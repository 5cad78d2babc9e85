//! The sweeper: what has been silent becomes `unreported`, what is old goes. Of several replicas one sweeps.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use tokio::task::JoinSet;
use transponder_core::{Release, Timestamp};
use transponder_kubernetes::lease::{Leadership, Term};
use transponder_runtime::{Clock, Shutdown, clock::JumpGuard};

use crate::{
    change::{Unknown, What},
    config::Config,
    state::{Lifetime, State},
    store,
    tracker::Tracker,
};

/// How much is done before anything else gets its turn.
#[derive(Clone, Copy)]
struct Batch {
    /// Releases that are marked together.
    silent: u32,
    /// Records that are removed together.
    expired: u32,
}

/// Each is one commit: others' changes wait no longer than that takes.
const COMMITS: Batch = Batch { silent: 256, expired: 500 };
/// Each is a request: so few that they are done within moments of the last look at the Lease.
const REQUESTS: Batch = Batch { silent: 16, expired: 32 };
/// After a start, reports that were waiting for us may still be on their way: the edge tries at least every 5 min.
const GRACE: Duration = Duration::from_secs(360);

/// Sweeps until shutdown.
pub(crate) struct Sweeper {
    tracker: Tracker,
    clock: Arc<dyn Clock>,
    guard: JumpGuard,
    grace_ends: Duration,
    silence: Duration,
    keep_open: Duration,
    keep_ended: Duration,
    interval: Duration,
    stopped: bool,
    batch: Batch,
    right: Right,
}

/// By what right this process sweeps.
#[derive(Clone)]
enum Right {
    /// No other one has these records.
    Alone,
    /// It holds the Lease.
    Held(Term),
}

impl Right {
    /// Whether it lasts, at this moment.
    fn lasts(&self) -> bool {
        match self {
            Self::Alone => true,
            Self::Held(term) => term.lasts(),
        }
    }
}

impl Sweeper {
    pub(crate) fn new(tracker: Tracker, config: &Config) -> Self {
        let clock = tracker.clock.clone();
        Self {
            guard: JumpGuard::new(clock.as_ref()),
            grace_ends: clock.monotonic() + config.silence.min(GRACE),
            tracker,
            clock,
            silence: config.silence,
            keep_open: config.keep_open,
            keep_ended: config.keep_ended,
            interval: config.sweep_interval,
            stopped: false,
            batch: COMMITS,
            right: Right::Alone,
        }
    }

    /// Sweeps, as the one process that there is.
    pub(crate) async fn run(mut self, shutdown: Shutdown) {
        while shutdown.or(tokio::time::sleep(self.interval)).await.is_some() {
            // Reads and writes that fail make the service not ready; the next sweep tries again.
            if let Err(error) = self.sweep().await {
                tracing::warn!(%error, "sweep failed");
            }
        }
    }

    /// Sweeps while this process holds the Lease. The reports of clusters are every replica's to show.
    pub(crate) async fn run_in_turn(mut self, mut leadership: Leadership, shutdown: Shutdown) {
        self.batch = REQUESTS;
        let mut held: Option<Term> = None;
        loop {
            let ended = async {
                match &mut held {
                    Some(term) => term.ended().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = shutdown.wait() => return,
                () = ended => {
                    held = None;
                    self.tracker.metrics.count_no_more();
                    continue;
                }
                () = tokio::time::sleep(self.interval) => {}
            }
            if held.is_none() {
                held = leadership.term().now_or_never().flatten();
            }
            let swept = match &held {
                Some(term) => {
                    self.right = Right::Held(term.clone());
                    self.sweep().await
                }
                None => self.show_reports().await,
            };
            match swept {
                Ok(()) => {}
                // Not ready, and said so there.
                Err(error) if held.is_none() => tracing::debug!(%error, "reports cannot be read"),
                Err(error) => tracing::warn!(%error, "sweep failed"),
            }
        }
    }

    /// Shows what the store knows of each cluster's last report, whoever heard it.
    async fn show_reports(&self) -> Result<(), store::Error> {
        let now = self.clock.wall();
        if let Some(before) = ago(now, self.keep_open) {
            self.tracker.store.forget_reports(before).await?;
        }
        self.tracker.metrics.restore_reports(&self.tracker.store.reports().await?, now);
        Ok(())
    }

    /// Finishes what a crash left undone.
    async fn finish(&self) -> Result<(), store::Error> {
        while self.right.lasts() {
            let finished = self.tracker.store.finish(self.clock.wall(), self.batch.silent).await?;
            if !finished.is_empty() {
                tracing::info!(
                    records = finished.len(),
                    "superseded after the fact: a replica had left it undone"
                );
            }
            if finished.len() < self.batch.silent as usize {
                break;
            }
        }
        Ok(())
    }

    async fn sweep(&mut self) -> Result<(), store::Error> {
        self.tracker.metrics.count(&self.tracker.store.tally().await?);
        if let Right::Held(_) = self.right {
            self.show_reports().await?;
            self.finish().await?;
        }
        let Some(now) = self.guard.trusted(self.clock.as_ref()) else {
            if !std::mem::replace(&mut self.stopped, true) {
                tracing::error!(
                    "the wall clock has jumped by more than an hour: nothing is swept until it is right again"
                );
            }
            return Ok(());
        };
        if std::mem::replace(&mut self.stopped, false) {
            tracing::info!("the wall clock is right again");
        }
        if self.clock.monotonic() >= self.grace_ends {
            self.mark_silent(now).await?;
        }
        self.expire(Lifetime::Open, ago(now, self.keep_open)).await?;
        self.expire(Lifetime::Ended, ago(now, self.keep_ended)).await?;
        if let Some(before) = ago(now, self.keep_open)
            && self.tracker.store.forget_reports(before).await? > 0
        {
            let reports = self.tracker.store.reports().await?;
            self.tracker.metrics.restore_reports(&reports, now);
        }
        Ok(())
    }

    async fn mark_silent(&self, now: Timestamp) -> Result<(), store::Error> {
        let Some(before) = ago(now, self.silence) else { return Ok(()) };
        loop {
            let silent = self.tracker.store.silent(before, self.batch.silent).await?;
            let full = silent.len() == self.batch.silent as usize;
            let mut marking = JoinSet::new();
            for release in silent {
                let (tracker, right) = (self.tracker.clone(), self.right.clone());
                marking.spawn(async move {
                    if right.lasts() { mark(tracker, release, before).await } else { Ok(false) }
                });
            }
            let mut marked = 0;
            for outcome in marking.join_all().await {
                marked += usize::from(outcome?);
            }
            // One that cannot be marked must not be tried for ever.
            if !full || marked == 0 {
                return Ok(());
            }
        }
    }

    async fn expire(&self, lifetime: Lifetime, before: Option<Timestamp>) -> Result<(), store::Error> {
        let Some(before) = before else { return Ok(()) };
        let mut total = 0;
        while self.right.lasts() {
            let removed = self.tracker.store.expire(lifetime, before, self.batch.expired).await?;
            total += removed;
            if removed < self.batch.expired {
                break;
            }
        }
        if total > 0 {
            tracing::info!(records = total, ?lifetime, "records expired");
            self.tracker.metrics.count(&self.tracker.store.tally().await?);
        }
        Ok(())
    }
}

/// Marks one release, unless a report came in between. Answers whether it did.
async fn mark(tracker: Tracker, release: Release, before: Timestamp) -> Result<bool, store::Error> {
    let changed =
        tracker.change(release.clone(), String::new(), What::Silent(before), Unknown::Leave).await?;
    let marked = changed.moves.iter().any(|step| step.to == State::Unreported);
    if marked {
        let stream = &release.stream;
        tracker.metrics.unreported(&stream.cluster);
        tracing::warn!(
            app_namespace = %stream.app_namespace,
            app = %stream.app,
            env = %stream.env,
            cluster = %stream.cluster,
            id = %release.id,
            quiet_before = %before,
            "release unreported: merged or begun, and then silence"
        );
    }
    Ok(marked)
}

/// The time `duration` before `now`; `None` when there was none.
fn ago(now: Timestamp, duration: Duration) -> Option<Timestamp> {
    now.checked_sub(jiff::SignedDuration::try_from(duration).ok()?).ok()
}
