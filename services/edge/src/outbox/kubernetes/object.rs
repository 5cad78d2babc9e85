//! Between the custom resource and what the outbox speaks of.

use std::sync::Arc;

use bytes::Bytes;
use kube::{ResourceExt as _, api::ObjectMeta};
use transponder_core::{
    ClusterName, Event, EventKey, Report, Target, TargetState, Timestamp, settle::Observation,
};

use super::{
    super::{Loaded, NewEvent, OpenEvent, Place, Sequence, StoredObservation, TargetStatus, View},
    condition::{self, Standing},
    edit::Facts,
    resource::{Condition, OutcomeSpec, OutcomeStatus, ReleaseOutcome},
};

/// Schema of the objects that this version writes.
const SCHEMA: u32 = 1;
/// Label of the release that an event belongs to.
pub(super) const RELEASE: &str = "transponder.dev/release";
/// Label of the cluster that sent it.
pub(super) const CLUSTER: &str = "transponder.dev/cluster";
/// Label of the length of its body, for whoever counts what is undelivered without reading it.
pub(super) const BYTES: &str = "transponder.dev/bytes";
/// Annotation that asks for dead targets to be taken up again: any text whose last word is a target or `all`.
pub(super) const REPLAY: &str = "transponder.dev/replay";

/// Longest text of it: it is kept in the status.
const LONGEST_REPLAY: usize = 256;

/// What such an annotation asks for: one dead target, or all of them, which is `None` within. Nothing when it says neither.
pub(super) fn replay_of(asked: &str) -> Option<Option<Target>> {
    match asked.split_whitespace().last().filter(|_| asked.len() <= LONGEST_REPLAY)? {
        "all" => Some(None),
        target => Target::parse(target).map(Some),
    }
}

/// The object of a new event. Its name is its key, so that to create it twice is to create it once.
pub(super) fn object(event: &NewEvent) -> ReleaseOutcome {
    let stream = event.report.as_ref().map(|report| &report.release.stream);
    let mut labels = vec![
        (CLUSTER.to_owned(), event.cluster.to_string()),
        (BYTES.to_owned(), event.body.len().to_string()),
    ];
    labels.extend(event.place.map(|place| (RELEASE.to_owned(), place.release.to_string())));
    let chain_id = event.report.as_ref().map(|report| report.chain_id.clone());
    ReleaseOutcome {
        metadata: ObjectMeta {
            name: Some(event.key.to_string()),
            labels: Some(labels.into_iter().collect()),
            ..ObjectMeta::default()
        },
        spec: OutcomeSpec {
            cluster: event.cluster.to_string(),
            source: event.source.clone(),
            id: event.id.clone(),
            kind: event.kind.clone(),
            content_type: event.content_type.clone(),
            received_at: event.received_at.to_string(),
            targets: event.targets.iter().map(ToString::to_string).collect(),
            app_namespace: stream.map(|stream| stream.app_namespace.to_string()),
            app: stream.map(|stream| stream.app.to_string()),
            env: stream.map(|stream| stream.env.to_string()),
            phase: event.phase().map(|phase| phase.as_str().to_owned()),
            chain_id: chain_id.filter(|id| !id.is_empty()),
            schema: 0,
            // An event is UTF-8 (RFC 7493), which text in JSON keeps to the byte.
            body: String::from_utf8_lossy(&event.body).into_owned(),
        },
        status: None,
    }
}

/// An event that nobody sent, to try whether one can be stored.
pub(super) fn probe() -> ReleaseOutcome {
    let text = || "probe".to_owned();
    ReleaseOutcome {
        metadata: ObjectMeta { name: Some("0".repeat(40)), ..ObjectMeta::default() },
        spec: OutcomeSpec {
            cluster: text(),
            source: text(),
            id: text(),
            kind: text(),
            content_type: text(),
            received_at: Timestamp::UNIX_EPOCH.to_string(),
            targets: vec![text()],
            app_namespace: Some(text()),
            app: Some(text()),
            env: Some(text()),
            phase: Some(text()),
            chain_id: Some(text()),
            schema: SCHEMA,
            body: text(),
        },
        status: None,
    }
}

/// An object that was read and found to be what its name says.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub key: EventKey,
    /// Another one has another, whatever its name.
    pub uid: String,
    pub version: u64,
    pub cluster: ClusterName,
    pub event: Event,
    pub place: Option<Place>,
    pub content_type: String,
    pub received_at: Timestamp,
    pub bytes: u64,
    pub body: Bytes,
    pub targets: Vec<Target>,
    pub status: Status,
    /// What an annotation asks to be taken up again.
    pub replay: Option<String>,
}

/// What has become of an event.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Status {
    pub ended: Option<super::resource::Ended>,
    pub forget_after: Option<String>,
    /// Of each target that is not as it began.
    pub targets: Vec<Standing>,
    /// After the first, by number.
    pub later: Vec<(u32, Timestamp, Timestamp)>,
    pub observed: u32,
    pub tracked: u32,
    pub settled: u32,
    /// The last annotation that asked for a replay and was followed.
    pub replayed: Option<String>,
}

impl Outcome {
    /// Reads an object. Its name must be the key that its content has: nobody is delivered in another's name.
    pub(super) fn read(object: ReleaseOutcome) -> Result<Self, String> {
        let name = object.name_any();
        let at = |problem: String| format!("releaseoutcome {name}: {problem}");
        let spec = object.spec;
        if spec.schema > SCHEMA {
            return Err(at(format!("has schema {}, this version knows {SCHEMA}", spec.schema)));
        }
        let version = object.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
        let version = version.ok_or_else(|| at("has no version".into()))?;
        let cluster = ClusterName::new(&spec.cluster).map_err(|e| at(format!("spec.cluster {e}")))?;
        let event = Event::parse(spec.body.as_bytes()).map_err(|e| at(format!("spec.body: {e}")))?;
        let key = event.key(&cluster);
        if key.to_string() != name {
            return Err(at(format!("holds the event {key}: it is delivered in nobody's name")));
        }
        if (&event.source, &event.id, &event.kind) != (&spec.source, &spec.id, &spec.kind) {
            return Err(at("spec and spec.body speak of different events".into()));
        }
        let of_other = |report: &Report| report.release.stream.cluster != cluster;
        if event.report.as_ref().is_some_and(of_other) {
            return Err(at("the event names another cluster".into()));
        }
        let targets = spec.targets.iter().map(|target| word(target, Target::parse)).collect::<Result<_, _>>();
        let status = Status::read(object.status.unwrap_or_default(), event.report.as_ref(), key);
        Ok(Self {
            key,
            version,
            uid: object.metadata.uid.unwrap_or_default(),
            replay: object.metadata.annotations.and_then(|mut all| all.remove(REPLAY)),
            place: event.report.as_ref().map(|report| Place::from(&report.release)),
            received_at: time(&spec.received_at).map_err(|e| at(format!("spec.receivedAt: {e}")))?,
            targets: targets.map_err(|e| at(format!("spec.targets: {e}")))?,
            status: status.map_err(|e| at(format!("status.{e}")))?,
            content_type: spec.content_type,
            bytes: spec.body.len() as u64,
            body: Bytes::from(spec.body),
            cluster,
            event,
        })
    }

    /// Without its bytes, to be kept among many.
    pub(super) fn slim(mut self) -> Self {
        self.body = Bytes::new();
        self
    }

    /// The event as it was accepted.
    fn event(&self) -> NewEvent {
        NewEvent {
            key: self.key,
            cluster: self.cluster.clone(),
            source: self.event.source.clone(),
            id: self.event.id.clone(),
            kind: self.event.kind.clone(),
            content_type: self.content_type.clone(),
            body: self.body.clone(),
            digest: [0; 32],
            received_at: self.received_at,
            report: self.event.report.clone(),
            place: self.place,
            targets: self.targets.clone(),
        }
    }

    /// How far it is with each target, in their order.
    pub(super) fn statuses(&self) -> Vec<(Target, TargetStatus)> {
        statuses(&self.targets, &self.status, self.received_at)
    }

    /// All observations, by number.
    pub(super) fn observations(&self) -> Vec<(u32, Observation)> {
        let Some(report) = &self.event.report else { return Vec::new() };
        let seen = |finished_at, received_at| Observation {
            event: self.key,
            phase: report.phase,
            finished_at,
            received_at,
        };
        let later = self.status.later.iter().map(|(number, finished, at)| (*number, seen(*finished, *at)));
        std::iter::once((1, seen(report.finished_at, self.received_at))).chain(later).collect()
    }

    pub(super) fn facts(&self) -> Facts {
        Facts {
            targets: self.targets.clone(),
            received_at: self.received_at,
            finished_at: self.event.report.as_ref().map(|report| report.finished_at),
        }
    }

    /// The annotation that asks for something to be taken up again, if that was not followed yet.
    pub(super) fn asks_replay(&self) -> Option<&str> {
        self.replay.as_deref().filter(|asked| self.status.replayed.as_deref() != Some(*asked))
    }

    pub(super) fn loaded(&self) -> Loaded {
        Loaded {
            key: self.key,
            content_type: self.content_type.clone(),
            body: self.body.clone(),
            received_at: self.received_at,
            report: self.event.report.clone(),
            id: self.event.id.clone(),
            source: self.event.source.clone(),
        }
    }

    pub(super) fn open_event(&self, sequence: Sequence, untracked: Vec<StoredObservation>) -> OpenEvent {
        OpenEvent {
            sequence,
            key: self.key,
            cluster: self.cluster.clone(),
            place: self.place,
            received_at: self.received_at,
            bytes: self.bytes,
            targets: self.statuses(),
            untracked,
            event: (!self.body.is_empty()).then(|| Arc::new(self.event())),
        }
    }

    pub(super) fn view(self) -> View {
        View {
            sequence: 0,
            key: self.key,
            received_at: self.received_at,
            bytes: self.bytes,
            observations: self.status.observed,
            targets: self.statuses(),
            cluster: self.cluster,
            kind: self.event.kind,
            id: self.event.id,
            source: self.event.source,
            report: self.event.report,
        }
    }
}

/// How far an event is with each of its targets, those included that are as they began.
pub(super) fn statuses(
    targets: &[Target],
    status: &Status,
    received_at: Timestamp,
) -> Vec<(Target, TargetStatus)> {
    let of = |target: Target| {
        status.of(target).cloned().unwrap_or_else(|| TargetStatus::new(target.begins(), received_at))
    };
    let mut all: Vec<_> = targets.iter().map(|target| (*target, of(*target))).collect();
    all.sort_by_key(|(target, _)| *target);
    all
}

impl Status {
    pub(super) fn of(&self, target: Target) -> Option<&TargetStatus> {
        self.targets.iter().find(|one| one.target == target).map(|one| &one.status)
    }

    /// Reads the status of an event that reports this, if it reports anything.
    pub(super) fn read(
        status: OutcomeStatus,
        report: Option<&Report>,
        key: EventKey,
    ) -> Result<Self, String> {
        let targets = status.conditions.into_iter().map(|one| condition::read(one, report, key));
        let later = status
            .observations
            .iter()
            .map(|seen| Ok::<_, String>((seen.number, time(&seen.finished_at)?, time(&seen.received_at)?)));
        Ok(Self {
            ended: status.state,
            forget_after: status.forget_after,
            targets: targets.collect::<Result<_, _>>().map_err(|e| format!("conditions: {e}"))?,
            later: later.collect::<Result<_, _>>().map_err(|e| format!("observations: {e}"))?,
            observed: status.observed.max(u32::from(report.is_some())),
            tracked: status.tracked,
            settled: status.settled,
            replayed: status.replayed,
        })
    }

    /// Its dead targets, or this one if it is dead.
    pub(super) fn dead(&self, wanted: Option<Target>) -> Vec<Target> {
        let dead = self.targets.iter().filter(|one| one.status.state == TargetState::Dead);
        dead.map(|one| one.target).filter(|target| wanted.is_none_or(|wanted| wanted == *target)).collect()
    }

    /// The conditions, as they are written.
    pub(super) fn conditions(&self) -> Vec<Condition> {
        self.targets.iter().map(condition::written).collect()
    }
}

pub(super) fn word<T>(text: &str, read: impl Fn(&str) -> Option<T>) -> Result<T, String> {
    read(text).ok_or_else(|| format!("'{text}' is not known"))
}

pub(super) fn time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| format!("'{text}' is no time"))
}
