//! The edge's door: what is refused, how, and that nothing of it is stored.

use std::time::Duration;

use serde_json::{Value, json};
use transponder_tests::{Broker, HttpResponse, LONG, Mesh, TestEvent, Wire, http};

async fn mesh() -> (Broker, Mesh) {
    let broker = Broker::start().await;
    let mesh = Mesh::start(&broker).await;
    (broker, mesh)
}

/// A changed event: the pointer's value is set, or the member removed for `Value::Null` with `remove`.
fn changed(pointer: &str, value: Value) -> String {
    let mut event = TestEvent::new("Succeeded", "chain-1").json();
    *event.pointer_mut(pointer).unwrap_or_else(|| panic!("no {pointer}")) = value;
    event.to_string()
}

fn without(parent: &str, member: &str) -> String {
    let mut event = TestEvent::new("Succeeded", "chain-1").json();
    event.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(member).unwrap();
    event.to_string()
}

fn assert_problem(name: &str, answer: &HttpResponse, status: u16, detail: &str) {
    assert_eq!(answer.status, status, "{name}: {}", answer.body_text());
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{name}");
    let problem = answer.json();
    assert_eq!(problem["status"], status, "{name}");
    let text = problem["detail"].as_str().unwrap();
    assert!(text.contains(detail), "{name}: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_breaks_the_contract_is_refused_with_the_field_and_nothing_is_stored() {
    let (broker, mesh) = mesh().await;
    let deep = format!("{{\"x\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let table: Vec<(&str, String, &str)> = vec![
        ("empty", String::new(), "the event is not valid JSON"),
        ("an array", "[]".into(), "the event is not a JSON object"),
        (
            "trailing garbage",
            format!("{} x", TestEvent::new("Failed", "c").body()),
            "the event is not valid JSON",
        ),
        ("a byte order mark", format!("\u{feff}{}", TestEvent::new("Failed", "c").body()), "byte order mark"),
        (
            "a lone surrogate",
            changed("/context/chainId", json!("X")).replace("\"X\"", "\"\\ud800\""),
            "context.chainId",
        ),
        (
            "NaN",
            changed("/context/chainId", json!("X")).replace("\"X\"", "NaN"),
            "the event is not valid JSON",
        ),
        ("depth 10 000", deep, "nested deeper than 64 levels"),
        (
            "a name twice",
            TestEvent::new("Failed", "c").body().replacen('{', "{\"a\":1,\"a\":2,", 1),
            "has the name 'a' twice",
        ),
        (
            "a name twice, deep",
            changed("/customData/platform/config_json", json!("X"))
                .replace("\"X\"", "{\"b\":[{\"c\":1,\"c\":2}]}"),
            "has the name 'c' twice",
        ),
        (
            "names that differ in case",
            changed("/context/chainId", json!("X"))
                .replace("\"chainId\":\"X\"", "\"chainId\":\"X\",\"CHAINID\":\"Y\""),
            "differ only in case",
        ),
        (
            "an expansion",
            changed("/subject/content/configJson", json!("$(tt.params.x)")),
            "subject.content.configJson contains '$(tt.'",
        ),
        (
            "a nested expansion",
            changed("/subject/content/gitUrl", json!("$$(tt.params.y)")),
            "contains '$(tt.'",
        ),
        ("no id", without("/context", "id"), "context.id is required"),
        ("an empty id", changed("/context/id", json!("")), "context.id is required"),
        ("a null id", changed("/context/id", Value::Null), "context.id is required"),
        ("a number for an id", changed("/context/id", json!(7)), "context.id must be a string"),
        (
            "a long id",
            changed("/context/id", json!("a".repeat(41))),
            "context.id must have at most 40 characters",
        ),
        (
            "an id with a line end",
            changed("/context/id", json!("a\r\nX: y")),
            "context.id must fit a Kubernetes name",
        ),
        ("no source", without("/context", "source"), "context.source is required"),
        ("no type", without("/context", "type"), "context.type is required"),
        ("no content", without("/subject", "content"), "is required"),
        (
            "an upper-case app",
            changed("/subject/content/appName", json!("Shop")),
            "subject.content.appName must be a DNS label",
        ),
        ("no env", without("/subject/content", "env"), "subject.content.env is required"),
        ("no cluster", without("/subject/content", "cluster"), "subject.content.cluster is required"),
        ("no finish", without("/subject/content", "finishedAt"), "subject.content.finishedAt is required"),
        (
            "a date for a finish",
            changed("/subject/content/finishedAt", json!("2026-09-14")),
            "subject.content.finishedAt is not an RFC 3339 time",
        ),
        (
            "an epoch for a finish",
            changed("/subject/content/finishedAt", json!(1_789_380_000)),
            "subject.content.finishedAt must be a string",
        ),
        (
            "24:00",
            changed("/subject/content/finishedAt", json!("2026-09-14T24:00:00Z")),
            "no such time of day",
        ),
        (
            "the year 1969",
            changed("/subject/content/finishedAt", json!("1969-12-31T23:59:59Z")),
            "must lie between 1970 and 2261",
        ),
        (
            "an unknown phase",
            changed("/subject/content/phase", json!("FAILURE")),
            "subject.content.phase must be",
        ),
        (
            "a contradicting outcome",
            changed("/subject/content/outcome", json!("failure")),
            "subject.content.outcome contradicts",
        ),
        (
            "a contradicting status",
            changed("/subject/content/status", json!("Failed")),
            "subject.content.status contradicts",
        ),
        (
            "a contradicting type",
            changed("/context/type", json!("dev.cdevents.environment.deploying.0.1.0")),
            "context.type contradicts",
        ),
        (
            "a type that is not permitted",
            changed("/context/type", json!("dev.cdevents.build.started.0.1.0")),
            "is not accepted from this cluster",
        ),
        (
            "the listener's own answer",
            changed("/context/type", json!("dev.tekton.event.triggers.done.v1")),
            "is not accepted from this cluster",
        ),
        (
            "another cluster",
            TestEvent::new("Failed", "c").cluster("kind-other").body(),
            "is 'kind-other', but the path is of 'kind-prod'",
        ),
    ];
    for (name, body, detail) in &table {
        let answer = mesh.curl("kind-prod", body, &[]).await.unwrap();
        assert_problem(name, &answer, 400, detail);
    }
    let answer = mesh.curl("kind-prod", "@/dev/stdin", &[]).await.unwrap();
    assert_eq!(answer.status, 400);
    let listed = mesh.operate(["outcomes", "list", "--output", "json"]).await.success().json();
    assert_eq!(listed["outcomes"].as_array().or(listed.as_array()).map(Vec::len), Some(0), "{listed}");
    assert!(broker.received().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_utf8_is_refused_and_odd_but_valid_bytes_pass_unchanged() {
    let (broker, mesh) = mesh().await;
    let mut bytes = TestEvent::new("Failed", "c").body().into_bytes();
    let place = bytes.windows(4).position(|w| w == b"shop").unwrap();
    bytes[place] = 0xff;
    let (status, problem) = mesh.post("kind-prod", bytes).await.unwrap();
    assert_eq!(status, 400, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("is not UTF-8 at byte"), "{problem}");
    let odd = TestEvent::new("Failed", "odd").body().replacen(
        '{',
        "{ \"huge\" : 1e400,\"long\":12345678901234567890123,\"smile\":\"\\ud83d\\ude00\",\"n\":null,\n",
        1,
    );
    assert_eq!(mesh.post("kind-prod", odd.clone()).await.unwrap().0, 202);
    assert_eq!(broker.wait_for(1, Duration::from_secs(10)).await[0].body, odd.as_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn method_path_type_and_size_are_answered_as_http_says() {
    let (_broker, mesh) = mesh().await;
    let event = TestEvent::new("Succeeded", "chain-1").body();
    let bearer = format!("Authorization: Bearer {}", mesh.token("kind-prod"));
    let ca = mesh.path("edge/edge-ca.crt").to_string_lossy().into_owned();
    let ask = async |path: &str, more: &[&str]| {
        let url = mesh.url(path);
        let mut arguments = vec!["-s", "--cacert", &ca, "-H", &bearer];
        arguments.extend(more);
        arguments.push(&url);
        http(arguments).await.unwrap()
    };
    assert_problem("no path", &ask("/", &[]).await, 404, "nothing here");
    assert_problem("a scanner", &ask("/.env", &[]).await, 404, "nothing here");
    let wrong = ask("/outcome/kind-prod", &[]).await;
    assert_problem("a GET", &wrong, 405, "allows POST");
    assert_eq!(wrong.header("allow"), Some("POST"));
    assert_problem("a DELETE", &ask("/outcome/kind-prod/abc", &["-X", "DELETE"]).await, 405, "allows GET");
    assert_problem("no such key", &ask("/outcome/kind-prod/abc", &[]).await, 404, "nothing here");
    let json = ["-H", "Content-Type: application/json"];
    let plain = ask("/outcome/kind-prod", &["--data-binary", &event, "-H", "Content-Type: text/plain"]).await;
    assert_problem("text", &plain, 415, "content type");
    let encoded = [json[0], json[1], "-H", "Content-Encoding: gzip", "--data-binary", &event];
    assert_problem("gzip", &ask("/outcome/kind-prod", &encoded).await, 415, "content encoding");
    let large = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(large.path(), format!("{{\"a\":\"{}\"}}", "x".repeat(300 * 1024))).unwrap();
    let file = format!("@{}", large.path().display());
    let answer = ask("/outcome/kind-prod", &[json[0], json[1], "--data-binary", &file]).await;
    assert_problem("large", &answer, 413, "at most 262144 bytes");
    assert_eq!(answer.json()["limit"], 262_144);
    let chunked = [json[0], json[1], "-H", "Transfer-Encoding: chunked", "--data-binary", &file];
    assert_problem(
        "large and chunked",
        &ask("/outcome/kind-prod", &chunked).await,
        413,
        "at most 262144 bytes",
    );
    let head = format!("X-Long: {}", "x".repeat(40_000));
    let answer = ask("/outcome/kind-prod", &["-H", &head, json[0], json[1], "--data-binary", &event]).await;
    assert_eq!(answer.status, 431);
    let fine = ask(
        "/outcome/kind-prod",
        &["-H", "Content-Type: Application/JSON; charset=utf-8", "--data-binary", &event],
    )
    .await;
    assert_eq!(fine.status, 202);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_cluster_and_a_wrong_token_are_one_answer() {
    let (broker, mesh) = mesh().await;
    let event = TestEvent::new("Succeeded", "chain-1").body();
    let ca = mesh.path("edge/edge-ca.crt").to_string_lossy().into_owned();
    let post = async |cluster: &str, authorization: Option<String>| {
        let url = mesh.url(&format!("/outcome/{cluster}"));
        let header = authorization.map(|a| format!("Authorization: {a}"));
        let mut arguments =
            vec!["-s", "--cacert", &ca, "-H", "Content-Type: application/json", "--data-binary", &event];
        if let Some(header) = &header {
            arguments.extend(["-H", header]);
        }
        arguments.push(&url);
        // Where tokens are read from an API server, a slow one is told of before anybody is refused.
        let tries = if mesh.on_kubernetes() { 5 } else { 1 };
        let mut answer = http(&arguments).await.unwrap();
        for _ in 1..tries {
            if answer.status == 503 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                answer = http(&arguments).await.unwrap();
            }
        }
        answer
    };
    let right = mesh.token("kind-prod").to_owned();
    let mut answers = Vec::new();
    for (cluster, authorization) in [
        ("kind-prod", None),
        ("kind-prod", Some("Bearer ".to_owned())),
        ("kind-prod", Some("Bearer wrong-token-wrong-token".into())),
        ("kind-prod", Some(format!("Basic {right}"))),
        ("kind-prod", Some(right.clone())),
        ("kind-prod", Some(format!("Bearer {right}x"))),
        ("nobody", Some(format!("Bearer {right}"))),
        ("No.Name!", Some(format!("Bearer {right}"))),
        ("nobody", None),
    ] {
        let answer = post(cluster, authorization).await;
        assert_problem(cluster, &answer, 401, "a valid relay token of this cluster is required");
        let headers: Vec<_> = answer.headers.iter().filter(|(name, _)| name != "date").cloned().collect();
        answers.push((headers, answer.body));
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "one answer for all");
    assert_eq!(post("kind-prod", Some(format!("bEaReR {right}"))).await.status, 202);
    assert_eq!(broker.wait_for(1, Duration::from_secs(10)).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_id_for_something_else_is_a_conflict() {
    let (_broker, mesh) = mesh().await;
    let event = TestEvent::new("Succeeded", "chain-1");
    assert_eq!(mesh.post("kind-prod", event.body()).await.unwrap().0, 202);
    let mut other = event.json();
    other["context"]["chainId"] = json!("chain-2");
    let (status, problem) = mesh.post("kind-prod", other.to_string()).await.unwrap();
    assert_eq!(status, 409, "{problem}");
    let mut phase = TestEvent::new("Failed", "chain-1").json();
    phase["context"]["id"] = json!(event.id());
    assert_eq!(mesh.post("kind-prod", phase.to_string()).await.unwrap().0, 409);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_cluster_sees_nothing_of_another_and_may_report_only_for_its_namespaces() {
    let broker = Broker::start().await;
    let mut mesh = Mesh::new(&broker).await;
    mesh.add_cluster_that("kind-other", &["--app-namespaces", "app-blog-*"]).await;
    mesh.run().await;
    let event = TestEvent::new("Succeeded", "chain-1");
    mesh.post("kind-prod", event.body()).await.unwrap();
    assert_eq!(mesh.receipt("kind-other", &event.key()).await.unwrap().0, 404);
    let (status, problem) =
        mesh.post("kind-other", event.clone().cluster("kind-other").body()).await.unwrap();
    assert_eq!(
        (status, problem["detail"].as_str()),
        (403, Some("this cluster may not report for app-shop-cicd"))
    );
    let own = TestEvent::new("Succeeded", "chain-1").cluster("kind-other").app("blog");
    assert_eq!(mesh.post("kind-other", own.body()).await.unwrap().0, 202);
}

#[tokio::test(flavor = "multi_thread")]
async fn both_outcomes_are_taken_in_every_shape_of_optional_fields() {
    let (broker, mesh) = mesh().await;
    let mut count = 0;
    for phase in ["Syncing", "Succeeded", "Failed"] {
        for shape in ["full", "empty", "null", "missing", "unreadable"] {
            let mut event = TestEvent::new(phase, &format!("c-{phase}-{shape}")).json();
            let content = event.pointer_mut("/subject/content").unwrap().as_object_mut().unwrap();
            for field in [
                "revision",
                "gitUrl",
                "gitRevision",
                "flowStartTime",
                "prUrl",
                "prCreatedAt",
                "configJson",
                "outcome",
                "status",
            ] {
                let value = match (shape, field) {
                    ("full", "flowStartTime" | "prCreatedAt") => json!("2026-03-01T10:00:00+01:00"),
                    ("full", "outcome" | "status") | ("unreadable", "outcome" | "status") => {
                        content[field].clone()
                    }
                    ("full", _) => json!("x"),
                    ("unreadable", _) => json!("not a time"),
                    ("empty", _) => json!(""),
                    (_, _) => Value::Null,
                };
                content.insert(field.into(), value);
                if shape == "missing" {
                    content.remove(field);
                }
            }
            let (status, answer) = mesh.post("kind-prod", event.to_string()).await.unwrap();
            assert_eq!(status, 202, "{phase} {shape}: {answer}");
            count += 1;
        }
    }
    broker.wait_for(count, Duration::from_secs(20)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_no_more_gets_its_answer() {
    let broker = Broker::start().await;
    let mesh = Mesh::start(&broker).await;
    let event = TestEvent::new("Succeeded", "chain-1");
    let body = event.body();
    let mut wire = Wire::connect(&mesh).await.unwrap();
    let head = format!(
        "POST /outcome/kind-prod HTTP/1.1\r\nHost: relay\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/cloudevents+json\r\nContent-Length: {}\r\n\r\n",
        mesh.token("kind-prod"),
        body.len()
    );
    wire.send(head + &body).await.unwrap();
    wire.finish().await.unwrap();
    let (answer, closed) = wire.read_for(LONG).await;
    assert!(answer.starts_with("HTTP/1.1 202 ") && answer.contains(&event.key()), "{answer}");
    assert!(closed, "nothing can come any more");
}
