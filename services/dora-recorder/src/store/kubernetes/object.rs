//! A stream's state as a `DoraStream`, and back, exactly.
//!
//! Reading never fails as a whole: in a list, an object that somebody broke must not take the others with it.

use std::{fmt, sync::Arc, time::Duration};

use jiff::SignedDuration;
use kube::core::ObjectMeta;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use transponder_core::{AppName, AppNamespace, ClusterName, EnvName, Maker, ReleaseKey, Stream, Timestamp};
use transponder_store::StoreError;

use super::resource::{self, DoraStream, DoraStreamSpec, DoraStreamStatus, SCHEMA, Samples};
use crate::{
    state::{Discarded, Histogram, Hold, Instant, Known, StreamState, Totals, Window},
    store::Stored,
};

/// What is wrong with an object, in words.
type Problem = String;

/// An object that was read.
#[derive(Debug, Clone, kube::Resource)]
#[resource(inherit = DoraStream)]
pub(super) struct Object {
    metadata: ObjectMeta,
    content: Result<Content, Problem>,
}

#[derive(Debug, Clone)]
struct Content {
    state: Arc<StreamState>,
    schema: u32,
}

/// Anything at all.
#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Raw::deserialize(deserializer)?;
        // Nothing else of it is needed, and lists of it are held.
        let metadata = ObjectMeta {
            name: raw.metadata.name,
            resource_version: raw.metadata.resource_version,
            ..ObjectMeta::default()
        };
        let content = content(raw.spec, raw.status);
        Ok(Self { metadata, content })
    }
}

impl Object {
    pub(super) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// The stream that it is of.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn stored(&self) -> Result<Stored, Problem> {
        let content = self.content.as_ref().map_err(Clone::clone)?;
        let name = name(&content.state.stream);
        if self.name() != name {
            return Err(format!("its name is not the key of its stream, which is {name}"));
        }
        let version = version(&self.metadata)?;
        let file = format!("DoraStream {name}");
        let newer = content.schema > SCHEMA;
        let sealed = newer.then_some(StoreError::Newer { file, found: content.schema, known: SCHEMA });
        Ok(Stored { version, state: content.state.clone(), sealed })
    }
}

/// The name of the object of a stream.
pub(super) fn name(stream: &Stream) -> String {
    stream.key().to_string()
}

/// The version of an object. Since Kubernetes 1.35 it is promised to be a number that grows with each change.
pub(super) fn version(metadata: &ObjectMeta) -> Result<u64, Problem> {
    let text = metadata.resource_version.as_deref().unwrap_or_default();
    text.parse().map_err(|_| format!("its resourceVersion '{text}' is no number"))
}

/// The object of a state.
pub(super) fn new(state: &StreamState) -> DoraStream {
    let stream = &state.stream;
    let spec = DoraStreamSpec {
        app_namespace: stream.app_namespace.as_str().to_owned(),
        app: stream.app.as_str().to_owned(),
        env: stream.env.as_str().to_owned(),
        cluster: stream.cluster.as_str().to_owned(),
        maker: match state.maker {
            Maker::Platform => resource::Maker::Platform,
            Maker::App => resource::Maker::App,
        },
    };
    let mut object = DoraStream::new(&name(stream), spec);
    object.status = Some(status(state));
    object
}

/// What changes in the object of a state.
pub(super) fn status(state: &StreamState) -> DoraStreamStatus {
    DoraStreamStatus {
        schema: SCHEMA,
        first_verdict_at: time(state.hold.since),
        hold: length(state.hold.length),
        totals: totals(&state.totals),
        failing_since: state.failing_since.map(time),
        succeeded_until: state.succeeded_until.map(time),
        forgotten_until: state.window.forgotten_until().map(time),
        releases: state.window.known().iter().map(|known| Line(*known).to_string()).collect(),
    }
}

fn totals(totals: &Totals) -> resource::Totals {
    resource::Totals {
        deployments: count(totals.succeeded),
        succeeded: count(totals.succeeded),
        failed: count(totals.failed),
        conflicts: count(totals.conflicts),
        late: count(totals.late),
        lead_time: samples(&totals.lead_time, totals.lead_time_discarded),
        restore: samples(&totals.restore, totals.restore_discarded),
    }
}

fn samples<const N: usize>(histogram: &Histogram<[u64; N]>, discarded: Discarded) -> Samples {
    Samples {
        sum: length(histogram.sum),
        buckets: histogram.buckets.map(count).to_vec(),
        above: count(histogram.above),
        negative: count(discarded.negative),
        implausible: count(discarded.implausible),
    }
}

fn count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn time(instant: Instant) -> String {
    Timestamp::from(instant).to_string()
}

/// A length that does not fit is one of which nobody lives to see the end.
fn length(length: Duration) -> String {
    SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX).to_string()
}

fn content(spec: Value, status: Value) -> Result<Content, Problem> {
    let schema = status.get("schema").and_then(Value::as_u64).unwrap_or_default();
    let schema = u32::try_from(schema).unwrap_or(u32::MAX);
    // A newer version may have added what this one does not know, and what it does know is still there.
    let spec: DoraStreamSpec = serde_json::from_value(spec).map_err(|e| format!("spec: {e}"))?;
    let status: DoraStreamStatus = serde_json::from_value(status).map_err(|e| format!("status: {e}"))?;
    Ok(Content { state: Arc::new(state(&spec, &status)?), schema })
}

fn state(spec: &DoraStreamSpec, status: &DoraStreamStatus) -> Result<StreamState, Problem> {
    let wrong = |field: &'static str| move |problem: String| format!("{field}: {problem}");
    let stream = Stream {
        app_namespace: AppNamespace::new(&spec.app_namespace)
            .map_err(|e| format!("spec.appNamespace: {e}"))?,
        app: AppName::new(&spec.app).map_err(|e| format!("spec.app: {e}"))?,
        env: EnvName::new(&spec.env).map_err(|e| format!("spec.env: {e}"))?,
        cluster: ClusterName::new(&spec.cluster).map_err(|e| format!("spec.cluster: {e}"))?,
    };
    let optional =
        |text: &Option<String>, field| text.as_deref().map(read_time).transpose().map_err(wrong(field));
    let releases = status.releases.iter().map(|line| Line::read(line)).collect::<Result<_, _>>();
    let forgotten = optional(&status.forgotten_until, "status.forgottenUntil")?;
    let of = &status.totals;
    let (lead_time, lead_time_discarded) =
        read_samples(&of.lead_time).map_err(wrong("status.totals.leadTime"))?;
    let (restore, restore_discarded) = read_samples(&of.restore).map_err(wrong("status.totals.restore"))?;
    let total = |count, field| read_count(count).map_err(wrong(field));
    Ok(StreamState {
        stream,
        maker: match spec.maker {
            resource::Maker::Platform => Maker::Platform,
            resource::Maker::App => Maker::App,
        },
        hold: Hold {
            since: read_time(&status.first_verdict_at).map_err(wrong("status.firstVerdictAt"))?,
            length: read_length(&status.hold).map_err(wrong("status.hold"))?,
        },
        totals: Totals {
            succeeded: total(of.succeeded, "status.totals.succeeded")?,
            failed: total(of.failed, "status.totals.failed")?,
            conflicts: total(of.conflicts, "status.totals.conflicts")?,
            late: total(of.late, "status.totals.late")?,
            lead_time,
            restore,
            lead_time_discarded,
            restore_discarded,
        },
        window: Window::new(releases.map_err(wrong("status.releases"))?, forgotten),
        failing_since: optional(&status.failing_since, "status.failingSince")?,
        succeeded_until: optional(&status.succeeded_until, "status.succeededUntil")?,
    })
}

fn read_samples<const N: usize>(samples: &Samples) -> Result<(Histogram<[u64; N]>, Discarded), Problem> {
    let buckets = samples.buckets.iter().map(|count| read_count(*count)).collect::<Result<Vec<_>, _>>()?;
    let found = buckets.len();
    let buckets = buckets.try_into().map_err(|_| format!("{found} buckets where there are {N}"))?;
    let histogram = Histogram { sum: read_length(&samples.sum)?, buckets, above: read_count(samples.above)? };
    let discarded =
        Discarded { negative: read_count(samples.negative)?, implausible: read_count(samples.implausible)? };
    Ok((histogram, discarded))
}

fn read_count(count: i64) -> Result<u64, Problem> {
    u64::try_from(count).map_err(|_| format!("{count} is below 0"))
}

fn read_time(text: &str) -> Result<Instant, Problem> {
    let time: Timestamp = text.parse().map_err(|e| format!("'{text}' is no RFC 3339 time: {e}"))?;
    let instant = i64::try_from(time.as_nanosecond()).ok().and_then(Instant::from_nanos);
    instant.ok_or_else(|| format!("'{text}' is not between 1970 and 2262"))
}

fn read_length(text: &str) -> Result<Duration, Problem> {
    let length: SignedDuration =
        text.parse().map_err(|e| format!("'{text}' is no ISO 8601 duration: {e}"))?;
    Duration::try_from(length).map_err(|_| format!("'{text}' is below 0"))
}

/// A release as one line.
struct Line(Known);

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(known) = self;
        write!(f, "{} {}", known.key, Timestamp::from(known.finished_at))?;
        if known.failed {
            f.write_str(" failed")?;
        }
        match known.succeeded_at {
            None => {}
            Some(at) if at == known.finished_at => f.write_str(" succeeded")?,
            Some(at) => write!(f, " succeeded={}", Timestamp::from(at))?,
        }
        if known.conflict {
            f.write_str(" conflict")?;
        }
        Ok(())
    }
}

impl Line {
    fn read(line: &str) -> Result<Known, Problem> {
        let mut words = line.split(' ');
        let (Some(key), Some(finish)) = (words.next(), words.next()) else {
            return Err(format!("'{line}' has no finish"));
        };
        let key: ReleaseKey = key.parse().map_err(|e| format!("'{line}': {e}"))?;
        let finished_at = read_time(finish)?;
        let mut known = Known { key, finished_at, succeeded_at: None, failed: false, conflict: false };
        for word in words {
            match word.split_once('=') {
                None if word == "failed" => known.failed = true,
                None if word == "conflict" => known.conflict = true,
                None if word == "succeeded" => known.succeeded_at = Some(finished_at),
                Some(("succeeded", at)) => known.succeeded_at = Some(read_time(at)?),
                _ => return Err(format!("'{line}': '{word}' is not known")),
            }
        }
        Ok(known)
    }
}

#[cfg(test)]
#[path = "object_tests.rs"]
mod tests;
