//! Reading an event: what Transponder needs of it, and what it refuses. The bytes themselves are never rewritten.

use crate::{
    ClusterName, EventKey, Phase, Release, ReleaseId, Stream, Timestamp,
    json::{JsonError, Object},
    parse_rfc3339,
};

/// Longest `context.id` of the two types: it becomes part of Kubernetes names.
pub const MAX_REPORT_ID: usize = 40;
/// Longest other identifier: sources, ids of other types, chain ids, revisions, URLs.
pub const MAX_TEXT: usize = 1024;

/// The two event types that report a release.
const REPORT_TYPES: [&str; 2] =
    ["dev.cdevents.environment.deployed.0.1.0", "dev.cdevents.environment.deploying.0.1.0"];

/// Why an event is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {reason}")]
pub struct EventError {
    /// The field, such as `subject.content.env`, or `the event` itself.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}

impl EventError {
    fn new(field: &str, reason: impl Into<String>) -> Self {
        Self { field: field.to_owned(), reason: reason.into() }
    }
}

impl From<JsonError> for EventError {
    fn from(error: JsonError) -> Self {
        let field = if error.path.is_empty() { "the event".to_owned() } else { error.path };
        Self { field, reason: error.reason }
    }
}

/// An accepted event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// `context.id`.
    pub id: String,
    /// `context.source`.
    pub source: String,
    /// `context.type`.
    pub kind: String,
    /// `subject.content.cluster` as far as it is text. Of the two types it is always there.
    pub cluster: Option<String>,
    /// What a release came to; of the two types only.
    pub report: Option<Report>,
}

/// What one of the two types reports.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// The release.
    pub release: Release,
    /// The phase.
    pub phase: Phase,
    /// When the phase was reached.
    pub finished_at: Timestamp,
    /// `context.chainId`, empty when there is none.
    pub chain_id: String,
    /// Revision of the app's repository, empty when unknown.
    pub git_revision: String,
    /// URL of the app's repository, empty when unknown.
    pub git_url: String,
    /// Start of the flow. An unreadable one counts as unknown: no optional field decides admission.
    pub flow_start_time: Option<Timestamp>,
    /// Creation of the pull request, if the event carries it.
    pub pr_created_at: Option<Timestamp>,
    /// URL of the pull request, if the event carries it; empty when unknown.
    pub pr_url: String,
    /// W3C traceparent of the flow, unchecked; empty when there is none.
    pub traceparent: String,
}

impl Event {
    /// Reads an event.
    ///
    /// # Errors
    /// Names the first field that breaks the contract.
    pub fn parse(bytes: &[u8]) -> Result<Self, EventError> {
        let root = Object::read(bytes)?;
        root.refuse_case_twins("the event")?;
        let context =
            root.object("context", "context")?.ok_or_else(|| EventError::new("context", "is required"))?;
        context.refuse_case_twins("context")?;
        let nothing = Object::default();
        let subject = root.object("subject", "subject")?.unwrap_or(&nothing);
        subject.refuse_case_twins("subject")?;

        let kind = required(context, "type", "context.type")?;
        let source = required(context, "source", "context.source")?;
        let id = required(context, "id", "context.id")?;
        let report_type = REPORT_TYPES.contains(&kind);

        let content = match subject.object("content", "subject.content") {
            Ok(content) => content,
            // Other types may put anything there; only the two are ours to read.
            Err(_) if !report_type => None,
            Err(error) => return Err(error.into()),
        }
        .unwrap_or(&nothing);
        content.refuse_case_twins("subject.content")?;

        let report = if report_type {
            check_report_id(id)?;
            Some(Report::read(&root, context, content, kind, id)?)
        } else {
            None
        };
        let cluster = content.text("cluster", "subject.content.cluster").ok().filter(|c| !c.is_empty());
        Ok(Self {
            id: id.to_owned(),
            source: source.to_owned(),
            kind: kind.to_owned(),
            cluster: cluster.map(str::to_owned),
            report,
        })
    }

    /// The event's key, as sent by `cluster`.
    #[must_use]
    pub fn key(&self, cluster: &ClusterName) -> EventKey {
        EventKey::new(cluster, &self.source, &self.id)
    }
}

impl Report {
    fn read(
        root: &Object<'_>,
        context: &Object<'_>,
        content: &Object<'_>,
        kind: &str,
        id: &str,
    ) -> Result<Self, EventError> {
        let stream = Stream {
            app_namespace: name(content, "appNamespace", "subject.content.appNamespace")?,
            app: name(content, "appName", "subject.content.appName")?,
            env: name(content, "env", "subject.content.env")?,
            cluster: name(content, "cluster", "subject.content.cluster")?,
        };
        let phase = phase(content, kind)?;
        let finished = required(content, "finishedAt", "subject.content.finishedAt")?;
        let finished_at = parse_rfc3339(finished)
            .map_err(|e| EventError::new("subject.content.finishedAt", e.to_string()))?;
        if !is_plausible(finished_at) {
            return Err(EventError::new("subject.content.finishedAt", "must lie between 1970 and 2261"));
        }
        let chain_id = bounded(context, "chainId", "context.chainId")?;
        let git_revision = bounded(content, "gitRevision", "subject.content.gitRevision")?;
        let release_id = ReleaseId::of(chain_id, git_revision, id)
            .ok_or_else(|| EventError::new("context.id", "is required"))?;
        let platform = match root.object("customData", "customData") {
            Ok(Some(custom)) => custom.object("platform", "customData.platform").ok().flatten(),
            _ => None,
        };
        let traceparent = platform.and_then(|platform| platform.text("traceparent", "").ok());
        Ok(Self {
            release: Release { stream, id: release_id },
            phase,
            finished_at,
            flow_start_time: time(content, "flowStartTime", "subject.content.flowStartTime")?,
            pr_created_at: time(content, "prCreatedAt", "subject.content.prCreatedAt")?,
            pr_url: optional(content, "prUrl", "subject.content.prUrl")?,
            git_url: optional(content, "gitUrl", "subject.content.gitUrl")?,
            traceparent: traceparent.unwrap_or_default().to_owned(),
            chain_id: chain_id.to_owned(),
            git_revision: git_revision.to_owned(),
        })
    }
}

/// Whether a span and a counter can hold the time: after 1970 began and within 64 bits of nanoseconds.
#[must_use]
pub fn is_plausible(time: Timestamp) -> bool {
    (1..9_183_110_400).contains(&time.as_second())
}

/// The id of the two types ends up in names of PipelineRuns (RFC 1123 subdomain).
fn check_report_id(id: &str) -> Result<(), EventError> {
    let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    if id.len() > MAX_REPORT_ID {
        return Err(EventError::new("context.id", format!("must have at most {MAX_REPORT_ID} characters")));
    }
    let fits = id.bytes().all(inner) && edge(id.bytes().next()) && edge(id.bytes().last());
    if !fits || id.split('.').any(|l| l.is_empty() || l.starts_with('-') || l.ends_with('-')) {
        return Err(EventError::new("context.id", "must fit a Kubernetes name: a-z, 0-9, '-' and '.'"));
    }
    Ok(())
}

fn phase(content: &Object<'_>, kind: &str) -> Result<Phase, EventError> {
    let text = required(content, "phase", "subject.content.phase")?;
    let phase = Phase::parse(text).ok_or_else(|| {
        EventError::new("subject.content.phase", "must be Syncing, Succeeded, Failed or Error")
    })?;
    if kind != phase.event_type() {
        return Err(EventError::new("context.type", format!("contradicts the phase {phase}")));
    }
    let outcome = content.text("outcome", "subject.content.outcome")?;
    if !outcome.is_empty() && outcome != phase.outcome() {
        return Err(EventError::new("subject.content.outcome", format!("contradicts the phase {phase}")));
    }
    let status = content.text("status", "subject.content.status")?;
    if !status.is_empty() && Phase::parse(status) != Some(phase) {
        return Err(EventError::new("subject.content.status", format!("contradicts the phase {phase}")));
    }
    Ok(phase)
}

fn bounded<'o>(object: &'o Object<'_>, name: &str, path: &str) -> Result<&'o str, EventError> {
    let text = object.text(name, path)?;
    if text.len() > MAX_TEXT {
        return Err(EventError::new(path, format!("must have at most {MAX_TEXT} bytes")));
    }
    Ok(text)
}

/// An optional text that identifies nothing: one that is too long to be kept counts as unknown.
fn optional(object: &Object<'_>, name: &str, path: &str) -> Result<String, EventError> {
    let text = object.text(name, path)?;
    Ok(if text.len() > MAX_TEXT { String::new() } else { text.to_owned() })
}

fn required<'o>(object: &'o Object<'_>, name: &str, path: &str) -> Result<&'o str, EventError> {
    let text = bounded(object, name, path)?;
    if text.is_empty() {
        return Err(EventError::new(path, "is required"));
    }
    Ok(text)
}

fn name<T: std::str::FromStr<Err = crate::NameError>>(
    object: &Object<'_>,
    name: &str,
    path: &str,
) -> Result<T, EventError> {
    required(object, name, path)?.parse().map_err(|e: crate::NameError| EventError::new(path, e.to_string()))
}

/// An optional time: unreadable or implausible counts as unknown, another type than text is refused.
fn time(object: &Object<'_>, name: &str, path: &str) -> Result<Option<Timestamp>, EventError> {
    let text = object.text(name, path)?;
    Ok(parse_rfc3339(text).ok().filter(|time| is_plausible(*time)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: &str = r#"{"context":{"version":"0.4.1","id":"0123456789abcdef0123","source":"/s",
      "type":"dev.cdevents.environment.deployed.0.1.0","timestamp":"2026-09-14T10:00:00Z","chainId":"c-1"},
      "subject":{"id":"/s","source":"/s","type":"environment","content":{"appNamespace":"app-shop-cicd",
      "appName":"shop","env":"prod","cluster":"kind-prod","phase":"Succeeded","outcome":"success",
      "status":"Succeeded","finishedAt":"2026-09-14T10:00:00.5Z","flowStartTime":"","prUrl":null}}}"#;

    fn refused(from: &str, to: &str) -> String {
        assert!(EVENT.contains(from), "{from}");
        Event::parse(EVENT.replacen(from, to, 1).as_bytes())
            .map(|_| String::new())
            .unwrap_or_else(|e| e.to_string())
    }

    #[test]
    fn the_hooks_event_is_read() {
        let event = Event::parse(EVENT.as_bytes()).unwrap();
        let report = event.report.unwrap();
        assert_eq!(event.cluster.as_deref(), Some("kind-prod"));
        assert_eq!(report.phase, Phase::Succeeded);
        assert_eq!(report.finished_at.to_string(), "2026-09-14T10:00:00.5Z");
        assert_eq!(report.release.id, ReleaseId::ChainId("c-1".into()));
        assert_eq!(report.flow_start_time, None);
    }

    #[test]
    fn a_broken_field_is_named() {
        let long = format!("\"id\":\"{}\"", "a".repeat(41));
        for (from, to, expected) in [
            (r#""id":"0123456789abcdef0123""#, r#""id":"""#, "context.id is required"),
            (r#""id":"0123456789abcdef0123""#, r#""id":7"#, "context.id must be a string"),
            (
                r#""id":"0123456789abcdef0123""#,
                r#""id":"a\r\nX: y""#,
                "context.id must fit a Kubernetes name",
            ),
            (r#""id":"0123456789abcdef0123""#, &long, "context.id must have at most 40 characters"),
            (r#""source":"/s","#, "", "context.source is required"),
            (r#""env":"prod""#, r#""env":"Prod""#, "subject.content.env must be a DNS label"),
            (r#""env":"prod""#, r#""env":null"#, "subject.content.env is required"),
            (r#""phase":"Succeeded""#, r#""phase":"success""#, "subject.content.phase must be"),
            (
                r#""phase":"Succeeded""#,
                r#""phase":"Failed""#,
                "subject.content.outcome contradicts the phase Failed",
            ),
            (r#""phase":"Succeeded""#, r#""phase":"Syncing""#, "context.type contradicts the phase Syncing"),
            (r#""status":"Succeeded""#, r#""status":"Failed""#, "subject.content.status contradicts"),
            (
                r#""status":"Succeeded""#,
                r#""Status":"x","status":"Succeeded""#,
                "subject.content has names that differ",
            ),
            (
                "2026-09-14T10:00:00.5Z",
                "2026-09-14 10:00:00Z",
                "subject.content.finishedAt is not an RFC 3339 time",
            ),
            ("2026-09-14T10:00:00.5Z", "1970-01-01T00:00:00Z", "subject.content.finishedAt must lie between"),
            (
                r#""flowStartTime":"""#,
                r#""flowStartTime":5"#,
                "subject.content.flowStartTime must be a string",
            ),
            (r#""content":{"#, r#""content":7,"x":{"#, "subject.content must be an object"),
        ] {
            let got = refused(from, to);
            assert!(got.starts_with(expected), "{to}: {got}");
        }
    }

    #[test]
    fn optional_fields_never_decide_admission() {
        for (from, to) in [
            (r#""flowStartTime":"""#, r#""flowStartTime":"yesterday""#),
            (r#","flowStartTime":"""#, ""),
            (r#""flowStartTime":"""#, r#""flowStartTime":null"#),
            (r#""chainId":"c-1""#, r#""chainId":"""#),
            (r#","chainId":"c-1""#, ""),
            (r#""outcome":"success","#, ""),
            (r#""outcome":"success""#, r#""outcome":null"#),
            (r#""version":"0.4.1""#, r#""specversion":"0.5.1""#),
            (r#""status":"Succeeded","#, r#""more":[1e400,12345678901234567890],"#),
        ] {
            assert_eq!(refused(from, to), "", "{to}");
        }
        let failed = EVENT.replace("\"Succeeded\"", "\"Failed\"").replace("success", "failure");
        assert_eq!(Event::parse(failed.as_bytes()).unwrap().report.unwrap().phase, Phase::Failed);
        let error = EVENT.replace("\"Succeeded\"", "\"Error\"").replace("success", "failure");
        assert_eq!(Event::parse(error.as_bytes()).unwrap().report.unwrap().phase, Phase::Failed);
    }
}
