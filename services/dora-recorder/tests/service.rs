//! The service over real mutual TLS on loopback.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test stops at what it does not expect")]

mod common;

use common::{Ground, PLATFORM_TOKEN, SHOP_TOKEN, disposition, eventually, outcome, warnings, with_token};
use tonic::Code;
use tonic_types::StatusExt as _;
use transponder_core::ServiceName;
use transponder_dora_recorder::{Budgets, Config};
use transponder_proto::v1::{Disposition, ExpectRequest, Phase, RecordOutcomeRequest};

const OPENMETRICS: &str = "application/openmetrics-text";
const LABELS: &str = r#"app_namespace="app-shop-cicd",app="shop",env="prod",cluster="kind-prod""#;

#[track_caller]
fn assert_lines(text: &str, lines: &[&str]) {
    for line in lines {
        let line = line.replace("LABELS", LABELS);
        assert!(text.lines().any(|l| l == line), "no line {line:?} in:\n{text}");
    }
}

#[tokio::test]
async fn the_edge_counts_once_and_a_repetition_changes_nothing() {
    let ground = Ground::new();
    let service = ground.start(ground.config()).await;
    let mut edge = service.client(ServiceName::Edge);
    let verdict = outcome("shop", "c-1", Phase::Succeeded, 7_000);
    assert_eq!(disposition(edge.record_outcome(verdict.clone()).await), Disposition::New);
    assert_eq!(disposition(edge.record_outcome(verdict).await), Disposition::Repeated);
    let later_failure = outcome("shop", "c-1", Phase::Failed, 7_001);
    assert_eq!(disposition(edge.record_outcome(later_failure).await), Disposition::Conflict);
    let text = service.metrics("");
    assert_lines(
        &text,
        &[
            "dora_deployments_total{LABELS} 1",
            "dora_conflicts_total{LABELS} 1",
            r#"transponder_dora_verdicts_total{disposition="new"} 1"#,
            r#"transponder_dora_verdicts_total{disposition="repeated"} 1"#,
        ],
    );
    service.stop().await;
}

#[tokio::test]
async fn another_service_of_the_mesh_may_not_record() {
    let ground = Ground::new();
    let service = ground.start(ground.config()).await;
    for other in [ServiceName::Forwarder, ServiceName::ReleaseTracking, ServiceName::OutcomeSpan] {
        let verdict = outcome("shop", "c-1", Phase::Failed, 10);
        let status = service.client(other).record_outcome(verdict).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{other}");
    }
    let status = service.task().record_outcome(outcome("shop", "c-1", Phase::Failed, 10)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    assert!(!service.metrics("").contains("app-shop-cicd"));
    service.stop().await;
}

#[tokio::test]
async fn a_task_of_an_app_acts_on_its_own_namespace_and_one_of_the_platform_on_all() {
    let ground = Ground::new();
    let service = ground.start(ground.config()).await;
    let mut task = service.task();
    let other = outcome("pay", "c-1", Phase::Failed, 10);
    let status = task.record_outcome(with_token(other.clone(), SHOP_TOKEN)).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::PermissionDenied, "app-shop-cicd/pipeline-runner may act on app-shop-cicd alone")
    );
    let mut own = outcome("shop", "c-1", Phase::Failed, 10);
    own.release.as_mut().unwrap().app_namespace.clear();
    assert_eq!(disposition(task.record_outcome(with_token(own, SHOP_TOKEN)).await), Disposition::New);
    assert_eq!(disposition(task.record_outcome(with_token(other, PLATFORM_TOKEN)).await), Disposition::New);
    let text = service.metrics("");
    assert_lines(&text, &[r#"dora_releases_total{LABELS,outcome="failed"} 1"#]);
    service.stop().await;
}

#[tokio::test]
async fn a_task_that_claims_a_receipt_in_the_future_does_not_make_its_finish_plausible() {
    let ground = Ground::new();
    let service = ground.start(ground.config()).await;
    let far = 9_000_000_000 - 1_700_000_000;
    for (chain, token) in [("c-1", SHOP_TOKEN), ("c-2", PLATFORM_TOKEN)] {
        let ahead = outcome("shop", chain, Phase::Succeeded, far);
        let flow_start_time = ahead.finished_at;
        let ahead = with_token(RecordOutcomeRequest { flow_start_time, ..ahead }, token);
        assert_eq!(disposition(service.task().record_outcome(ahead).await), Disposition::New);
    }
    assert_lines(
        &service.metrics(""),
        &[
            r#"dora_discarded_samples_total{sample="lead_time",reason="implausible"} 2"#,
            "dora_lead_time_seconds_count{LABELS} 0",
        ],
    );
    service.stop().await;
}

#[tokio::test]
async fn a_missing_or_wrong_field_is_named() {
    let ground = Ground::new();
    let service = ground.start(ground.config()).await;
    let mut edge = service.client(ServiceName::Edge);
    let good = || outcome("shop", "c-1", Phase::Failed, 10);
    let release = |change: fn(&mut transponder_proto::v1::Release)| {
        let mut message = good();
        change(message.release.as_mut().unwrap());
        message
    };
    let after = RecordOutcomeRequest { first_finished_at: good().received_at, ..good() };
    for (message, field, text) in [
        (RecordOutcomeRequest::default(), "release", "release is required"),
        (release(|r| r.app_namespace.clear()), "release.app_namespace", "release.app_namespace is required"),
        (release(|r| r.cluster.clear()), "release.cluster", "release.cluster is required"),
        (
            release(|r| r.chain_id.clear()),
            "release.chain_id",
            "release.chain_id is required, or git_revision, or event_id",
        ),
        (RecordOutcomeRequest { phase: 0, ..good() }, "phase", "phase is required"),
        (
            RecordOutcomeRequest { phase: 1, ..good() },
            "phase",
            "phase must be PHASE_SUCCEEDED or PHASE_FAILED",
        ),
        (RecordOutcomeRequest { finished_at: None, ..good() }, "finished_at", "finished_at is required"),
        (after, "first_finished_at", "first_finished_at must not be after finished_at"),
    ] {
        let status = edge.record_outcome(message).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::InvalidArgument, text));
        let details = status.get_error_details();
        assert_eq!(details.bad_request().unwrap().field_violations[0].field, field);
    }
    assert!(!service.metrics("").contains("app-shop-cicd"));
    service.stop().await;
}

/// Seconds and nanoseconds that are no time between 1970 and 2261.
const NO_TIMES: [(i64, i32); 11] = [
    (i64::MIN, 0),
    (i64::MIN, i32::MIN),
    (-62_135_596_800, 0),
    (-1, 0),
    (0, 0),
    (1, -1),
    (1, 1_000_000_000),
    (1, i32::MAX),
    (9_183_110_400, 0),
    (253_402_300_799, 999_999_999),
    (i64::MAX, i32::MAX),
];

#[tokio::test]
async fn a_time_that_nobody_can_mean_is_refused_by_its_field() {
    let ground = Ground::new();
    let service = ground.start(ground.config()).await;
    let (mut edge, mut task) = (service.client(ServiceName::Edge), service.task());
    for (seconds, nanos) in NO_TIMES {
        let time = Some(prost_types::Timestamp { seconds, nanos });
        let good = outcome("shop", "c-1", Phase::Failed, 10);
        let local = good
            .release
            .clone()
            .map(|release| transponder_proto::v1::Release { cluster: String::new(), ..release });
        let expect = with_token(ExpectRequest { release: local, flow_start_time: time }, SHOP_TOKEN);
        let mut refused = vec![("flow_start_time", task.expect(expect).await.unwrap_err())];
        for (field, message) in [
            ("finished_at", RecordOutcomeRequest { finished_at: time, ..good.clone() }),
            ("first_finished_at", RecordOutcomeRequest { first_finished_at: time, ..good.clone() }),
            ("flow_start_time", RecordOutcomeRequest { flow_start_time: time, ..good.clone() }),
            ("received_at", RecordOutcomeRequest { received_at: time, ..good }),
        ] {
            let by_task = with_token(message.clone(), SHOP_TOKEN);
            refused.push((field, task.record_outcome(by_task).await.unwrap_err()));
            refused.push((field, edge.record_outcome(message).await.unwrap_err()));
        }
        for (field, status) in refused {
            assert_eq!(status.code(), Code::InvalidArgument, "{seconds} s {nanos} ns: {status}");
            assert_eq!(status.get_error_details().bad_request().unwrap().field_violations[0].field, field);
        }
    }
    assert!(!service.metrics("").contains("app-shop-cicd"));
    service.stop().await;
}

#[tokio::test]
async fn the_first_and_the_last_time_that_are_taken_are_counted_in_every_combination() {
    let ground = Ground::new();
    let service = ground.start(ground.config()).await;
    let mut edge = service.client(ServiceName::Edge);
    let ends = [(1, 0), (9_183_110_399, 999_999_999)]
        .map(|(seconds, nanos)| Some(prost_types::Timestamp { seconds, nanos }));
    for number in 0..32_usize {
        let end = |bit: usize| number >> bit & 1;
        let phase = if number & 16 == 0 { Phase::Succeeded } else { Phase::Failed };
        let message = RecordOutcomeRequest {
            finished_at: ends[end(0)],
            first_finished_at: ends[end(1).min(end(0))],
            flow_start_time: ends[end(2)],
            received_at: ends[end(3)],
            ..outcome("shop", &format!("c-{number}"), phase, 0)
        };
        assert_eq!(disposition(edge.record_outcome(message).await), Disposition::New, "{number}");
    }
    assert_lines(
        &service.metrics(""),
        &[
            "dora_deployments_total{LABELS} 16",
            r#"dora_releases_total{LABELS,outcome="failed"} 16"#,
            "dora_lead_time_seconds_sum{LABELS} 0.0",
        ],
    );
    service.stop().await;
}

#[tokio::test]
async fn expect_says_that_it_needs_kubernetes() {
    let ground = Ground::new();
    let service = ground.start(ground.config()).await;
    let release = outcome("shop", "c-1", Phase::Succeeded, 7_000)
        .release
        .map(|release| transponder_proto::v1::Release { cluster: String::new(), ..release });
    let request = with_token(ExpectRequest { release, ..Default::default() }, SHOP_TOKEN);
    let status = service.task().expect(request).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert!(status.message().starts_with("Expect needs Kubernetes"), "{}", status.message());
    let status = service.task().expect(with_token(ExpectRequest::default(), SHOP_TOKEN)).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "release is required"));
    let status = service.client(ServiceName::Edge).expect(ExpectRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    service.stop().await;
}

#[tokio::test]
async fn a_spent_label_budget_is_exhausted_without_a_time_to_retry() {
    let ground = Ground::new();
    let budgets = Budgets { streams: 1, ..Budgets::default() };
    let service = ground.start(Config { budgets, ..ground.config() }).await;
    let mut edge = service.client(ServiceName::Edge);
    edge.record_outcome(outcome("shop", "c-1", Phase::Failed, 10)).await.unwrap();
    let status = edge.record_outcome(outcome("pay", "c-1", Phase::Failed, 10)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let details = status.get_error_details();
    assert!(details.retry_info().is_none());
    assert_eq!(details.error_info().unwrap().reason, "LABEL_BUDGET");
    edge.record_outcome(outcome("shop", "c-2", Phase::Failed, 20)).await.unwrap();
    assert_lines(
        &service.metrics(""),
        &[r#"transponder_dora_streams_refused_total{budget="all"} 1"#, "transponder_dora_streams 1"],
    );
    service.stop().await;
}

#[tokio::test]
async fn what_a_task_of_an_app_makes_takes_no_room_of_the_cluster_that_it_names() {
    let ground = Ground::new();
    let budgets = Budgets { streams_per_cluster: 1, streams_per_app_namespace: 1, ..Budgets::default() };
    let service = ground.start(Config { budgets, ..ground.config() }).await;
    let (mut task, mut edge) = (service.task(), service.client(ServiceName::Edge));
    let of = |env: &str| {
        let mut message = outcome("shop", "c-1", Phase::Failed, 10);
        message.release.as_mut().unwrap().env = env.into();
        message
    };
    task.record_outcome(with_token(of("task"), SHOP_TOKEN)).await.unwrap();
    let status = task.record_outcome(with_token(of("more"), SHOP_TOKEN)).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (
            Code::ResourceExhausted,
            "no room for another stream made by Tasks of this app: dora.budgets.streams_per_app_namespace 1 is reached"
        )
    );
    assert_eq!(disposition(edge.record_outcome(of("prod")).await), Disposition::New);
    let status = task.record_outcome(with_token(of("more"), PLATFORM_TOKEN)).await.unwrap_err();
    assert!(status.message().contains("of this app namespace on this cluster"), "{status}");
    assert_eq!(disposition(edge.record_outcome(of("task")).await), Disposition::Repeated);
    assert_lines(
        &service.metrics(""),
        &[r#"transponder_dora_streams_refused_total{budget="app_namespace"} 2"#],
    );
    service.stop().await;
}

#[tokio::test]
async fn verdicts_that_find_no_room_are_one_line_of_the_log_and_not_one_each() {
    let ground = Ground::new();
    let budgets = Budgets { streams: 1, ..Budgets::default() };
    let service = ground.start(Config { budgets, ..ground.config() }).await;
    let mut edge = service.client(ServiceName::Edge);
    warnings::collect();
    edge.record_outcome(outcome("blog", "c-0", Phase::Failed, 10)).await.unwrap();
    for number in 0..30 {
        edge.record_outcome(outcome("shop", &format!("c-{number}"), Phase::Failed, 10)).await.unwrap_err();
    }
    let lines = warnings::of("dora.budgets.streams 1 is reached");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("/platform-cicd/app-shop-cicd/kind-prod-shop-prod-outcome"), "{lines:?}");
    service.stop().await;
}

#[tokio::test]
async fn totals_survive_a_kill() {
    let ground = Ground::new();
    let service = ground.start(ground.config()).await;
    let mut edge = service.client(ServiceName::Edge);
    for (number, phase) in [(1, Phase::Failed), (2, Phase::Succeeded), (3, Phase::Succeeded)] {
        let verdict = outcome("shop", &format!("c-{number}"), phase, 1_000 * number);
        assert_eq!(disposition(edge.record_outcome(verdict).await), Disposition::New);
    }
    let dora =
        |text: String| text.lines().filter(|l| l.starts_with("dora_")).map(str::to_owned).collect::<Vec<_>>();
    let before = dora(service.metrics(""));
    assert!(before.len() > 20);
    service.kill().await;

    let service = ground.start(ground.config()).await;
    assert_eq!(dora(service.metrics("")), before);
    let repeated = outcome("shop", "c-2", Phase::Succeeded, 2_000);
    let answer = service.client(ServiceName::Edge).record_outcome(repeated).await;
    assert_eq!(disposition(answer), Disposition::Repeated);
    assert_eq!(dora(service.metrics("")), before);
    service.stop().await;
}

#[tokio::test]
async fn both_formats_show_every_series_of_a_stream_from_its_first_verdict() {
    let ground = Ground::new();
    let service = ground.start(ground.config()).await;
    let mut edge = service.client(ServiceName::Edge);
    edge.record_outcome(outcome("shop", "c-1", Phase::Failed, 1_000)).await.unwrap();
    edge.record_outcome(outcome("shop", "c-2", Phase::Succeeded, 3_000)).await.unwrap();
    let counters = [
        "dora_deployments_total{LABELS} 1",
        r#"dora_releases_total{LABELS,outcome="succeeded"} 1"#,
        r#"dora_releases_total{LABELS,outcome="failed"} 1"#,
        "dora_conflicts_total{LABELS} 0",
        "dora_late_reports_total{LABELS} 0",
        r#"dora_discarded_samples_total{sample="lead_time",reason="negative"} 0"#,
        "dora_lead_time_seconds_sum{LABELS} 3000.0",
        "dora_lead_time_seconds_count{LABELS} 1",
        "dora_time_to_restore_seconds_experimental_sum{LABELS} 2000.0",
        "dora_time_to_restore_seconds_experimental_count{LABELS} 1",
    ];
    let text = service.metrics("");
    assert_lines(&text, &counters);
    assert_lines(
        &text,
        &[
            "# TYPE dora_deployments_total counter",
            "# TYPE dora_lead_time_seconds histogram",
            r#"dora_lead_time_seconds_bucket{LABELS,le="3600"} 1"#,
            r#"dora_lead_time_seconds_bucket{LABELS,le="2.592e+06"} 1"#,
            r#"dora_lead_time_seconds_bucket{LABELS,le="+Inf"} 1"#,
            r#"dora_time_to_restore_seconds_experimental_bucket{LABELS,le="1800"} 0"#,
            r#"dora_time_to_restore_seconds_experimental_bucket{LABELS,le="3600"} 1"#,
        ],
    );
    let open = service.metrics(OPENMETRICS);
    assert_lines(&open, &counters);
    assert_lines(
        &open,
        &[
            "# TYPE dora_deployments counter",
            r#"dora_lead_time_seconds_bucket{le="3600.0",LABELS} 1"#,
            r#"dora_time_to_restore_seconds_experimental_bucket{le="604800.0",LABELS} 1"#,
            "# EOF",
        ],
    );
    service.stop().await;
}

#[tokio::test]
async fn readiness_names_the_part_until_it_serves() {
    let ground = Ground::new();
    let service = ground.start(ground.config()).await;
    eventually("ready", || service.context.readiness.missing().is_empty()).await;
    service.stop().await;
}

#[tokio::test]
async fn a_store_that_cannot_write_is_unavailable_and_not_ready_and_recovers_by_itself() {
    let ground = Ground::new();
    let service = ground.start(ground.config()).await;
    let mut edge = service.client(ServiceName::Edge);
    let verdict = |number: i64| outcome("shop", &format!("c-{number}"), Phase::Failed, number);
    edge.record_outcome(verdict(1)).await.unwrap();

    // Somebody else writes and does not end: SQLite gives up on that as it does on a disk that is full.
    let blocker = rusqlite::Connection::open(ground.data().join("dora.db")).unwrap();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let status = edge.record_outcome(verdict(2)).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "the count cannot be stored now"));
    eventually("not ready", || !service.context.readiness.missing().is_empty()).await;
    assert_lines(&service.metrics(""), &[r#"dora_releases_total{LABELS,outcome="failed"} 1"#]);

    blocker.execute_batch("ROLLBACK").unwrap();
    eventually("ready again", || service.context.readiness.missing().is_empty()).await;
    assert_eq!(disposition(edge.record_outcome(verdict(2)).await), Disposition::New);
    assert_lines(&service.metrics(""), &[r#"dora_releases_total{LABELS,outcome="failed"} 2"#]);
    service.stop().await;
}
