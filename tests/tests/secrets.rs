//! At the loudest log level, with everything that can go wrong: no token, no body, no secret comes out anywhere.

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use transponder_tests::{
    Answer, Behaviour, Broker, LONG, Mesh, OtlpReceiver, OtlpReply, SHORT, TestEvent, eventually, http,
    product,
};

/// Stands in bodies wherever a report has room for it.
const BODY: &str = "marker-of-a-body";
/// Stands in the address of a pull request, which the operator may see and no receipt shows.
const PULL_REQUEST: &str = "marker-of-a-pull-request";
const BAD_TOKEN: &str = "marker-of-a-bad-token";
const OTLP_SECRET: &str = "marker-of-the-tracing-backend";

/// Everything that was said, and where.
#[derive(Default)]
struct Said(Vec<(String, String)>);

impl Said {
    fn note(&mut self, place: impl Into<String>, text: impl Into<String>) {
        self.0.push((place.into(), text.into()));
    }

    fn assert_free_of(&self, what: &str, secret: &str) {
        assert!(secret.len() >= 10, "{what} is too short to be looked for");
        for (place, text) in &self.0 {
            let line = text.lines().find(|line| line.contains(secret));
            assert!(line.is_none(), "{what} is in {place}: {}", line.unwrap_or_default());
        }
    }
}

/// What a projected ServiceAccount token looks like.
fn jwt() -> String {
    let expires = jiff::Timestamp::now().as_second() + 3600;
    let part = |json: Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let claims = json!({"aud": ["cdevents-broker"], "exp": expires, "sub": "system:serviceaccount:a:b"});
    let signature = URL_SAFE_NO_PAD.encode("a signature that is nobody's but this test's");
    format!("{}.{}.{signature}", part(json!({"alg": "RS256"})), part(claims))
}

fn marked(event: &TestEvent) -> String {
    let mut json = event.json();
    let content = &mut json["subject"]["content"];
    content["configJson"] = json!(format!("{{\"password\":\"{BODY}\"}}"));
    content["prUrl"] = json!(format!("https://git.example/{PULL_REQUEST}"));
    content["somethingElse"] = json!({"deep": [BODY]});
    json["customData"]["platform"]["config_json"] = json!(BODY);
    json["customData"]["extra"] = json!(BODY);
    json.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_token_and_no_body_comes_out_anywhere_at_any_level() {
    let (broker, otlp) = (Broker::start().await, OtlpReceiver::start().await);
    let (mut mesh, jwt, mut said) = (Mesh::new(&broker).await, jwt(), Said::default());
    mesh.add_cluster_that("kind-other", &["--forward-types", "dev.cdevents.*"]).await;
    fs::write(mesh.path("jwt"), &jwt).unwrap();
    let token_file = mesh.path("jwt").display().to_string();
    // Modules of libraries by name, too: some log what goes over the wire.
    let wire =
        ["h2::codec", "h2::hpack", "h2::proto", "hyper::proto", "hyper_util::client", "tonic::transport"];
    let wire = wire.map(|module| format!("{module}=trace")).join(",");
    mesh.set("log.filter", &format!("trace,{wire},reqwest::connect=trace,rustls::client=trace"));
    mesh.set("forwarder.token_file", &token_file);
    mesh.env("OTEL_EXPORTER_OTLP_ENDPOINT", &otlp.url());
    mesh.env("OTEL_EXPORTER_OTLP_HEADERS", &format!("authorization=Bearer%20{OTLP_SECRET}"));
    mesh.run().await;
    let mut secrets = vec![("the broker's token", jwt.clone()), ("a body", BODY.to_owned())];
    secrets.push(("a bad token", BAD_TOKEN.to_owned()));
    secrets.push(("the tracing backend's header", OTLP_SECRET.to_owned()));
    secrets.push(("a Task's token", mesh.task_token()));
    for cluster in ["kind-prod", "kind-other"] {
        secrets.push(("a relay token", mesh.token(cluster).to_owned()));
    }

    reports(&mesh, &broker, &mut said).await;
    refusals(&mesh, &mut said).await;
    failures(&mesh, &broker, &otlp, &mut said).await;
    tasks(&mesh, &mut said).await;
    assert!(broker.received().iter().all(|r| r.header("authorization") == Some(&format!("Bearer {jwt}"))));
    assert!(otlp.exports().iter().all(|e| e.headers["authorization"] == format!("Bearer {OTLP_SECRET}")));
    // Rotation and files that are wrong.
    let rotated = mesh.operate(["cluster", "rotate", "kind-prod", "--output", "json"]).await.success();
    secrets.push(("a relay token", rotated.json()["token"].as_str().unwrap().to_owned()));
    secrets.extend(wrong_files(&mut mesh).await);

    for listed in [
        &["outcomes", "list"][..],
        &["outcomes", "list", "--output", "json"],
        &["cluster", "list"],
        &["cluster", "list", "--output", "json"],
        &["config"],
        &["doctor"],
    ] {
        let ran = mesh.operate(listed.iter()).await;
        said.note(format!("{listed:?}"), ran.text() + &ran.stderr);
    }
    said.note("metrics", mesh.metrics().await);
    let pid = mesh.process().pid();
    said.note(
        "the command line",
        String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/cmdline")).unwrap()),
    );
    assert!(mesh.stop().await.success());
    let log = mesh.process().stderr();
    said.note("standard output", mesh.process().stdout());
    said.note("the log", log.clone());
    for (part, key) in keys(&mesh) {
        secrets.push(("a private key", key));
        assert!(!part.is_empty());
    }
    secrets.iter().for_each(|(what, secret)| said.assert_free_of(what, secret));
    said.0.retain(|(place, _)| !place.contains("outcomes"));
    said.assert_free_of("pull-request data", PULL_REQUEST);
    assert!(log.contains("\"TRACE\"") || log.contains("\"DEBUG\""), "the log was not at its loudest");
    assert_one_object_a_line(&log);
}

/// Good reports, also twice and with other bytes.
async fn reports(mesh: &Mesh, broker: &Broker, said: &mut Said) {
    for phase in ["Syncing", "Succeeded", "Failed"] {
        let event = TestEvent::new(phase, &format!("good-{phase}")).app(&phase.to_lowercase());
        for _ in 0..2 {
            let answer = mesh.curl("kind-prod", &marked(&event), &[]).await.unwrap();
            assert!([200, 202].contains(&answer.status), "{}", answer.body_text());
            said.note("a receipt", format!("{:?} {}", answer.headers, answer.body_text()));
        }
        said.note("a receipt", mesh.wait_final("kind-prod", &event.key()).await.to_string());
        for output in ["text", "json"] {
            let shown = mesh.operate(["outcomes", "show", &event.key(), "--output", output]).await.success();
            said.note("outcomes show", shown.text() + &shown.stderr);
        }
    }
    // Names with control characters, which only other types may have.
    let odd = json!({"context": {"version": "0.4.1", "id": "a\nb\u{1b}[31m\u{7f}\r\n{\"level\":\"ERROR\"}",
        "source": "/a\tb\u{2028}c", "type": "dev.cdevents.service.deployed.0.1.0", "timestamp": "2026-01-01T00:00:00Z"},
        "subject": {"id": "x", "type": "service", "content": {"secret": BODY}}});
    let answer = mesh.curl("kind-other", &odd.to_string(), &[]).await.unwrap();
    said.note("a receipt", answer.body_text());
    assert_eq!(answer.status, 202, "{}", answer.body_text());
    broker.wait_for(4, LONG).await;
}

/// Everything that the door refuses.
async fn refusals(mesh: &Mesh, said: &mut Said) {
    let event = marked(&TestEvent::new("Failed", "refused"));
    let ca = mesh.path("edge/edge-ca.crt").display().to_string();
    let good = format!("Bearer {}", mesh.token("kind-prod"));
    let mut bodies = vec![(401, format!("Bearer {BAD_TOKEN}"), event.clone())];
    for wrong in
        [format!("Basic {BAD_TOKEN}"), BAD_TOKEN.to_owned(), format!("Bearer {BAD_TOKEN} {BAD_TOKEN}")]
    {
        bodies.push((401, wrong, event.clone()));
    }
    let mut elsewhere = TestEvent::new("Failed", "refused").cluster("kind-\u{1b}[31m\nx").json();
    elsewhere["subject"]["content"]["configJson"] = json!(BODY);
    bodies.push((400, good.clone(), elsewhere.to_string()));
    let value = |from: &str, to: &str| event.replacen(from, to, 1);
    for broken in [
        format!("{{\"context\":\"{BODY}\""),
        format!("\"{BODY}\""),
        format!("{event}{BODY}"),
        value("\"chainId\":\"refused\"", &format!("\"chainId\":{{\"{BODY}\":1}}")),
        value("\"finishedAt\":\"2", &format!("\"finishedAt\":\"{BODY}2")),
        value("\"env\":\"prod\"", &format!("\"env\":\"{BODY} {BODY}\"")),
        value("\"outcome\":\"failure\"", &format!("\"outcome\":\"{BODY}\"")),
        value("\"phase\":\"Failed\"", &format!("\"phase\":\"{BODY}\"")),
        value("\"appName\":\"shop\"", "\"appName\":\"$(tt.params.secret)\""),
    ] {
        bodies.push((400, good.clone(), broken));
    }
    for (status, authorization, body) in bodies {
        let header = format!("Authorization: {authorization}");
        let url = mesh.url(&format!("/outcome/kind-prod?token={BAD_TOKEN}"));
        let kind = "Content-Type: application/json";
        let arguments = ["--cacert", &ca, "-H", &header, "-H", kind, "--data-binary", &body, &url];
        let answer = http(arguments).await.unwrap();
        assert_eq!(answer.status, status, "{body}: {}", answer.body_text());
        said.note(format!("the answer to {body}"), format!("{:?} {}", answer.headers, answer.body_text()));
    }
}

/// Targets that fail, and say aloud what they were sent.
async fn failures(mesh: &Mesh, broker: &Broker, otlp: &OtlpReceiver, said: &mut Said) {
    for (number, status) in [500, 400, 302].into_iter().enumerate() {
        let event = TestEvent::new("Succeeded", &format!("echo-{status}")).app(&format!("echo-{number}"));
        let body = marked(&event);
        broker.next(Behaviour::Answer(
            Answer::redirect(status, &format!("/{BODY}")).body("text/plain", body.clone()),
        ));
        otlp.next(OtlpReply::unavailable(None));
        let answer = mesh.curl("kind-prod", &body, &[]).await.unwrap();
        assert_eq!(answer.status, 202);
        said.note("a receipt", mesh.wait_final("kind-prod", &event.key()).await.to_string());
        let shown = mesh.operate(["outcomes", "show", &event.key(), "--output", "json"]).await.success();
        said.note("outcomes show", shown.text() + &shown.stderr);
    }
}

/// Calls of Tasks, good and bad.
async fn tasks(mesh: &Mesh, said: &mut Said) {
    let release = json!({"release": {"app_namespace": "app-shop-cicd", "app_name": "shop", "env": "prod",
        "cluster": "kind-prod", "chain_id": "task-1"}});
    for token in [mesh.task_token(), format!("{BAD_TOKEN}-of-a-task")] {
        for (part, method) in
            [("release-tracking", "ReleaseTracking/Put"), ("forwarder", "Forwarder/Forward")]
        {
            let ran = mesh.grpc(part).token(&token).described().call(method, &release).await;
            said.note(format!("the answer to {method}"), ran.text() + &ran.stderr);
        }
    }
}

/// Files with secrets that cannot be used. Answers the secrets.
async fn wrong_files(mesh: &mut Mesh) -> Vec<(&'static str, String)> {
    let token = "marker-of-a-token-with\u{1}control";
    let callers = "marker-of-the-callers-file";
    fs::write(mesh.path("registry/secrets/cluster-kind-other-relay-token/token"), token).unwrap();
    fs::write(mesh.path("callers.toml"), format!("[[token]]\naccount = 1\ntoken = \"{callers}\" x\n"))
        .unwrap();
    fs::write(mesh.path("jwt"), "marker-of-a-token-that-is-no.jwt.at-all").unwrap();
    let entry = mesh.path("registry/cluster-registry/kind-broken");
    fs::write(entry, "{\"relaySecretName\": 7, \"token\": \"marker-of-an-entry\"}").unwrap();
    for line in ["has control characters inside", "token file not taken over"] {
        eventually(line, SHORT, || {
            let seen = mesh.process().stderr().contains(line);
            async move { if seen { Ok(()) } else { Err("it is not in the log".to_owned()) } }
        })
        .await;
    }
    let event = TestEvent::new("Succeeded", "no-jwt").app("nojwt");
    assert_eq!(mesh.post("kind-prod", marked(&event)).await.unwrap().0, 202);
    eventually("the token is not sent", Duration::from_secs(20), || async {
        let (_, receipt) = mesh.receipt("kind-prod", &event.key()).await?;
        match receipt["targets"]["broker"]["state"].as_str() {
            Some("retrying") => Ok(()),
            _ => Err(receipt.to_string()),
        }
    })
    .await;
    vec![
        ("a token that cannot be used", "marker-of-a-token-with".to_owned()),
        ("a token that cannot be read", callers.to_owned()),
        ("a broker token that is none", "marker-of-a-token-that-is-no".to_owned()),
        ("an entry", "marker-of-an-entry".to_owned()),
    ]
}

/// A line of each private key of the installation.
fn keys(mesh: &Mesh) -> Vec<(String, String)> {
    let files =
        ["mesh", "edge"].into_iter().flat_map(|directory| fs::read_dir(mesh.path(directory)).unwrap());
    let keys =
        files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "key"));
    let keys: Vec<_> = keys
        .map(|path| {
            let pem = fs::read_to_string(&path).unwrap();
            (path.display().to_string(), pem.lines().nth(1).unwrap().to_owned())
        })
        .collect();
    assert!(keys.len() >= 7, "{}", keys.len());
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loudest_log_beside_files_that_are_watched_does_not_feed_itself() {
    let broker = Broker::start().await;
    let mesh = Mesh::new(&broker).await;
    let log = mesh.path("log");
    let mut all = Command::new(product("transponder"));
    all.arg("--config").arg(mesh.path("transponder.toml")).args(["--log", "trace,notify::inotify=trace"]);
    for service in ["edge", "forwarder", "dora", "release_tracking", "outcome_span", "admin"] {
        all.arg("--set").arg(format!("{service}.listen=127.0.0.1:0"));
    }
    all.arg("all").stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
    let mut child = all.spawn().unwrap();
    let written = || fs::metadata(&log).unwrap().len();
    eventually("the mesh is up", LONG, || async {
        let text = fs::read_to_string(&log).unwrap();
        if text.contains("outbox read") { Ok(()) } else { Err(text) }
    })
    .await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let size = written();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(size < 200_000, "{size} bytes");
}

fn assert_one_object_a_line(log: &str) {
    for line in log.lines() {
        let object: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(object.is_object(), "{line}");
        let raw = line.chars().find(|c| c.is_control() || *c == '\u{2028}');
        assert_eq!(raw, None, "a control character in {line:?}");
    }
}
