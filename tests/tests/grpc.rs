//! The four services as grpcurl meets them: reflection, health, who may call what, and what is wrong with a call.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};
use transponder_tests::{
    Authority, Broker, Code, GrpcCall, Mesh, Ran, Run, SHORT, curl, details, eventually,
};

const SERVICES: [(&str, &str, &[&str]); 4] = [
    ("forwarder", "Forwarder", &["Forward"]),
    ("dora-recorder", "DoraRecorder", &["RecordOutcome", "Expect"]),
    ("release-tracking", "ReleaseTracking", &["Put", "Observe", "Resolve", "List", "Delete"]),
    ("outcome-span", "OutcomeSpan", &["Emit"]),
];

/// The part of grpc.health.v1 that is called, so that it is called without asking reflection, which nobody may
/// without credentials.
const HEALTH: &str = r#"syntax = "proto3";
package grpc.health.v1;
message HealthCheckRequest { string service = 1; }
message HealthCheckResponse {
  enum ServingStatus { UNKNOWN = 0; SERVING = 1; NOT_SERVING = 2; SERVICE_UNKNOWN = 3; }
  ServingStatus status = 1;
}
service Health { rpc Check(HealthCheckRequest) returns (HealthCheckResponse); }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn both_reflections_list_and_describe_each_service_to_a_task() {
    let (_broker, mesh, _) = mesh().await;
    let token = mesh.task_token();
    for (part, service, methods) in SERVICES {
        let name = format!("transponder.v1.{service}");
        for older in [false, true] {
            let ask = async |question: &[&str]| {
                let call = mesh.grpc(part).token(&token);
                if older { call.v1alpha() } else { call }.ask(question).await.success().text()
            };
            let listed = ask(&["list"]).await;
            let listed: Vec<&str> = listed.lines().filter(|line| !line.contains("reflection")).collect();
            assert_eq!(listed, ["grpc.health.v1.Health", &name], "{part}, older: {older}");
            let described = ask(&["describe", &name]).await;
            for method in methods {
                assert!(
                    described.contains(&format!("rpc {method} ")),
                    "{method}, older: {older}: {described}"
                );
            }
            let message = ask(&["describe", "transponder.v1.Release"]).await;
            assert!(message.contains("string chain_id = 5"), "older: {older}: {message}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_health_is_for_everybody() {
    let (_broker, mesh, _) = mesh().await;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("health.proto"), HEALTH).unwrap();
    let import = folder.path().display().to_string();
    for (part, service, methods) in SERVICES {
        let health = async |name: String| {
            let call = mesh.grpc(part).with(&["-import-path", &import, "-proto", "health.proto"]);
            call.call("grpc.health.v1.Health/Check", &json!({ "service": name })).await
        };
        for name in [String::new(), format!("transponder.v1.{service}")] {
            assert_eq!(health(name).await.success().json(), json!({ "status": "SERVING" }), "{part}");
        }
        assert_eq!(health("transponder.v1.Other".into()).await.grpc_code(), Some(Code::NotFound), "{part}");
        for method in methods {
            let ran = mesh.grpc(part).described().call(&format!("{service}/{method}"), &json!({})).await;
            assert_eq!(ran.grpc_code(), Some(Code::Unauthenticated), "{method}: {}", ran.stderr);
        }
        for call in [mesh.grpc(part), mesh.grpc(part).v1alpha()] {
            let ran = call.ask(&["list"]).await;
            assert_ne!(ran.code, Some(0), "{}", ran.text());
            assert!(ran.stderr.contains("is required"), "{}", ran.stderr);
            assert_eq!(ran.text(), "");
        }
    }
}

/// How a caller proves who it is.
#[derive(Clone)]
enum Proof {
    Nothing,
    Certificate(PathBuf),
    Token(String),
    Both(PathBuf, String),
}

impl Proof {
    fn on(&self, call: GrpcCall) -> GrpcCall {
        match self {
            Self::Nothing => call,
            Self::Certificate(path) => call.certificate(path),
            Self::Token(token) => call.token(token),
            Self::Both(path, token) => call.certificate(path).token(token),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_method_answers_each_caller_as_the_table_says() {
    use Code::{FailedPrecondition, Ok, PermissionDenied as Denied, Unauthenticated};
    let (_broker, mesh, tasks) = mesh().await;
    let strangers = tempfile::tempdir().unwrap();
    let ours = Authority::of(&mesh.path("mesh"), "ca");
    let day = Some(Duration::from_secs(86_400));
    let edge = "spiffe://transponder.local/transponder/edge";
    let issue = |authority: &Authority, name: &str, uris: &[&str]| {
        Proof::Certificate(authority.issue(strangers.path(), name, uris, day))
    };
    // Who each of them is, and what it is answered where none of the columns below says something else.
    let strange = [
        ("nobody", Proof::Nothing),
        ("a wrong token", Proof::Token("wrong-wrong-wrong-wrong".into())),
        ("two URI names", issue(&ours, "two", &[edge, "spiffe://transponder.local/transponder/forwarder"])),
        ("no URI name", issue(&ours, "none", &[])),
        ("another trust domain", issue(&ours, "domain", &["spiffe://elsewhere.local/transponder/edge"])),
        (
            "a service that is none",
            issue(&ours, "service", &["spiffe://transponder.local/transponder/admin"]),
        ),
        // grpcurl does not even show it: the server names the authorities that it trusts. Shown all the same, below.
        ("a foreign authority", issue(&Authority::foreign(), "foreign", &[edge])),
        ("certificate and token", Proof::Both(mesh.certificate("edge"), tasks.own.clone())),
        ("certificate and wrong token", Proof::Both(mesh.certificate("edge"), "wrong-wrong-wrong".into())),
    ];
    let columns = [
        ("edge", Proof::Certificate(mesh.certificate("edge"))),
        ("forwarder", Proof::Certificate(mesh.certificate("forwarder"))),
        ("outcome-span", Proof::Certificate(mesh.certificate("outcome-span"))),
        ("the app's Task", Proof::Token(tasks.own.clone())),
        ("another app's Task", Proof::Token(tasks.other.clone())),
        ("the platform's Task", Proof::Token(tasks.platform.clone())),
    ];
    let table = [
        ("Forwarder/Forward", [Ok, Denied, Denied, Denied, Denied, Denied]),
        ("DoraRecorder/RecordOutcome", [Ok, Denied, Denied, Ok, Denied, Ok]),
        // Off Kubernetes it works for nobody, and says so to those alone who may call it.
        ("DoraRecorder/Expect", [Denied, Denied, Denied, FailedPrecondition, Denied, FailedPrecondition]),
        ("ReleaseTracking/Put", [Denied, Denied, Denied, Ok, Denied, Ok]),
        ("ReleaseTracking/Observe", [Ok, Denied, Denied, Denied, Denied, Denied]),
        // What is another's does not exist: found = false, below.
        ("ReleaseTracking/Resolve", [Denied, Denied, Ok, Ok, Ok, Ok]),
        ("ReleaseTracking/List", [Denied, Denied, Denied, Ok, Denied, Ok]),
        ("ReleaseTracking/Delete", [Denied, Denied, Denied, Ok, Denied, Ok]),
        ("OutcomeSpan/Emit", [Ok, Denied, Denied, Ok, Denied, Ok]),
    ];
    let mut wrong = Vec::new();
    for (method, codes) in table {
        for ((who, proof), expected) in columns.iter().zip(codes) {
            let ran = call(&mesh, method, proof).await;
            if ran.grpc_code() != Some(expected) {
                wrong
                    .push(format!("{method} by {who}: not {expected:?}, but {:?}: {}", ran.code, ran.stderr));
            }
        }
        for (who, proof) in &strange {
            let ran = call(&mesh, method, proof).await;
            if ran.grpc_code() != Some(Unauthenticated) {
                wrong.push(format!("{method} by {who}: {:?}: {}", ran.code, ran.stderr));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let url = format!("https://{}/transponder.v1.Forwarder/Forward", mesh.address("forwarder"));
    let (certificate, key) = (strangers.path().join("foreign.crt"), strangers.path().join("foreign.key"));
    let trusted = mesh.path("mesh/ca.crt");
    let ran = curl([
        Path::new("--cacert"),
        &trusted,
        Path::new("--cert"),
        &certificate,
        Path::new("--key"),
        &key,
        Path::new(&url),
    ])
    .await;
    // The handshake fails, which a client of TLS 1.3 notices at its first read or write.
    assert!(matches!(ran.code, Some(35 | 55 | 56)) && ran.stdout.is_empty(), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apps_task_sees_and_touches_nothing_of_another_app() {
    let (_broker, mesh, tasks) = mesh().await;
    let tracking = || mesh.grpc("release-tracking").described();
    let put = request("ReleaseTracking/Put");
    tracking().token(&tasks.own).call("ReleaseTracking/Put", &put).await.success();
    let found = async |token: &str, release: Value| {
        let request = json!({ "release": release });
        let answer =
            tracking().token(token).with(&["-emit-defaults"]).call("ReleaseTracking/Resolve", &request).await;
        let answer = answer.success().json();
        (answer["found"].clone(), answer["reason"].clone())
    };
    assert_eq!(found(&tasks.own, release()).await, (json!(true), json!("")));
    assert_eq!(found(&tasks.other, release()).await, (json!(false), json!("unknown")));
    // Nor by what sets it apart alone.
    assert_eq!(found(&tasks.other, json!({ "chainId": "grpc-1" })).await, (json!(false), json!("unknown")));
    assert_eq!(found(&tasks.own, json!({})).await, (json!(false), json!("blank")));
    let listed = async |token: &str| {
        let ran = tracking().token(token).call("ReleaseTracking/List", &json!({})).await;
        ran.success().json()["records"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(
        (listed(&tasks.own).await, listed(&tasks.other).await, listed(&tasks.platform).await),
        (1, 0, 1)
    );
    let deleted = tracking()
        .token(&tasks.other)
        .call("ReleaseTracking/Delete", &request("ReleaseTracking/Delete"))
        .await;
    assert_eq!(deleted.grpc_code(), Some(Code::PermissionDenied));
    assert_eq!(listed(&tasks.own).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_request_names_the_field_that_is_missing() {
    let (_broker, mesh, tasks) = mesh().await;
    let (edge, task) = (Proof::Certificate(mesh.certificate("edge")), Proof::Token(tasks.platform));
    for (method, proof, field) in [
        ("Forwarder/Forward", &edge, "event"),
        ("DoraRecorder/RecordOutcome", &task, "release"),
        ("DoraRecorder/Expect", &task, "release"),
        ("ReleaseTracking/Put", &task, "release"),
        ("ReleaseTracking/Observe", &edge, "release"),
        ("ReleaseTracking/Delete", &task, "release"),
        ("OutcomeSpan/Emit", &task, "release"),
    ] {
        let ran = refused(&mesh, method, proof, &json!({})).await;
        let (fields, message) = details(&ran);
        assert_eq!(fields, [field], "{method}: {}", ran.stderr);
        assert!(message.starts_with(&format!("{field} is required")), "{method}: {message}");
    }
    // Nothing of these two is required: nothing is looked for, and everything is listed.
    for method in ["ReleaseTracking/Resolve", "ReleaseTracking/List"] {
        task.on(mesh.grpc("release-tracking").described()).call(method, &json!({})).await.success();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_field_is_named_by_its_path() {
    let (_broker, mesh, tasks) = mesh().await;
    let (edge, task) = (Proof::Certificate(mesh.certificate("edge")), Proof::Token(tasks.own));
    let time = json!("2026-09-14T10:00:00Z");
    for (method, proof, pointer, value, field) in [
        ("Forwarder/Forward", &edge, "/key", json!("ABC"), "key"),
        ("Forwarder/Forward", &edge, "/contentType", json!("a\nb: c"), "content_type"),
        ("DoraRecorder/RecordOutcome", &task, "/release/appName", json!("Shop"), "release.app_name"),
        ("DoraRecorder/RecordOutcome", &task, "/release/env", json!(""), "release.env"),
        ("DoraRecorder/RecordOutcome", &task, "/release/chainId", json!(""), "release.chain_id"),
        ("DoraRecorder/RecordOutcome", &task, "/phase", json!("PHASE_SYNCING"), "phase"),
        ("DoraRecorder/RecordOutcome", &task, "/phase", json!(9), "phase"),
        ("DoraRecorder/RecordOutcome", &task, "/finishedAt", Value::Null, "finished_at"),
        ("DoraRecorder/RecordOutcome", &task, "/finishedAt", json!("1969-01-01T00:00:00Z"), "finished_at"),
        (
            "DoraRecorder/RecordOutcome",
            &task,
            "/flowStartTime",
            json!("9999-01-01T00:00:00Z"),
            "flow_start_time",
        ),
        ("DoraRecorder/Expect", &task, "/release/cluster", json!("kind-prod"), "release.cluster"),
        ("ReleaseTracking/Put", &task, "/prUrl", json!("javascript:alert(1)"), "pr_url"),
        ("ReleaseTracking/Put", &task, "/closedAt", time.clone(), "closed_at"),
        ("ReleaseTracking/Observe", &edge, "/eventKey", json!("x"), "event_key"),
        ("ReleaseTracking/Observe", &edge, "/receivedAt", Value::Null, "received_at"),
        ("ReleaseTracking/List", &task, "/pageSize", json!(1001), "page_size"),
        ("ReleaseTracking/List", &task, "/pageToken", json!("x"), "page_token"),
        ("ReleaseTracking/List", &task, "/states", json!([99]), "states"),
        ("ReleaseTracking/Resolve", &task, "/phase", json!("PHASE_FAILED"), "finished_at"),
        ("OutcomeSpan/Emit", &task, "/finishedAt", json!("1970-01-01T00:00:00Z"), "finished_at"),
        ("OutcomeSpan/Emit", &task, "/release/eventId", json!(""), "release.event_id"),
        ("OutcomeSpan/Emit", &task, "/anchor", json!("ANCHOR_PR_CREATED"), "pr_created_at"),
    ] {
        let mut message = request(method);
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        message.pointer_mut(parent).unwrap()[name] = value;
        let ran = refused(&mesh, method, proof, &message).await;
        assert_eq!(details(&ran).0, [field], "{method} {pointer}: {}", ran.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_message_or_too_large_is_refused_and_the_service_lives_on() {
    let (_broker, mut mesh, tasks) = mesh().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("body");
    let frame = |length: u32, bytes: &[u8]| [&[0], length.to_be_bytes().as_slice(), bytes].concat();
    for (what, body, codes) in [
        ("nothing", Vec::new(), ["13", "3"]),
        ("no frame", b"GET / HTTP/1.1\r\n\r\n".to_vec(), ["13", "3"]),
        ("no message", frame(8, &[0xff; 8]), ["13", "3"]),
        ("a frame cut short", frame(100, b"abc"), ["13", "3"]),
        ("compressed by nothing known", [&[1], frame(3, b"abc")[1..].as_ref()].concat(), ["12", "13"]),
        ("a length of four GiB", frame(u32::MAX, b"abc"), ["11", "8"]),
    ] {
        fs::write(&file, body).unwrap();
        for (part, service, methods) in SERVICES {
            for method in methods.iter().filter(|method| !matches!(**method, "Observe" | "List")) {
                let identity =
                    if service == "Forwarder" || service == "OutcomeSpan" { "edge" } else { "task" };
                let url = format!("https://{}/transponder.v1.{service}/{method}", mesh.address(part));
                let status = raw(&mesh, &url, &file, identity).await;
                assert!(codes.contains(&status.as_str()), "{what} to {method}: grpc-status {status}");
            }
        }
    }
    // Larger than a message may be (4 MiB).
    let large = "A".repeat(8 * 1024 * 1024);
    for (method, pointer) in [
        ("Forwarder/Forward", "/event"),
        ("DoraRecorder/RecordOutcome", "/release/chainId"),
        ("ReleaseTracking/Put", "/prUrl"),
        ("OutcomeSpan/Emit", "/gitUrl"),
    ] {
        let mut message = request(method);
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        message.pointer_mut(parent).unwrap()[name] = json!(large);
        let forwards = method == "Forwarder/Forward";
        let identity = if forwards {
            Proof::Certificate(mesh.certificate("edge"))
        } else {
            Proof::Token(tasks.own.clone())
        };
        let ran = identity.on(mesh.grpc(part(method)).described()).call(method, &message).await;
        assert_eq!(ran.grpc_code(), Some(Code::OutOfRange), "{method}: {}", ran.stderr);
    }
    assert!(mesh.process().ended().is_none());
    let log = mesh.process().stderr();
    assert!(!log.contains("panicked"), "{log}");
    let task = mesh.task_token();
    mesh.grpc("release-tracking").token(&task).call("ReleaseTracking/List", &json!({})).await.success();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tasks_token_works_seconds_after_it_was_added_and_no_log_holds_one() {
    let (_broker, mut mesh, tasks) = mesh().await;
    let token = mesh.add_task("app-late-cicd/pipeline-runner");
    eventually("the new token works", SHORT, || async {
        let call = mesh.grpc("release-tracking").described().token(&token);
        let ran = call.call("ReleaseTracking/List", &json!({})).await;
        if ran.code == Some(0) { Ok(()) } else { Err(ran.stderr) }
    })
    .await;
    call(&mesh, "Forwarder/Forward", &Proof::Token(tasks.other.clone())).await;
    call(&mesh, "Forwarder/Forward", &Proof::Token("wrong-wrong-wrong-wrong".into())).await;
    let log = mesh.process().stderr();
    assert!(log.contains("call refused"), "{log}");
    for secret in [&token, &tasks.own, &tasks.other, &tasks.platform, "wrong-wrong"] {
        assert!(!log.contains(secret), "{log}");
    }
}

/// Tokens of Tasks.
struct Tasks {
    own: String,
    other: String,
    platform: String,
}

async fn mesh() -> (Broker, Mesh, Tasks) {
    let broker = Broker::start().await;
    let mut mesh = Mesh::new(&broker).await;
    mesh.set("callers.platform_accounts", "[\"platform-system/*\"]");
    let tasks = Tasks {
        own: mesh.task_token(),
        other: mesh.add_task("app-blog-cicd/pipeline-runner"),
        platform: mesh.add_task("platform-system/outcome-pipeline"),
    };
    mesh.run().await;
    (broker, mesh, tasks)
}

fn release() -> Value {
    json!({ "appNamespace": "app-shop-cicd", "appName": "shop", "env": "prod", "cluster": "kind-prod",
        "chainId": "grpc-1" })
}

/// A request that whoever may call the method is answered OK, for the app `shop`.
fn request(method: &str) -> Value {
    let (time, key) = ("2026-09-14T10:00:00Z", "0123456789abcdef0123456789abcdef01234567");
    let mut release = release();
    match method {
        // The base64 of {}.
        "Forwarder/Forward" => json!({ "event": "e30=", "contentType": "application/json", "key": key }),
        "DoraRecorder/RecordOutcome" => {
            json!({ "release": release, "phase": "PHASE_SUCCEEDED", "finishedAt": time })
        }
        "DoraRecorder/Expect" => {
            release["cluster"] = json!("");
            json!({ "release": release })
        }
        "ReleaseTracking/Put" => {
            json!({ "release": release, "prUrl": "https://git.example/pulls/7", "mergedAt": time })
        }
        "ReleaseTracking/Observe" => {
            json!({ "release": release, "phase": "PHASE_SUCCEEDED", "finishedAt": time,
            "receivedAt": time, "eventKey": key })
        }
        "ReleaseTracking/Resolve" | "ReleaseTracking/Delete" => json!({ "release": release }),
        "ReleaseTracking/List" => json!({ "appNamespace": "app-shop-cicd" }),
        "OutcomeSpan/Emit" => {
            release["eventId"] = json!("0123456789abcdef0123");
            json!({ "release": release, "phase": "PHASE_FAILED", "finishedAt": time })
        }
        _ => panic!("{method} is no method"),
    }
}

fn part(method: &str) -> &'static str {
    let (service, _) = method.split_once('/').unwrap();
    SERVICES.iter().find(|(_, name, _)| *name == service).unwrap().0
}

async fn call(mesh: &Mesh, method: &str, proof: &Proof) -> Ran {
    proof.on(mesh.grpc(part(method)).described()).call(method, &request(method)).await
}

async fn refused(mesh: &Mesh, method: &str, proof: &Proof, message: &Value) -> Ran {
    let call = proof.on(mesh.grpc(part(method)).with(&["-format-error"]));
    let ran = call.call(method, message).await;
    assert_eq!(ran.grpc_code(), Some(Code::InvalidArgument), "{method} {message}: {}", ran.stderr);
    ran
}

/// Posts bytes as a gRPC body by curl and answers the status code of the call.
async fn raw(mesh: &Mesh, url: &str, body: &Path, identity: &str) -> String {
    let text = |path: PathBuf| path.display().to_string();
    let mut curl =
        Run::tool("curl").args(["-sS", "--http2", "--max-time", "20", "-D", "-", "-o", "/dev/null"]);
    curl = curl.args(["--cacert".into(), text(mesh.path("mesh/ca.crt"))]);
    curl = match identity {
        "edge" => curl.args([
            "--cert".into(),
            text(mesh.certificate("edge")),
            "--key".into(),
            text(mesh.path("mesh/edge.key")),
        ]),
        _ => curl.args(["-H".to_owned(), format!("authorization: Bearer {}", mesh.task_token())]),
    };
    let ran = curl
        .args(["-H", "content-type: application/grpc", "-H", "te: trailers", "--data-binary"])
        .args([format!("@{}", body.display()), url.to_owned()])
        .run()
        .await;
    let head = ran.text().to_lowercase();
    let status = head.lines().find_map(|line| line.strip_prefix("grpc-status:").map(|s| s.trim().to_owned()));
    status.unwrap_or_else(|| format!("none: {head}{}", ran.stderr))
}
