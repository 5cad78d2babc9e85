//! Clusters are known by the ConfigMap and their Secrets.

use std::time::{Duration, Instant};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustix::process::Signal;
use serde_json::{Value, json};
use transponder_tests::{
    Apart, LONG, SHORT, alone, eventually, http,
    kubernetes::{ApiServer, AuditEvent},
};

use crate::ground::{self, NAMESPACE, part};

const ACCOUNT: &str = "system:serviceaccount:team:transponder-edge";
/// A request of a body that the edge does not take gets past authentication and no further.
pub(crate) const KNOWN: u16 = 415;
pub(crate) const DENIED: u16 = 401;
pub(crate) const TROUBLE: u16 = 503;
const TOKEN: &str = "0123456789abcdef-of-kind-prod";
/// In what time a change applies; a busy machine is given as much again.
const SOON: Duration = Duration::from_secs(4);

/// The edge with its own account and its Role, which names the Secrets of these clusters.
async fn edge(server: &ApiServer, clusters: &[&str]) -> Apart {
    ground::edge(server).await;
    ground::apply(server, "edge-registry.yaml").await;
    allow(server, clusters).await;
    // Whatever is logged, no token is.
    let settings = [("kubernetes.request_timeout", "2s"), ("log.filter", "trace")];
    part(server, "transponder-edge", &settings).await
}

async fn allow(server: &ApiServer, clusters: &[&str]) {
    let names: Vec<_> = clusters.iter().map(|cluster| secret_name(cluster)).collect();
    let patch = json!([{ "op": "replace", "path": "/rules/0/resourceNames", "value": names }]).to_string();
    let role = ["patch", "role", "transponder-edge-registry", "-n", NAMESPACE, "--type=json", "-p", &patch];
    server.kubectl(role).await.success();
}

fn secret_name(cluster: &str) -> String {
    format!("cluster-{cluster}-relay-token")
}

/// Writes the ConfigMap with these clusters.
async fn registry(server: &ApiServer, clusters: &[&str]) {
    let entry = |cluster: &&str| {
        let url = format!("https://relay.example/outcome/{cluster}");
        let entry = json!({ "relaySecretName": secret_name(cluster), "outcomeRelayURL": url });
        ((*cluster).to_owned(), Value::from(entry.to_string()))
    };
    let data: serde_json::Map<_, _> = clusters.iter().map(entry).collect();
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "cluster-registry" }, "data": data });
    ground::here(server, &map.to_string()).await;
}

async fn secret(server: &ApiServer, cluster: &str, data: Value) {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": secret_name(cluster) }, "stringData": data,
    });
    // A field that is gone must go: applying would keep it.
    let delete = ["delete", "secret", &secret_name(cluster), "-n", NAMESPACE, "--ignore-not-found"];
    server.kubectl(delete).await.success();
    ground::here(server, &secret.to_string()).await;
}

/// What the edge answers a cluster that brings this token.
async fn post(apart: &Apart, cluster: &str, token: &str) -> u16 {
    let (url, bearer) =
        (apart.mesh.url(&format!("/outcome/{cluster}")), format!("Authorization: Bearer {token}"));
    let ca = apart.mesh.path("edge/edge-ca.crt").display().to_string();
    let request =
        ["-s", "--max-time", "10", "--cacert", &ca, "-H", &bearer, "-H", "Content-Type: text/plain"];
    let answer =
        http(request.iter().copied().chain(["--data-binary", "x", url.as_str()])).await.expect("an answer");
    if answer.status == TROUBLE {
        assert!(answer.header("retry-after").is_some(), "{answer:?}");
    }
    answer.status
}

/// Waits until a cluster that brings this token is answered so.
pub(crate) async fn soon(apart: &Apart, cluster: &str, token: &str, status: u16) {
    let what = format!("{cluster} is answered {status}");
    eventually(&what, SOON, || async {
        let answered = post(apart, cluster, token).await;
        if answered == status { Ok(()) } else { Err(answered.to_string()) }
    })
    .await;
}

/// Waits until the edge says that it is not ready, and why.
async fn not_ready(apart: &Apart, why: &str) {
    eventually(&format!("not ready: {why}"), SHORT, || async {
        match apart.readiness("edge").await {
            Err(said) if said.contains(why) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

pub(crate) async fn ready(apart: &Apart) {
    eventually("ready", LONG, || async { apart.readiness("edge").await }).await;
}

fn asked(server: &ApiServer, resource: &str) -> Vec<AuditEvent> {
    let mut all = server.audit();
    all.retain(|event| event.user == ACCOUNT && event.resource == resource);
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_known_by_its_secret_and_a_change_applies_in_seconds() {
    let _alone = alone().await;
    let server = ApiServer::start().await;
    let mut apart = edge(&server, &["kind-prod", "kind-stage"]).await;
    apart.launch("edge").await;

    // No ConfigMap, then one without clusters.
    not_ready(&apart, "there is no ConfigMap cluster-registry in namespace team: list the clusters in the chart's value 'clusters'")
        .await;
    assert_eq!(post(&apart, "kind-prod", TOKEN).await, TROUBLE);
    registry(&server, &[]).await;
    not_ready(&apart, "the cluster registry is empty").await;
    assert_eq!(post(&apart, "kind-prod", TOKEN).await, TROUBLE);

    // A cluster is added. White space around its token is none of it.
    secret(&server, "kind-prod", json!({ "token": format!(" {TOKEN}\n") })).await;
    registry(&server, &["kind-prod"]).await;
    soon(&apart, "kind-prod", TOKEN, KNOWN).await;
    ready(&apart).await;
    for (cluster, token) in
        [("kind-prod", "wrong"), ("unknown", TOKEN), ("kind-prod", ""), ("Kind_Prod", TOKEN)]
    {
        assert_eq!(post(&apart, cluster, token).await, DENIED, "{cluster}");
    }

    // A rotation: two tokens, then the new one alone.
    let new = "fedcba9876543210-of-kind-prod";
    secret(&server, "kind-prod", json!({ "token": new, "token-previous": TOKEN })).await;
    soon(&apart, "kind-prod", new, KNOWN).await;
    assert_eq!(post(&apart, "kind-prod", TOKEN).await, KNOWN);
    secret(&server, "kind-prod", json!({ "token": new })).await;
    soon(&apart, "kind-prod", TOKEN, DENIED).await;
    assert_eq!(post(&apart, "kind-prod", new).await, KNOWN);

    // What is broken concerns its cluster alone.
    registry(&server, &["kind-prod", "kind-stage"]).await;
    soon(&apart, "kind-stage", new, TROUBLE).await;
    let findings = async || apart.metric("edge", "transponder_registry_findings", &[]).await;
    assert_eq!(findings().await, 1.0);
    for broken in
        [json!({ "token": " \n" }), json!({ "token": "0123456789\n0123456789" }), json!({ "other": "x" })]
    {
        secret(&server, "kind-stage", json!({ "token": "0123456789abcdef-of-kind-stage" })).await;
        soon(&apart, "kind-stage", "0123456789abcdef-of-kind-stage", KNOWN).await;
        assert_eq!(findings().await, 0.0);
        secret(&server, "kind-stage", broken).await;
        soon(&apart, "kind-stage", "0123456789abcdef-of-kind-stage", TROUBLE).await;
        assert_eq!(findings().await, 1.0);
        assert_eq!(post(&apart, "kind-prod", new).await, KNOWN);
    }
    ready(&apart).await;

    // A shared token works, and is remarked upon.
    secret(&server, "kind-stage", json!({ "token": new })).await;
    soon(&apart, "kind-stage", new, KNOWN).await;
    let log = apart.process("edge").stderr();
    let name = secret_name("kind-stage");
    for said in [
        format!("there is no Secret {name} in namespace team"),
        format!("Secret {name}: token is empty"),
        format!("Secret {name}: token has control characters inside"),
        format!("Secret {name}: token is missing"),
        "shares its token with kind-prod".to_owned(),
    ] {
        assert!(log.contains(&said), "{said}");
    }
    for token in [TOKEN, new] {
        let encoded = STANDARD.encode(token);
        assert!(!log.contains(token) && !log.contains(&encoded), "a token stands in the log");
    }

    // Wrong tokens cost a request in two seconds, unknown clusters none.
    let (before, started) = (asked(&server, "secrets").len(), Instant::now());
    while started.elapsed() < Duration::from_secs(4) {
        assert_eq!(post(&apart, "kind-prod", "wrong").await, DENIED);
        assert_eq!(post(&apart, "unknown", "wrong").await, DENIED);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let reads = asked(&server, "secrets");
    let more = reads.len() - before;
    assert!((2..=4).contains(&more), "{more} reads in four seconds");

    // An entry is taken away, then all of them.
    registry(&server, &["kind-stage"]).await;
    soon(&apart, "kind-prod", new, DENIED).await;
    let delete = ["delete", "configmap", "cluster-registry", "-n", NAMESPACE];
    server.kubectl(delete).await.success();
    not_ready(&apart, "there is no ConfigMap cluster-registry").await;
    assert_eq!(post(&apart, "kind-stage", new).await, TROUBLE);
    registry(&server, &["kind-stage"]).await;
    soon(&apart, "kind-stage", new, KNOWN).await;
    ready(&apart).await;

    // Nothing was asked for that is not granted.
    let names = ["kind-prod", "kind-stage"].map(secret_name);
    let granted =
        |event: &AuditEvent| event.verb == "get" && names.contains(&event.name) && event.code != 403;
    assert!(reads.iter().all(granted), "{reads:?}");
    let maps = asked(&server, "configmaps");
    let granted =
        |event: &AuditEvent| event.uri.contains("metadata.name%3Dcluster-registry") && event.code == 200;
    assert!(!maps.is_empty() && maps.len() <= 4 && maps.iter().all(granted), "{maps:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_api_server_is_away_known_tokens_stay_known_and_nobody_is_refused() {
    let _alone = alone().await;
    let mut server = ApiServer::start().await;
    let mut apart = edge(&server, &["kind-prod"]).await;
    let other = "0123456789abcdef-of-kind-stage";
    secret(&server, "kind-prod", json!({ "token": TOKEN })).await;
    secret(&server, "kind-stage", json!({ "token": other })).await;
    registry(&server, &["kind-prod", "kind-stage"]).await;
    server.kill_apiserver();

    // Started without one: not ready, and ready by itself later.
    apart.launch("edge").await;
    not_ready(&apart, "the ConfigMap cluster-registry cannot be read: the API server cannot watch").await;
    for cluster in ["kind-prod", "unknown"] {
        assert_eq!(post(&apart, cluster, TOKEN).await, TROUBLE);
    }
    server.start_apiserver().await;
    ready(&apart).await;
    soon(&apart, "kind-prod", TOKEN, KNOWN).await;
    assert_eq!(post(&apart, "kind-prod", "wrong").await, DENIED);
    // The Role does not name this one's Secret.
    soon(&apart, "kind-stage", other, TROUBLE).await;
    assert!(apart.process("edge").said("cannot get resource") >= 1);
    assert_eq!(post(&apart, "kind-prod", TOKEN).await, KNOWN);
    allow(&server, &["kind-prod", "kind-stage"]).await;
    soon(&apart, "kind-stage", other, KNOWN).await;

    // A restart in the middle of everything; the third cluster's Secret has never been read.
    secret(&server, "kind-new", json!({ "token": other })).await;
    allow(&server, &["kind-prod", "kind-stage", "kind-new"]).await;
    registry(&server, &["kind-prod", "kind-stage", "kind-new"]).await;
    eventually("three clusters", SHORT, || async {
        let clusters = apart.metric("edge", "transponder_registry_clusters", &[]).await;
        if clusters == 3.0 { Ok(()) } else { Err(clusters.to_string()) }
    })
    .await;
    server.kill_apiserver();
    for _ in 0..3 {
        for (cluster, token, expected) in [
            ("kind-prod", TOKEN, KNOWN),
            ("kind-stage", other, KNOWN),
            ("kind-prod", other, TROUBLE),
            ("kind-new", other, TROUBLE),
            ("unknown", other, TROUBLE),
            ("kind-prod", "", DENIED),
        ] {
            assert_eq!(post(&apart, cluster, token).await, expected, "{cluster} {token}");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    server.start_apiserver().await;
    for (cluster, token, expected) in
        [("kind-new", other, KNOWN), ("kind-prod", other, DENIED), ("unknown", other, DENIED)]
    {
        eventually(&format!("{cluster} is answered {expected}"), LONG, || async {
            let answered = post(&apart, cluster, token).await;
            if answered == expected { Ok(()) } else { Err(answered.to_string()) }
        })
        .await;
    }

    // One that says nothing holds nobody up for long.
    server.process().signal(Signal::STOP);
    tokio::time::sleep(Duration::from_secs(3)).await;
    for (token, expected) in [(TOKEN, KNOWN), (other, TROUBLE)] {
        let started = Instant::now();
        assert_eq!(post(&apart, "kind-prod", token).await, expected);
        assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    }
    server.process().signal(Signal::CONT);
    eventually("a wrong token is refused again", LONG, || async {
        let answered = post(&apart, "kind-prod", other).await;
        if answered == DENIED { Ok(()) } else { Err(answered.to_string()) }
    })
    .await;
    let secrets = asked(&server, "secrets");
    assert!(secrets.iter().all(|event| event.verb == "get"), "{secrets:?}");
}
