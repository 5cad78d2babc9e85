//! The event that a hook sends.

use serde::Serialize;
use sha2::{Digest, Sha256};
use transponder_core::{EventKey, Phase, Stream, Timestamp};

/// What an event says. Text that is unknown is empty; every key is written all the same, because a Tekton binding
/// aborts on a path that is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields {
    /// App namespace, app, environment and cluster.
    pub stream: Stream,
    /// What the sync came to.
    pub phase: Phase,
    /// When. Written to the millisecond.
    pub finished_at: Timestamp,
    /// Correlator of the flow, `context.chainId`.
    pub chain_id: String,
    /// Revision of the GitOps repository, `content.revision`.
    pub gitops_revision: String,
    /// URL of the app's repository.
    pub git_url: String,
    /// Revision of the app's repository.
    pub git_revision: String,
    /// RFC 3339 time at which the flow began.
    pub flow_start_time: String,
    /// The app's configuration: the text of a JSON object, `{}` when there is none.
    pub config_json: String,
}

/// A built event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// `context.id`.
    pub id: String,
    /// The key under which the edge files it, when it is posted for the cluster that it names.
    pub key: EventKey,
    /// The bytes to send, the same in every attempt.
    pub body: Vec<u8>,
}

/// The event could not be written as JSON.
#[derive(Debug, thiserror::Error)]
#[error("writing the event: {0}")]
pub struct BuildError(#[from] serde_json::Error);

/// What sets one run of a sync's phase apart from another, and is the same in all retries of a pod and of an operation.
///
/// Argo CD 3.2 names a hook Job that has `generateName` `<prefix><revision>-<presync|postsync|syncfail>-<start of the
/// operation>`, the same in all retries of one operation. Any other name may be the same for ever, so the uid of the
/// Job comes next, and with neither the time is all there is.
#[must_use]
pub fn attempt(
    job_name: Option<&str>,
    job_uid: Option<&str>,
    phase: Phase,
    finished_at: Timestamp,
) -> String {
    match (job_name.filter(|name| hook_of(name).is_some()), job_uid) {
        (Some(name), _) => name.to_owned(),
        (None, Some(uid)) => uid.to_owned(),
        (None, None) => format!("{phase}-{finished_at:.3}"),
    }
}

/// The hook that Argo CD ran a Job for, and the phase that this hook reports.
pub(crate) struct HookType {
    suffix: &'static str,
    /// As the Job's annotation names it.
    pub(crate) name: &'static str,
    pub(crate) phase: Phase,
}

const HOOK_TYPES: [HookType; 3] = [
    HookType { suffix: "-presync", name: "PreSync", phase: Phase::Syncing },
    HookType { suffix: "-postsync", name: "PostSync", phase: Phase::Succeeded },
    HookType { suffix: "-syncfail", name: "SyncFail", phase: Phase::Failed },
];

/// The hook of a Job whose name ends in `-(presync|postsync|syncfail)-<unix seconds>`. Fewer than ten digits are no
/// time of this age but a number in a fixed name, under which only the first release would ever be reported.
pub(crate) fn hook_of(job_name: &str) -> Option<&'static HookType> {
    let (front, seconds) = job_name.rsplit_once('-')?;
    let is_time = (10..=12).contains(&seconds.len()) && seconds.bytes().all(|b| b.is_ascii_digit());
    HOOK_TYPES.iter().find(|hook| is_time && front.ends_with(hook.suffix))
}

/// Builds the event of DESIGN §4. `attempt` is what [`attempt`] answers, or any other text that is new for each event
/// that is to be a new one.
///
/// # Errors
/// None that texts and numbers could cause; the JSON library's signature has one.
pub fn build(fields: &Fields, attempt: &str) -> Result<Built, BuildError> {
    let stream = &fields.stream;
    let source = stream.source();
    let kind = fields.phase.event_type();
    let digest = hex::encode(Sha256::digest(format!("{source}:{kind}:{attempt}")));
    let id = &digest[..20];
    let finished_at = format!("{:.3}", fields.finished_at);
    let event = Event {
        context: Context {
            version: "0.4.1",
            id,
            source: &source,
            kind,
            timestamp: &finished_at,
            chain_id: &fields.chain_id,
        },
        subject: Subject {
            id: &source,
            source: &source,
            kind: "environment",
            content: Content {
                app_namespace: stream.app_namespace.as_str(),
                app_name: stream.app.as_str(),
                env: stream.env.as_str(),
                cluster: stream.cluster.as_str(),
                phase: fields.phase.as_str(),
                outcome: fields.phase.outcome(),
                status: fields.phase.as_str(),
                revision: &fields.gitops_revision,
                git_url: &fields.git_url,
                git_revision: &fields.git_revision,
                flow_start_time: &fields.flow_start_time,
                finished_at: &finished_at,
                pr_url: "",
                pr_created_at: "",
                config_json: &fields.config_json,
            },
        },
        custom_data: CustomData {
            platform: Platform {
                traceparent: "",
                flow_start_time: &fields.flow_start_time,
                config_json: "{}",
            },
        },
        custom_data_content_type: "application/json",
    };
    Ok(Built {
        key: EventKey::new(&stream.cluster, &source, id),
        id: id.to_owned(),
        body: serde_json::to_vec(&event)?,
    })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Event<'a> {
    context: Context<'a>,
    subject: Subject<'a>,
    custom_data: CustomData<'a>,
    custom_data_content_type: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Context<'a> {
    version: &'a str,
    id: &'a str,
    source: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    timestamp: &'a str,
    chain_id: &'a str,
}

#[derive(Serialize)]
struct Subject<'a> {
    id: &'a str,
    source: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    content: Content<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Content<'a> {
    app_namespace: &'a str,
    app_name: &'a str,
    env: &'a str,
    cluster: &'a str,
    phase: &'a str,
    outcome: &'a str,
    status: &'a str,
    revision: &'a str,
    git_url: &'a str,
    git_revision: &'a str,
    flow_start_time: &'a str,
    finished_at: &'a str,
    pr_url: &'a str,
    pr_created_at: &'a str,
    config_json: &'a str,
}

#[derive(Serialize)]
struct CustomData<'a> {
    platform: Platform<'a>,
}

/// These keys are in snake case, unlike the others: so are the bindings that read them.
#[derive(Serialize)]
struct Platform<'a> {
    traceparent: &'a str,
    flow_start_time: &'a str,
    config_json: &'a str,
}
