//! What the broker gets, and what its answers come to.

mod common;

use std::time::Duration;

use common::{
    KEY, Running, event,
    http::{HttpServer, Reply},
    mesh::Ca,
};
use tonic::Code;
use tonic_types::StatusExt as _;
use transponder_runtime::error::PeerFailure;

#[tokio::test]
async fn the_broker_gets_the_exact_bytes_and_content_type_and_its_event_id_is_kept() {
    let running = Running::start().await;
    running.broker.then(Reply::status(202, &[], r#"{"eventListener":"l","eventID":"e-1"}"#));
    let answer = running.forward().await.unwrap();
    assert_eq!((answer.broker_status, answer.broker_event_id.as_str()), (202, "e-1"));
    let seen = running.broker.seen();
    assert_eq!(seen.len(), 1);
    assert!(seen[0].head.starts_with("POST /hooks HTTP/1.1\r\n"), "{}", seen[0].head);
    assert_eq!(seen[0].body, event().event);
    assert_eq!(seen[0].header("content-type"), ["application/cloudevents+json; charset=utf-8"]);
    assert_eq!(seen[0].header("transponder-key"), [KEY]);
    let bearer = format!("Bearer {}", std::fs::read_to_string(&running.token_file).unwrap());
    assert_eq!(seen[0].header("authorization"), [bearer.as_str()]);
    assert!(running.metrics().contains("transponder_broker_posts_total{result=\"accepted\"} 1"));
}

#[tokio::test]
async fn each_status_of_the_broker_is_laid_at_the_right_door() {
    let running = Running::start().await;
    for (status, code, reason) in [
        (200, Code::Ok, ""),
        (204, Code::Ok, ""),
        (400, Code::InvalidArgument, "BROKER_REFUSED"),
        (413, Code::InvalidArgument, "BROKER_REFUSED"),
        (415, Code::InvalidArgument, "BROKER_REFUSED"),
        (422, Code::InvalidArgument, "BROKER_REFUSED"),
        (301, Code::FailedPrecondition, "BROKER_STATUS"),
        (401, Code::FailedPrecondition, "BROKER_STATUS"),
        (403, Code::FailedPrecondition, "BROKER_STATUS"),
        (404, Code::FailedPrecondition, "BROKER_STATUS"),
        (405, Code::FailedPrecondition, "BROKER_STATUS"),
        (409, Code::FailedPrecondition, "BROKER_STATUS"),
        (408, Code::Unavailable, "BROKER_STATUS"),
        (425, Code::Unavailable, "BROKER_STATUS"),
        (429, Code::Unavailable, "BROKER_STATUS"),
        (500, Code::Unavailable, "BROKER_STATUS"),
        (503, Code::Unavailable, "BROKER_STATUS"),
    ] {
        let reply = match status {
            204 => Reply::Answer(b"HTTP/1.1 204 X\r\n\r\n".to_vec()),
            _ => Reply::status(status, &[], "secret detail"),
        };
        running.broker.then(reply);
        match running.forward().await {
            Ok(answer) => assert_eq!((code, answer.broker_status), (Code::Ok, u32::from(status))),
            Err(error) => {
                assert_eq!(error.code(), code, "{status}");
                assert_eq!(error.message(), format!("the broker answered {status}"));
                let details = error.get_error_details();
                let info = details.error_info().unwrap();
                assert_eq!(info.reason, reason, "{status}");
                assert_eq!(info.metadata["status"], status.to_string());
            }
        }
    }
}

#[tokio::test]
async fn retry_after_is_passed_on_in_both_forms_and_garbage_is_none() {
    let running = Running::start().await;
    for (value, expected) in [
        ("7", Some(7)),
        ("Sat, 14 Sep 2199 10:00:00 GMT", Some(300)),
        ("Mon, 14 Sep 2015 10:00:00 GMT", Some(0)),
        ("soon", None),
        ("-1", None),
    ] {
        running.broker.then(Reply::status(503, &[("retry-after", value)], ""));
        let failure = PeerFailure::from(&running.forward().await.unwrap_err());
        assert_eq!(failure.retry_after, expected.map(Duration::from_secs), "{value}");
    }
}

#[tokio::test]
async fn no_redirect_is_followed_and_no_token_goes_with_it() {
    let elsewhere = HttpServer::start().await;
    let running = Running::start().await;
    for status in [301, 302, 303, 307, 308] {
        let location = format!("http://{}/hooks", elsewhere.address);
        running.broker.then(Reply::status(status, &[("location", &location)], ""));
        assert_eq!(running.forward().await.unwrap_err().code(), Code::FailedPrecondition);
    }
    assert_eq!(running.broker.seen().len(), 5);
    assert!(elsewhere.seen().is_empty());
}

#[tokio::test]
async fn an_idle_connection_that_the_broker_closes_is_never_a_failure() {
    let running = Running::start().await;
    running.broker.then(Reply::status(202, &[], "{}")).then(Reply::Cut);
    running.forward().await.unwrap();
    running.forward().await.unwrap();
    let connections = running.broker.seen().iter().map(|seen| seen.connection).collect::<Vec<_>>();
    assert_eq!(connections, [1, 1, 2], "reused, cut, and sent once more on a new connection");
}

#[tokio::test]
async fn a_new_connection_that_the_broker_cuts_is_a_failure_and_not_sent_again() {
    let running = Running::start().await;
    running.broker.then(Reply::Cut);
    let error = running.forward().await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    let broker = format!("the broker http://{} cannot be reached: ", running.broker.address);
    assert!(error.message().starts_with(&broker), "{}", error.message());
    assert!(!error.message().contains("/hooks"));
    assert_eq!(running.broker.seen().len(), 1);
    running.forward().await.unwrap();
}

#[tokio::test]
async fn a_broker_that_hangs_or_is_not_there_is_unavailable_in_time() {
    let running = Running::start().await;
    running.broker.then(Reply::Hang);
    let error = running.forward().await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().ends_with(" cannot be reached: no answer within 2s"), "{}", error.message());
    let gone = Running::with(HttpServer::start().await, |config| {
        config.broker_url = "http://127.0.0.1:1".into();
    })
    .await;
    assert_eq!(gone.forward().await.unwrap_err().code(), Code::Unavailable);
    assert!(gone.metrics().contains("transponder_broker_posts_total{result=\"unreachable\"} 1"));
}

#[tokio::test]
async fn an_acceptance_counts_whatever_becomes_of_its_body() {
    let running = Running::start().await;
    let endless = format!("{{\"eventID\":\"{}\"}}", "a".repeat(200 * 1024));
    running
        .broker
        .then(Reply::Answer(b"HTTP/1.1 202 X\r\ncontent-length: 100\r\n\r\n{\"eventID\":\"half".to_vec()))
        .then(Reply::status(202, &[], endless));
    for _ in 0..2 {
        let answer = running.forward().await.unwrap();
        assert_eq!((answer.broker_status, answer.broker_event_id.as_str()), (202, ""));
    }
}

#[tokio::test]
async fn an_https_broker_is_believed_by_its_ca_alone() {
    let ca = Ca::new();
    let (certificate, key) = ca.issue(None);
    let dir = tempfile::tempdir().unwrap();
    let ca_file = dir.path().join("ca.crt");
    std::fs::write(&ca_file, &ca.pem).unwrap();
    for (given, code) in [(Some(ca_file), Code::Ok), (None, Code::Unavailable)] {
        let broker = HttpServer::start_tls(&certificate, &key).await;
        let url = format!("https://{}/hooks", broker.address);
        let running = Running::with(broker, |config| {
            config.ca_file = given;
            config.broker_url = url;
        })
        .await;
        assert_eq!(running.forward().await.map_or_else(|e| e.code(), |_| Code::Ok), code);
    }
}

#[tokio::test]
async fn a_ca_that_is_replaced_on_disk_is_believed_without_a_restart() {
    let (old, new) = (Ca::new(), Ca::new());
    let (certificate, key) = new.issue(None);
    let dir = tempfile::tempdir().unwrap();
    let ca_file = dir.path().join("ca.crt");
    std::fs::write(&ca_file, &old.pem).unwrap();
    let broker = HttpServer::start_tls(&certificate, &key).await;
    let url = format!("https://{}/hooks", broker.address);
    let given = ca_file.clone();
    let running = Running::with(broker, |config| {
        config.ca_file = Some(given);
        config.broker_url = url;
    })
    .await;
    assert_eq!(running.forward().await.unwrap_err().code(), Code::Unavailable);
    std::fs::write(&ca_file, &new.pem).unwrap();
    let believed = async {
        while running.forward().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), believed).await.unwrap();
}
