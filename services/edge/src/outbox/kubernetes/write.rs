//! What changes the outbox: new events and observations by every edge, decisions by the holder of the Lease.

use std::{collections::BTreeMap, time::Duration};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;
use transponder_core::{EventKey, Target, Timestamp, retry::Backoff};
use transponder_kubernetes::{Kind, change, creation};
use transponder_store::StoreError;

use super::{
    super::{Accepted, Decided, Decision, HandOver, HandedOver, NewEvent, Replayed},
    ATTEMPTS, Found, KubernetesOutbox, Tenure,
    edit::{Became, Edit},
    object::{Outcome, REPLAY, object, replay_of},
};

/// What the log says of an event that is there no more.
pub(super) const DELETED: &str =
    "a releaseoutcome was deleted before it was delivered: what was not done is not done any more";

/// Statuses that are written at a time.
const CONCURRENT: usize = 32;

/// Pauses before a write that met another one is decided again.
const AGAIN: Backoff = Backoff { base: Duration::from_millis(5), cap: Duration::from_millis(320) };

/// Most bytes of a body as the API server keeps it. An object has at most 1.5 MiB in etcd, and the rest of it grows.
pub(super) const LARGEST: u64 = 1024 * 1024;

/// Events that a verdict names beside its candidate, as the schema has it.
const RESTS: usize = 256;

/// The edits of one event, in their order.
type Edits = BTreeMap<EventKey, Vec<Edit>>;

impl KubernetesOutbox {
    pub(super) async fn create(&self, event: &NewEvent) -> Result<Accepted, StoreError> {
        let parameters = creation();
        let bytes = stored_size(&event.body);
        if bytes > LARGEST {
            return Ok(Accepted::TooLarge { bytes, limit: LARGEST });
        }
        for attempt in 0..ATTEMPTS {
            match self.ask("store an event", self.api.create(&parameters, &object(event))).await {
                Ok(_) => {
                    let observation = event.report.is_some().then_some(1);
                    return Ok(Accepted::New { sequence: 0, observation });
                }
                Err(error) if error.kind == Kind::Exists => {}
                Err(error) if error.kind == Kind::Invalid => {
                    tracing::error!(%error, key = %event.key, cluster = %event.cluster, "an event is refused by the store");
                    return Ok(Accepted::Unfit);
                }
                Err(error) => return Err(error.into()),
            }
            if let Some(accepted) = self.observe(event).await? {
                return Ok(accepted);
            }
            pause(attempt + 1).await;
        }
        Err(contended("note that an event was observed again"))
    }

    /// Notes one more observation of an event that is there; `None` when somebody else wrote in between, or it went.
    async fn observe(&self, event: &NewEvent) -> Result<Option<Accepted>, StoreError> {
        let Some(known) = self.get(event.key).await? else { return Ok(None) };
        let same = known.event.kind == event.kind
            && known.place.map(|place| place.release) == event.place.map(|place| place.release)
            && known.event.report.as_ref().map(|report| report.phase) == event.phase();
        if !same {
            return Ok(Some(Accepted::Conflict));
        }
        let identical = known.body == event.body;
        let accepted = |observation| Some(Accepted::Known { sequence: 0, observation, identical });
        let Some(report) = &event.report else { return Ok(accepted(None)) };
        let mut status = known.status.clone();
        let edit = Edit::Observe { finished_at: report.finished_at, received_at: event.received_at };
        match status.apply(&edit, &known.facts(), event.received_at, self.keep) {
            Became::Observed(number) => match self.patch(event.key, known.version, &status).await {
                Ok(_) => Ok(accepted(Some(number.into()))),
                Err(error) if matches!(error.kind, Kind::Conflict | Kind::NotFound) => Ok(None),
                Err(error) => Err(error.into()),
            },
            _ => Ok(accepted(None)),
        }
    }

    /// Keeps decisions. Not all or none: what was written stays, and is written again the same when the rest is.
    pub(super) async fn write_decisions(
        &self,
        decisions: Vec<Decision>,
        at: Timestamp,
    ) -> Result<Decided, StoreError> {
        let decided = self.write_in_order(decisions, at).await;
        if let Err(error) = &decided
            && *error != StoreError::Closed
        {
            // Some of it may be written: everything is read anew before more is decided.
            self.reach.failed(error.clone());
        }
        decided
    }

    async fn write_in_order(&self, decisions: Vec<Decision>, at: Timestamp) -> Result<Decided, StoreError> {
        let tenure = self.tenure()?;
        let mut decided = Decided::default();
        let (mut first, mut next) = (Edits::new(), Edits::new());
        for decision in decisions {
            match decision {
                Decision::Status(change) => {
                    let Some(key) = tenure.picture().key(change.sequence) else {
                        tracing::warn!(
                            sequence = change.sequence,
                            target = %change.target,
                            "what became of an event is not noted: it is not known any more"
                        );
                        continue;
                    };
                    if next.contains_key(&key) {
                        self.flush(&tenure, &mut first, &mut next, at, &mut decided).await?;
                    }
                    let told = change.tracked.iter().max().copied().unwrap_or(0);
                    let tracked = tenure.picture().get(key).map_or(0, |known| known.within(told));
                    let status = Box::new(change.status);
                    first.entry(key).or_default().push(Edit::Status {
                        target: change.target,
                        status,
                        tracked,
                    });
                }
                Decision::HandOver(verdict) => {
                    if next.contains_key(&verdict.verdict.event) {
                        self.flush(&tenure, &mut first, &mut next, at, &mut decided).await?;
                    }
                    hand_over(&tenure, verdict, at, &mut first, &mut next);
                }
                Decision::Replace(key) => {
                    next.entry(key).or_default().push(Edit::Replace { settled: 0 });
                }
            }
        }
        self.flush(&tenure, &mut first, &mut next, at, &mut decided).await?;
        Ok(decided)
    }

    /// Writes the edits that come first, all of them, and then those that rest on them.
    async fn flush(
        &self,
        tenure: &Tenure,
        first: &mut Edits,
        next: &mut Edits,
        at: Timestamp,
        decided: &mut Decided,
    ) -> Result<(), StoreError> {
        for edits in [std::mem::take(first), std::mem::take(next)] {
            let written: Vec<_> = stream::iter(edits)
                .map(|(key, edits)| self.write(tenure, key, edits, at))
                .buffer_unordered(CONCURRENT)
                .try_collect()
                .await?;
            for one in written {
                decided.handed_over.extend(one.handed_over);
                decided.replaced.extend(one.replaced);
            }
        }
        decided.handed_over.sort_by_key(|handed| handed.order);
        Ok(())
    }

    /// Writes the edits of one event.
    async fn write(
        &self,
        tenure: &Tenure,
        key: EventKey,
        edits: Vec<Edit>,
        at: Timestamp,
    ) -> Result<Decided, StoreError> {
        for attempt in 0..ATTEMPTS {
            let Some(known) = tenure.picture().get(key).cloned() else { return Ok(Decided::default()) };
            let mut status = known.status.clone();
            let mut decided = Decided::default();
            for edit in &edits {
                match (status.apply(edit, &known.facts, at, self.keep), edit) {
                    (Became::HandedOver(verdict), Edit::HandOver { order, .. }) => decided
                        .handed_over
                        .push(HandedOver { sequence: known.sequence, order: *order, verdict }),
                    (Became::Replaced, _) => decided.replaced.push(known.sequence),
                    _ => {}
                }
            }
            if status == known.status {
                return Ok(decided);
            }
            if !tenure.term.lasts() {
                return Err(StoreError::Closed);
            }
            match self.patch(key, known.version, &status).await {
                Ok(version) => {
                    tenure.picture().wrote(key, version, &status);
                    return Ok(decided);
                }
                Err(error) if error.kind == Kind::Conflict => {}
                // It has been waited for already. The others' writes must not be decided anew for it.
                Err(error) if error.kind == Kind::Busy => continue,
                Err(error) if error.kind == Kind::NotFound => return Ok(lost(tenure, key, known.sequence)),
                Err(error) if error.kind == Kind::Invalid => {
                    // It must not keep those of all other events from being written.
                    tracing::error!(%error, %key, "what became of an outcome cannot be noted: it is delivered again by the next holder");
                    return Ok(decided);
                }
                Err(error) => return Err(error.into()),
            }
            let read = match self.find(key).await? {
                Found::Outcome(outcome) if outcome.uid == known.uid => Some(*outcome),
                // It was deleted, and sent again since.
                Found::Outcome(_) | Found::Nothing => None,
                Found::Unreadable(problem) => {
                    // It must not keep those of all other events from being written either.
                    tracing::error!(problem, "an outcome cannot be read any more, and is left alone");
                    return Ok(left_alone(tenure, key, known.sequence));
                }
            };
            match read {
                // What is read is never older than what was known before, but for one reason. What has happened is noted
                // all the same; the rest is read anew.
                Some(outcome) if outcome.version < known.version => {
                    self.reach.failed(set_back(&outcome, known.version));
                    tenure.picture().set_back(&outcome);
                }
                Some(outcome) => tenure.picture().wrote(key, outcome.version, &outcome.status),
                None => return Ok(lost(tenure, key, known.sequence)),
            }
            pause(attempt + 1).await;
        }
        Err(contended("note what became of an outcome"))
    }

    /// Writes one edit of one event.
    pub(super) async fn edit(&self, tenure: &Tenure, key: EventKey, edit: Edit) -> Result<(), StoreError> {
        self.write(tenure, key, vec![edit], self.clock.wall()).await.map(drop)
    }

    /// Takes up the dead targets of an event again as its annotation asks. Answers how it is then, and which those are;
    /// `None` when nothing is asked, or the event is gone.
    pub(super) async fn follow_replay(
        &self,
        tenure: &Tenure,
        outcome: &Outcome,
    ) -> Result<Option<(Outcome, Vec<Target>)>, StoreError> {
        let key = outcome.key;
        let Some(asked) = outcome.asks_replay() else { return Ok(None) };
        let Some(target) = replay_of(asked) else {
            tracing::error!(
                %key,
                asked,
                "annotation {REPLAY} is not followed: its last word is to be a target or 'all', and it has at most 256 bytes"
            );
            return Ok(None);
        };
        let Some(known) = tenure.picture().get(key).cloned() else { return Ok(None) };
        let targets = known.status.dead(target);
        self.edit(tenure, key, Edit::Replay { target, asked: asked.to_owned() }).await?;
        tracing::info!(%key, ?targets, "replayed");
        Ok(self.get(key).await?.map(|outcome| (outcome, targets)))
    }

    /// Asks the holder of the Lease, by an annotation, to take up dead targets of an event.
    pub(super) async fn ask_replay(
        &self,
        key: EventKey,
        target: Option<Target>,
        at: Timestamp,
    ) -> Result<Option<Replayed>, StoreError> {
        let Some(outcome) = self.get(key).await? else { return Ok(None) };
        let dead = outcome.status.dead(target);
        if !dead.is_empty() {
            let wanted = target.map_or("all", Target::as_str);
            let patch = json!({ "metadata": { "annotations": { REPLAY: format!("{at} {wanted}") } } });
            let (name, patch) = (key.to_string(), kube::api::Patch::Merge(patch));
            self.ask("ask for a replay", self.api.patch(&name, &change(), &patch)).await?;
        }
        Ok(Some((0, dead)))
    }
}

/// How many bytes a body takes as text in the JSON that the API server writes to etcd.
pub(super) fn stored_size(body: &[u8]) -> u64 {
    let size = |byte: &u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2,
        0..0x20 | b'<' | b'>' | b'&' => 6,
        // The first of the three bytes of U+2028, which becomes six; others of this row are counted so, too.
        0xe2 => 4,
        _ => 1,
    };
    body.iter().map(size).sum()
}

/// The candidate takes its place in the order, and what it rests on comes after it.
fn hand_over(tenure: &Tenure, handed: HandOver, at: Timestamp, first: &mut Edits, next: &mut Edits) {
    let HandOver { verdict, events, up_to } = handed;
    let mut picture = tenure.picture();
    let order = picture.next_order(at.as_microsecond());
    let mut rests_on = Vec::new();
    for key in events.iter().filter_map(|sequence| picture.key(*sequence)) {
        let Some(known) = picture.get(key).filter(|known| known.facts.targets.contains(&Target::Dora)) else {
            continue;
        };
        if key != verdict.event {
            let settled = known.within(up_to);
            rests_on.push((key, settled));
            next.entry(key).or_default().push(Edit::Replace { settled });
        }
    }
    // More than a release that Argo CD retries can have; each is marked as settled by itself, too.
    rests_on.truncate(RESTS);
    let settled = picture.get(verdict.event).map_or(0, |known| known.within(up_to));
    first.entry(verdict.event).or_default().push(Edit::HandOver { order, verdict, settled, rests_on });
}

/// An event that was deleted while something was still to be done with it.
fn lost(tenure: &Tenure, key: EventKey, sequence: i64) -> Decided {
    tracing::error!(%key, "{DELETED}");
    left_alone(tenure, key, sequence)
}

/// Nothing of an event waits for a verdict any more.
fn left_alone(tenure: &Tenure, key: EventKey, sequence: i64) -> Decided {
    let mut picture = tenure.picture();
    if picture.get(key).is_some_and(|known| known.sequence == sequence) {
        picture.forget(key);
    }
    Decided { handed_over: Vec::new(), replaced: vec![sequence] }
}

fn set_back(outcome: &Outcome, known: u64) -> StoreError {
    let problem = format!(
        "its store was set back to an older state, {} from version {known} to {}: everything is read anew",
        outcome.key, outcome.version
    );
    StoreError::Unavailable { action: "note what became of an outcome", problem }
}

fn contended(action: &'static str) -> StoreError {
    StoreError::Unavailable { action, problem: "others wrote the same object again and again".into() }
}

/// Lets the others finish.
async fn pause(attempts: u32) {
    tokio::time::sleep(AGAIN.delay(attempts, None, fastrand::f64())).await;
}
