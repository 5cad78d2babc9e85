//! The custom resource: one accepted event, and how far it has come.
//!
//! `spec` never changes: the bytes, whose they are, and a summary for whoever reads a listing. `status` is what became of
//! it. Fields are only ever added (docs/adr/0021). Every type here reads whatever the schema lets through, so that no
//! object breaks a watch of all: times and words are texts, and what they mean is found out one object at a time.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResource, CustomResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The definition, as it is applied to a cluster.
#[must_use]
pub fn crd() -> CustomResourceDefinition {
    ReleaseOutcome::crd()
}

/// An accepted event.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "transponder.dev",
    version = "v1",
    kind = "ReleaseOutcome",
    doc = "An event that an upper cluster reported, and how far it has come with each target.",
    namespaced,
    status = "OutcomeStatus",
    shortname = "ro",
    category = "transponder",
    selectable = ".status.state",
    selectable = ".status.forgetAfter",
    selectable = ".spec.cluster",
    printcolumn = r#"{"name":"Cluster","type":"string","jsonPath":".spec.cluster"}"#,
    printcolumn = r#"{"name":"App","type":"string","jsonPath":".spec.app"}"#,
    printcolumn = r#"{"name":"Env","type":"string","jsonPath":".spec.env"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".spec.phase"}"#,
    printcolumn = r#"{"name":"Broker","type":"string","jsonPath":".status.conditions[?(@.type==\"broker\")].reason"}"#,
    printcolumn = r#"{"name":"Tracking","type":"string","jsonPath":".status.conditions[?(@.type==\"tracking\")].reason"}"#,
    printcolumn = r#"{"name":"DORA","type":"string","jsonPath":".status.conditions[?(@.type==\"dora\")].reason"}"#,
    printcolumn = r#"{"name":"Span","type":"string","jsonPath":".status.conditions[?(@.type==\"span\")].reason"}"#,
    printcolumn = r#"{"name":"Received","type":"date","jsonPath":".spec.receivedAt"}"#,
    printcolumn = r#"{"name":"Chain","type":"string","jsonPath":".spec.chainId","priority":1}"#,
    printcolumn = r#"{"name":"Type","type":"string","jsonPath":".spec.type","priority":1}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "an accepted event never changes"}]))]
pub(crate) struct OutcomeSpec {
    /// The cluster that reported it.
    #[schemars(length(min = 1, max = 63))]
    pub cluster: String,
    /// `context.source` of the event.
    #[schemars(length(min = 1, max = 1024))]
    pub source: String,
    /// `context.id` of the event.
    #[schemars(length(min = 1, max = 1024))]
    pub id: String,
    /// `context.type` of the event.
    #[schemars(length(min = 1, max = 1024))]
    #[serde(rename = "type")]
    pub kind: String,
    /// Content type that it came with.
    #[schemars(length(max = 256))]
    pub content_type: String,
    /// When it was received.
    #[schemars(schema_with = "date_time")]
    pub received_at: String,
    /// Where it goes.
    #[schemars(length(max = 8))]
    pub targets: Vec<String>,
    /// App namespace of the release, if it reports one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub app_namespace: Option<String>,
    /// App of the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub app: Option<String>,
    /// Environment of the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub env: Option<String>,
    /// What it reports: `Syncing`, `Succeeded` or `Failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub phase: Option<String>,
    /// Chain id of the release, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub chain_id: Option<String>,
    /// Schema of this object; absent: 1. A program leaves alone what it does not know.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "count")]
    pub schema: u32,
    /// The event, byte for byte as it was received.
    #[schemars(length(max = 524_288))]
    pub body: String,
}

/// How far it has come. What is not there is as it began.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OutcomeStatus {
    /// `Delivered` when nothing is left to be done, `Dead` when a target was given up; absent while something is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Ended>,
    /// Day from which it may be forgotten, as in `2026-12-07`, of one that has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 10))]
    pub forget_after: Option<String>,
    /// How far it is with each target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub conditions: Vec<Condition>,
    /// Finish times that were reported after the first, which is in the event itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub observations: Vec<Observed>,
    /// Number of the last observation: how many there have been.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "count")]
    pub observed: u32,
    /// Number of the last observation that tracking has been told.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "count")]
    pub tracked: u32,
    /// Number of the last observation that a verdict rests on.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "count")]
    pub settled: u32,
    /// The last annotation that asked for a replay and was followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub replayed: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde asks for it")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// How an event has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum Ended {
    /// Every target has it, or needs it no more.
    Delivered,
    /// A target was given up. It can be replayed.
    Dead,
}

/// How far an event is with one target: a condition in Kubernetes' sense, with what delivery needs beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Condition {
    /// The target.
    #[serde(rename = "type")]
    #[schemars(length(max = 16))]
    pub target: String,
    /// `True` when the target has it or needs it no more, `False` when it was given up, else `Unknown`.
    #[schemars(length(max = 7))]
    pub status: String,
    /// The state: `Stored`, `Waiting`, `Retrying`, `Delivered`, `Replaced` or `Dead`.
    #[schemars(length(max = 16))]
    pub reason: String,
    /// The last error in the target's own words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub message: String,
    /// When the state changed last.
    #[schemars(schema_with = "date_time")]
    pub last_transition_time: String,
    /// A fixed code of what went wrong last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub code: String,
    /// How often it was tried.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "count")]
    pub attempts: u32,
    /// When it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "optional_date_time")]
    pub next_try_at: Option<String>,
    /// When it failed first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "optional_date_time")]
    pub first_failed_at: Option<String>,
    /// The broker's own id of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub broker_event_id: Option<String>,
    /// The verdict that DORA is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<HandedVerdict>,
    /// From when the span starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<HandedAnchor>,
}

/// A finish time that was reported again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Observed {
    /// Its number: the first of an event is 1.
    #[schemars(schema_with = "count")]
    pub number: u32,
    /// The finish time.
    #[schemars(schema_with = "date_time")]
    pub finished_at: String,
    /// When it was received.
    #[schemars(schema_with = "date_time")]
    pub received_at: String,
}

/// A verdict that is handed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HandedVerdict {
    /// Its place in the order of hand-overs.
    pub order: i64,
    /// Finish of the candidate.
    #[schemars(schema_with = "date_time")]
    pub finished_at: String,
    /// Of a failure, the finish of its first report.
    #[schemars(schema_with = "date_time")]
    pub first_finished_at: String,
    /// Receipt of the candidate.
    #[schemars(schema_with = "date_time")]
    pub received_at: String,
    /// The other events that it rests on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub rests_on: Vec<Rest>,
}

/// An event that a verdict rests on, beside its candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rest {
    /// Its key.
    #[schemars(length(max = 40))]
    pub event: String,
    /// Number of its last observation that is settled by the verdict.
    #[schemars(schema_with = "count")]
    pub observation: u32,
}

/// From when a span starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HandedAnchor {
    /// Which time that is: `pr_created`, `flow_start` or `finished`.
    #[schemars(length(max = 16))]
    pub kind: String,
    /// Creation of the pull request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "optional_date_time")]
    pub pr_created_at: Option<String>,
    /// URL of the pull request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub pr_url: String,
}

fn count(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "integer", "format": "int64", "minimum": 0, "maximum": u32::MAX })
}

/// RFC 3339, to the nanosecond.
fn date_time(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "string", "format": "date-time" })
}

fn optional_date_time(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "string", "format": "date-time", "nullable": true })
}
