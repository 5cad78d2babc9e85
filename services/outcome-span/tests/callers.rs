//! Who may emit what, and from when a span starts.
#![expect(clippy::unwrap_used, reason = "in a test an unexpected failure should panic")]

mod common;

use common::{
    Running, at, grpc,
    mesh::{APP_TOKEN, PLATFORM_TOKEN, with_token},
    otlp::Backend,
    outcome, value,
};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use transponder_core::{ClusterName, EventKey, ServiceName};
use transponder_proto::v1::{
    Anchor, EmitRequest, Phase, Release, ReleaseRecord, ResolveResponse,
    outcome_span_client::OutcomeSpanClient,
};
use transponder_runtime::error::PeerFailure;

async fn start() -> (Backend, Running) {
    let backend = Backend::start().await;
    let running = Running::start(grpc(backend.address)).await;
    (backend, running)
}

fn of_namespace(namespace: &str) -> EmitRequest {
    let mut request = outcome("e1");
    request.release.as_mut().unwrap().app_namespace = namespace.into();
    request
}

#[tokio::test]
async fn the_edge_and_tasks_may_emit_and_an_apps_for_its_own_namespace_alone() {
    let (backend, running) = start().await;
    running.emit(of_namespace("app-other-cicd")).await.unwrap();
    for service in ServiceName::ALL.into_iter().filter(|service| *service != ServiceName::Edge) {
        let channel = running.mesh.channel(service, ServiceName::OutcomeSpan, running.address);
        let error = OutcomeSpanClient::new(channel).emit(outcome("e1")).await.unwrap_err();
        assert_eq!(error.code(), Code::PermissionDenied, "{service}");
    }
    let mut task = OutcomeSpanClient::new(running.mesh.task_channel(running.address));
    task.emit(with_token(of_namespace("app-other-cicd"), PLATFORM_TOKEN)).await.unwrap();
    let own = task.emit(with_token(of_namespace("app-shop-cicd"), APP_TOKEN)).await.unwrap().into_inner();
    let implied = task.emit(with_token(of_namespace(""), APP_TOKEN)).await.unwrap().into_inner();
    assert_eq!(own.trace_id, implied.trace_id);
    let error = task.emit(with_token(of_namespace("app-other-cicd"), APP_TOKEN)).await.unwrap_err();
    assert_eq!(error.code(), Code::PermissionDenied);
    assert_eq!(task.emit(outcome("e1")).await.unwrap_err().code(), Code::Unauthenticated);
    assert_eq!(backend.count(), 4);
}

#[tokio::test]
async fn an_apps_task_cannot_place_a_span_into_another_apps_trace() {
    let (_backend, running) = start().await;
    let others = running.emit(of_namespace("app-other-cicd")).await.unwrap();
    let cluster = ClusterName::new("kind-prod").unwrap();
    let source = "/platform-cicd/app-other-cicd/kind-prod-shop-prod-outcome";
    let mut request = outcome("e1");
    request.event_key = EventKey::new(&cluster, source, "e1").to_string();
    let mut task = OutcomeSpanClient::new(running.mesh.task_channel(running.address));
    let answer = task.emit(with_token(request, APP_TOKEN)).await.unwrap().into_inner();
    assert_ne!(answer.trace_id, others.trace_id);
}

#[tokio::test]
async fn a_key_that_is_given_and_one_that_is_computed_are_the_same_span() {
    let (_backend, running) = start().await;
    let cluster = ClusterName::new("kind-prod").unwrap();
    let source = "/platform-cicd/app-shop-cicd/kind-prod-shop-prod-outcome";
    let implied = running.emit(outcome("e1")).await.unwrap();
    let sourced = running.emit(EmitRequest { event_source: source.into(), ..outcome("e1") }).await.unwrap();
    let mut keyed =
        EmitRequest { event_key: EventKey::new(&cluster, source, "e1").to_string(), ..outcome("") };
    let by_key = running.emit(keyed.clone()).await.unwrap();
    assert_eq!(implied.trace_id, sourced.trace_id);
    assert_eq!(implied.trace_id, by_key.trace_id);
    keyed.event_key = EventKey::new(&cluster, "/other", "e1").to_string();
    assert_ne!(running.emit(keyed).await.unwrap().trace_id, implied.trace_id);
}

#[tokio::test]
async fn a_wrong_request_names_its_field_and_reaches_no_backend() {
    let (backend, running) = start().await;
    let with = |change: fn(&mut EmitRequest)| {
        let mut request = outcome("e1");
        change(&mut request);
        request
    };
    let release = |change: fn(&mut Release)| {
        let mut request = outcome("e1");
        change(request.release.as_mut().unwrap());
        request
    };
    for (request, field) in [
        (EmitRequest::default(), "release"),
        (release(|r| r.app_namespace.clear()), "release.app_namespace"),
        (release(|r| r.app_name = "A".into()), "release.app_name"),
        (release(|r| r.env.clear()), "release.env"),
        (release(|r| r.cluster.clear()), "release.cluster"),
        (release(|r| r.event_id.clear()), "release.event_id"),
        (release(|r| r.chain_id = "a".repeat(2000)), "release.chain_id"),
        (with(|r| r.phase = 0), "phase"),
        (with(|r| r.phase = Phase::Syncing.into()), "phase"),
        (with(|r| r.phase = 77), "phase"),
        (with(|r| r.finished_at = None), "finished_at"),
        (with(|r| r.finished_at = Some(prost_types::Timestamp::default())), "finished_at"),
        (
            with(|r| r.flow_start_time = Some(prost_types::Timestamp { seconds: 1, nanos: -1 })),
            "flow_start_time",
        ),
        (
            with(|r| r.pr_created_at = Some(prost_types::Timestamp { seconds: i64::MAX, nanos: 0 })),
            "pr_created_at",
        ),
        (with(|r| r.pr_url = "a".repeat(3000)), "pr_url"),
        (with(|r| r.event_key = "A".repeat(40)), "event_key"),
        (with(|r| r.anchor = 9), "anchor"),
        (with(|r| r.anchor = Anchor::PrCreated.into()), "pr_created_at"),
        (with(|r| (r.anchor, r.flow_start_time) = (Anchor::FlowStart.into(), None)), "flow_start_time"),
    ] {
        let error = running.emit(request).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
        let details = error.get_error_details();
        assert_eq!(details.bad_request().unwrap().field_violations[0].field, field);
    }
    assert_eq!((backend.count(), running.tracking.asked().len()), (0, 0));
}

#[tokio::test]
async fn an_anchor_that_the_edge_has_settled_is_used_and_nobody_is_asked() {
    let (backend, running) = start().await;
    let all = EmitRequest { pr_created_at: at("2026-09-01T00:00:00Z"), ..outcome("e1") };
    for (anchor, start) in [
        (Anchor::PrCreated, 1_788_220_800_000_000_000),
        (Anchor::FlowStart, 1_789_376_400_000_000_000),
        (Anchor::Finished, 1_789_380_000_000_000_000),
    ] {
        let request = EmitRequest { anchor: anchor.into(), ..all.clone() };
        assert_eq!(running.emit(request).await.unwrap().anchor, i32::from(anchor));
        assert_eq!(backend.span(backend.count() - 1).start_time_unix_nano, start);
    }
    assert!(running.tracking.asked().is_empty());
}

#[tokio::test]
async fn a_task_that_knows_no_pull_request_has_release_tracking_asked() {
    let (backend, running) = start().await;
    let record = |namespace: &str| ResolveResponse {
        found: true,
        reason: String::new(),
        record: Some(ReleaseRecord {
            release: Some(Release { app_namespace: namespace.into(), ..Release::default() }),
            pr_url: "https://git/pull/7".into(),
            pr_created_at: at("2026-09-01T00:00:00Z"),
            ..ReleaseRecord::default()
        }),
    };
    running.tracking.answer(Ok(record("app-shop-cicd")));
    assert_eq!(running.emit(outcome("e1")).await.unwrap().anchor, i32::from(Anchor::PrCreated));
    assert_eq!(value(&backend.span(0), "platform.pr_url").as_deref(), Some("https://git/pull/7"));
    let asked = running.tracking.asked()[0].release.clone().unwrap();
    assert_eq!((asked.app_namespace.as_str(), asked.chain_id.as_str()), ("app-shop-cicd", "chain-1"));

    running.tracking.answer(Ok(record("app-other-cicd")));
    assert_eq!(running.emit(outcome("e2")).await.unwrap().anchor, i32::from(Anchor::FlowStart));
    running.tracking.answer(Ok(ResolveResponse { reason: "unknown".into(), ..ResolveResponse::default() }));
    assert_eq!(running.emit(outcome("e3")).await.unwrap().anchor, i32::from(Anchor::FlowStart));
    let bare = EmitRequest { flow_start_time: None, ..outcome("e4") };
    assert_eq!(running.emit(bare).await.unwrap().anchor, i32::from(Anchor::Finished));
}

#[tokio::test]
async fn who_gives_a_time_or_no_chain_id_has_nobody_asked() {
    let (_backend, running) = start().await;
    let timed = EmitRequest { pr_created_at: at("2026-09-01T00:00:00Z"), ..outcome("e1") };
    assert_eq!(running.emit(timed).await.unwrap().anchor, i32::from(Anchor::PrCreated));
    let mut unchained = outcome("e2");
    unchained.release.as_mut().unwrap().chain_id.clear();
    assert_eq!(running.emit(unchained).await.unwrap().anchor, i32::from(Anchor::FlowStart));
    assert!(running.tracking.asked().is_empty());
}

#[tokio::test]
async fn trouble_asking_is_never_a_lower_anchor() {
    let (backend, running) = start().await;
    for status in [Status::unavailable("disk full"), Status::internal("x"), Status::permission_denied("x")] {
        running.tracking.answer(Err(status));
        let failure = PeerFailure::from(&running.emit(outcome("e1")).await.unwrap_err());
        assert_eq!((failure.code, failure.reason.as_str()), (Code::Unavailable, "RELEASE_TRACKING"));
    }
    assert_eq!(backend.count(), 0);
    running.tracking.answer(Ok(ResolveResponse::default()));
    running.emit(outcome("e1")).await.unwrap();
}
