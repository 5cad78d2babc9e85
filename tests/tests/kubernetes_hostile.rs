//! What a hostile cluster sends, and what somebody with the right to write objects does to them, holds up nobody else.

use serde_json::{Value, json};
use transponder_tests::{
    Broker, Fleet, LONG, Mesh, NAMESPACE, SHORT, TestEvent, alone, eventually, http, kubernetes::ApiServer,
};

/// One edge that delivers at once, and whom its events go to.
async fn running() -> (Fleet, Broker) {
    let broker = Broker::start().await;
    let mut mesh = Mesh::new(&broker).await;
    mesh.set("edge.budget.rate", "1000");
    mesh.set("edge.settle.failed", "0s");
    let mut fleet = Fleet::new(mesh, ApiServer::start().await).await;
    fleet.register(&["kind-other".to_owned()]).await;
    fleet.start_all(1, 1).await;
    (fleet, broker)
}

fn event(cluster: &str, name: &str) -> TestEvent {
    TestEvent::new("Succeeded", name).cluster(cluster)
}

/// An event whose text the API server escapes, six bytes for each of so many.
fn escaped(name: &str, characters: usize) -> (TestEvent, String) {
    let event = event("kind-other", name);
    let mut json = event.json();
    json["subject"]["content"]["configJson"] = Value::from("<".repeat(characters));
    (event, json.to_string())
}

async fn object(fleet: &Fleet, key: &str) -> Value {
    let get = ["get", "releaseoutcome", key, "-n", NAMESPACE, "-o", "json"];
    fleet.server.kubectl(get).await.success().json()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_once_it_is_escaped_is_413_and_what_fits_is_delivered() {
    let _alone = alone().await;
    let (fleet, broker) = running().await;
    let (_, body) = escaped("too-large", 250_000);
    assert!(body.len() < 256 * 1024);
    let answer = fleet.mesh.curl("kind-other", &format!("@{}", file(&fleet, &body)), &[]).await.unwrap();
    assert_eq!(answer.status, 413, "{}", answer.body_text());
    let detail = answer.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("may take 1048576"), "{detail}");
    // Every change of its status is a write of the whole.
    let (large, body) = escaped("large", 170_000);
    assert_eq!(fleet.mesh.post("kind-other", body).await.unwrap().0, 202);
    let plain = event("kind-prod", "plain");
    fleet.mesh.accept(&plain).await;
    for event in [&large, &plain] {
        fleet.mesh.wait_final(&event.cluster, &event.key()).await;
    }
    assert_eq!(broker.received().len(), 2);
    let long = format!("Content-Type: application/json; x={}", "a".repeat(300));
    let bearer = format!("Authorization: Bearer {}", fleet.mesh.token("kind-prod"));
    let ca = fleet.mesh.path("edge/edge-ca.crt").display().to_string();
    let url = fleet.mesh.url("/outcome/kind-prod");
    let body = event("kind-prod", "type").body();
    let request = ["-s", "--cacert", &ca, "-H", &bearer, "-H", &long, "--data-binary", &body, &url];
    assert_eq!(http(request).await.unwrap().status, 415);
}

fn file(fleet: &Fleet, body: &str) -> String {
    let path = fleet.mesh.path("body.json");
    std::fs::write(&path, body).unwrap();
    path.display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_somebody_breaks_or_makes_is_named_and_holds_up_nobody() {
    let _alone = alone().await;
    let (mut fleet, broker) = running().await;
    broker.refuse().await;
    let broken = event("kind-prod", "broken");
    fleet.mesh.accept(&broken).await;
    eventually("the broker was tried", SHORT, || async {
        let status = object(&fleet, &broken.key()).await["status"].to_string();
        if status.contains("Retrying") { Ok(()) } else { Err(status) }
    })
    .await;
    // A word that this version does not know, as a newer one might write.
    let mut status = object(&fleet, &broken.key()).await["status"].clone();
    status["conditions"][0]["reason"] = "Skipped".into();
    let patch = json!({ "status": status }).to_string();
    let change = ["patch", "ro", &broken.key(), "-n", NAMESPACE, "--subresource=status", "--type=merge"];
    fleet.server.kubectl(change.iter().chain(&["-p", &patch])).await.success();
    // One with the name that services try whether they may write, and with labels that fill every budget.
    let mut forged = object(&fleet, &broken.key()).await;
    forged["metadata"] = json!({
        "name": "0".repeat(40), "namespace": NAMESPACE,
        "labels": { "transponder.dev/cluster": "kind-other", "transponder.dev/bytes": u64::MAX.to_string() },
    });
    forged.as_object_mut().unwrap().remove("status");
    fleet.server.apply(&forged.to_string()).await;

    broker.accept().await;
    let others: Vec<_> = ["kind-prod", "kind-other"].iter().map(|cluster| event(cluster, "other")).collect();
    for other in &others {
        fleet.mesh.accept(other).await;
        fleet.mesh.wait_final(&other.cluster, &other.key()).await;
    }
    fleet.roll("edge", 0).await;
    let next = event("kind-other", "next");
    fleet.mesh.accept(&next).await;
    fleet.mesh.wait_final("kind-other", &next.key()).await;
    for name in [broken.key(), "0".repeat(40)] {
        assert!(fleet.process("edge", 0).said(&format!("releaseoutcome {name}: ")) > 0, "{name}");
    }
    // No number that a service could not read gets there.
    let large = json!({ "status": { "observed": 5_000_000_000_u64 } }).to_string();
    let change = ["patch", "ro", &next.key(), "-n", NAMESPACE, "--subresource=status", "--type=merge"];
    let refused = fleet.server.kubectl(change.iter().chain(&["-p", &large])).await;
    assert!(refused.stderr.contains("status.observed"), "{}", refused.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_deleted_and_sent_again_is_delivered_again_each_time() {
    let _alone = alone().await;
    let (mut fleet, broker) = running().await;
    let events: Vec<_> = (0..40)
        .map(|number| {
            let mut event = event("kind-prod", &format!("again-{number}"));
            event.env = format!("env-{number}");
            event
        })
        .collect();
    for round in 1..=2 {
        for event in &events {
            fleet.mesh.accept(event).await;
        }
        for event in &events {
            fleet.mesh.wait_final("kind-prod", &event.key()).await;
        }
        assert_eq!(broker.received().len(), round * events.len());
        let all = ["delete", "releaseoutcomes", "--all", "-n", NAMESPACE];
        fleet.server.kubectl(all).await.success();
    }
    // DORA remembers.
    let counted = fleet.metric("dora-recorder", "dora_deployments_total", &[]).await;
    assert_eq!(counted, events.len() as f64);
    // One that is deleted while it waits is new at once, too.
    broker.refuse().await;
    let waits = event("kind-prod", "waits");
    fleet.mesh.accept(&waits).await;
    fleet.server.kubectl(["delete", "ro", &waits.key(), "-n", NAMESPACE]).await.success();
    fleet.mesh.accept(&waits).await;
    broker.accept().await;
    let receipt = eventually("it is delivered", LONG, || async {
        let receipt = fleet.mesh.receipt("kind-prod", &waits.key()).await?.1;
        let done = |target: &Value| target["state"] == "delivered";
        let all = receipt["targets"].as_object().is_some_and(|targets| targets.values().all(done));
        if all { Ok(receipt) } else { Err(receipt.to_string()) }
    });
    assert_eq!(receipt.await["targets"].as_object().unwrap().len(), 4);
}
