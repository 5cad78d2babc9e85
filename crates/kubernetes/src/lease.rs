//! One of several replicas holds a Lease, and with it the right to do what only one may do.
//!
//! The rules, which no crate at hand keeps (those that there are compare the Lease with the wall clock, or take it with a
//! patch that carries no version):
//! - a Lease of somebody else is expired when it has not *changed* for its duration by the local clock that never jumps,
//!   counted from when this process saw it so; a process that has just come waits that long;
//! - it is taken, renewed and given back by a replacement that carries the version that was seen: of two, one wins;
//! - the holder counts from *before* it sent its last renewal that succeeded, less a margin, so that it has stopped
//!   before anybody else begins, whatever became of its process meanwhile.

use std::time::{Duration, Instant};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::Api;
use tokio::sync::{mpsc, watch};
use transponder_runtime::{Shutdown, admin::Part, outage::Outage};

use crate::{
    Access, ApiError, Kind, creation,
    watch::{News, Selection, follow},
};

/// How long a Lease lasts that nobody renews.
const DURATION: Duration = Duration::from_secs(12);
/// How often it is renewed.
const RENEW: Duration = Duration::from_secs(4);
/// Pause after a renewal that failed, and longest wait for its answer.
const AGAIN: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(3);
/// How long before its end the holder stops: what it has sent by then arrives before another begins.
const MARGIN: Duration = Duration::from_secs(2);
/// Longest duration that a Lease of somebody else is believed.
const LONGEST: Duration = Duration::from_secs(60);

/// Whether this process holds the Lease. Clones share it.
#[derive(Clone)]
pub struct Leadership(watch::Receiver<Option<Held>>);

/// One time of holding the Lease without a break in which somebody else could have held it.
#[derive(Clone)]
pub struct Term {
    number: u64,
    held: watch::Receiver<Option<Held>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Held {
    term: u64,
    until: Instant,
}

impl Leadership {
    /// Waits until it is held. `None` when this process does not stand for election any more.
    pub async fn term(&mut self) -> Option<Term> {
        let held = self.0.wait_for(|held| held.is_some_and(|held| Instant::now() < held.until)).await.ok()?;
        let number = held.as_ref()?.term;
        drop(held);
        Some(Term { number, held: self.0.clone() })
    }

    /// Waits until this process stands for election no more: what it held is given back.
    pub async fn over(&mut self) {
        while self.0.changed().await.is_ok() {}
    }
}

impl Term {
    /// Whether it still lasts, at this moment. To be asked before everything that only the holder may do.
    #[must_use]
    pub fn lasts(&self) -> bool {
        left(*self.held.borrow(), self.number).is_some()
    }

    /// Waits for its end.
    pub async fn ended(&mut self) {
        loop {
            let Some(left) = left(*self.held.borrow_and_update(), self.number) else { return };
            tokio::select! {
                changed = self.held.changed() => if changed.is_err() {
                    // Nobody renews it any more.
                    return tokio::time::sleep(left).await;
                },
                () = tokio::time::sleep(left) => {}
            }
        }
    }
}

fn left(held: Option<Held>, term: u64) -> Option<Duration> {
    let held = held.filter(|held| held.term == term)?;
    held.until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
}

/// Stands for election until shutdown, and gives the Lease back then. The `part` is ready once the Lease could be read:
/// whoever may not stand for election is not to begin to work. Later troubles with it are the log's.
#[must_use]
pub fn stand(access: &Access, name: &'static str, part: Part, shutdown: Shutdown) -> Leadership {
    let (held, leadership) = watch::channel(None);
    let candidate = Candidate {
        leases: access.api(),
        access: access.clone(),
        name,
        identity: identity(),
        held,
        term: 0,
        seen: None,
        outage: Outage::new("renewing the Lease"),
    };
    tokio::spawn(candidate.run(part, shutdown));
    Leadership(leadership)
}

/// A Lease as it was seen last, and since when it has been so.
struct Seen {
    lease: Option<Lease>,
    at: Instant,
}

struct Candidate {
    leases: Api<Lease>,
    access: Access,
    name: &'static str,
    identity: String,
    held: watch::Sender<Option<Held>>,
    /// Of the last time that it was taken.
    term: u64,
    seen: Option<Seen>,
    outage: Outage,
}

impl Candidate {
    async fn run(mut self, part: Part, shutdown: Shutdown) {
        let (told, mut news) = mpsc::channel(16);
        let (leases, selection) = (self.leases.clone(), Selection::named("watching the Lease", self.name));
        let following = shutdown.clone();
        let mut read = false;
        tokio::spawn(follow(leases, selection, following, async move |news| {
            let lease = match news {
                News::All(mut all) => all.pop(),
                News::Changed(lease) => Some(lease),
                News::Gone(_) => None,
                News::Lost(_) if read => return,
                News::Lost(error) => return part.not_ready(error.to_string()),
            };
            if !std::mem::replace(&mut read, true) {
                part.ready();
            }
            let _ = told.send(lease).await;
        }));
        loop {
            let wait = self.next();
            tokio::select! {
                () = shutdown.wait() => break,
                lease = news.recv() => match lease {
                    Some(lease) => self.see(lease),
                    None => break,
                },
                () = tokio::time::sleep(wait) => self.act().await,
            }
        }
        self.give_back().await;
    }

    /// How long there is nothing to do.
    fn next(&self) -> Duration {
        let now = Instant::now();
        match (&self.seen, *self.held.borrow()) {
            // Nothing is known: what the watch says first is waited for.
            (None, _) => Duration::MAX,
            (Some(_), Some(held)) => {
                let sent = held.until.checked_sub(DURATION - MARGIN).unwrap_or(now);
                (sent + RENEW).saturating_duration_since(now)
            }
            (Some(seen), None) => seen.expires().saturating_duration_since(now),
        }
    }

    /// Takes note of a Lease; the same one again is no news.
    fn see(&mut self, lease: Option<Lease>) {
        let version =
            |lease: &Option<Lease>| lease.as_ref().and_then(|l| l.metadata.resource_version.clone());
        if self.seen.as_ref().is_some_and(|seen| version(&seen.lease) == version(&lease)) {
            return;
        }
        if self.held.borrow().is_some() && holder(lease.as_ref()) != Some(&self.identity) {
            self.lose("somebody else holds it");
        }
        self.seen = Some(Seen { lease, at: Instant::now() });
    }

    fn lose(&self, why: &str) {
        if self.held.send_replace(None).is_some() {
            tracing::warn!(lease = self.name, identity = self.identity, why, "Lease lost");
        }
    }

    /// Takes the Lease, or renews it.
    async fn act(&mut self) {
        let Some(seen) = &self.seen else { return };
        let renewed = self.held.borrow().is_some();
        let wanted = self.wanted(seen.lease.as_ref(), renewed);
        let sent = Instant::now();
        match self.write(&wanted).await {
            Ok(lease) => {
                self.outage.worked();
                self.seen = Some(Seen { lease: Some(lease), at: sent });
                self.term += u64::from(!renewed);
                self.held.send_replace(Some(Held { term: self.term, until: sent + DURATION - MARGIN }));
                if !renewed {
                    tracing::info!(lease = self.name, identity = self.identity, "Lease taken");
                }
            }
            // That a Lease cannot be made for want of its namespace is trouble like any other.
            Err(error)
                if matches!(error.kind, Kind::Conflict | Kind::Exists)
                    || error.kind == Kind::NotFound && wanted.metadata.resource_version.is_some() =>
            {
                self.read().await;
            }
            Err(error) => {
                self.outage.failed(&error);
                tokio::time::sleep(AGAIN).await;
                let held = *self.held.borrow();
                if held.is_some_and(|held| Instant::now() >= held.until) {
                    self.lose("it could not be renewed in time");
                }
            }
        }
    }

    /// Somebody else was quicker, or a write of our own arrived whose answer did not: the Lease itself tells.
    async fn read(&mut self) {
        let get = tokio::time::timeout(PATIENCE, self.leases.get_opt(self.name));
        match get.await {
            Ok(Ok(lease)) => self.see(lease),
            _ => tokio::time::sleep(AGAIN).await,
        }
    }

    /// The Lease as this process wants it to be.
    fn wanted(&self, before: Option<&Lease>, renewed: bool) -> Lease {
        let now = MicroTime(k8s_openapi::jiff::Timestamp::now());
        let spec = before.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let transitions = spec.lease_transitions.unwrap_or(0);
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name.to_owned()),
                resource_version: before.and_then(|lease| lease.metadata.resource_version.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
                acquire_time: if renewed { spec.acquire_time } else { Some(now.clone()) },
                renew_time: Some(now),
                lease_transitions: Some(if renewed || before.is_none() {
                    transitions
                } else {
                    transitions + 1
                }),
                ..LeaseSpec::default()
            }),
        }
    }

    async fn write(&self, wanted: &Lease) -> Result<Lease, ApiError> {
        let parameters = creation();
        let write = async {
            match wanted.metadata.resource_version {
                Some(_) => self.leases.replace(self.name, &parameters, wanted).await,
                None => self.leases.create(&parameters, wanted).await,
            }
        };
        match tokio::time::timeout(PATIENCE, self.access.call("write the Lease", write)).await {
            Ok(written) => written,
            Err(_) => Err(ApiError::timeout("write the Lease", PATIENCE)),
        }
    }

    /// The next holder need not wait.
    async fn give_back(&mut self) {
        if self.held.send_replace(None).is_none() {
            return;
        }
        let Some(Seen { lease: Some(lease), .. }) = &self.seen else { return };
        let mut wanted = self.wanted(Some(lease), true);
        if let Some(spec) = &mut wanted.spec {
            spec.holder_identity = None;
        }
        match self.write(&wanted).await {
            Ok(_) => tracing::info!(lease = self.name, identity = self.identity, "Lease given back"),
            Err(error) => tracing::warn!(%error, lease = self.name, "Lease not given back: it expires"),
        }
    }
}

impl Seen {
    /// When it may be taken.
    fn expires(&self) -> Instant {
        let Some(spec) = self.lease.as_ref().and_then(|lease| lease.spec.as_ref()) else { return self.at };
        if spec.holder_identity.as_deref().is_none_or(str::is_empty) {
            return self.at;
        }
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        self.at + seconds.map_or(DURATION, Duration::from_secs).min(LONGEST)
    }
}

fn holder(lease: Option<&Lease>) -> Option<&String> {
    lease?.spec.as_ref()?.holder_identity.as_ref()
}

/// A name for this process that no other one has, its next life included.
fn identity() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}_{:08x}", fastrand::u32(..))
}
