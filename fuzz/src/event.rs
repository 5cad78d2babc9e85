//! Target `event`.

use serde_json::Value;
use transponder_core::{
    ClusterName, Event, EventKey, Report,
    event::{MAX_REPORT_ID, MAX_TEXT, is_plausible},
    parse_rfc3339,
};

/// An event: nothing panics; what is accepted is complete, is read by another reader as we read it, and has one key.
///
/// # Panics
///
/// When one of that does not hold.
pub fn event(input: &[u8]) {
    let parsed = Event::parse(input);
    assert_eq!(Event::parse(input), parsed, "the same bytes, another event");
    let event = match parsed {
        Ok(event) => event,
        Err(error) => {
            assert!(!error.field.is_empty() && !error.reason.is_empty(), "{error:?}");
            return assert!(error.to_string().len() < 1024, "an answer is no echo: {error}");
        }
    };
    for text in [&event.id, &event.source, &event.kind] {
        assert!(!text.is_empty() && text.len() <= MAX_TEXT, "{text}");
    }
    check_key(&event);
    if let Some(report) = &event.report {
        check_report(&event, report);
    }
    match serde_json::from_slice::<Value>(input) {
        Ok(document) => check_against(&event, &document),
        // We pass numbers on that no double holds.
        Err(error) => assert!(error.to_string().starts_with("number out of range"), "{error}"),
    }
}

fn check_key(event: &Event) {
    let cluster = ClusterName::new(event.cluster.as_deref().unwrap_or_default())
        .unwrap_or_else(|_| ClusterName::new("kind-prod").expect("a name"));
    let key = event.key(&cluster);
    assert_eq!(key, EventKey::new(&cluster, &event.source, &event.id));
    assert_eq!(key.to_string().len(), 40);
    assert_eq!(key.to_string().parse(), Ok(key));
}

fn check_report(event: &Event, report: &Report) {
    assert_eq!(event.cluster.as_deref(), Some(report.release.stream.cluster.as_str()));
    assert!(event.id.len() <= MAX_REPORT_ID, "{}", event.id);
    assert_eq!(event.kind, report.phase.event_type());
    let times = [Some(report.finished_at), report.flow_start_time, report.pr_created_at];
    assert!(times.into_iter().flatten().all(is_plausible), "{times:?}");
    for text in [&report.chain_id, &report.git_revision, &report.git_url, &report.pr_url] {
        assert!(text.len() <= MAX_TEXT, "{text}");
    }
    // The store keeps reports as JSON.
    let kept = serde_json::to_string(report).expect("a report is written");
    assert_eq!(serde_json::from_str::<Report>(&kept).expect("a report is read"), *report);
}

/// Compares with what a common reader sees, which takes the last of two members of one name where we look for one.
fn check_against(event: &Event, document: &Value) {
    let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    assert_eq!(event.id, text("/context/id"));
    assert_eq!(event.source, text("/context/source"));
    assert_eq!(event.kind, text("/context/type"));
    assert_eq!(event.cluster.as_deref().unwrap_or_default(), text("/subject/content/cluster"));
    assert!(!expands(document), "Tekton would expand a string of it");
    if let Some(report) = &event.report {
        let content = |name: &str| text(&format!("/subject/content/{name}"));
        let stream = &report.release.stream;
        assert_eq!(stream.app_namespace.as_str(), content("appNamespace"));
        assert_eq!(stream.app.as_str(), content("appName"));
        assert_eq!(stream.env.as_str(), content("env"));
        assert_eq!(report.chain_id, text("/context/chainId"));
        assert_eq!(report.git_revision, content("gitRevision"));
        assert_eq!(parse_rfc3339(content("finishedAt")), Ok(report.finished_at));
        assert_eq!(report.traceparent, text("/customData/platform/traceparent"));
    }
    // Neither white space, nor escapes, nor the order of members tell events apart.
    let rewritten = serde_json::to_vec(document).expect("a document is written");
    assert_eq!(Event::parse(&rewritten).as_ref(), Ok(event));
}

fn expands(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains("$(tt."),
        Value::Array(elements) => elements.iter().any(expands),
        Value::Object(members) => {
            members.iter().any(|(name, value)| name.contains("$(tt.") || expands(value))
        }
        _ => false,
    }
}
