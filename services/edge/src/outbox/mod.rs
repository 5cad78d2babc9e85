//! The outbox: every accepted event, what was observed of it, and how far it has come with each target.

mod kubernetes;
mod sqlite;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use transponder_core::{
    ClusterName, EventKey, Phase, Release, ReleaseKey, Report, StreamKey, Target, TargetState, Timestamp,
    settle::{Observation, Verdict},
};
use transponder_store::{Health, StoreError};

pub use kubernetes::crd;
pub(crate) use kubernetes::{KubernetesOutbox, count_budgets, feed};
pub(crate) use sqlite::SqliteOutbox;

/// Where the store keeps an event; grows with each one.
pub(crate) type Sequence = i64;

/// Where an event belongs: its release, and the release's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub release: ReleaseKey,
    pub stream: StreamKey,
}

impl From<&Release> for Place {
    fn from(release: &Release) -> Self {
        Self { release: release.key(), stream: release.stream.key() }
    }
}

/// An event to be stored.
#[derive(Debug, Clone)]
pub(crate) struct NewEvent {
    pub key: EventKey,
    pub cluster: ClusterName,
    pub source: String,
    pub id: String,
    pub kind: String,
    pub content_type: String,
    pub body: Bytes,
    pub digest: [u8; 32],
    pub received_at: Timestamp,
    pub report: Option<Report>,
    /// Of an event that reports a release.
    pub place: Option<Place>,
    pub targets: Vec<Target>,
}

impl NewEvent {
    pub(crate) fn phase(&self) -> Option<Phase> {
        self.report.as_ref().map(|report| report.phase)
    }
}

/// What became of an event that was offered to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// It is stored now.
    New { sequence: Sequence, observation: Option<i64> },
    /// It was stored before. `observation` is the number of a finish time that was not known of it.
    Known { sequence: Sequence, observation: Option<i64>, identical: bool },
    /// The same source and id were used for something else.
    Conflict,
    /// It takes so many bytes here, which is more than the limit.
    TooLarge { bytes: u64, limit: u64 },
    /// The store takes no such event, and will not the next time.
    Unfit,
}

/// An observation as the outbox keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredObservation {
    pub number: i64,
    pub sequence: Sequence,
    pub place: Place,
    pub observation: Observation,
}

/// An event that a target still waits for.
#[derive(Debug, Clone)]
pub(crate) struct OpenEvent {
    pub sequence: Sequence,
    pub key: EventKey,
    pub cluster: ClusterName,
    pub place: Option<Place>,
    pub received_at: Timestamp,
    pub bytes: u64,
    pub targets: Vec<(Target, TargetStatus)>,
    /// What tracking has not been told, oldest first.
    pub untracked: Vec<StoredObservation>,
    /// The whole event, where reading it came for nothing.
    pub event: Option<Arc<NewEvent>>,
}

/// How far an event has come with a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TargetStatus {
    pub state: TargetState,
    pub attempts: u32,
    /// When it changed last.
    pub updated_at: Timestamp,
    /// Of one that is retried.
    pub next_at: Option<Timestamp>,
    pub first_failed_at: Option<Timestamp>,
    /// A fixed code for the receipt; empty when nothing went wrong.
    pub code: String,
    /// The last error in the target's own words, for the operator alone.
    pub error: String,
    pub detail: Detail,
}

impl TargetStatus {
    pub(crate) fn new(state: TargetState, at: Timestamp) -> Self {
        Self {
            state,
            attempts: 0,
            updated_at: at,
            next_at: None,
            first_failed_at: None,
            code: String::new(),
            error: String::new(),
            detail: Detail::None,
        }
    }
}

/// What is frozen before the first send, so that a retry sends the same.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Detail {
    /// Nothing.
    #[default]
    None,
    /// The broker's own id of the event.
    BrokerEventId(String),
    /// The verdict that DORA is given, and its place in the order of hand-overs.
    Verdict { order: i64, verdict: Verdict },
    /// From when the span starts.
    Anchor(Anchor),
}

/// From when the span of an outcome starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Anchor {
    pub kind: AnchorKind,
    pub pr_created_at: Option<Timestamp>,
    pub pr_url: String,
}

/// Which time that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AnchorKind {
    PrCreated,
    FlowStart,
    Finished,
}

/// An event with everything that a call to a target needs.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    pub key: EventKey,
    pub content_type: String,
    pub body: Bytes,
    pub received_at: Timestamp,
    pub report: Option<Report>,
    pub id: String,
    pub source: String,
}

/// A change of an event's status with one target.
#[derive(Debug, Clone)]
pub(crate) struct StatusChange {
    pub sequence: Sequence,
    pub target: Target,
    pub status: TargetStatus,
    /// Observations that tracking has been told.
    pub tracked: Vec<i64>,
}

/// Something that delivery has decided and the outbox is to keep.
#[derive(Debug, Clone)]
pub(crate) enum Decision {
    /// How far an event has come.
    Status(Box<StatusChange>),
    /// A verdict is handed over to DORA, and takes its place in the order.
    HandOver(HandOver),
    /// An event is overtaken by another observation of its release.
    Replace(EventKey),
}

/// What became of decisions, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Decided {
    pub handed_over: Vec<HandedOver>,
    /// The overtaken events: none of them waits for a verdict any more.
    pub replaced: Vec<Sequence>,
}

/// A verdict that is handed over to DORA.
#[derive(Debug, Clone)]
pub(crate) struct HandOver {
    pub verdict: Verdict,
    /// The events that it rests on, and the last observation of them.
    pub events: Vec<Sequence>,
    pub up_to: i64,
}

/// A verdict that has its place in the order of hand-overs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HandedOver {
    pub sequence: Sequence,
    pub order: i64,
    pub verdict: Verdict,
}

/// The dead targets of an event that are taken up again.
pub(crate) type Replayed = (Sequence, Vec<Target>);

/// What a reader of the outbox is shown of an event.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub sequence: Sequence,
    pub key: EventKey,
    pub cluster: ClusterName,
    pub kind: String,
    pub id: String,
    pub source: String,
    pub report: Option<Report>,
    pub received_at: Timestamp,
    pub bytes: u64,
    pub observations: u32,
    pub targets: Vec<(Target, TargetStatus)>,
}

/// Which events to list, newest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    pub cluster: Option<ClusterName>,
    pub state: Option<TargetState>,
    pub limit: usize,
}

/// Everything that has to be taken up again after a start or a failure of the store.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    pub events: Vec<OpenEvent>,
    /// Terminal observations of open verdicts, and the others of the same releases, oldest first.
    pub unsettled: Vec<StoredObservation>,
}

/// Where the outbox is kept. Every answer that promises something is given after it is durable.
pub(crate) trait Outbox: Send + Sync + 'static {
    /// Stores an event, or an observation of a known one.
    fn accept(&self, event: Arc<NewEvent>) -> BoxFuture<'_, Result<Accepted, StoreError>>;
    /// Whether an event is stored.
    fn knows(&self, key: EventKey) -> BoxFuture<'_, Result<bool, StoreError>>;
    /// Everything that is not final.
    fn backlog(&self) -> BoxFuture<'_, Result<Backlog, StoreError>>;
    /// One event for a call; `None` when it is forgotten.
    fn load(&self, sequence: Sequence) -> BoxFuture<'_, Result<Option<Loaded>, StoreError>>;
    /// One event as the backlog would hold it.
    fn open(&self, sequence: Sequence) -> BoxFuture<'_, Result<Option<OpenEvent>, StoreError>>;
    /// Most decisions that are kept in one go.
    fn batch(&self) -> usize {
        256
    }
    /// How long it is worth waiting for more to keep with what is there.
    fn linger(&self) -> Duration {
        Duration::ZERO
    }
    /// Keeps decisions in this order.
    fn decide(&self, decisions: Vec<Decision>, at: Timestamp) -> BoxFuture<'_, Result<Decided, StoreError>>;
    /// Takes up dead targets of an event again, one or all. Answers which.
    fn replay(
        &self,
        key: EventKey,
        target: Option<Target>,
        at: Timestamp,
    ) -> BoxFuture<'_, Result<Option<Replayed>, StoreError>>;
    /// One event with its status.
    fn view(&self, key: EventKey) -> BoxFuture<'_, Result<Option<View>, StoreError>>;
    /// Many, newest first.
    fn list(&self, filter: Filter) -> BoxFuture<'_, Result<Vec<View>, StoreError>>;
    /// Forgets a bounded number of what is older than the given times. Answers how many rows went.
    fn sweep(&self, before: SweepBefore) -> BoxFuture<'_, Result<usize, StoreError>>;
    /// How the store is.
    fn health(&self) -> watch::Receiver<Health>;
    /// Leaves the store as somebody who copies it expects it; nothing is written after that.
    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>>;
}

/// What is old enough to be forgotten.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SweepBefore {
    pub now: Timestamp,
    pub delivered: Timestamp,
    pub bodies: Timestamp,
    pub dead: Timestamp,
}
