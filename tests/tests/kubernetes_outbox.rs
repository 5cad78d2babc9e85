//! The outbox in a real API server: every edge accepts, the holder of the Lease delivers, each with the rights of its
//! ServiceAccount and no more.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};
use transponder_tests::{
    Answer, Behaviour, Broker, Fleet, LONG, Load, LoadReport, Mesh, NAMESPACE, OtlpReceiver, ReceivedSpan,
    SHORT, TestEvent, alone, eventually, kubernetes::ApiServer,
};

/// What failed last in an outage is tried again as long after it as it lasted, and longer.
const DRAIN: Duration = Duration::from_secs(180);

struct Ground {
    fleet: Fleet,
    broker: Broker,
    otlp: OtlpReceiver,
}

async fn ground() -> Ground {
    let (broker, otlp) = (Broker::start().await, OtlpReceiver::start().await);
    let mut mesh = Mesh::new(&broker).await;
    mesh.env("OTEL_EXPORTER_OTLP_ENDPOINT", &otlp.url());
    mesh.set("edge.budget.rate", "1000");
    let fleet = Fleet::new(mesh, ApiServer::start().await).await;
    Ground { fleet, broker, otlp }
}

async fn running(edges: usize, others: usize) -> Ground {
    let mut ground = ground().await;
    ground.fleet.start_all(edges, others).await;
    ground
}

impl Ground {
    async fn outcomes(&self) -> Vec<Value> {
        let list = ["get", "releaseoutcomes", "-n", NAMESPACE, "-o", "json"];
        let list = self.fleet.server.kubectl(list).await.success().json();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    async fn outcome(&self, key: &str) -> Value {
        let get = ["get", "releaseoutcome", key, "-n", NAMESPACE, "-o", "json"];
        self.fleet.server.kubectl(get).await.success().json()
    }

    /// Waits until a target of an event was given up.
    async fn dead(&self, event: &TestEvent) {
        eventually("it is dead", SHORT, || async {
            let outcome = self.outcome(&event.key()).await;
            if outcome["status"]["state"] == "Dead" { Ok(()) } else { Err(outcome["status"].to_string()) }
        })
        .await;
    }

    /// Everything acknowledged is at the broker, each release counted once, and one span each.
    async fn assert_exactly_once(&mut self, report: &LoadReport) {
        let stored = self.fleet.all_delivered(DRAIN).await;
        assert!(stored >= report.acknowledged.len(), "{stored} of {}", report.acknowledged.len());
        let mut arrived: BTreeMap<String, usize> = BTreeMap::new();
        for received in self.broker.received() {
            *arrived.entry(received.header("transponder-key").unwrap().to_owned()).or_default() += 1;
        }
        let missing: Vec<_> = report.acknowledged.iter().filter(|key| !arrived.contains_key(*key)).collect();
        assert!(missing.is_empty(), "{} are not at the broker: {missing:?}", missing.len());
        // What was stored and not acknowledged is delivered, too, and nothing else is.
        assert_eq!(arrived.len(), stored);
        let counted = self.fleet.metric("dora-recorder", "dora_deployments_total", &[]).await;
        assert_eq!(counted, stored as f64);
        let spans: std::collections::BTreeSet<_> =
            self.otlp.spans().iter().map(ReceivedSpan::span_id).collect();
        assert_eq!(spans.len(), stored);
    }

    /// Nobody asked for what it may not have.
    fn assert_nothing_refused(&self) {
        let refused: Vec<_> = self
            .fleet
            .server
            .audit()
            .into_iter()
            .filter(|event| event.user.contains(":transponder-") && event.code == 403)
            .collect();
        assert!(refused.is_empty(), "{refused:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_an_object_that_reads_as_a_log_and_never_changes() {
    let _alone = alone().await;
    let ground = running(1, 1).await;
    let event = TestEvent::new("Succeeded", "chain-ä\u{2028}<&>");
    ground.fleet.mesh.accept(&event).await;
    ground.fleet.all_delivered(DRAIN).await;
    let outcome = ground.outcome(&event.key()).await;
    assert_eq!(outcome["spec"]["body"], event.body());
    assert_eq!(ground.broker.received()[0].body, event.body());
    let conditions = outcome["status"]["conditions"].as_array().unwrap();
    let states: Vec<_> =
        conditions.iter().map(|c| (c["type"].as_str().unwrap(), c["status"].as_str().unwrap())).collect();
    assert_eq!(states, [("broker", "True"), ("tracking", "True"), ("dora", "True"), ("span", "True")]);

    let table = ground.fleet.server.kubectl(["get", "ro", "-n", NAMESPACE]).await.success().text();
    let line = table.lines().nth(1).unwrap().split_whitespace().skip(1).collect::<Vec<_>>();
    let wanted =
        ["kind-prod", "shop", "prod", "Succeeded", "Delivered", "Delivered", "Delivered", "Delivered"];
    assert_eq!(line[..8], wanted, "{table}");

    let patch = json!({ "spec": { "cluster": "other" } }).to_string();
    let patched = ["patch", "releaseoutcome", &event.key(), "-n", NAMESPACE, "--type", "merge", "-p", &patch];
    let refused = ground.fleet.server.kubectl(patched).await;
    assert_ne!(refused.code, Some(0));
    assert!(refused.stderr.contains("an accepted event never changes"), "{}", refused.stderr);
    ground.assert_nothing_refused();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_event_at_two_edges_is_one_event() {
    let _alone = alone().await;
    let mut ground = running(2, 1).await;
    let event = TestEvent::new("Succeeded", "twice");
    let mut answers = Vec::new();
    // New connections take turns.
    for _ in 0..4 {
        answers.push(ground.fleet.mesh.curl("kind-prod", &event.body(), &[]).await.unwrap().status);
    }
    answers.sort_unstable();
    assert_eq!(answers, [200, 200, 200, 202]);
    let mut other = event.clone();
    other.chain_id = "another".to_owned();
    assert_eq!(ground.fleet.mesh.curl("kind-prod", &other.body(), &[]).await.unwrap().status, 409);

    // A finish that is new is one more observation of the same event, whichever edge it comes to.
    for second in [10, 11, 12, 13] {
        let again = event.clone().finished(format!("2026-11-30T10:00:{second}Z"));
        let answer = ground.fleet.mesh.curl("kind-prod", &again.body(), &[]).await.unwrap();
        assert_eq!((answer.status, answer.json()["identical"].as_bool()), (200, Some(false)));
    }
    ground.fleet.all_delivered(DRAIN).await;
    assert_eq!(ground.broker.received().len(), 1);
    let outcome = ground.outcome(&event.key()).await;
    assert_eq!(outcome["status"]["observed"], 5, "{}", outcome["status"]);
    assert_eq!(outcome["status"]["observations"].as_array().unwrap().len(), 4);
    assert_eq!(ground.fleet.metric("dora-recorder", "dora_deployments_total", &[]).await, 1.0);
    ground.assert_nothing_refused();
}

#[tokio::test(flavor = "multi_thread")]
async fn another_edge_takes_over_from_one_that_dies_hangs_or_leaves_and_nothing_is_lost_or_doubled() {
    let _alone = alone().await;
    let mut ground = running(3, 2).await;
    let load = Load::start(&ground.fleet.mesh, "kind-prod", 40);
    load.more(100).await;

    let first = ground.fleet.leader("edge").await;
    ground.fleet.kill("edge", first);
    let (second, took) = ground.fleet.next_leader("edge", first).await;
    println!("taken over from one that was killed in {took:.1?}");
    assert!(took < Duration::from_secs(15), "{took:?}");
    load.more(50).await;
    ground.fleet.start("edge", first).await;

    ground.fleet.freeze("edge", second);
    let (third, took) = ground.fleet.next_leader("edge", second).await;
    println!("taken over from one that hangs in {took:.1?}");
    assert!(took < Duration::from_secs(15), "{took:?}");
    load.more(50).await;
    // It goes on where it was, and finds out before it writes.
    ground.fleet.thaw("edge", second);
    load.more(100).await;
    assert_eq!(ground.fleet.leader("edge").await, third);

    ground.fleet.roll("edge", third).await;
    let (_, took) = ground.fleet.next_leader("edge", third).await;
    println!("taken over from one that left in {took:.1?}");
    load.more(50).await;
    let report = load.stop().await;
    // Those that were sent to the one that died or hung, and nothing else.
    assert!(
        report.failed.len() < 40,
        "{} of {}: {:?}",
        report.failed.len(),
        report.ended,
        report.failed.first()
    );
    ground.assert_exactly_once(&report).await;
    ground.assert_nothing_refused();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_that_settles_is_settled_by_the_next_holder_as_well() {
    let _alone = alone().await;
    let mut ground = ground().await;
    ground.fleet.mesh.set("edge.settle.failed", "25s");
    ground.fleet.mesh.set("edge.settle.max", "60s");
    ground.fleet.start_all(2, 1).await;
    // One operation that fails, and is tried again after its events are delivered and closed.
    let failed = TestEvent::new("Failed", "settles").finished("2026-11-30T10:00:00Z");
    ground.fleet.mesh.accept(&failed).await;
    let mut syncing = TestEvent::new("Syncing", "settles").finished("2026-11-30T10:00:01Z");
    syncing.attempt = "again".to_owned();
    tokio::time::sleep(Duration::from_secs(10)).await;
    ground.fleet.mesh.accept(&syncing).await;
    eventually("the sync is delivered", SHORT, || async {
        let outcome = ground.outcome(&syncing.key()).await;
        if outcome["status"]["state"] == "Delivered" { Ok(()) } else { Err(outcome["status"].to_string()) }
    })
    .await;
    let first = ground.fleet.leader("edge").await;
    ground.fleet.kill("edge", first);
    ground.fleet.next_leader("edge", first).await;
    // The next holder knows that the release was observed again since it failed: it still waits.
    let waits = ground.outcome(&failed.key()).await;
    assert!(!waits["status"].to_string().contains("verdict"), "{}", waits["status"]);
    let succeeded = TestEvent::new("Succeeded", "settles").finished("2026-11-30T10:00:30Z");
    ground.fleet.mesh.accept(&succeeded).await;
    ground.fleet.all_delivered(DRAIN).await;
    let failures = "outcome=\"failed\"";
    assert_eq!(ground.fleet.metric("dora-recorder", "dora_releases_total", &[failures]).await, 0.0);
    assert_eq!(ground.fleet.metric("dora-recorder", "dora_deployments_total", &[]).await, 1.0);
    let outcome = ground.outcome(&failed.key()).await;
    assert!(outcome["status"]["conditions"].to_string().contains("Replaced"), "{}", outcome["status"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_not_what_its_name_says_is_delivered_by_nobody_and_holds_up_nobody() {
    let _alone = alone().await;
    let mut ground = running(1, 1).await;
    let event = TestEvent::new("Succeeded", "honest");
    ground.fleet.mesh.accept(&event).await;
    ground.fleet.all_delivered(DRAIN).await;
    let mut forged = ground.outcome(&event.key()).await;
    forged["metadata"] = json!({ "name": "f".repeat(40), "namespace": NAMESPACE });
    forged["status"] = Value::Null;
    ground.fleet.server.apply(&forged.to_string()).await;
    eventually("the edge names it", SHORT, || {
        let said = ground.fleet.process("edge", 0).said("delivered in nobody's name");
        async move { if said > 0 { Ok(()) } else { Err(String::new()) } }
    })
    .await;
    let next = TestEvent::new("Succeeded", "next");
    ground.fleet.mesh.accept(&next).await;
    ground.broker.wait_for(2, SHORT).await;
    // Not after a restart either.
    ground.fleet.roll("edge", 0).await;
    ground.fleet.mesh.accept(&TestEvent::new("Succeeded", "last")).await;
    let received = ground.broker.wait_for(3, SHORT).await;
    assert!(received.iter().all(|r| r.header("transponder-key") != Some(&"f".repeat(40))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_spends_its_budget_at_all_edges_together() {
    let _alone = alone().await;
    let mut ground = ground().await;
    ground.fleet.mesh.set("edge.budget.undelivered_events", "6");
    ground.fleet.start_all(2, 1).await;
    ground.broker.refuse().await;
    let post = async |number: usize| {
        let event = TestEvent::new("Succeeded", &format!("budget-{number}"));
        ground.fleet.mesh.curl("kind-prod", &event.body(), &[]).await.unwrap().status
    };
    for number in 0..6 {
        assert_eq!(post(number).await, 202);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!((post(6).await, post(7).await), (429, 429));
    // What is known needs no room.
    assert_eq!((post(0).await, post(1).await), (200, 200));
    ground.broker.accept().await;
    ground.fleet.all_delivered(DRAIN).await;
    eventually("there is room again at both", SHORT, || async {
        let status = (post(8).await, post(9).await);
        if status.0 < 300 && status.1 < 300 { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_and_its_store_die_under_load_and_nothing_acknowledged_is_lost() {
    let _alone = alone().await;
    let mut ground = running(2, 1).await;
    let load = Load::start(&ground.fleet.mesh, "kind-prod", 40);
    load.more(100).await;
    ground.fleet.server.kill_apiserver();
    eventually("the edges are not ready", SHORT, || async {
        let ready = (ground.fleet.readiness("edge", 0).await, ground.fleet.readiness("edge", 1).await);
        if ready.0.is_err() && ready.1.is_err() { Ok(()) } else { Err(format!("{ready:?}")) }
    })
    .await;
    let (status, _) =
        ground.fleet.mesh.post("kind-prod", TestEvent::new("Failed", "away").body()).await.unwrap();
    assert_eq!(status, 503);
    ground.fleet.server.start_apiserver().await;
    load.more(100).await;
    ground.fleet.server.kill_etcd();
    load.more(20).await;
    ground.fleet.server.start_etcd().await;
    ground.fleet.server.ready().await;
    for edge in [0, 1] {
        eventually("an edge is ready again", LONG, || ground.fleet.readiness("edge", edge)).await;
    }
    let before = load.so_far().acknowledged.len();
    load.more(100).await;
    let report = load.stop().await;
    assert!(report.acknowledged.len() > before, "nothing is taken any more");
    // An API server that has just begun refuses what it has not read the permission of.
    ground.assert_exactly_once(&report).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_event_is_replayed_by_an_annotation() {
    let _alone = alone().await;
    let mut ground = running(2, 1).await;
    ground.broker.always(Behaviour::Answer(Answer::status(400)));
    let event = TestEvent::new("Succeeded", "refused");
    ground.fleet.mesh.accept(&event).await;
    ground.dead(&event).await;
    ground.broker.always(Behaviour::Answer(Answer::status(202)));
    let key = event.key();
    let annotate = ["annotate", "ro", &key, "-n", NAMESPACE, "transponder.dev/replay=once broker"];
    ground.fleet.server.kubectl(annotate).await.success();
    ground.fleet.all_delivered(DRAIN).await;
    // Once, whatever restarts.
    let arrived = ground.broker.received().len();
    let leader = ground.fleet.leader("edge").await;
    ground.fleet.kill("edge", leader);
    ground.fleet.next_leader("edge", leader).await;
    ground.fleet.mesh.accept(&TestEvent::new("Succeeded", "after")).await;
    ground.broker.wait_for(arrived + 1, SHORT).await;
    ground.fleet.all_delivered(DRAIN).await;
    assert_eq!(ground.broker.received().len(), arrived + 1);

    // Asked for while nobody delivers.
    ground.broker.always(Behaviour::Answer(Answer::status(400)));
    let unseen = TestEvent::new("Succeeded", "unseen");
    ground.fleet.mesh.accept(&unseen).await;
    ground.dead(&unseen).await;
    ground.broker.always(Behaviour::Answer(Answer::status(202)));
    (0..2).for_each(|edge| ground.fleet.kill("edge", edge));
    let key = unseen.key();
    let annotate = ["annotate", "ro", &key, "-n", NAMESPACE, "transponder.dev/replay=twice all"];
    ground.fleet.server.kubectl(annotate).await.success();
    let arrived = ground.broker.received().len();
    ground.fleet.start("edge", 0).await;
    ground.fleet.all_delivered(DRAIN).await;
    assert_eq!(ground.broker.received().len(), arrived + 1);
    assert_eq!(ground.broker.received().last().unwrap().header("transponder-key"), Some(&*key));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_old_enough_is_forgotten_and_nothing_else() {
    let _alone = alone().await;
    let mut ground = ground().await;
    ground.fleet.mesh.set("edge.retention.sweep", "1s");
    ground.fleet.start_all(1, 1).await;
    let (old, young) = (TestEvent::new("Succeeded", "old"), TestEvent::new("Succeeded", "young"));
    ground.fleet.mesh.accept(&old).await;
    ground.fleet.mesh.accept(&young).await;
    ground.fleet.all_delivered(DRAIN).await;
    // As if it had ended long ago; the sweeper looks at old days when it begins.
    let key = old.key();
    let patch = json!({ "status": { "forgetAfter": "2026-11-25" } }).to_string();
    let age = ["patch", "ro", &key, "-n", NAMESPACE, "--subresource=status", "--type", "merge", "-p", &patch];
    ground.fleet.server.kubectl(age).await.success();
    ground.fleet.roll("edge", 0).await;
    eventually("the old one is forgotten", LONG, || async {
        let left: Vec<_> =
            ground.outcomes().await.iter().map(|outcome| outcome["metadata"]["name"].to_string()).collect();
        if left.len() == 1 { Ok(left) } else { Err(format!("{left:?}")) }
    })
    .await;
    assert_eq!(ground.outcomes().await[0]["metadata"]["name"], young.key());
}
