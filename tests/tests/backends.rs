//! The real backends: Jaeger finds the span, Prometheus counts the first release.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use transponder_tests::{
    Broker, Jaeger, LONG, Mesh, Prometheus, Run, SHORT, Target, TestEvent, curl, eventually, ports,
};

const PR_CREATED: &str = "2026-03-01T09:30:00.250Z";
const FINISHED: &str = "2026-03-10T17:00:00.500Z";
/// In microseconds, as Jaeger tells times.
const NINE_DAYS: i64 = (9 * 24 * 3600 + 7 * 3600 + 30 * 60) * 1_000_000 + 250_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_one_span_from_its_pull_request_to_its_finish_over_grpc() {
    a_span_is_found("grpc").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_one_span_from_its_pull_request_to_its_finish_over_http() {
    a_span_is_found("http/protobuf").await;
}

async fn a_span_is_found(protocol: &str) {
    let (broker, jaeger) = (Broker::start().await, Jaeger::start().await);
    let mut mesh = Mesh::new(&broker).await;
    let endpoint = if protocol == "grpc" { jaeger.otlp_grpc() } else { jaeger.otlp_http() };
    mesh.env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint);
    mesh.env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol);
    mesh.run().await;
    let task = mesh.task_token();
    let release = json!({ "appName": "shop", "env": "prod", "cluster": "kind-prod", "chainId": "flow-42" });
    let put =
        json!({ "release": release, "prUrl": "https://git.example/shop/pulls/7", "prCreatedAt": PR_CREATED });
    mesh.grpc("release-tracking").token(&task).call("ReleaseTracking/Put", &put).await.success();
    let event = TestEvent::new("Succeeded", "flow-42").finished(FINISHED).flow_start("2026-03-09T00:00:00Z");
    assert_eq!(mesh.post("kind-prod", event.body()).await.unwrap().0, 202);
    let receipt = mesh.wait_final("kind-prod", &event.key()).await;
    assert_eq!(receipt["targets"]["span"]["state"], "delivered", "{receipt}");
    let span = eventually("Jaeger has the span", LONG, || spans(&jaeger, "flow-42", 1)).await.remove(0);
    assert_eq!(span["operationName"], "release-outcome:shop/prod [Succeeded]");
    assert_eq!(span["startTime"], micros(PR_CREATED));
    assert_eq!(span["duration"], NINE_DAYS);
    assert_eq!(span["references"], json!([]));
    let tags = tags(&span);
    for (name, value) in [
        ("platform.span_anchor", "pr_created"),
        ("platform.app_namespace", "app-shop-cicd"),
        ("platform.app_name", "shop"),
        ("platform.env", "prod"),
        ("platform.cluster", "kind-prod"),
        ("platform.chain_id", "flow-42"),
        ("platform.flow_start_time", "2026-03-09T00:00:00Z"),
        ("platform.pr_url", "https://git.example/shop/pulls/7"),
        ("platform.event_id", &event.id()),
        ("deployment.environment.name", "prod"),
        ("k8s.cluster.name", "kind-prod"),
        ("cicd.pipeline.result", "success"),
        ("otel.status_code", "OK"),
        ("span.kind", "internal"),
    ] {
        assert_eq!(tags.get(name).map(String::as_str), Some(value), "{name}: {tags:?}");
    }
    assert!(!tags.keys().any(|name| name.contains("config") || name.contains("raw")), "{tags:?}");
    // The same outcome again, by the hook and by a Task: the same span.
    assert_eq!(mesh.post("kind-prod", event.body()).await.unwrap().0, 200);
    let mut emitted = release.clone();
    emitted["eventId"] = json!(event.id());
    let emit = json!({ "release": emitted, "phase": "PHASE_SUCCEEDED", "finishedAt": FINISHED,
        "flowStartTime": "2026-03-09T00:00:00Z" });
    let answer =
        mesh.grpc("outcome-span").token(&task).call("OutcomeSpan/Emit", &emit).await.success().json();
    assert_eq!(answer["anchor"], "ANCHOR_PR_CREATED", "{answer}");
    assert_eq!((&answer["traceId"], &answer["spanId"]), (&span["traceID"], &span["spanID"]));
    // What was sent before this one is there when this one is.
    let last = TestEvent::new("Failed", "flow-43").finished(FINISHED);
    assert_eq!(mesh.post("kind-prod", last.body()).await.unwrap().0, 202);
    let failed = eventually("the last span is there", LONG, || spans(&jaeger, "flow-43", 1)).await.remove(0);
    assert_eq!(tags_of(&failed, "otel.status_code"), "ERROR");
    assert_eq!(tags_of(&failed, "platform.span_anchor"), "finished");
    assert_eq!((&failed["startTime"], &failed["duration"]), (&micros(FINISHED), &json!(0)));
    let again = spans(&jaeger, "flow-42", 1).await.unwrap().remove(0);
    assert_eq!(again, span);
    let trace = jaeger.trace(answer["traceId"].as_str().unwrap()).await.unwrap();
    assert_eq!(trace["spans"].as_array().unwrap().len(), 1, "{trace}");
    assert_eq!(
        trace["processes"].as_object().unwrap().values().next().unwrap()["serviceName"],
        "transponder"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn increase_sees_the_first_release_and_no_counter_goes_back_over_a_kill() {
    let broker = Broker::start().await;
    let mut mesh = Mesh::new(&broker).await;
    // Prometheus looks for the same address after the restart.
    mesh.set("admin.listen", &format!("127.0.0.1:{}", ports::free()));
    mesh.set("dora.zero_hold", "5s");
    mesh.set("edge.settle.failed", "0s");
    mesh.run().await;
    let address = mesh.address("admin").to_string();
    let target = Target { job: "transponder".into(), address, path: "/metrics".into() };
    let prometheus = Prometheus::start(&[target]).await;
    eventually("it is scraped", SHORT, || up(&prometheus)).await;

    let start = "2026-03-01T00:00:00Z";
    for (phase, chain) in [("Failed", "one"), ("Succeeded", "two")] {
        let event = TestEvent::new(phase, chain).flow_start(start);
        assert_eq!(mesh.post("kind-prod", event.body()).await.unwrap().0, 202);
        mesh.wait_final("kind-prod", &event.key()).await;
    }
    let stream = r#"{app_namespace="app-shop-cicd",app="shop",env="prod",cluster="kind-prod"}"#;
    let failed = r#"{outcome="failed",app="shop",env="prod"}"#;
    for (query, at_least) in [
        (format!("increase(dora_deployments_total{stream}[5m])"), 0.99),
        (format!("increase(dora_releases_total{failed}[5m])"), 0.99),
        (format!("increase(dora_lead_time_seconds_count{stream}[5m])"), 0.99),
        (format!("increase(dora_time_to_restore_seconds_experimental_count{stream}[5m])"), 0.99),
    ] {
        let seen = eventually(&query, LONG, || async {
            let value = prometheus.value(&query).await?;
            if value >= at_least { Ok(value) } else { Err(value.to_string()) }
        });
        // Extrapolated to the window, but not to a second release.
        assert!(seen.await < 2.0, "{query}");
    }

    let before = dora(&mesh).await;
    assert!(before.len() > 20, "{before:?}");
    mesh.kill();
    mesh.run().await;
    // Where several may show them, whoever was killed is waited for first.
    let after = eventually("the totals are shown again", LONG, || async {
        let shown = dora(&mesh).await;
        if shown.is_empty() { Err("nothing".to_owned()) } else { Ok(shown) }
    });
    assert_eq!(after.await, before);
    let event = TestEvent::new("Succeeded", "three").flow_start(start);
    assert_eq!(mesh.post("kind-prod", event.body()).await.unwrap().0, 202);
    mesh.wait_final("kind-prod", &event.key()).await;
    let deployments = format!("dora_deployments_total{stream}");
    eventually("Prometheus sees the next release", LONG, || async {
        let value = prometheus.value(&deployments).await?;
        if value == 2.0 { Ok(()) } else { Err(value.to_string()) }
    })
    .await;
    let grown = dora(&mesh).await;
    for (series, value) in &before {
        assert!(grown.get(series).is_some_and(|now| now >= value), "{series}: {value}, then {grown:?}");
    }
    for name in ["dora_deployments_total", "dora_releases_total", "dora_lead_time_seconds_bucket"] {
        let resets = prometheus.query(&format!("resets({name}[5m]) > 0")).await;
        assert!(resets.is_empty(), "{resets:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_expositions_are_read_by_prometheus_own_parsers() {
    let broker = Broker::start().await;
    let mut mesh = Mesh::new(&broker).await;
    mesh.set("edge.settle.failed", "0s");
    mesh.run().await;
    for (phase, chain) in [("Syncing", "one"), ("Failed", "one"), ("Succeeded", "two")] {
        let event = TestEvent::new(phase, chain).flow_start("2026-03-01T00:00:00Z");
        assert_eq!(mesh.post("kind-prod", event.body()).await.unwrap().0, 202);
        mesh.wait_final("kind-prod", &event.key()).await;
    }
    let text = mesh.metrics().await;
    let checked = Run::tool("promtool").args(["check", "metrics"]).stdin(text.clone()).run().await;
    assert_eq!(checked.code, Some(0), "{}{}\n{text}", checked.text(), checked.stderr);
    assert!(text.contains("dora_deployments_total{"), "{text}");

    let url = format!("http://{}/metrics", mesh.address("admin"));
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
    let open = curl(["-i", "-H", accept, &url]).await.success().text();
    assert!(open.to_lowercase().contains("content-type: application/openmetrics-text"), "{open}");
    assert!(open.ends_with("# EOF\n"), "{open}");
    // Prometheus asks for OpenMetrics first, and counts a scrape that it cannot read as down.
    let target = Target {
        job: "transponder".into(),
        address: mesh.address("admin").to_string(),
        path: "/metrics".into(),
    };
    let prometheus = Prometheus::start(&[target]).await;
    eventually("it is scraped", SHORT, || up(&prometheus)).await;
    for name in ["dora_deployments_total", "dora_lead_time_seconds_bucket", "transponder_observations_total"]
    {
        assert!(!prometheus.query(name).await.is_empty(), "{name}");
    }
}

async fn up(prometheus: &Prometheus) -> Result<(), String> {
    let value = prometheus.value("up{job=\"transponder\"}").await?;
    if value == 1.0 { Ok(()) } else { Err("down".into()) }
}

/// Every counter and histogram of the DORA metrics, by series.
async fn dora(mesh: &Mesh) -> BTreeMap<String, f64> {
    let text = mesh.metrics().await;
    let samples = text.lines().filter(|line| line.starts_with("dora_"));
    let samples = samples.filter_map(|line| line.rsplit_once(' '));
    samples.map(|(series, value)| (series.to_owned(), value.parse().unwrap())).collect()
}

/// The spans of a chain, when there are so many.
async fn spans(jaeger: &Jaeger, chain_id: &str, count: usize) -> Result<Vec<Value>, String> {
    let traces = jaeger.search("transponder", &[("platform.chain_id", chain_id)]).await?;
    let spans: Vec<Value> =
        traces.iter().flat_map(|trace| trace["spans"].as_array().cloned().unwrap_or_default()).collect();
    if spans.len() == count { Ok(spans) } else { Err(format!("{} spans: {traces:?}", spans.len())) }
}

fn tags(span: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let tags = span["tags"].as_array().into_iter().flatten();
    tags.map(|tag| (text(&tag["key"]), text(&tag["value"]))).collect()
}

fn tags_of(span: &Value, name: &str) -> String {
    tags(span).remove(name).unwrap_or_default()
}

fn micros(time: &str) -> Value {
    let time: jiff::Timestamp = time.parse().unwrap();
    json!(time.as_microsecond())
}
