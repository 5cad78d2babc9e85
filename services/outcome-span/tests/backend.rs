//! What the backend gets, and what its answers come to.

mod common;

use std::time::Duration;

use common::{
    Running, grpc,
    http::{HttpServer, Reply},
    mesh::Ca,
    otlp::{Answer, Backend},
    outcome, settings, value,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message as _;
use tokio::{io::AsyncReadExt as _, net::TcpListener};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};
use transponder_runtime::error::PeerFailure;

fn http(server: &HttpServer) -> transponder_outcome_span::Settings {
    settings(&[("ENDPOINT", &format!("http://{}", server.address)), ("HEADERS", "x-scope-orgid=team%201")])
}

#[tokio::test]
async fn over_grpc_the_same_event_is_the_same_span() {
    let backend = Backend::start().await;
    let mut settings = grpc(backend.address);
    settings.headers.insert("x-scope-orgid", "team".parse().unwrap());
    let running = Running::start(settings).await;
    let first = running.emit(outcome("e1")).await.unwrap();
    let again = running.emit(outcome("e1")).await.unwrap();
    let other = running.emit(outcome("e2")).await.unwrap();
    assert_eq!((&first.trace_id, &first.span_id), (&again.trace_id, &again.span_id));
    assert_ne!(first.trace_id, other.trace_id);
    assert_eq!(backend.span(0), backend.span(1));
    assert_eq!(backend.span(0).trace_id.len(), 16);
    assert_eq!(value(&backend.span(0), "platform.chain_id").as_deref(), Some("chain-1"));
    assert_eq!(backend.metadata(0).get("x-scope-orgid").unwrap(), "team");
    assert!(running.metrics().contains("transponder_spans_total{result=\"sent\"} 3"));
}

#[tokio::test]
async fn over_http_the_span_is_protobuf_at_the_right_path() {
    let server = HttpServer::start().await;
    server.then(Reply::status(200, &[("content-type", "application/x-protobuf")], ""));
    let running = Running::start(http(&server)).await;
    let answer = running.emit(outcome("e1")).await.unwrap();
    let seen = &server.seen()[0];
    assert!(seen.head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{}", seen.head);
    assert_eq!(seen.header("content-type"), ["application/x-protobuf"]);
    assert_eq!(seen.header("x-scope-orgid"), ["team 1"]);
    let request = ExportTraceServiceRequest::decode(seen.body.as_slice()).unwrap();
    let span = &request.resource_spans[0].scope_spans[0].spans[0];
    assert_eq!(hex(&span.trace_id), answer.trace_id);
    assert_eq!(hex(&span.span_id), answer.span_id);
}

#[tokio::test]
async fn rejected_spans_are_a_failure_that_is_not_repeated_and_a_warning_is_passed_on() {
    let backend = Backend::start().await;
    let running = Running::start(grpc(backend.address)).await;
    backend.then(Answer::Partial(1, "span too old")).then(Answer::Partial(0, "slow down"));
    let error = running.emit(outcome("e1")).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert_eq!(error.message(), "the tracing backend rejected the span: span too old");
    assert_eq!(PeerFailure::from(&error).reason, "SPAN_REJECTED");
    assert_eq!(backend.count(), 1);
    assert_eq!(running.emit(outcome("e2")).await.unwrap().warning, "slow down");

    let server = HttpServer::start().await;
    let partial = ExportTracePartialSuccess { rejected_spans: 1, error_message: "no".into() };
    let body = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
    server.then(Reply::status(200, &[("content-type", "application/x-protobuf")], body));
    let running = Running::start(http(&server)).await;
    assert_eq!(running.emit(outcome("e1")).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn what_passes_soon_is_repeated_within_the_call() {
    let backend = Backend::start().await;
    let running = Running::start(grpc(backend.address)).await;
    let mut details = ErrorDetails::new();
    details.set_retry_info(Some(Duration::from_millis(50)));
    backend
        .then(Answer::Status(Status::unavailable("starting")))
        .then(Answer::Status(Status::with_error_details(Code::ResourceExhausted, "busy", details)));
    running.emit(outcome("e1")).await.unwrap();
    assert_eq!(backend.count(), 3);
}

#[tokio::test]
async fn a_backend_that_is_unavailable_for_ever_is_so_in_its_own_words() {
    let backend = Backend::start().await;
    let running = Running::start(grpc(backend.address)).await;
    backend.for_ever(Some(Status::unavailable("no org id")));
    let error = running.emit(outcome("e1")).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert_eq!(error.message(), "the tracing backend answered Unavailable: no org id");
    assert_eq!(backend.count(), 3);
    backend.for_ever(None);
    running.emit(outcome("e1")).await.unwrap();
}

#[tokio::test]
async fn a_long_delay_that_the_backend_asks_for_is_left_to_the_caller() {
    let server = HttpServer::start().await;
    let running = Running::start(http(&server)).await;
    server.then(Reply::status(429, &[("retry-after", "42"), ("content-type", "text/plain")], "too fast"));
    let failure = PeerFailure::from(&running.emit(outcome("e1")).await.unwrap_err());
    assert_eq!((failure.code, failure.retry_after), (Code::Unavailable, Some(Duration::from_secs(42))));
    assert!(failure.message.ends_with(": too fast"), "{}", failure.message);
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_spent_budget_without_a_delay_is_not_repeated_within_the_call() {
    let backend = Backend::start().await;
    let running = Running::start(grpc(backend.address)).await;
    backend.then(Answer::Status(Status::resource_exhausted("trace too large")));
    assert_eq!(running.emit(outcome("e1")).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(backend.count(), 1);
}

#[tokio::test]
async fn a_backend_that_refuses_us_is_a_matter_of_setting_up() {
    let backend = Backend::start().await;
    let running = Running::start(grpc(backend.address)).await;
    for status in
        [Status::unauthenticated("who?"), Status::permission_denied("no"), Status::unimplemented("")]
    {
        backend.then(Answer::Status(status));
        let error = running.emit(outcome("e1")).await.unwrap_err();
        assert_eq!(error.code(), Code::FailedPrecondition);
        assert_eq!(PeerFailure::from(&error).reason, "BACKEND_REFUSED");
    }
    let server = HttpServer::start().await;
    let running = Running::start(http(&server)).await;
    for reply in [
        Reply::status(404, &[], ""),
        Reply::status(307, &[("location", "/elsewhere")], ""),
        Reply::status(200, &[("content-type", "text/html")], "<html>"),
    ] {
        server.then(reply);
        assert_eq!(running.emit(outcome("e1")).await.unwrap_err().code(), Code::FailedPrecondition);
    }
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn after_a_send_whose_end_is_unknown_the_same_span_waits() {
    let cutting = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = cutting.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = cutting.accept().await.unwrap();
            let mut some = [0; 64];
            let _ = stream.read(&mut some).await;
        }
    });
    let server = HttpServer::start().await;
    server.then(Reply::Cut);
    for running in [Running::start(grpc(address)).await, Running::start(http(&server)).await] {
        let sent = PeerFailure::from(&running.emit(outcome("e1")).await.unwrap_err());
        assert_eq!(sent.code, Code::Unavailable);
        assert_eq!((sent.reason.as_str(), sent.retry_after), ("UNKNOWN_END", Some(Duration::from_secs(15))));
        let again = PeerFailure::from(&running.emit(outcome("e1")).await.unwrap_err());
        let left = again.retry_after.unwrap();
        assert!(left > Duration::from_secs(10) && left <= Duration::from_secs(15), "{left:?}");
        assert_eq!(again.reason, "UNKNOWN_END");
    }
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_backend_that_hangs_is_given_up_in_time_and_a_caller_that_goes_away_makes_the_span_wait() {
    let backend = Backend::start().await;
    let running = Running::start(grpc(backend.address)).await;
    backend.then(Answer::Hang).then(Answer::Hang);
    let sent = PeerFailure::from(&running.emit(outcome("e1")).await.unwrap_err());
    assert_eq!(sent.retry_after, Some(Duration::from_secs(15)));
    assert_eq!(sent.message, "the tracing backend did not answer within 3s");
    let gone = tokio::time::timeout(Duration::from_millis(500), running.emit(outcome("e2"))).await;
    assert!(gone.is_err());
    let waits = loop {
        let failure = PeerFailure::from(&running.emit(outcome("e2")).await.unwrap_err());
        if failure.retry_after > Some(Duration::from_secs(1)) {
            break failure;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(waits.reason, "UNKNOWN_END");
    assert_eq!(backend.count(), 2);
    running.emit(outcome("e3")).await.unwrap();
}

#[tokio::test]
async fn a_backend_that_is_not_there_keeps_no_span_waiting() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let general = settings(&[("ENDPOINT", &format!("http://{address}"))]);
    for settings in [grpc(address), general] {
        let running = Running::start(settings).await;
        for _ in 0..2 {
            let failure = PeerFailure::from(&running.emit(outcome("e1")).await.unwrap_err());
            assert_eq!((failure.reason.as_str(), failure.retry_after), ("BACKEND_UNAVAILABLE", None));
            assert!(
                failure.message.starts_with("the tracing backend cannot be reached"),
                "{}",
                failure.message
            );
        }
    }
}

#[tokio::test]
async fn over_tls_the_backend_is_believed_by_its_ca_alone() {
    let ca = Ca::new();
    let (certificate, key) = ca.issue(None);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ca.crt");
    std::fs::write(&file, &ca.pem).unwrap();
    let grpc_backend = Backend::start_tls(&certificate, &key).await;
    let http_backend = HttpServer::start_tls(&certificate, &key).await;
    http_backend.then(Reply::status(200, &[], ""));
    for (protocol, address) in [("grpc", grpc_backend.address), ("http/protobuf", http_backend.address)] {
        let endpoint = format!("https://{address}");
        let given =
            [("PROTOCOL", protocol), ("ENDPOINT", &endpoint), ("CERTIFICATE", file.to_str().unwrap())];
        let believing = Running::start(settings(&given)).await;
        believing.emit(outcome("e1")).await.unwrap();
        let doubting = Running::start(settings(&given[..2])).await;
        let error = doubting.emit(outcome("e2")).await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable, "{error}");
    }
    assert_eq!((grpc_backend.count(), http_backend.seen().len()), (1, 1));
}

#[tokio::test]
async fn a_ca_that_is_replaced_on_disk_is_believed_without_a_restart() {
    let (old, new) = (Ca::new(), Ca::new());
    let (certificate, key) = new.issue(None);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ca.crt");
    std::fs::write(&file, &old.pem).unwrap();
    let backend = Backend::start_tls(&certificate, &key).await;
    let endpoint = format!("https://{}", backend.address);
    let given = [("PROTOCOL", "grpc"), ("ENDPOINT", &endpoint), ("CERTIFICATE", file.to_str().unwrap())];
    let running = Running::start(settings(&given)).await;
    assert_eq!(running.emit(outcome("e1")).await.unwrap_err().code(), Code::Unavailable);
    std::fs::write(&file, &new.pem).unwrap();
    let believed = async {
        while running.emit(outcome("e1")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), believed).await.unwrap();
}

#[tokio::test]
async fn without_an_endpoint_spans_are_lines_of_otlp_json() {
    let running = Running::start(settings(&[])).await;
    let mut failed = outcome("e2");
    failed.phase = transponder_proto::v1::Phase::Failed.into();
    failed.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into();
    let answer = running.emit(outcome("e1")).await.unwrap();
    running.emit(failed).await.unwrap();
    let text = std::fs::read_to_string(&running.file).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    let span = &lines[0]["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
    assert_eq!(span["traceId"], answer.trace_id);
    assert_eq!(span["spanId"], answer.span_id);
    assert_eq!(span["kind"], 1);
    assert_eq!(span["startTimeUnixNano"], "1789376400000000000");
    assert_eq!(span["endTimeUnixNano"], "1789380000000000000");
    assert_eq!(span["status"]["code"], 1);
    let resource = &lines[0]["resourceSpans"][0]["resource"]["attributes"][0];
    assert_eq!(
        resource,
        &serde_json::json!({"key": "service.name", "value": {"stringValue": "transponder"}})
    );
    let span = &lines[1]["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
    assert_eq!(span["status"], serde_json::json!({"code": 2, "message": "the release failed"}));
    assert_eq!(span["links"][0]["traceId"], "0af7651916cd43dd8448eb211c80319c");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
