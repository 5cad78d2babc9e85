//! The real Tempo finds a span that began nine days ago. `cargo xtask test` runs this where `TEMPO_BIN` names a Tempo.

use serde_json::{Value, json};
use transponder_tests::{Broker, LONG, Mesh, Tempo, TestEvent, eventually};

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_found_by_its_chain_and_by_its_trace_over_grpc() {
    a_release_is_found("grpc").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_found_by_its_chain_and_by_its_trace_over_http() {
    a_release_is_found("http/protobuf").await;
}

async fn a_release_is_found(protocol: &str) {
    // Asked for without xtask and without a Tempo: `tool` says so. xtask skips the suite.
    let (broker, tempo) = (Broker::start().await, Tempo::start().await);
    let mut mesh = Mesh::new(&broker).await;
    let endpoint = if protocol == "grpc" { tempo.otlp_grpc() } else { tempo.otlp_http() };
    mesh.env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint);
    mesh.env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol);
    mesh.run().await;
    let task = mesh.task_token();
    let now = jiff::Timestamp::now();
    let opened = now - jiff::SignedDuration::from_secs(9 * DAY);
    let release = json!({ "appName": "shop", "env": "prod", "cluster": "kind-prod", "chainId": "flow-42" });
    let put =
        json!({ "release": release, "prUrl": "https://git.example/7", "prCreatedAt": opened.to_string() });
    mesh.grpc("release-tracking").token(&task).call("ReleaseTracking/Put", &put).await.success();
    let event = TestEvent::new("Succeeded", "flow-42").finished(now);
    assert_eq!(mesh.post("kind-prod", event.body()).await.unwrap().0, 202);
    let receipt = mesh.wait_final("kind-prod", &event.key()).await;
    assert_eq!(receipt["targets"]["span"]["state"], "delivered", "{receipt}");

    let query = r#"{ span.platform.chain_id = "flow-42" }"#;
    let around_now = Some((now.as_second() - HOUR, now.as_second() + HOUR));
    let found = eventually("TraceQL finds the release", 2 * LONG, || one(&tempo, query, around_now)).await;
    assert_eq!(found["rootTraceName"], "release-outcome:shop/prod [Succeeded]", "{found}");
    assert_eq!(found["rootServiceName"], "transponder", "{found}");
    let length = found["durationMs"].as_i64().unwrap();
    assert!((length - 9 * DAY * 1000).abs() < 10_000, "{found}");
    for query in [
        r#"{ span.platform.app_name = "shop" && span.platform.env = "prod" && status = ok }"#,
        "{ name =~ \"release-outcome:shop/.*\" && duration > 24h }",
        r#"{ span.platform.span_anchor = "pr_created" }"#,
    ] {
        eventually(query, LONG, || one(&tempo, query, around_now)).await;
    }
    // No window: the last 15 minutes, in which it was taken in.
    eventually("without a window", LONG, || one(&tempo, query, None)).await;
    let wrong = tempo.search(r#"{ platform.chain_id = "flow-42" }"#, around_now).await;
    assert!(wrong.is_err(), "the query without `span.` is a syntax error: {wrong:?}");

    let emitted = json!({ "release": { "appName": "shop", "env": "prod", "cluster": "kind-prod", "chainId": "flow-42",
        "eventId": event.id() }, "phase": "PHASE_SUCCEEDED", "finishedAt": now.to_string() });
    let answer =
        mesh.grpc("outcome-span").token(&task).call("OutcomeSpan/Emit", &emitted).await.success().json();
    let id = answer["traceId"].as_str().unwrap().to_owned();
    // Tempo's search leaves leading zeros of an id out.
    assert_eq!(format!("{:0>32}", found["traceID"].as_str().unwrap()), id);
    let spans = eventually("it is found by its trace id", LONG, || tempo.trace(&id)).await;
    let attributes = spans[0]["attributes"].as_array().unwrap();
    let anchor = attributes.iter().find(|attribute| attribute["key"] == "platform.span_anchor");
    assert_eq!(anchor.unwrap()["value"]["stringValue"], "pr_created", "{spans:?}");
    assert!(spans.iter().all(|span| span["spanId"] == spans[0]["spanId"]), "one identity: {spans:?}");
}

async fn one(tempo: &Tempo, query: &str, window: Option<(i64, i64)>) -> Result<Value, String> {
    let traces = tempo.search(query, window).await?;
    match traces.as_slice() {
        [one] => Ok(one.clone()),
        other => Err(format!("{query}: {other:?}")),
    }
}
