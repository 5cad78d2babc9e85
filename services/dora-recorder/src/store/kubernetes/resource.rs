//! `DoraStream` as the API server knows it: the schema, and what `kubectl get` shows.
//!
//! Spec and status are written by one request: there is no status subresource, so that a stream never exists without its
//! counts.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResource, CustomResourceExt as _, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Schema number of what this version writes. One more with each field that is added.
pub(super) const SCHEMA: u32 = 1;

/// Which stream it is. Never changes.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "transponder.dev",
    version = "v1",
    kind = "DoraStream",
    plural = "dorastreams",
    singular = "dorastream",
    shortname = "dst",
    category = "transponder",
    namespaced,
    status = "DoraStreamStatus",
    derive = "PartialEq",
    doc = "What the releases of one app in one environment of one cluster add up to. Written by the DoraRecorder alone.",
    validation = Rule::new("self.metadata.name.matches('^[0-9a-f]{40}$')").message("the name must be the key of the stream"),
    printcolumn(name = "App namespace", type_ = "string", json_path = ".spec.appNamespace"),
    printcolumn(name = "App", type_ = "string", json_path = ".spec.app"),
    printcolumn(name = "Env", type_ = "string", json_path = ".spec.env"),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cluster"),
    printcolumn(name = "Deployments", type_ = "integer", json_path = ".status.totals.deployments"),
    printcolumn(name = "Succeeded", type_ = "integer", json_path = ".status.totals.succeeded"),
    printcolumn(name = "Failed", type_ = "integer", json_path = ".status.totals.failed"),
    printcolumn(
        name = "Failing since",
        type_ = "date",
        json_path = ".status.failingSince",
        description = "First finish of the first failure that no success has followed"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(validation = Rule::new("self.maker == 'import' ? self.env + self.cluster == '' : self.env != '' && self.cluster != ''").message("env and cluster are empty for what was imported, and for nothing else"))]
#[x_kube(validation = Rule::new("self == oldSelf").message("the identity of a stream cannot be changed"))]
#[serde(rename_all = "camelCase")]
pub(super) struct DoraStreamSpec {
    /// CI namespace of the app.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub(super) app_namespace: String,
    /// The app.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub(super) app: String,
    /// The environment. Empty for what was imported.
    #[schemars(length(max = 63), regex(pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"))]
    pub(super) env: String,
    /// The cluster that the app runs on. Empty for what was imported.
    #[schemars(length(max = 63), regex(pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"))]
    pub(super) cluster: String,
    /// Who made the stream, and so whose room it takes.
    pub(super) maker: Maker,
}

/// Who made a stream.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Maker {
    /// The edge, or a Task of the platform.
    Platform,
    /// A Task of the app.
    App,
    /// An older exporter, which did not tell environments apart.
    Import,
}

/// What the stream's releases add up to, and what is needed to count none of them twice. Times are RFC 3339, with up to
/// nine digits of a second.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(super) struct DoraStreamStatus {
    /// Schema number of whoever wrote this. An older version does not write it again.
    #[schemars(range(min = 1), extend("format" = "int32"))]
    pub(super) schema: u32,
    /// When the first verdict was taken in.
    #[schemars(extend("format" = "date-time"))]
    pub(super) first_verdict_at: String,
    /// How long after that the series stand at 0, as an ISO 8601 duration. `PT0S`: the totals are shown.
    #[schemars(length(max = 64))]
    pub(super) hold: String,
    /// The totals.
    pub(super) totals: Totals,
    /// First finish of the first failure that no success has followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(super) failing_since: Option<String>,
    /// Latest finish of a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(super) succeeded_until: Option<String>,
    /// Latest finish of a release that is not among `releases` any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(super) forgotten_until: Option<String>,
    /// Of what was imported: the stream whose success ended the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{40}$"))]
    pub(super) claimed_by: Option<String>,
    /// Of a stream: the imported failure that its success ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(super) inherited: Option<String>,
    /// Releases that await a sync of this cluster's own Argo CD.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub(super) awaited: Vec<AwaitedSync>,
    /// Per Application the last sync that was counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub(super) counted_syncs: Vec<CountedSync>,
    /// The last releases, one line each: its key, its latest finish, and what it was counted as: `failed`, `succeeded`
    /// (`succeeded=` and the finish, when that was not the latest), `conflict`.
    #[serde(default)]
    #[schemars(
        length(max = 1024),
        inner(
            length(max = 160),
            regex(pattern = r"^[0-9a-f]{40} [^ ]+( (failed|conflict|succeeded(=[^ ]+)?))*$")
        )
    )]
    pub(super) releases: Vec<String>,
}

/// A release that awaits the first sync of an Application that starts after the baseline.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(super) struct AwaitedSync {
    /// UID of the Application.
    #[schemars(length(min = 1, max = 64))]
    pub(super) application_uid: String,
    /// Start of its last operation when the release became pending. Absent: there had been none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(super) baseline: Option<String>,
    /// Key of the release.
    #[schemars(regex(pattern = "^[0-9a-f]{40}$"))]
    pub(super) release: String,
    /// When its flow began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(super) flow_start: Option<String>,
}

/// A sync of an Application that was counted.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(super) struct CountedSync {
    /// UID of the Application.
    #[schemars(length(min = 1, max = 64))]
    pub(super) application_uid: String,
    /// Start of the operation.
    #[schemars(extend("format" = "date-time"))]
    pub(super) started_at: String,
}

/// All totals of a stream.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(super) struct Totals {
    /// Deployments: releases that were counted as succeeded for the first time.
    #[schemars(range(min = 0))]
    pub(super) deployments: i64,
    /// Releases that succeeded.
    #[schemars(range(min = 0))]
    pub(super) succeeded: i64,
    /// Releases that failed.
    #[schemars(range(min = 0))]
    pub(super) failed: i64,
    /// Releases that were reported failed after they had been counted as succeeded.
    #[schemars(range(min = 0))]
    pub(super) conflicts: i64,
    /// Reports of unknown releases that are older than all that are known.
    #[schemars(range(min = 0))]
    pub(super) late: i64,
    /// From the start of the flow to the first success of a release.
    pub(super) lead_time: Samples,
    /// From the first unrestored failure of the stream to its next success.
    pub(super) restore: Samples,
}

/// A histogram, and what was not observed in it.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(super) struct Samples {
    /// Sum of the samples, as an ISO 8601 duration.
    #[schemars(length(max = 64))]
    pub(super) sum: String,
    /// Samples in each bucket, not cumulated.
    #[schemars(length(max = 16), inner(range(min = 0)))]
    pub(super) buckets: Vec<i64>,
    /// Samples above the last bound.
    #[schemars(range(min = 0))]
    pub(super) above: i64,
    /// Samples that ended before they began.
    #[schemars(range(min = 0))]
    pub(super) negative: i64,
    /// Samples that nobody would believe.
    #[schemars(range(min = 0))]
    pub(super) implausible: i64,
}

/// The definition to be applied.
#[must_use]
pub fn crd() -> CustomResourceDefinition {
    let mut definition = DoraStream::crd();
    for version in &mut definition.spec.versions {
        // With it, a status that comes with a creation is dropped.
        version.subresources = None;
    }
    definition
}
