//! The custom resource `Release`: what the API server keeps of a record, and checks before it does.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResource, CustomResourceExt as _};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use transponder_core::{EventKey, Maker, Phase, Timestamp, event::MAX_TEXT};

use crate::{
    record::{Fingerprint, Mark, RECENT, Seen},
    state::State,
};

/// Number of the schema of what this version writes. A newer one is read as far as it can be, and left alone.
pub(super) const SCHEMA: u32 = 1;

/// What a release is. The first observation or pull request names it, and nothing renames it.
#[derive(Debug, Clone, PartialEq, Eq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "transponder.dev",
    version = "v1",
    kind = "Release",
    root = "ReleaseObject",
    plural = "releases",
    shortname = "rel",
    category = "transponder",
    namespaced,
    doc = "What is known of a release: its pull request, what was reported of it, and what is missing.",
    status = "ReleaseStatus",
    selectable = ".spec.chainId",
    selectable = ".spec.eventId",
    selectable = ".spec.cluster",
    selectable = ".status.gitRevision",
    selectable = ".status.prUrl",
    selectable = ".status.state",
    printcolumn = r#"{ "name": "App", "type": "string", "jsonPath": ".spec.app" }"#,
    printcolumn = r#"{ "name": "Env", "type": "string", "jsonPath": ".spec.env" }"#,
    printcolumn = r#"{ "name": "Cluster", "type": "string", "jsonPath": ".spec.cluster" }"#,
    printcolumn = r#"{ "name": "State", "type": "string", "jsonPath": ".status.state" }"#,
    printcolumn = r#"{ "name": "PR", "type": "string", "jsonPath": ".status.prUrl" }"#,
    printcolumn = r#"{ "name": "Last seen", "type": "date", "jsonPath": ".status.lastObservedAt" }"#,
    printcolumn = r#"{ "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" }"#,
    printcolumn = r#"{ "name": "App namespace", "type": "string", "jsonPath": ".spec.appNamespace", "priority": 1 }"#,
    printcolumn = r#"{ "name": "Chain id", "type": "string", "jsonPath": ".spec.chainId", "priority": 1 }"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "self == oldSelf", "message": "a release is not renamed: make another one" },
    {
        "rule": "[has(self.chainId), has(self.gitRevision), has(self.eventId)].exists_one(given, given)",
        "message": "exactly one of chainId, gitRevision and eventId sets a release apart",
    },
]))]
pub(crate) struct ReleaseSpec {
    /// CI namespace of the app.
    #[schemars(schema_with = "name")]
    pub(super) app_namespace: String,
    /// The app.
    #[schemars(schema_with = "name")]
    pub(super) app: String,
    /// What a developer calls the environment.
    #[schemars(schema_with = "name")]
    pub(super) env: String,
    /// The upper cluster.
    #[schemars(schema_with = "name")]
    pub(super) cluster: String,
    /// The flow's correlator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "identity")]
    pub(super) chain_id: Option<String>,
    /// Revision of the app's own repository, where there is no chain id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "identity")]
    pub(super) git_revision: Option<String>,
    /// The event itself, where there is neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "identity")]
    pub(super) event_id: Option<String>,
}

/// What is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReleaseStatus {
    /// Number of the schema that it was written by.
    #[schemars(schema_with = "count")]
    pub(super) schema: u32,
    /// Where the release stands. It follows from what is below.
    #[schemars(schema_with = "state")]
    pub(super) state: String,
    /// In whose room it is.
    pub(super) maker: MadeBy,
    /// Revision of the app's own repository, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "text")]
    pub(super) git_revision: Option<String>,
    /// URL of the pull request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "url")]
    pub(super) pr_url: Option<String>,
    /// Creation of the pull request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub(super) pr_created_at: Option<Timestamp>,
    /// Merge of the pull request, as it was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub(super) merged_at: Option<Timestamp>,
    /// The same, at most the time at which it was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub(super) merge_known_at: Option<Timestamp>,
    /// Close of the pull request without a merge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub(super) closed_at: Option<Timestamp>,
    /// The PreSync that finished last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "report")]
    pub(super) sync: Option<Report>,
    /// The outcome that finished last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "report")]
    pub(super) outcome: Option<Report>,
    /// The last observations, oldest first, to know a repeated one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = RECENT))]
    pub(super) recent: Vec<Observed>,
    /// Number of observations.
    #[schemars(schema_with = "count")]
    pub(super) observations: u32,
    /// When the first observation was received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub(super) first_observed_at: Option<Timestamp>,
    /// When the last observation was received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub(super) last_observed_at: Option<Timestamp>,
    /// When the cluster last reported of it, by the edge's word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub(super) reported_at: Option<Timestamp>,
    /// What others have put on it: silence, or a later release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "mark")]
    pub(super) mark: Option<Mark>,
    /// When the record was made.
    #[schemars(schema_with = "time")]
    pub(super) created_at: Timestamp,
    /// When the record was last changed.
    #[schemars(schema_with = "time")]
    pub(super) updated_at: Timestamp,
}

impl ReleaseStatus {
    /// The fields that may be missing. A merge patch that is to take one away says so.
    pub(super) const OPTIONAL: [&str; 13] = [
        "gitRevision",
        "prUrl",
        "prCreatedAt",
        "mergedAt",
        "mergeKnownAt",
        "closedAt",
        "sync",
        "outcome",
        "firstObservedAt",
        "lastObservedAt",
        "reportedAt",
        "mark",
        "recent",
    ];
}

/// Who made a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MadeBy {
    Platform,
    App,
}

impl From<Maker> for MadeBy {
    fn from(maker: Maker) -> Self {
        match maker {
            Maker::Platform => Self::Platform,
            Maker::App => Self::App,
        }
    }
}

impl From<MadeBy> for Maker {
    fn from(made_by: MadeBy) -> Self {
        match made_by {
            MadeBy::Platform => Self::Platform,
            MadeBy::App => Self::App,
        }
    }
}

/// An observation that finished last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    /// What was reported.
    #[schemars(schema_with = "phase")]
    phase: Phase,
    /// The finish time that was reported.
    #[schemars(schema_with = "time")]
    finished_at: Timestamp,
    /// When it was received.
    #[schemars(schema_with = "time")]
    received_at: Timestamp,
}

impl From<Seen> for Report {
    fn from(Seen { phase, finished_at, received_at }: Seen) -> Self {
        Self { phase, finished_at, received_at }
    }
}

impl From<Report> for Seen {
    fn from(Report { phase, finished_at, received_at }: Report) -> Self {
        Self { phase, finished_at, received_at }
    }
}

/// What tells one observation from another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Observed {
    /// Key of the event, unless only a Task told of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "event")]
    event: Option<EventKey>,
    /// What was reported.
    #[schemars(schema_with = "phase")]
    phase: Phase,
    /// The finish time that was reported.
    #[schemars(schema_with = "time")]
    finished_at: Timestamp,
}

impl From<Fingerprint> for Observed {
    fn from(Fingerprint(event, phase, finished_at): Fingerprint) -> Self {
        Self { event, phase, finished_at }
    }
}

impl From<Observed> for Fingerprint {
    fn from(Observed { event, phase, finished_at }: Observed) -> Self {
        Self(event, phase, finished_at)
    }
}

/// The definition of the resource. It has no status subresource: one request makes or changes a record as a whole.
#[must_use]
pub fn crd() -> CustomResourceDefinition {
    let mut crd = ReleaseObject::crd();
    for version in &mut crd.spec.versions {
        version.subresources = None;
    }
    crd
}

fn name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
    })
}

fn identity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": MAX_TEXT })
}

fn text(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": MAX_TEXT })
}

fn url(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": 2048 })
}

fn event(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": 40, "pattern": "^[0-9a-f]{40}$" })
}

fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time", "maxLength": 40 })
}

fn count(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "format": "int64", "minimum": 0, "maximum": u32::MAX })
}

fn phase(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["Syncing", "Succeeded", "Failed"] })
}

fn state(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": State::ALL.map(State::as_str) })
}

fn mark(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["unreported", "superseded"] })
}

fn report(generator: &mut SchemaGenerator) -> Schema {
    Report::json_schema(generator)
}
