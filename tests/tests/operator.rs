//! The operator's commands against a mesh that runs.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use transponder_tests::{Authority, Broker, Mesh, Ran, Run, TestEvent, eventually, http, product};

/// Within this a change of the registry is in force.
const SOON: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn clusters_come_rotate_and_go_while_the_mesh_runs() {
    let (_broker, mesh) = running().await;
    let cluster = async |arguments: &[&str]| {
        let all = ["cluster"].iter().chain(arguments).chain(&["--output", "json"]);
        mesh.operate(all).await.success().json()
    };
    let added = cluster(&["add", "kind-late", "--url", "https://relay.example:30880"]).await;
    let first = added["token"].as_str().unwrap().to_owned();
    assert_eq!(added["relayUrl"], "https://relay.example:30880/outcome/kind-late");
    assert_eq!(added["hookEnv"]["CLUSTER"], "kind-late");
    let manifest = added["secretManifest"].as_str().unwrap();
    assert!(manifest.contains("platform-outcome-relay-token") && manifest.contains(&first), "{manifest}");
    until(&mesh, &first, 202).await;

    let second = cluster(&["rotate", "kind-late"]).await["token"].as_str().unwrap().to_owned();
    assert_ne!(first, second);
    until(&mesh, &second, 202).await;
    assert_eq!(post(&mesh, &first).await, 202, "the token before still works");
    let listed = cluster(&["list"]).await;
    let late = listed["clusters"].as_array().unwrap().iter().find(|c| c["cluster"] == "kind-late").unwrap();
    assert_eq!(late["token"], "rotating", "{listed}");
    assert!(!listed.to_string().contains(&first) && !listed.to_string().contains(&second), "shown once");
    let again = mesh.operate(["cluster", "rotate", "kind-late"]).await;
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("a rotation of kind-late is under way"), "{}", again.stderr);

    cluster(&["rotate", "kind-late", "--finish"]).await;
    until(&mesh, &first, 401).await;
    assert_eq!(post(&mesh, &second).await, 202);

    cluster(&["remove", "kind-late"]).await;
    until(&mesh, &second, 401).await;
    assert!(!cluster(&["list"]).await.to_string().contains("kind-late"));
    let gone = mesh.operate(["cluster", "rotate", "kind-late"]).await;
    assert!(gone.stderr.contains("there is no cluster kind-late"), "{}", gone.stderr);
    // None of it touched another cluster.
    assert_eq!(mesh.post("kind-prod", TestEvent::new("Succeeded", "other").body()).await.unwrap().0, 202);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_changed_in_between_is_not_broken_by_the_next_change() {
    let (_broker, mesh) = running().await;
    let entry = mesh.path("registry/cluster-registry/kind-broken");
    fs::write(&entry, "{ not json").unwrap();
    mesh.operate(["cluster", "add", "kind-late", "--url", "https://relay.example"]).await.success();
    let token =
        fs::read_to_string(mesh.path("registry/secrets/cluster-kind-late-relay-token/token")).unwrap();
    until(&mesh, token.trim(), 202).await;
    let listed = mesh.operate(["cluster", "list", "--output", "json"]).await.success().json();
    let broken =
        listed["clusters"].as_array().unwrap().iter().find(|c| c["cluster"] == "kind-broken").unwrap();
    assert!(broken["error"].as_str().unwrap().contains("kind-broken"), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_is_watched_listed_and_shown() {
    let (broker, mesh) = running().await;
    let url = mesh.url("/outcome/kind-prod");
    let ca = mesh.path("edge/edge-ca.crt").display().to_string();
    let send = async |more: &[&str]| {
        let fixed =
            ["send", "--cluster", "kind-prod", "--app-namespace", "app-shop-cicd", "--app", "shop", "--env"];
        let fixed = fixed.into_iter().chain(["prod", "--chain-id", "flow-1", "--url", &url, "--ca", &ca]);
        mesh.operate(fixed.chain(more.iter().copied())).await
    };
    let sent = send(&["--attempt", "run-1", "--output", "json"]).await.success().json();
    assert_eq!(sent["status"], 202, "{sent}");
    let key = sent["key"].as_str().unwrap().to_owned();
    for target in ["broker", "tracking", "dora", "span"] {
        assert_eq!(sent["receipt"]["targets"][target]["state"], "delivered", "{sent}");
    }
    assert_eq!(broker.received()[0].header("transponder-key"), Some(key.as_str()));
    let again = send(&["--attempt", "run-1"]).await.success().text();
    assert!(again.contains("200 stored before") && again.contains(&key), "{again}");
    assert!(!again.contains('\u{1b}'), "plain in a pipe: {again}");

    let listed = mesh.operate(["outcomes", "list", "--output", "json"]).await.success().json();
    let outcomes = listed["outcomes"].as_array().unwrap();
    assert_eq!(outcomes.len(), 1, "{listed}");
    assert_eq!((&outcomes[0]["key"], &outcomes[0]["app"]), (&json!(key), &json!("shop")), "{listed}");
    let none =
        mesh.operate(["outcomes", "list", "--state", "dead", "--output", "json"]).await.success().json();
    assert_eq!(none["outcomes"], json!([]));
    let text = mesh.operate(["outcomes", "list"]).await.success().text();
    assert!(text.starts_with("RECEIVED") && text.contains("all done"), "{text}");
    let shown = mesh.operate(["outcomes", "show", &key, "--output", "json"]).await.success().json();
    assert_eq!(shown["targets"]["broker"]["state"], "delivered", "{shown}");
    let missing = mesh.operate(["outcomes", "show", &"0".repeat(40)]).await;
    assert_eq!(missing.code, Some(1));
    assert!(missing.stderr.contains("there is no event with this key"), "{}", missing.stderr);
    let done = mesh.operate(["outcomes", "replay", &key]).await;
    assert!(done.stderr.contains("no target of this outcome is dead"), "{}", done.stderr);

    let releases = mesh.operate(["releases", "list", "--output", "json"]).await.success().json();
    let releases = &releases["releases"];
    assert_eq!(releases.as_array().unwrap().len(), 1, "{releases}");
    assert_eq!((&releases[0]["chainId"], &releases[0]["state"]), (&json!("flow-1"), &json!("succeeded")));
    let open = mesh.operate(["releases", "list", "--state", "merged"]).await.success().text();
    assert_eq!(open, "no releases\n");
    let clusters = mesh.operate(["releases", "clusters"]).await.success().text();
    assert!(clusters.contains("kind-prod"), "{clusters}");

    let wrong = mesh.path("wrong-token");
    fs::write(&wrong, "wrong-wrong-wrong-wrong").unwrap();
    let refused = send(&["--token-file", &wrong.display().to_string()]).await;
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("401"), "{}", refused.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_without_a_running_service_says_so() {
    let broker = Broker::start().await;
    let mesh = Mesh::new(&broker).await;
    for command in [["outcomes", "list"], ["releases", "list"]] {
        let ran = mesh.operate(command).await;
        assert_eq!(ran.code, Some(1));
        assert!(ran.stderr.contains("no service is running on"), "{}", ran.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_finds_nothing_where_all_is_well() {
    let (_broker, mesh) = running().await;
    let ran = doctor(&mesh, &[], &[]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.text());
    let report = ran.json();
    assert_eq!(report["ok"], true, "{report}");
    let findings = report["findings"].as_array().unwrap();
    assert!(findings.iter().all(|finding| finding["level"] == "fine"), "{report}");
    for area in [
        "configuration",
        "registry",
        "edge cert",
        "mesh cert",
        "data",
        "callers",
        "broker token",
        "reach",
        "running",
    ] {
        assert!(findings.iter().any(|finding| finding["area"] == area), "{area}: {report}");
    }
    let reached = |what: &str| findings.iter().any(|finding| finding["what"] == what);
    for part in
        ["forwarder: serving", "dora-recorder: serving", "release-tracking: serving", "outcome-span: serving"]
    {
        assert!(reached(part), "{part}: {report}");
    }
    assert!(!report.to_string().contains(mesh.token("kind-prod")));
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_what_is_wrong_where_and_how_to_mend_it() {
    let (_broker, mut mesh) = running().await;
    let bad = tempfile::tempdir().unwrap();
    let path = |name: &str| bad.path().join(name).display().to_string();

    // A copy of the registry with one entry that is broken and one token that can be guessed.
    mesh.add_cluster("kind-short").await;
    let copied =
        Run::program("/bin/cp").args(["-r".into(), mesh.path("registry"), bad.path().join("registry")]);
    copied.run().await.success();
    fs::write(bad.path().join("registry/cluster-registry/kind-broken"), "{ \"relaySecretName\": 7 }")
        .unwrap();
    fs::write(bad.path().join("registry/secrets/cluster-kind-short-relay-token/token"), "short").unwrap();
    let registry = format!("edge.registry={}", path("registry"));
    let ran = doctor(&mesh, &[&registry], &[]).await;
    finding(
        &ran,
        "wrong",
        "registry",
        &["kind-broken"],
        "registry/cluster-registry/kind-broken",
        "correct the JSON",
    );
    let at = "secrets/cluster-kind-short-relay-token/token";
    finding(
        &ran,
        "doubtful",
        "registry",
        &["kind-short", "fewer than 16 bytes"],
        at,
        "cluster rotate kind-short",
    );
    assert_eq!(ran.code, Some(1));
    // A short token works, and so is not an error by itself.
    fs::remove_file(bad.path().join("registry/cluster-registry/kind-broken")).unwrap();
    assert_eq!(doctor(&mesh, &[&registry], &[]).await.code, Some(0));

    let authority = Authority::of(&mesh.path("edge"), "edge-ca");
    authority.issue(bad.path(), "expired", &[], None);
    let day = Some(Duration::from_secs(86_400));
    authority.issue(bad.path(), "soon", &[], day);
    let certificate = |name: &str| {
        [
            format!("edge.certificate={}", path(&format!("{name}.crt"))),
            format!("edge.key={}", path(&format!("{name}.key"))),
        ]
    };
    let ran = doctor(&mesh, &certificate("expired").each_ref().map(String::as_str), &[]).await;
    finding(&ran, "wrong", "edge cert", &["not valid now"], "expired.crt", "edge-certs");
    assert_eq!(ran.code, Some(1));
    let ran = doctor(&mesh, &certificate("soon").each_ref().map(String::as_str), &[]).await;
    finding(&ran, "doubtful", "edge cert", &["expires in"], "soon.crt", "edge-certs");
    assert_eq!(ran.code, Some(0));

    let claims = |audience: &str, expiry: i64| {
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let (head, body) = (json!({ "alg": "RS256" }), json!({ "aud": [audience], "exp": expiry }));
        format!("{}.{}.c2lnbmF0dXJl", part(head), part(body))
    };
    let later = jiff::Timestamp::now().as_second() + 3600;
    let token = format!("forwarder.token_file={}", path("broker-token"));
    for (content, said) in [
        (claims("somebody-else", later), "for audience [\"somebody-else\"], not for \"cdevents-broker\""),
        (claims("cdevents-broker", later - 7200), "expired at"),
        ("opaque".into(), "is no JWT"),
    ] {
        fs::write(path("broker-token"), content).unwrap();
        let ran = doctor(&mesh, &[&token], &[]).await;
        finding(&ran, "wrong", "broker token", &[said], "broker-token", "project a ServiceAccount token");
        assert_eq!(ran.code, Some(1));
    }
    fs::write(path("broker-token"), claims("cdevents-broker", later)).unwrap();
    assert_eq!(doctor(&mesh, &[&token], &[]).await.code, Some(0));

    let nowhere = format!("edge.peers.forwarder=127.0.0.1:{}", transponder_tests::ports::free());
    let ran = doctor(&mesh, &[&nowhere], &[]).await;
    finding(&ran, "wrong", "reach", &["forwarder", "refused"], "127.0.0.1:", "start it");
    // Who answers there is not who should.
    let swapped = format!("edge.peers.forwarder={}", mesh.address("dora-recorder"));
    let ran = doctor(&mesh, &[&swapped], &[]).await;
    finding(&ran, "wrong", "reach", &["is dora-recorder, not forwarder"], "127.0.0.1:", "start it");
    assert_eq!(doctor(&mesh, &[&nowhere], &["--offline"]).await.code, Some(0), "asks nobody");
    let ran = doctor(&mesh, &["edge.settle.faild=1m"], &[]).await;
    finding(&ran, "wrong", "configuration", &["faild"], "transponder.toml", "correct the key");
    assert_eq!(ran.code, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn config_says_where_each_value_comes_from() {
    let broker = Broker::start().await;
    let mesh = Mesh::new(&broker).await;
    let file = mesh.path("transponder.toml");
    let config = |more: &[&str]| {
        Run::program(product("transponder"))
            .args([Path::new("--config"), &file])
            .args(more)
            .env("TRANSPONDER_EDGE__SETTLE__FAILED", "7m")
    };
    let set = ["--set", "edge.budget.rate=9", "config"];
    let shown = config(&[set.as_slice(), &["--output", "json"]].concat()).run().await.success().json();
    for (key, value, source) in [
        ("edge.settle.failed", json!("7m"), "variable TRANSPONDER_EDGE__SETTLE__FAILED".to_owned()),
        ("edge.budget.rate", json!(9), "flag --set edge.budget.rate".into()),
        ("edge.listen", json!("127.0.0.1:8443"), file.display().to_string()),
        ("edge.budget.burst", json!(500), "default".into()),
    ] {
        assert_eq!(shown[key], json!({ "value": value, "source": source }), "{key}");
    }
    let text = config(&set).run().await.success().text();
    let line = text.lines().find(|line| line.starts_with("edge.settle.failed ")).unwrap();
    assert!(line.contains("\"7m\"") && line.ends_with("variable TRANSPONDER_EDGE__SETTLE__FAILED"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_key_and_a_bad_value_are_named_with_where_they_stand() {
    let broker = Broker::start().await;
    let mesh = Mesh::new(&broker).await;
    let file = mesh.path("transponder.toml");
    let good = fs::read_to_string(&file).unwrap();
    for (text, key) in [
        ("\n[edge.settle]\nfaild = \"1m\"\n", "faild"),
        ("\n[edge.settle]\nfailed = \"soon\"\n", "edge.settle.failed"),
        ("\n[edge.settle]\nfailed = 5\n", "edge.settle.failed"),
        ("\n[egde]\nlisten = \"127.0.0.1:1\"\n", "egde"),
    ] {
        fs::write(&file, format!("{good}{text}")).unwrap();
        for command in ["config", "all"] {
            let ran = mesh.operate([command]).await;
            assert_eq!(ran.code, Some(1), "{text}: {}", ran.text());
            assert!(
                ran.stderr.contains(key) && ran.stderr.contains("transponder.toml"),
                "{text}: {}",
                ran.stderr
            );
        }
    }
    fs::write(&file, good).unwrap();
    let ran = Run::program(product("transponder"))
        .args(["config"])
        .env("TRANSPONDER_EDGE__SETTEL__X", "1")
        .run()
        .await;
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.to_lowercase().contains("settel"), "{}", ran.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_are_a_script_that_the_shell_reads() {
    let script =
        Run::program(product("transponder")).args(["completions", "bash"]).run().await.success().text();
    for command in ["release-tracking", "rotate", "--offline"] {
        assert!(script.contains(command), "{command}");
    }
    // Loading it defines what completes, and completing tells our commands.
    let used = format!(
        "{script}\nCOMP_WORDS=(transponder out); COMP_CWORD=1; _transponder transponder out transponder; echo \"${{COMPREPLY[@]}}\""
    );
    let told = Run::program("/bin/bash").args(["-c", &used]).run().await.success().text();
    assert_eq!(told.trim(), "outcome-span outcomes");
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_secrets_and_data_are_for_their_owner_alone() {
    let (_broker, mesh) = running().await;
    mesh.post("kind-prod", TestEvent::new("Succeeded", "modes").body()).await.unwrap();
    let mode = |path: &Path| path.symlink_metadata().unwrap().permissions().mode() & 0o777;
    for directory in ["data/edge", "data/dora-recorder", "data/release-tracking"] {
        assert_eq!(mode(&mesh.path(directory)), 0o700, "{directory}");
    }
    let mut sockets = 0;
    for directory in ["data/edge", "data/release-tracking"] {
        for file in fs::read_dir(mesh.path(directory)).unwrap() {
            let file = file.unwrap();
            if std::os::unix::fs::FileTypeExt::is_socket(&file.file_type().unwrap()) {
                assert_eq!(mode(&file.path()), 0o600, "{}", file.path().display());
                sockets += 1;
            }
        }
    }
    assert_eq!(sockets, 2);
    for secret in [
        "task-token",
        "callers.toml",
        "transponder.toml",
        "mesh/ca.key",
        "mesh/edge.key",
        "edge/edge.key",
        "edge/edge-ca.key",
        "registry/cluster-registry/kind-prod",
        "registry/secrets/cluster-kind-prod-relay-token/token",
    ] {
        assert_eq!(mode(&mesh.path(secret)), 0o600, "{secret}");
    }
}

async fn running() -> (Broker, Mesh) {
    let broker = Broker::start().await;
    let mesh = Mesh::start(&broker).await;
    (broker, mesh)
}

/// Posts a new event for `kind-late` with this token.
async fn post(mesh: &Mesh, token: &str) -> u16 {
    let name = format!("c-{}", fastrand::u64(..));
    let body = TestEvent::new("Succeeded", &name).cluster("kind-late").body();
    let (ca, url) = (mesh.path("edge/edge-ca.crt").display().to_string(), mesh.url("/outcome/kind-late"));
    let bearer = format!("Authorization: Bearer {token}");
    let json = "Content-Type: application/json";
    http(["--cacert", &ca, "-H", &bearer, "-H", json, "--data-binary", &body, &url]).await.unwrap().status
}

/// Waits until this token is answered so.
async fn until(mesh: &Mesh, token: &str, status: u16) {
    eventually(&format!("the token is answered {status}"), SOON, || async {
        match post(mesh, token).await {
            answered if answered == status => Ok(()),
            answered => Err(answered.to_string()),
        }
    })
    .await;
}

/// The doctor's report on the mesh as it runs, with these values changed.
async fn doctor(mesh: &Mesh, changes: &[&str], options: &[&str]) -> Ran {
    let mut settings = vec![
        format!("edge.listen={}", mesh.address("edge")),
        format!("admin.listen={}", mesh.address("admin")),
    ];
    for part in ["forwarder", "dora-recorder", "release-tracking", "outcome-span"] {
        settings.push(format!("edge.peers.{}={}", part.replace('-', "_"), mesh.address(part)));
    }
    settings.extend(changes.iter().map(|change| (*change).to_owned()));
    let mut arguments: Vec<String> =
        settings.into_iter().flat_map(|setting| ["--set".to_owned(), setting]).collect();
    arguments.extend(["doctor", "--output", "json"].map(str::to_owned));
    arguments.extend(options.iter().map(|option| (*option).to_owned()));
    mesh.operate(arguments).await
}

/// That the report has this finding.
#[track_caller]
fn finding(ran: &Ran, level: &str, area: &str, what: &[&str], at: &str, mend: &str) {
    let report = ran.json();
    let fits = |value: &Value, part: &str| value.as_str().is_some_and(|text| text.contains(part));
    let found = report["findings"].as_array().unwrap().iter().any(|finding| {
        finding["level"] == level
            && finding["area"] == area
            && what.iter().all(|part| fits(&finding["what"], part))
            && fits(&finding["at"], at)
            && fits(&finding["mend"], mend)
    });
    assert!(found, "no {level} finding on {area}: {what:?} at {at}, {mend}: {report:#}");
}
