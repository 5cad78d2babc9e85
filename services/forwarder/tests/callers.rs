//! Who may forward, with which token, and what a request must hold.

mod common;

use std::time::Duration;

use common::{
    Running, event,
    http::HttpServer,
    mesh::{APP_TOKEN, PLATFORM_TOKEN, with_token},
    token,
};
use tonic::Code;
use tonic_types::StatusExt as _;
use transponder_core::ServiceName;
use transponder_proto::v1::{ForwardRequest, forwarder_client::ForwarderClient};

#[tokio::test]
async fn only_the_edge_may_forward() {
    let running = Running::start().await;
    running.forward().await.unwrap();
    for service in ServiceName::ALL.into_iter().filter(|service| *service != ServiceName::Edge) {
        let channel = running.mesh.channel(service, ServiceName::Forwarder, running.address);
        let error = ForwarderClient::new(channel).forward(event()).await.unwrap_err();
        assert_eq!(error.code(), Code::PermissionDenied, "{service}");
    }
    let mut task = ForwarderClient::new(running.mesh.task_channel(running.address));
    for token in [APP_TOKEN, PLATFORM_TOKEN] {
        let error = task.forward(with_token(event(), token)).await.unwrap_err();
        assert_eq!(error.code(), Code::PermissionDenied);
    }
    let error = task.forward(with_token(event(), "nobodys-token-0123456789")).await.unwrap_err();
    assert_eq!(error.code(), Code::Unauthenticated);
    assert_eq!(task.forward(event()).await.unwrap_err().code(), Code::Unauthenticated);
    assert_eq!(running.broker.seen().len(), 1);
}

#[tokio::test]
async fn a_wrong_request_names_its_field_and_reaches_no_broker() {
    let running = Running::start().await;
    let with = |change: fn(&mut ForwardRequest)| {
        let mut request = event();
        change(&mut request);
        request
    };
    for (request, field, reason) in [
        (ForwardRequest::default(), "event", "is required"),
        (with(|r| r.event = vec![b' '; 1024 * 1024 + 1].into()), "event", "must have at most 1048576 bytes"),
        (with(|r| r.content_type.clear()), "content_type", "is required"),
        (with(|r| r.content_type = "a/b\r\nx: y".into()), "content_type", "must be a header value"),
        (with(|r| r.content_type = "a/b\nx: y".into()), "content_type", "must be a header value"),
        (with(|r| r.content_type = "a".repeat(257)), "content_type", "must be a header value"),
        (with(|r| r.key.clear()), "key", "is required"),
        (with(|r| r.key = "a\r\nx: y".into()), "key", "must be 40 lower-case hex digits"),
        (with(|r| r.key = common::KEY.to_uppercase()), "key", "must be 40 lower-case hex digits"),
    ] {
        let error = running.edge.clone().forward(request).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
        let details = error.get_error_details();
        let violation = &details.bad_request().unwrap().field_violations[0];
        assert_eq!(violation.field, field);
        assert!(violation.description.starts_with(reason), "{}", violation.description);
    }
    assert!(running.broker.seen().is_empty());
}

#[tokio::test]
async fn the_largest_event_passes() {
    let running = Running::start().await;
    let request = ForwardRequest { event: vec![b' '; 1024 * 1024].into(), ..event() };
    running.edge.clone().forward(request).await.unwrap();
    assert_eq!(running.broker.seen()[0].body.len(), 1024 * 1024);
}

#[tokio::test]
async fn a_token_that_is_rotated_on_disk_is_used_for_the_next_event() {
    let running = Running::start().await;
    running.forward().await.unwrap();
    let second = token("cdevents-broker", 4_000_000_000, 2);
    std::fs::write(&running.token_file, &second).unwrap();
    running.forward().await.unwrap();
    std::fs::remove_file(&running.token_file).unwrap();
    running.forward().await.unwrap();
    let sent =
        running.broker.seen().iter().map(|s| s.header("authorization")[0].to_owned()).collect::<Vec<_>>();
    let first = format!("Bearer {}", token("cdevents-broker", 4_000_000_000, 1));
    let second = format!("Bearer {second}");
    assert_eq!(sent, [first, second.clone(), second]);
}

#[tokio::test]
async fn a_token_that_the_broker_would_not_take_sends_nothing_and_the_part_is_not_ready() {
    for bad in [
        token("https://kubernetes.default.svc", 4_000_000_000, 1),
        token("cdevents-broker", 1_000_000_000, 1),
        "opaque".into(),
        String::new(),
    ] {
        let running = Running::with(HttpServer::start().await, |config| {
            std::fs::write(&config.token_file, &bad).unwrap();
        })
        .await;
        let error = running.forward().await.unwrap_err();
        assert_eq!(error.code(), Code::FailedPrecondition);
        assert_eq!(error.get_error_details().error_info().unwrap().reason, "BROKER_TOKEN");
        assert!(bad.is_empty() || !error.message().contains(&bad), "{}", error.message());
        assert!(running.broker.seen().is_empty());
        let missing = running.context.readiness.missing();
        assert!(missing[0].0 == "forwarder" && missing[0].1 == error.message(), "{missing:?}");
        assert!(running.metrics().contains("transponder_broker_token_expiry_timestamp_seconds 0"));
    }
}

#[tokio::test]
async fn a_good_token_makes_the_part_ready_and_its_expiry_a_metric() {
    let running = Running::start().await;
    let ready = async {
        while !running.context.readiness.missing().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), ready).await.unwrap();
    assert!(running.metrics().contains("transponder_broker_token_expiry_timestamp_seconds 4000000000"));
}

#[tokio::test]
async fn without_a_token_file_none_is_sent() {
    let running = Running::with(HttpServer::start().await, |config| config.token_file = "".into()).await;
    running.forward().await.unwrap();
    assert!(running.broker.seen()[0].header("authorization").is_empty());
}
