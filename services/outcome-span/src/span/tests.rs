use transponder_core::{AppName, AppNamespace, ClusterName, EnvName};

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn outcome() -> Outcome {
    let cluster = ClusterName::new("kind-prod").unwrap();
    Outcome {
        key: EventKey::new(&cluster, "/s", "id"),
        stream: Stream {
            app_namespace: AppNamespace::new("app-shop-cicd").unwrap(),
            app: AppName::new("shop").unwrap(),
            env: EnvName::new("prod").unwrap(),
            cluster,
        },
        phase: Phase::Succeeded,
        finished_at: at("2026-09-14T10:00:00.123456789Z"),
        flow_start_time: Some(at("2026-09-14T09:00:00Z")),
        pr_created_at: Some(at("2026-09-05T08:00:00Z")),
        pr_url: "https://git/shop/pull/7".into(),
        chain_id: "chain-1".into(),
        git_revision: "abc".into(),
        git_url: "https://robot:secret@git/shop".into(),
        event_id: "id".into(),
        traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
    }
}

fn value<'a>(span: &'a Span, name: &str) -> Option<&'a str> {
    let attribute = span.attributes.iter().find(|attribute| attribute.key == name)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

#[test]
fn the_vectors_of_trace_id_and_span_id_never_change() {
    // { printf '\0\0\0\0\0\0\0\x14transponder.trace.v1\0\0\0\0\0\0\0\x0dapp-shop-cicd\0\0\0\0\0\0\0\x14'
    //   printf b386512d3d7c808f87033846be5ca10c48d40bdf | xxd -r -p; } | sha256sum | cut -c1-32
    let ids = Ids::of(&outcome());
    assert_eq!(hex::encode(ids.trace), "ba2ef885fa7996ae4e7718027a35283e");
    assert_eq!(hex::encode(ids.span), "a07e68f0225b4431");
}

#[test]
fn ids_are_those_of_the_event_and_of_nothing_else() {
    let first = Ids::of(&outcome());
    let mut same = Outcome { phase: Phase::Failed, pr_created_at: None, ..outcome() };
    same.stream.env = EnvName::new("staging").unwrap();
    assert_eq!(Ids::of(&same), first);
    let other_event = Outcome { key: EventKey::new(&outcome().stream.cluster, "/s", "id2"), ..outcome() };
    assert_ne!(Ids::of(&other_event), first);
    let mut other_app = outcome();
    other_app.stream.app_namespace = AppNamespace::new("app-other-cicd").unwrap();
    assert_ne!(Ids::of(&other_app).trace, first.trace);
}

#[test]
fn a_success_has_the_times_names_and_attributes_of_its_release() {
    let span = span(&outcome(), Anchor::PrCreated);
    assert_eq!(span.name, "release-outcome:shop/prod [Succeeded]");
    assert_eq!(span.kind, SpanKind::Internal as i32);
    assert!(span.parent_span_id.is_empty());
    assert_eq!(span.start_time_unix_nano, 1_788_595_200_000_000_000);
    assert_eq!(span.end_time_unix_nano, 1_789_380_000_123_456_789);
    assert_eq!(span.status, Some(Status { code: StatusCode::Ok.into(), message: String::new() }));
    for (name, expected) in [
        ("platform.app_namespace", "app-shop-cicd"),
        ("platform.app_name", "shop"),
        ("platform.env", "prod"),
        ("platform.cluster", "kind-prod"),
        ("platform.chain_id", "chain-1"),
        ("platform.flow_start_time", "2026-09-14T09:00:00Z"),
        ("platform.pr_url", "https://git/shop/pull/7"),
        ("platform.event_id", "id"),
        ("platform.span_anchor", "pr_created"),
        ("deployment.environment.name", "prod"),
        ("k8s.cluster.name", "kind-prod"),
        ("vcs.repository.url.full", "https://git/shop"),
        ("vcs.ref.head.revision", "abc"),
        ("cicd.pipeline.result", "success"),
    ] {
        assert_eq!(value(&span, name), Some(expected), "{name}");
    }
    assert_eq!(span.attributes.len(), 14);
    assert_eq!(hex::encode(&span.links[0].trace_id), "0af7651916cd43dd8448eb211c80319c");
}

#[test]
fn a_failure_is_an_error_with_a_message() {
    let span = span(&Outcome { phase: Phase::Failed, ..outcome() }, Anchor::FlowStart);
    assert_eq!(span.name, "release-outcome:shop/prod [Failed]");
    assert_eq!(span.start_time_unix_nano, 1_789_376_400_000_000_000);
    let status = span.status.clone().unwrap();
    assert_eq!((status.code, status.message.as_str()), (StatusCode::Error as i32, "the release failed"));
    assert_eq!(value(&span, "cicd.pipeline.result"), Some("failure"));
    assert_eq!(value(&span, "error.type"), Some("sync_failed"));
    assert_eq!(value(&span, "platform.span_anchor"), Some("flow_start"));
}

#[test]
fn what_is_unknown_is_not_said() {
    let bare = Outcome {
        flow_start_time: None,
        pr_created_at: None,
        pr_url: String::new(),
        chain_id: String::new(),
        git_revision: String::new(),
        git_url: String::new(),
        event_id: String::new(),
        traceparent: "00-00000000000000000000000000000000-b7ad6b7169203331-01".into(),
        ..outcome()
    };
    let span = span(&bare, Anchor::Finished);
    assert_eq!(span.start_time_unix_nano, span.end_time_unix_nano);
    assert_eq!(span.attributes.len(), 8);
    assert!(span.links.is_empty());
}

#[test]
fn a_start_after_the_end_is_clamped_and_both_raw_times_are_kept() {
    let late = Outcome { pr_created_at: Some(at("2026-09-15T00:00:00Z")), ..outcome() };
    let span = span(&late, Anchor::PrCreated);
    assert_eq!(span.end_time_unix_nano, 1_789_380_000_123_456_789, "the end is the event's");
    assert_eq!(span.start_time_unix_nano, span.end_time_unix_nano);
    assert_eq!(value(&span, "platform.raw_start_time"), Some("2026-09-15T00:00:00Z"));
    assert_eq!(value(&span, "platform.raw_end_time"), Some("2026-09-14T10:00:00.123456789Z"));
}

#[test]
fn values_stay_under_two_kibibytes_and_are_cut_between_characters() {
    let long = Outcome { pr_url: "ä".repeat(2000), ..outcome() };
    let span = span(&long, Anchor::PrCreated);
    assert_eq!(value(&span, "platform.pr_url").unwrap(), "ä".repeat(1023));
}

#[test]
fn the_resource_carries_the_service_name_and_the_schema() {
    let request = request(&outcome(), Anchor::PrCreated, "releases");
    let resource = &request.resource_spans[0];
    assert_eq!(resource.resource.as_ref().unwrap().attributes, [text("service.name", "releases")]);
    assert_eq!(resource.schema_url, SCHEMA);
    assert_eq!(resource.scope_spans[0].spans.len(), 1);
}
