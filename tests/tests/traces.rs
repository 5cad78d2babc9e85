//! Transponder's own traces: a setting of their own, off by default, and nothing rests on them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use transponder_tests::{
    Broker, Jaeger, LONG, Mesh, OtlpReceiver, OtlpReply, ReceivedSpan, TestEvent, eventually,
};

/// The flow that the event says it comes from.
const FLOW: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test(flavor = "multi_thread")]
async fn a_report_and_all_its_calls_are_one_trace_in_jaeger() {
    let (broker, jaeger, outcomes) =
        (Broker::start().await, Jaeger::start().await, OtlpReceiver::start().await);
    let mut mesh = Mesh::new(&broker).await;
    mesh.env("OTEL_EXPORTER_OTLP_ENDPOINT", &outcomes.url());
    mesh.set("traces.endpoint", &jaeger.otlp_grpc());
    mesh.run().await;
    let event = TestEvent::new("Succeeded", "flow-1");
    assert_eq!(mesh.post("kind-prod", event.body()).await.unwrap().0, 202);
    mesh.wait_final("kind-prod", &event.key()).await;
    assert_eq!(mesh.post("kind-prod", event.body()).await.unwrap().0, 200);

    // The event's key begins with its trace id, so who has the one finds the other.
    let id = &event.key()[..32];
    let expected = BTreeSet::from([
        "POST /outcome/{cluster}",
        "deliver broker",
        "deliver tracking",
        "deliver dora",
        "deliver span",
        "transponder.v1.Forwarder/Forward",
        "transponder.v1.ReleaseTracking/Observe",
        "transponder.v1.DoraRecorder/RecordOutcome",
        "transponder.v1.OutcomeSpan/Emit",
    ]);
    let trace = eventually("the trace is whole", LONG, || async {
        let trace = jaeger.trace(id).await?;
        let names: Vec<_> = spans(&trace).iter().filter_map(|span| span["operationName"].as_str()).collect();
        // Two reports; the second is no observation, so nobody is called for it.
        let whole =
            names.len() == expected.len() + 1 && names.iter().copied().collect::<BTreeSet<_>>() == expected;
        if whole { Ok(trace.clone()) } else { Err(format!("{names:?}")) }
    })
    .await;
    let by_id: BTreeMap<_, _> =
        spans(&trace).iter().map(|span| (span["spanID"].as_str().unwrap(), span)).collect();
    let roots: Vec<_> = spans(&trace).iter().filter(|span| parent(span).is_none()).collect();
    assert_eq!(roots.len(), 1, "{trace}");
    assert_eq!(tag(roots[0], "http.response.status_code"), 202);
    assert_eq!(tag(roots[0], "transponder.event_key"), event.key().as_str());
    for span in spans(&trace).iter().filter(|span| parent(span).is_some()) {
        let above = by_id[parent(span).unwrap()];
        let name = span["operationName"].as_str().unwrap();
        let (expected, service) = match name.rsplit('/').next().unwrap() {
            "Forward" => ("deliver broker", "transponder-forwarder"),
            "Observe" => ("deliver tracking", "transponder-release-tracking"),
            "RecordOutcome" => ("deliver dora", "transponder-dora-recorder"),
            "Emit" => ("deliver span", "transponder-outcome-span"),
            _ => ("POST /outcome/{cluster}", "transponder-edge"),
        };
        assert_eq!(above["operationName"], expected, "{name}");
        let process = &trace["processes"][span["processID"].as_str().unwrap()];
        assert_eq!(process["serviceName"], service, "{name}");
    }
    // The outcome's own span went to its own backend, and nothing else did.
    let outcome: Vec<ReceivedSpan> = outcomes.spans();
    assert_eq!(outcome.len(), 1);
    assert_ne!(outcome[0].trace_id(), id);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_two_backends_get_nothing_of_each_other() {
    let (broker, outcomes, own) =
        (Broker::start().await, OtlpReceiver::start().await, OtlpReceiver::start().await);
    let mut mesh = Mesh::new(&broker).await;
    mesh.env("OTEL_EXPORTER_OTLP_ENDPOINT", &outcomes.url());
    mesh.env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20of-the-outcomes");
    let headers = mesh.path("trace-headers");
    std::fs::write(&headers, "x-scope-orgid: platform\n").unwrap();
    mesh.set("traces.endpoint", &own.url());
    mesh.set("traces.headers_file", headers.to_str().unwrap());
    mesh.run().await;
    let event = TestEvent::new("Failed", "flow-1");
    let mut body = event.json();
    body["customData"]["platform"]["traceparent"] = FLOW.into();
    assert_eq!(mesh.post("kind-prod", body.to_string()).await.unwrap().0, 202);
    mesh.wait_final("kind-prod", &event.key()).await;
    let own_spans = own.wait_for_spans(9, LONG).await;
    assert!(own_spans.iter().all(|span| span.resource["service.name"].starts_with("transponder-")));
    let report = own_spans.iter().find(|span| span.span.name.starts_with("POST")).unwrap();
    assert_eq!(hex(&report.span.links[0].trace_id), FLOW[3..35]);
    for export in own.exports() {
        assert_eq!(export.headers["x-scope-orgid"], "platform");
        assert!(!export.headers.contains_key("authorization"));
    }
    for export in outcomes.exports() {
        assert_eq!(export.headers["authorization"], "Bearer of-the-outcomes");
        assert!(!export.headers.contains_key("x-scope-orgid"));
        assert!(export.spans().iter().all(|span| span.span.name.starts_with("release-outcome:")));
    }
    // The last ones are sent before the process ends.
    let last = TestEvent::new("Succeeded", "flow-2");
    assert_eq!(mesh.post("kind-prod", last.body()).await.unwrap().0, 202);
    assert!(mesh.stop().await.success());
    let key = last.key();
    assert!(own.spans().iter().any(|span| span.attributes.get("transponder.event_key") == Some(&key)));
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_that_cannot_be_sent_cost_nobody_anything_and_are_said_once() {
    let (broker, own) = (Broker::start().await, OtlpReceiver::start().await);
    own.always(OtlpReply::Hang);
    let mut mesh = Mesh::new(&broker).await;
    mesh.set("traces.endpoint", &own.url());
    mesh.run().await;
    for number in 0..50 {
        let event = TestEvent::new("Succeeded", &format!("flow-{number}"));
        assert_eq!(mesh.post("kind-prod", event.body()).await.unwrap().0, 202);
        mesh.wait_final("kind-prod", &event.key()).await;
    }
    own.refuse().await;
    eventually("the loss is counted", LONG, || async {
        let metrics = mesh.metrics().await;
        let failed =
            metrics.lines().find(|line| line.starts_with("transponder_own_spans_total{result=\"failed\"}"));
        failed.map(drop).ok_or(metrics)
    })
    .await;
    let said = mesh.process().stderr().matches("sending own traces fails").count();
    assert_eq!(said, 1, "{}", mesh.process().stderr());
    let begun = std::time::Instant::now();
    assert!(mesh.stop().await.success());
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
}

fn spans(trace: &Value) -> &[Value] {
    trace["spans"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn parent(span: &Value) -> Option<&str> {
    let references = span["references"].as_array().into_iter().flatten();
    references
        .filter(|reference| reference["refType"] == "CHILD_OF")
        .find_map(|reference| reference["spanID"].as_str())
}

fn tag<'a>(span: &'a Value, name: &str) -> &'a Value {
    let mut tags = span["tags"].as_array().into_iter().flatten();
    tags.find(|tag| tag["key"] == name).map_or(&Value::Null, |tag| &tag["value"])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
