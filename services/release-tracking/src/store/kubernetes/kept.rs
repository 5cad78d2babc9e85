//! A record as it lies in the API server: with its version, and read so that a broken one is nobody else's trouble.

use std::borrow::Cow;

use kube::{Resource, api::ObjectMeta};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
use serde_json::{Value, json};
use transponder_core::{Maker, Release, ReleaseId, ReleaseKey, Stream, Timestamp};

use super::object::{ReleaseObject, ReleaseSpec, ReleaseStatus, SCHEMA};
use crate::{
    change::{Change, Decision, What},
    record::Record,
};

/// A record and what is kept beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) record: Record,
    /// In whose room it is.
    pub(super) maker: Maker,
    /// When its cluster last reported of it.
    pub(super) reported_at: Option<Timestamp>,
    /// What it must still be when it is changed; `None` before it is there.
    pub(super) version: Option<Version>,
    /// Number of its schema.
    pub(super) schema: u32,
}

/// The version of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version(Box<str>);

impl Version {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is older than another one of the same object. Those that cannot be compared are not.
    pub(super) fn is_before(&self, other: &Self) -> bool {
        matches!((self.0.parse::<u64>(), other.0.parse::<u64>()), (Ok(this), Ok(other)) if this < other)
    }
}

impl Entry {
    pub(super) fn key(&self) -> ReleaseKey {
        self.record.release.key()
    }

    /// What a decision makes of an entry, or of none.
    pub(super) fn after(before: Option<&Self>, decision: &Decision, change: &Change) -> Self {
        // An event is the edge's word, so its cluster has proved who it is; a Task's is no report.
        let reported_at = match &change.what {
            What::Observed(observation) if observation.event.is_some() => {
                Some(observation.received_at.min(change.now))
            }
            What::Observed(_) | What::Put(_) | What::Silent(_) => None,
        };
        Self {
            record: decision.record.clone(),
            maker: before.map(|entry| entry.maker).or(decision.maker).unwrap_or(Maker::Platform),
            reported_at: before.and_then(|entry| entry.reported_at).max(reported_at),
            version: before.and_then(|entry| entry.version.clone()),
            schema: SCHEMA,
        }
    }

    /// Whether a later version wrote it.
    pub(super) fn is_newer(&self) -> bool {
        self.schema > SCHEMA
    }

    /// The object that is to be made.
    pub(super) fn object(self) -> Kept {
        let name = Some(self.key().to_string());
        Kept { metadata: ObjectMeta { name, ..ObjectMeta::default() }, entry: Ok(self.into()) }
    }

    /// The merge patch that makes the stored object say what this entry says, if it is still the same version. What a
    /// later version has put beside is left alone.
    pub(super) fn patch(&self) -> Value {
        let mut status = json!(self.status());
        if let Some(fields) = status.as_object_mut() {
            for name in ReleaseStatus::OPTIONAL {
                fields.entry(name).or_insert(Value::Null);
            }
        }
        let version = self.version.as_ref().map(Version::as_str);
        json!({ "metadata": { "resourceVersion": version }, "status": status })
    }

    fn spec(&self) -> ReleaseSpec {
        let Release { stream, id } = &self.record.release;
        let mut spec = ReleaseSpec {
            app_namespace: stream.app_namespace.to_string(),
            app: stream.app.to_string(),
            env: stream.env.to_string(),
            cluster: stream.cluster.to_string(),
            chain_id: None,
            git_revision: None,
            event_id: None,
        };
        let (field, text) = match id {
            ReleaseId::ChainId(text) => (&mut spec.chain_id, text),
            ReleaseId::GitRevision(text) => (&mut spec.git_revision, text),
            ReleaseId::EventId(text) => (&mut spec.event_id, text),
        };
        *field = Some(text.clone());
        spec
    }

    fn status(&self) -> ReleaseStatus {
        let record = &self.record;
        let known = |text: &String| (!text.is_empty()).then(|| text.clone());
        ReleaseStatus {
            schema: SCHEMA,
            state: record.state().to_string(),
            maker: self.maker.into(),
            git_revision: known(&record.git_revision),
            pr_url: known(&record.pr_url),
            pr_created_at: record.pr_created_at,
            merged_at: record.merged_at,
            merge_known_at: record.merge_known_at,
            closed_at: record.closed_at,
            sync: record.sync.map(Into::into),
            outcome: record.outcome.map(Into::into),
            recent: record.recent.iter().copied().map(Into::into).collect(),
            observations: record.observations,
            first_observed_at: record.first_observed_at,
            last_observed_at: record.last_observed_at,
            reported_at: self.reported_at,
            mark: record.mark,
            created_at: record.created_at,
            updated_at: record.updated_at,
        }
    }
}

/// An object, readable or not.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) metadata: ObjectMeta,
    /// What it says, or what is wrong with it.
    pub(super) entry: Result<Box<Entry>, String>,
}

impl Kept {
    pub(super) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
}

impl<'de> Deserialize<'de> for Kept {
    /// Anything that has metadata is an object: a list with a broken one in it is still a list.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            // As much again as the record itself, and nothing that is read here.
            metadata.remove("managedFields");
        }
        let mut metadata: ObjectMeta = part(&mut value, "metadata").map_err(serde::de::Error::custom)?;
        let entry = entry(&mut value, &metadata).map(Box::new);
        // What nobody asks for is not carried along; thousands of them may come at once.
        metadata = ObjectMeta {
            name: metadata.name,
            resource_version: metadata.resource_version,
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, entry })
    }
}

fn part<T: DeserializeOwned>(value: &mut Value, name: &str) -> Result<T, String> {
    let part = value.get_mut(name).map(Value::take).ok_or_else(|| format!("it has no {name}"))?;
    serde_json::from_value(part).map_err(|error| format!("its {name}: {error}"))
}

fn entry(value: &mut Value, metadata: &ObjectMeta) -> Result<Entry, String> {
    let spec: ReleaseSpec = part(value, "spec")?;
    let status: ReleaseStatus = part(value, "status")?;
    let release = release(spec)?;
    if metadata.name.as_deref() != Some(&release.key().to_string()) {
        return Err(format!("it is not the release that its name says: that would be {}", release.key()));
    }
    let version = metadata.resource_version.as_deref().map(|version| Version(version.into()));
    Ok(Entry {
        maker: Maker::from(status.maker),
        reported_at: status.reported_at,
        schema: status.schema,
        record: record(release, status),
        version,
    })
}

fn release(spec: ReleaseSpec) -> Result<Release, String> {
    fn name<T: TryFrom<String, Error = transponder_core::NameError>>(
        field: &str,
        text: String,
    ) -> Result<T, String> {
        T::try_from(text).map_err(|error| format!("spec.{field} {error}"))
    }
    let id = match (spec.chain_id, spec.git_revision, spec.event_id) {
        (Some(id), None, None) => ReleaseId::ChainId(id),
        (None, Some(id), None) => ReleaseId::GitRevision(id),
        (None, None, Some(id)) => ReleaseId::EventId(id),
        _ => return Err("exactly one of chainId, gitRevision and eventId must be given".to_owned()),
    };
    let stream = Stream {
        app_namespace: name("appNamespace", spec.app_namespace)?,
        app: name("app", spec.app)?,
        env: name("env", spec.env)?,
        cluster: name("cluster", spec.cluster)?,
    };
    Ok(Release { stream, id })
}

fn record(release: Release, status: ReleaseStatus) -> Record {
    Record {
        release,
        git_revision: status.git_revision.unwrap_or_default(),
        pr_url: status.pr_url.unwrap_or_default(),
        pr_created_at: status.pr_created_at,
        merged_at: status.merged_at,
        merge_known_at: status.merge_known_at,
        closed_at: status.closed_at,
        sync: status.sync.map(Into::into),
        outcome: status.outcome.map(Into::into),
        recent: status.recent.into_iter().map(Into::into).collect(),
        observations: status.observations,
        first_observed_at: status.first_observed_at,
        last_observed_at: status.last_observed_at,
        mark: status.mark,
        created_at: status.created_at,
        updated_at: status.updated_at,
    }
}

impl Serialize for Kept {
    /// As it is made.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entry = self.entry.as_ref().map_err(serde::ser::Error::custom)?;
        let object = json!({
            "apiVersion": Self::api_version(&()),
            "kind": Self::kind(&()),
            "metadata": self.metadata,
            "spec": entry.spec(),
            "status": entry.status(),
        });
        object.serialize(serializer)
    }
}

impl Resource for Kept {
    type DynamicType = ();
    type Scope = <ReleaseObject as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        ReleaseObject::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        ReleaseObject::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        ReleaseObject::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        ReleaseObject::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
#[path = "kept_tests.rs"]
mod tests;
