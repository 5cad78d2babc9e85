//! The outbox as custom resources of a Kubernetes API.
//!
//! What must hold:
//! - an event is accepted when its object is created, and the name is its key: to create it twice is to create it once;
//! - `spec` never changes, and an object whose name is not the key of what it holds is delivered by nobody;
//! - only the holder of the Lease decides, and asks whether it still holds it before each write;
//! - every write of a status carries the version that it was decided on; a conflict is decided again;
//! - of a hand-over the candidate is written first, with all that the verdict rests on, and the overtaken events next,
//!   before DORA is called: whatever dies in between, the next holder finds one verdict and not two.

mod budgets;
mod condition;
mod edit;
mod feed;
mod object;
mod picture;
mod read;
mod resource;
mod sweep;
#[cfg(test)]
mod tests;
mod write;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::watch;
use transponder_core::{EventKey, Target, Timestamp};
use transponder_kubernetes::{Access, ApiError, Kind, Reach, change, creation, definition, lease::Term};
use transponder_runtime::Clock;
use transponder_store::{Health, StoreError};

use super::{
    Accepted, Backlog, Decided, Decision, Filter, Loaded, NewEvent, OpenEvent, Outbox, Replayed, Sequence,
    SweepBefore, View,
};
use crate::config::RetentionConfig;
use edit::Keep;
use object::{Outcome, Status};
use picture::Picture;
use resource::ReleaseOutcome;

pub(crate) use budgets::count_budgets;
pub(crate) use feed::feed;
pub use resource::crd;

/// How often a write is decided again because somebody else wrote in between.
const ATTEMPTS: u32 = 12;

/// The outbox in the API server.
pub(crate) struct KubernetesOutbox {
    access: Access,
    api: Api<ReleaseOutcome>,
    reach: Reach,
    keep: Keep,
    clock: Arc<dyn Clock>,
    tenure: Mutex<Option<Arc<Tenure>>>,
}

/// What there is of a name.
enum Found {
    Outcome(Box<Outcome>),
    Nothing,
    /// Somebody else's making, or of a newer version.
    Unreadable(String),
}

/// What the holder of the Lease has, for as long as it holds it.
struct Tenure {
    term: Term,
    picture: Mutex<Picture>,
    /// The version of the last list: what changes after it is told by a watch.
    listed: watch::Sender<Option<String>>,
    sweep: tokio::sync::Mutex<sweep::Sweep>,
}

impl Tenure {
    fn picture(&self) -> MutexGuard<'_, Picture> {
        self.picture.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KubernetesOutbox {
    pub(crate) fn new(access: &Access, retention: &RetentionConfig, clock: Arc<dyn Clock>) -> Self {
        Self {
            access: access.clone(),
            api: access.api(),
            reach: Reach::new(),
            keep: Keep { delivered: retention.delivered, dead: retention.dead },
            clock,
            tenure: Mutex::default(),
        }
    }

    /// How the store is found to be.
    pub(crate) fn reach(&self) -> Reach {
        self.reach.clone()
    }

    /// From now on this process decides, until the term ends.
    pub(crate) fn begin(&self, term: Term) {
        let tenure = Tenure {
            term,
            picture: Mutex::default(),
            listed: watch::Sender::new(None),
            sweep: tokio::sync::Mutex::default(),
        };
        *self.slot() = Some(Arc::new(tenure));
    }

    /// It decides no more.
    pub(crate) fn end(&self) {
        *self.slot() = None;
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<Tenure>>> {
        self.tenure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What only the holder of the Lease has.
    fn tenure(&self) -> Result<Arc<Tenure>, StoreError> {
        self.slot().clone().filter(|tenure| tenure.term.lasts()).ok_or(StoreError::Closed)
    }

    /// Asks for something, and takes note of how that ended.
    async fn ask<T>(
        &self,
        action: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, ApiError> {
        let answer = self.access.call(action, request).await;
        self.reach.note(&answer);
        answer
    }

    /// Reads one object.
    async fn find(&self, key: EventKey) -> Result<Found, StoreError> {
        let name = key.to_string();
        match self.ask("read an outcome", self.api.get(&name)).await {
            Ok(object) => Ok(match Outcome::read(object) {
                Ok(outcome) => Found::Outcome(Box::new(outcome)),
                Err(problem) => Found::Unreadable(problem),
            }),
            Err(error) if error.kind == Kind::NotFound => Ok(Found::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads one object; `None` when there is none. That it cannot be read is a failure.
    async fn get(&self, key: EventKey) -> Result<Option<Outcome>, StoreError> {
        match self.find(key).await? {
            Found::Outcome(outcome) => Ok(Some(*outcome)),
            Found::Nothing => Ok(None),
            Found::Unreadable(problem) => Err(StoreError::Unavailable { action: "read an outcome", problem }),
        }
    }

    /// Writes a status that was decided on this version. Answers the new one.
    async fn patch(&self, key: EventKey, version: u64, status: &Status) -> Result<u64, ApiError> {
        let later = status.later.iter().map(|(number, finished_at, received_at)| {
            json!({ "number": number, "finishedAt": finished_at, "receivedAt": received_at })
        });
        let patch = json!({
            "metadata": { "resourceVersion": version.to_string() },
            "status": {
                "state": status.ended,
                "forgetAfter": status.forget_after,
                "conditions": status.conditions(),
                "observations": (!status.later.is_empty()).then(|| later.collect::<Vec<_>>()),
                "observed": (status.observed > 1).then_some(status.observed),
                "tracked": (status.tracked > 0).then_some(status.tracked),
                "settled": (status.settled > 0).then_some(status.settled),
                "replayed": status.replayed,
            },
        });
        let name = key.to_string();
        let (parameters, patch) = (change(), Patch::Merge(&patch));
        let write = self.api.patch_subresource("status", &name, &parameters, &patch);
        let written = self.ask("note what became of an outcome", write).await?;
        let version = written.metadata.resource_version.and_then(|version| version.parse().ok());
        version.ok_or_else(|| ApiError::unreadable("note what became of an outcome", &name, "no version"))
    }

    /// Tries whether events can be stored and their status noted, and leaves nothing behind.
    pub(crate) async fn probe(&self) -> Result<(), ApiError> {
        let dry = PostParams { dry_run: true, ..creation() };
        match self.access.call("store an event", self.api.create(&dry, &object::probe())).await {
            // One of that name that somebody has made keeps no other from being stored.
            Err(error) if error.kind == Kind::Exists => {}
            ended => drop(ended?),
        }
        definition::check(&self.access, &crd()).await?;
        let nothing = Patch::Merge(json!({ "status": {} }));
        let name = EventKey::from_bytes([0; 20]).to_string();
        let (dry, subresource) = (PatchParams { dry_run: true, ..change() }, "status");
        let patch = self.api.patch_subresource(subresource, &name, &dry, &nothing);
        match self.access.call("note what became of an event", patch).await {
            Ok(_) => Ok(()),
            // That there is no such event is what is expected.
            Err(error) if error.kind == Kind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Outbox for KubernetesOutbox {
    fn accept(&self, event: Arc<NewEvent>) -> BoxFuture<'_, Result<Accepted, StoreError>> {
        Box::pin(async move { self.create(&event).await })
    }

    fn knows(&self, key: EventKey) -> BoxFuture<'_, Result<bool, StoreError>> {
        Box::pin(async move { Ok(self.get(key).await?.is_some()) })
    }

    fn backlog(&self) -> BoxFuture<'_, Result<Backlog, StoreError>> {
        Box::pin(self.read_backlog())
    }

    fn load(&self, sequence: Sequence) -> BoxFuture<'_, Result<Option<Loaded>, StoreError>> {
        Box::pin(async move {
            let Some(key) = self.tenure()?.picture().key(sequence) else { return Ok(None) };
            Ok(self.get(key).await?.map(|outcome| outcome.loaded()))
        })
    }

    fn open(&self, sequence: Sequence) -> BoxFuture<'_, Result<Option<OpenEvent>, StoreError>> {
        Box::pin(async move {
            let tenure = self.tenure()?;
            let Some(key) = tenure.picture().key(sequence) else { return Ok(None) };
            let Some(outcome) = self.get(key).await? else { return Ok(None) };
            let open = tenure.picture().take_up(&outcome);
            Ok(open)
        })
    }

    fn batch(&self) -> usize {
        // What is decided of one event is written as one: the more that is known of it by then, the fewer requests.
        1024
    }

    fn linger(&self) -> Duration {
        // About what broker and tracking need between them: their ends, the anchor and the verdict make one write.
        Duration::from_millis(20)
    }

    fn decide(&self, decisions: Vec<Decision>, at: Timestamp) -> BoxFuture<'_, Result<Decided, StoreError>> {
        Box::pin(self.write_decisions(decisions, at))
    }

    fn replay(
        &self,
        key: EventKey,
        target: Option<Target>,
        at: Timestamp,
    ) -> BoxFuture<'_, Result<Option<Replayed>, StoreError>> {
        Box::pin(self.ask_replay(key, target, at))
    }

    fn view(&self, key: EventKey) -> BoxFuture<'_, Result<Option<View>, StoreError>> {
        Box::pin(async move { Ok(self.get(key).await?.map(Outcome::view)) })
    }

    fn list(&self, filter: Filter) -> BoxFuture<'_, Result<Vec<View>, StoreError>> {
        Box::pin(self.read_list(filter))
    }

    fn sweep(&self, before: SweepBefore) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(self.sweep_days(before.now))
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.reach.health()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
