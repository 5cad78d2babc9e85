//! The harness itself, tried with the clients and backends that the other suites use.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTraceServiceRequest, trace_service_client::TraceServiceClient},
    common::v1::{AnyValue, KeyValue, any_value::Value},
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span},
};
use prost::Message as _;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use transponder_tests::{
    Answer, Behaviour, Broker, Jaeger, LONG, OtlpReceiver, OtlpReply, Process, Prometheus, Protocol, Run,
    SHORT, Target, eventually, http, ports, product,
};

const TRACE: &str = "0102030405060708090a0b0c0d0e0f10";

fn attribute(key: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(Value::StringValue(value.to_owned())) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

fn export() -> ExportTraceServiceRequest {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let now = u64::try_from(now).unwrap();
    let span = Span {
        trace_id: (1..=16).collect(),
        span_id: (1..=8).collect(),
        name: "release-outcome:shop/prod [Succeeded]".to_owned(),
        start_time_unix_nano: now - 60_000_000_000,
        end_time_unix_nano: now,
        attributes: vec![attribute("platform.chain_id", "chain-1")],
        ..Span::default()
    };
    let resource =
        Resource { attributes: vec![attribute("service.name", "transponder")], ..Resource::default() };
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource),
            scope_spans: vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }],
            schema_url: "https://opentelemetry.io/schemas/1.37.0".to_owned(),
        }],
    }
}

async fn send(url: &str) -> Result<Option<(i64, String)>, Status> {
    let mut client =
        TraceServiceClient::connect(url.to_owned()).await.map_err(|e| Status::unknown(e.to_string()))?;
    let response = client.export(export()).await?.into_inner();
    Ok(response.partial_success.map(|partial| (partial.rejected_spans, partial.error_message)))
}

async fn post(url: &str, body: &str) -> Result<transponder_tests::HttpResponse, String> {
    http(["-H", "content-type: application/json", "--data-binary", body, url]).await
}

#[tokio::test]
async fn the_broker_answers_as_an_event_listener_does_and_keeps_every_byte() {
    let broker = Broker::start().await;
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let arguments = ["-sS", "-H", "X-Key: one", "--data-binary", "@-"].map(str::to_owned);
    let url = format!("{}/events?x=1", broker.url());
    let ran = Run::tool("curl").args(arguments).args([url]).stdin(bytes.clone()).run().await.success();
    assert_eq!(ran.json()["eventID"], Broker::event_id(1));
    assert_eq!(ran.json()["eventListener"], "cdevents-broker");
    let received = broker.received();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].body, bytes);
    assert_eq!(received[0].path, "/events?x=1");
    assert_eq!(received[0].header("x-key"), Some("one"));
}

#[tokio::test]
async fn queued_behaviours_come_first_then_rules_then_the_default() {
    let broker = Broker::start().await;
    broker.always(Behaviour::Answer(Answer::status(500)));
    broker.when(|request| request.body.starts_with(b"poison"), Behaviour::Answer(Answer::status(400)));
    broker.next(Behaviour::Answer(
        Answer::status(429).header("retry-after", "7").body("text/plain", "slow down"),
    ));
    let first = post(&broker.url(), "poison").await.unwrap();
    assert_eq!((first.status, first.header("retry-after")), (429, Some("7")));
    assert_eq!(first.body, b"slow down");
    assert_eq!(post(&broker.url(), "poison").await.unwrap().status, 400);
    assert_eq!(post(&broker.url(), "other").await.unwrap().status, 500);
    assert_eq!(broker.received().len(), 3);
}

#[tokio::test]
async fn a_redirect_of_the_broker_names_where_to() {
    let broker = Broker::start().await;
    broker.next(Behaviour::Answer(Answer::redirect(307, "http://127.0.0.1:1/elsewhere")));
    let answer = post(&broker.url(), "{}").await.unwrap();
    assert_eq!((answer.status, answer.header("location")), (307, Some("http://127.0.0.1:1/elsewhere")));
}

#[tokio::test]
async fn a_cut_before_reading_leaves_no_record_and_a_cut_after_reading_leaves_one() {
    let broker = Broker::start().await;
    broker.next(Behaviour::CutBeforeReading);
    let error = post(&broker.url(), "{}").await.unwrap_err();
    assert!(error.contains("Some(52)") || error.contains("Some(56)"), "{error}");
    assert_eq!(broker.received().len(), 0);
    broker.next(Behaviour::CutAfterReading);
    post(&broker.url(), "{}").await.unwrap_err();
    assert_eq!(broker.received().len(), 1);
    assert_eq!(post(&broker.url(), "{}").await.unwrap().status, 202);
}

#[tokio::test]
async fn a_broker_that_refuses_can_be_reached_again_on_the_same_port() {
    let broker = Broker::start().await;
    broker.refuse().await;
    let error = post(&broker.url(), "{}").await.unwrap_err();
    assert!(error.contains("Some(7)"), "{error}");
    broker.accept().await;
    assert_eq!(post(&broker.url(), "{}").await.unwrap().status, 202);
}

#[tokio::test]
async fn refusing_ends_a_request_that_hangs() {
    let broker = Broker::start().await;
    broker.next(Behaviour::Hang);
    let url = broker.url();
    let hanging = tokio::spawn(async move { post(&url, "{}").await });
    broker.wait_for(1, SHORT).await;
    assert!(!hanging.is_finished());
    broker.refuse().await;
    hanging.await.unwrap().unwrap_err();
}

#[tokio::test]
async fn a_slow_answer_of_the_broker_takes_its_time() {
    let broker = Broker::start().await;
    broker.next(Behaviour::Slow(Duration::from_millis(400), Answer::status(202)));
    let started = Instant::now();
    assert_eq!(post(&broker.url(), "{}").await.unwrap().status, 202);
    assert!(started.elapsed() >= Duration::from_millis(400));
}

#[tokio::test]
async fn a_span_sent_by_grpc_is_kept_with_its_resource() {
    let receiver = OtlpReceiver::start().await;
    assert_eq!(send(&receiver.url()).await.unwrap(), None);
    let spans = receiver.wait_for_spans(1, SHORT).await;
    assert_eq!(spans[0].trace_id(), TRACE);
    assert_eq!(spans[0].span_id(), "0102030405060708");
    assert_eq!(spans[0].resource["service.name"], "transponder");
    assert_eq!(spans[0].attributes["platform.chain_id"], "chain-1");
    assert_eq!(receiver.exports()[0].protocol, Protocol::Grpc);
}

#[tokio::test]
async fn a_span_sent_by_http_is_kept_and_a_doubled_path_is_not_found() {
    let receiver = OtlpReceiver::start().await;
    let post = async |path: &str| {
        let url = format!("{}{path}", receiver.url());
        let run =
            Run::tool("curl").args(["-sS", "-w", "%{http_code}", "-o", "/dev/null", "--data-binary", "@-"]);
        let run =
            run.args(["-H", "content-type: application/x-protobuf", &url]).stdin(export().encode_to_vec());
        run.run().await.success().text()
    };
    assert_eq!(post("/v1/traces").await, "200");
    assert_eq!(receiver.spans().len(), 1);
    assert_eq!(receiver.exports()[0].protocol, Protocol::Http);
    assert_eq!(post("/v1/traces/v1/traces").await, "404");
    receiver.next(OtlpReply::unavailable(Some(Duration::from_secs(3))));
    assert_eq!(post("/v1/traces").await, "503");
    receiver.next(OtlpReply::Http(http_status(502)));
    assert_eq!(post("/v1/traces").await, "502");
    assert_eq!(receiver.spans().len(), 1);
    assert_eq!(receiver.exports().len(), 3);
}

fn http_status(code: u16) -> ::http::StatusCode {
    ::http::StatusCode::from_u16(code).unwrap()
}

#[tokio::test]
async fn the_receiver_fails_over_grpc_with_and_without_retry_info() {
    let receiver = OtlpReceiver::start().await;
    receiver.next(OtlpReply::unavailable(None));
    receiver.next(OtlpReply::Fail(Code::ResourceExhausted, "full".to_owned(), Some(Duration::from_secs(2))));
    let first = send(&receiver.url()).await.unwrap_err();
    assert_eq!(first.code(), Code::Unavailable);
    assert!(first.get_details_retry_info().is_none());
    let second = send(&receiver.url()).await.unwrap_err();
    assert_eq!(second.code(), Code::ResourceExhausted);
    assert_eq!(second.get_details_retry_info().unwrap().retry_delay, Some(Duration::from_secs(2)));
    receiver.next(OtlpReply::Http(http_status(503)));
    assert_eq!(send(&receiver.url()).await.unwrap_err().code(), Code::Unavailable);
    assert!(receiver.spans().is_empty());
}

#[tokio::test]
async fn rejected_spans_are_not_kept_and_spans_with_a_warning_are() {
    let receiver = OtlpReceiver::start().await;
    receiver.next(OtlpReply::Reject(1, "too old".to_owned()));
    receiver.next(OtlpReply::Warn("odd".to_owned()));
    assert_eq!(send(&receiver.url()).await.unwrap(), Some((1, "too old".to_owned())));
    assert!(receiver.spans().is_empty());
    assert_eq!(send(&receiver.url()).await.unwrap(), Some((0, "odd".to_owned())));
    assert_eq!(receiver.spans().len(), 1);
}

#[tokio::test]
async fn the_receiver_cuts_before_and_after_reading() {
    let receiver = OtlpReceiver::start().await;
    receiver.next(OtlpReply::CutBeforeReading);
    send(&receiver.url()).await.unwrap_err();
    assert!(receiver.exports().is_empty());
    receiver.next(OtlpReply::CutAfterReading);
    send(&receiver.url()).await.unwrap_err();
    assert_eq!(receiver.spans().len(), 1);
    receiver.refuse().await;
    send(&receiver.url()).await.unwrap_err();
    receiver.accept().await;
    send(&receiver.url()).await.unwrap();
}

#[tokio::test]
async fn the_receiver_hangs_and_is_slow_when_told() {
    let receiver = OtlpReceiver::start().await;
    receiver.next(OtlpReply::Hang);
    let url = receiver.url();
    let hanging = tokio::spawn(async move { send(&url).await });
    receiver.wait_for_exports(1, SHORT).await;
    receiver.next(OtlpReply::Slow(Duration::from_millis(300)));
    let started = Instant::now();
    send(&receiver.url()).await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(300));
    assert!(!hanging.is_finished());
    assert_eq!(receiver.spans().len(), 1);
}

#[tokio::test]
async fn a_span_goes_into_jaeger_and_comes_out_of_its_query_api() {
    let jaeger = Jaeger::start().await;
    send(&jaeger.otlp_grpc()).await.unwrap();
    let trace = eventually("the trace is in Jaeger", LONG, || jaeger.trace(TRACE)).await;
    assert_eq!(trace["spans"][0]["operationName"], "release-outcome:shop/prod [Succeeded]");
    assert_eq!(trace["processes"]["p1"]["serviceName"], "transponder");
    let found = jaeger.search("transponder", &[("platform.chain_id", "chain-1")]).await.unwrap();
    assert_eq!(found.len(), 1);
    assert!(jaeger.search("transponder", &[("platform.chain_id", "other")]).await.unwrap().is_empty());
    let body = export().encode_to_vec();
    let url = format!("{}/v1/traces", jaeger.otlp_http());
    let run = Run::tool("curl").args([
        "-fsS",
        "--data-binary",
        "@-",
        "-H",
        "content-type: application/x-protobuf",
        &url,
    ]);
    run.stdin(body).run().await.success();
}

#[tokio::test]
async fn prometheus_scrapes_what_it_is_pointed_at() {
    let metrics = "# TYPE dora_deployments_total counter\ndora_deployments_total{app=\"shop\"} 3\n";
    let exporter = Broker::start().await;
    exporter.always(Behaviour::Answer(Answer::status(200).body("text/plain; version=0.0.4", metrics)));
    let address = exporter.url().trim_start_matches("http://").to_owned();
    let target = Target { job: "dora".to_owned(), address, path: "/metrics".to_owned() };
    let prometheus = Prometheus::start(&[target]).await;
    let query = "dora_deployments_total{job=\"dora\"}";
    let value = eventually("the series is in Prometheus", LONG, || prometheus.value(query)).await;
    assert!((value - 3.0).abs() < f64::EPSILON);
    assert_eq!(prometheus.query(query).await[0].labels["app"], "shop");
    assert!(prometheus.query("nothing_of_the_kind").await.is_empty());
    assert_eq!(exporter.received()[0].path, "/metrics");
    Run::tool("promtool")
        .args(["check", "metrics"])
        .stdin(format!("# HELP dora_deployments_total x\n{metrics}"))
        .run()
        .await
        .success();
}

#[tokio::test]
async fn both_grpcurls_say_their_versions() {
    for tool in ["grpcurl", "grpcurl-v1alpha"] {
        let ran = Run::tool(tool).args(["-version"]).run().await.success();
        assert!(ran.text().contains("grpcurl") || ran.stderr.contains("grpcurl"), "{ran:?}");
    }
}

#[tokio::test]
async fn a_program_is_killed_or_asked_to_end_and_its_logs_are_kept() {
    let shell = |script: &str| {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", script]);
        Process::start("sh", command)
    };
    let mut polite = shell("trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.05; done");
    eventually("it is ready", SHORT, || async {
        polite.stdout().contains("ready").then_some(()).ok_or(polite.stdout())
    })
    .await;
    assert_eq!(polite.terminate(SHORT).await.code(), Some(3));
    assert_eq!(polite.stdout(), "ready\nbye\n");
    let mut deaf = shell("trap '' TERM; echo warning >&2; while :; do sleep 0.05; done");
    eventually("it is deaf", SHORT, || async {
        deaf.stderr().contains("warning").then_some(()).ok_or(deaf.stderr())
    })
    .await;
    assert_eq!(deaf.ended(), None);
    assert_eq!(deaf.kill().code(), None);
}

#[tokio::test]
#[should_panic(expected = "sh ended before it was ready: exit status: 4")]
async fn a_program_that_ends_is_not_waited_for() {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "exit 4"]);
    let mut process = Process::start("sh", command);
    process.ready(LONG, || async { Err::<(), _>("not yet".to_owned()) }).await;
}

#[tokio::test]
async fn a_dropped_process_is_gone() {
    let mut command = std::process::Command::new("sleep");
    command.arg("600");
    let process = Process::start("sleep", command);
    let entry = format!("/proc/{}", process.pid());
    assert!(std::path::Path::new(&entry).exists());
    drop(process);
    assert!(!std::path::Path::new(&entry).exists());
}

#[tokio::test]
async fn a_wait_in_vain_says_what_was_seen_last() {
    let wait = eventually("the moon is full", Duration::from_millis(50), || async {
        Err::<(), _>("half".to_owned())
    });
    let panic = panic_of(wait).await;
    assert!(
        panic.contains("harness.rs") && panic.contains("the moon is full") && panic.contains("half"),
        "{panic}"
    );
}

/// The message with which a future panics.
async fn panic_of(future: impl Future<Output = ()> + Send + 'static) -> String {
    let error = tokio::spawn(future).await.unwrap_err();
    *error.into_panic().downcast::<String>().unwrap()
}

#[tokio::test]
async fn a_free_port_is_handed_out_once() {
    let ports: std::collections::BTreeSet<u16> = (0..200).map(|_| ports::free()).collect();
    assert_eq!(ports.len(), 200);
}

#[test]
fn our_own_programs_are_found_or_built() {
    for name in ["transponder", "transponder-hook"] {
        assert!(product(name).is_file());
    }
}
