//! An Application of Argo CD, as little of it as is looked at.
//!
//! Reading never fails: one that looks odd is named when it is needed, and concerns its release alone.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::NamespaceResourceScope;
use kube::{Resource, core::ObjectMeta};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use transponder_core::Timestamp;

use crate::state::{Instant, Outcome, Sync};

/// What is wrong with an Application, in words.
pub(super) type Problem = String;

/// An Application as it was read at one moment.
#[derive(Debug, Clone)]
pub(super) struct Application {
    metadata: ObjectMeta,
    /// Its last operation; `None`: it never had one.
    operation: Result<Option<Operation>, Problem>,
}

/// An operation: a sync that somebody asked for, or one by which Argo CD healed what had drifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Operation {
    started_at: Instant,
    end: Option<End>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    outcome: Outcome,
    finished_at: Option<Instant>,
    /// Whether Argo CD has looked at the Application since.
    reconciled: bool,
}

impl Application {
    pub(super) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    pub(super) fn has_label(&self, name: &str, value: &str) -> bool {
        self.metadata.labels.as_ref().and_then(|labels| labels.get(name)).is_some_and(|label| label == value)
    }

    pub(super) fn annotations(&self) -> Option<&BTreeMap<String, String>> {
        self.metadata.annotations.as_ref()
    }

    /// When the last operation started.
    ///
    /// # Errors
    /// When there is one and that cannot be read.
    pub(super) fn started_at(&self) -> Result<Option<Instant>, Problem> {
        let operation = self.operation.as_ref().map_err(Clone::clone)?;
        Ok(operation.map(|operation| operation.started_at))
    }

    /// When the last operation started, if it has ended.
    pub(super) fn ended(&self) -> Option<Instant> {
        let operation = self.operation.as_ref().ok().copied().flatten()?;
        operation.end.map(|_| operation.started_at)
    }

    /// The last operation, if it has ended and Argo CD has looked at the Application since: only then does all that was
    /// read belong together.
    ///
    /// # Errors
    /// When there is one that cannot be read.
    pub(super) fn sync(&self) -> Result<Option<Sync>, Problem> {
        let operation = self.operation.as_ref().map_err(Clone::clone)?;
        let Some(Operation { started_at, end: Some(end) }) = *operation else { return Ok(None) };
        let Some(finished_at) = end.finished_at else {
            return Err("status.operationState has ended and has no finishedAt".to_owned());
        };
        Ok(end.reconciled.then_some(Sync { started_at, finished_at, outcome: end.outcome }))
    }
}

impl<'de> Deserialize<'de> for Application {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Raw {
            #[serde(default)]
            metadata: Value,
            #[serde(default)]
            status: Value,
        }
        let raw = Raw::deserialize(deserializer)?;
        let text = |field: &str| raw.metadata.get(field).and_then(Value::as_str).map(str::to_owned);
        let texts = |field: &str| {
            let map = raw.metadata.get(field)?.as_object()?;
            let entry = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
            Some(map.iter().filter_map(entry).collect())
        };
        // Nothing else of it is needed, and an Application may have thousands of resources in its status.
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            labels: texts("labels"),
            annotations: texts("annotations"),
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, operation: operation(&raw.status) })
    }
}

fn operation(status: &Value) -> Result<Option<Operation>, Problem> {
    let Some(state) = status.get("operationState").filter(|state| !state.is_null()) else { return Ok(None) };
    let started_at = time(state, "startedAt")?.ok_or("status.operationState has no startedAt")?;
    let outcome = match state.get("phase").and_then(Value::as_str) {
        Some("Succeeded") => Outcome::Succeeded,
        Some("Failed" | "Error") => Outcome::Failed,
        // Running, Terminating, and whatever comes to be: what has not ended.
        _ => return Ok(Some(Operation { started_at, end: None })),
    };
    let finished_at = time(state, "finishedAt")?;
    let reconciled_at = time(status, "reconciledAt")?;
    let reconciled = finished_at.is_some() && reconciled_at >= finished_at;
    Ok(Some(Operation { started_at, end: Some(End { outcome, finished_at, reconciled }) }))
}

fn time(of: &Value, field: &str) -> Result<Option<Instant>, Problem> {
    match of.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => {
            read_time(text).map(Some).map_err(|problem| format!("{field}: {problem}"))
        }
        Some(other) => Err(format!("{field}: {other} is no RFC 3339 time")),
    }
}

/// Reads an RFC 3339 time.
pub(super) fn read_time(text: &str) -> Result<Instant, Problem> {
    let time: Timestamp = text.trim().parse().map_err(|e| format!("'{text}' is no RFC 3339 time: {e}"))?;
    Ok(time.into())
}

impl Resource for Application {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Application".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "argoproj.io".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1alpha1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "applications".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
