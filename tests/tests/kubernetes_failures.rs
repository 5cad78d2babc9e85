//! The API server as it fails: what the edges say, that nothing acknowledged is lost, nothing doubled, and that they go on
//! by themselves.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::json;
use transponder_tests::{
    Broker, Fleet, LONG, Line, Load, Mesh, NAMESPACE, SHORT, TestEvent, alone, eventually,
    kubernetes::{ApiServer, Settings},
    sum_of,
};

struct Ground {
    fleet: Fleet,
    broker: Broker,
}

/// The installation on an API server with these arguments. Nothing runs yet.
async fn ground(arguments: &[&str]) -> Ground {
    let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    let broker = Broker::start().await;
    let mut mesh = Mesh::new(&broker).await;
    mesh.set("edge.budget.rate", "1000");
    let server = ApiServer::with(Settings { arguments, ..Settings::default() }).await;
    Ground { fleet: Fleet::new(mesh, server).await, broker }
}

async fn running(edges: usize) -> Ground {
    let mut ground = ground(&[]).await;
    ground.fleet.start_all(edges, 1).await;
    ground
}

fn event(name: &str) -> TestEvent {
    TestEvent::new("Succeeded", name)
}

impl Ground {
    async fn kubectl(&self, arguments: &[&str]) -> String {
        let all = arguments.iter().chain(&["-n", NAMESPACE]);
        self.fleet.server.kubectl(all).await.success().text()
    }

    /// The status of the answer to an event, and how long the sender is to wait.
    async fn post(&self, event: &TestEvent) -> (u16, Option<String>) {
        let answer = self.fleet.mesh.curl("kind-prod", &event.body(), &[]).await.expect("an answer");
        (answer.status, answer.header("retry-after").map(str::to_owned))
    }

    /// Waits until an event is refused with 503 and until when, and every edge says why it is not ready.
    async fn refuses(&self, edges: usize, event: &TestEvent, named: &[&str]) {
        eventually("an event is refused", SHORT, || async {
            let (status, wait) = self.post(event).await;
            if status == 503 && wait.is_some() { Ok(()) } else { Err(format!("{status} {wait:?}")) }
        })
        .await;
        for edge in 0..edges {
            let why = eventually("an edge says what is wrong", SHORT, || async {
                // Whichever it goes to finds out.
                self.post(event).await;
                match self.fleet.readiness("edge", edge).await {
                    Err(why) if named.iter().all(|name| why.contains(name)) => Ok(why),
                    other => Err(format!("{other:?}")),
                }
            })
            .await;
            println!("edge {edge}: {why}");
        }
    }

    async fn recovers(&self, edges: usize) {
        for edge in 0..edges {
            eventually("an edge is ready again", LONG, || self.fleet.readiness("edge", edge)).await;
        }
    }

    /// Waits until nothing is open, and asserts that each of these events, and of all others what was stored, is at the
    /// broker and counted once.
    async fn delivered_once<'a>(&mut self, keys: impl IntoIterator<Item = &'a String>) {
        let stored = self.fleet.all_delivered(LONG).await;
        let mut arrived: BTreeMap<String, usize> = BTreeMap::new();
        for received in self.broker.received() {
            *arrived.entry(received.header("transponder-key").unwrap().to_owned()).or_default() += 1;
        }
        let missing: Vec<_> = keys.into_iter().filter(|key| !arrived.contains_key(*key)).collect();
        assert!(missing.is_empty(), "{} are not at the broker: {missing:?}", missing.len());
        assert_eq!(arrived.len(), stored);
        assert_eq!(self.counted().await, stored as f64);
    }

    async fn counted(&mut self) -> f64 {
        self.fleet.metric("dora-recorder", "dora_deployments_total", &[]).await
    }

    /// Waits until so many releases are counted.
    async fn count(&mut self, releases: usize) {
        for _ in 0..100 {
            if self.counted().await == releases as f64 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        panic!("{} of {releases} are counted", self.counted().await);
    }

    /// Lets versions go on, as the other users of a cluster do all the time.
    async fn versions_go_on(&self) {
        for number in 0..30 {
            let label = format!("n={number}");
            self.kubectl(&["label", "--overwrite", "serviceaccount", "transponder-edge", &label]).await;
        }
    }

    /// A line between the API server and the replicas of a service that are started from now on.
    async fn line(&self, service: &'static str) -> Line {
        let target = self.fleet.server.url().trim_start_matches("https://").parse().expect("an address");
        let line = Line::to(target).await;
        self.fleet.by_way_of(service, line.address());
        line
    }

    /// Requests so far for outcomes and Leases, as the API server counts them.
    async fn asked(&self) -> f64 {
        let metrics = self.fleet.server.kubectl(["get", "--raw", "/metrics"]).await.success().text();
        let sum = |resource: &str| sum_of(&metrics, "apiserver_request_total", &[resource]);
        sum("resource=\"releaseoutcomes\"") + sum("resource=\"leases\"")
    }

    /// How often an edge has written this to its log.
    fn said(&mut self, edge: usize, text: &str) -> usize {
        self.fleet.process("edge", edge).said(text)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_is_used_up_is_503_and_named_and_its_raise_is_noticed() {
    let _alone = alone().await;
    let mut ground = running(2).await;
    let _controllers = ground.fleet.server.controller_manager().await;
    let quota = |count: u32| {
        json!({
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": { "name": "outcomes-of-a-day", "namespace": NAMESPACE },
            "spec": { "hard": { "count/releaseoutcomes.transponder.dev": count.to_string() } },
        })
        .to_string()
    };
    ground.fleet.server.apply(&quota(3)).await;
    eventually("the quota counts", LONG, || async {
        let status =
            ground.kubectl(&["get", "resourcequota", "-o", "jsonpath={.items[0].status.used}"]).await;
        if status.contains("releaseoutcomes") { Ok(()) } else { Err(status) }
    })
    .await;
    let mut keys = Vec::new();
    for number in 0..3 {
        let event = event(&format!("within-{number}"));
        ground.fleet.mesh.accept(&event).await;
        keys.push(event.key());
    }
    let more = event("one-too-many");
    ground.refuses(2, &more, &["exceeded quota: outcomes-of-a-day"]).await;
    ground.fleet.server.apply(&quota(10)).await;
    ground.recovers(2).await;
    ground.fleet.mesh.accept(&more).await;
    keys.push(more.key());
    ground.delivered_once(&keys).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_denies_is_503_and_named_and_its_end_is_noticed() {
    let _alone = alone().await;
    let mut ground = running(2).await;
    let known = event("before");
    ground.fleet.mesh.accept(&known).await;
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": "freeze.example" },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [{
                "apiGroups": ["transponder.dev"], "apiVersions": ["*"],
                "operations": ["CREATE"], "resources": ["releaseoutcomes"],
            }] },
            "validations": [{ "expression": "false", "message": "nothing new during the freeze" }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": "freeze.example" },
        "spec": { "policyName": "freeze.example", "validationActions": ["Deny"] },
    });
    let both = json!({ "apiVersion": "v1", "kind": "List", "items": [policy, binding] });
    ground.fleet.server.apply(&both.to_string()).await;
    // It takes the API server a moment to heed it.
    let mut denied = event("denied-0");
    let mut keys = vec![known.key()];
    for number in 1.. {
        if ground.post(&denied).await.0 == 503 {
            break;
        }
        keys.push(denied.key());
        denied = event(&format!("denied-{number}"));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    ground.refuses(2, &denied, &["freeze.example", "nothing new during the freeze"]).await;
    ground.kubectl(&["delete", "validatingadmissionpolicybinding", "freeze.example"]).await;
    ground.recovers(2).await;
    ground.fleet.mesh.accept(&denied).await;
    keys.push(denied.key());
    ground.delivered_once(&keys).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_older_backup_is_restored_what_it_has_is_delivered_and_the_edges_go_on() {
    let _alone = alone().await;
    let mut ground = running(2).await;
    // Open before the backup, and far on in the picture of the one that delivers.
    ground.broker.refuse().await;
    let of = |name: &str, number: usize| {
        let mut event = event(&format!("{name}-{number}"));
        event.env = format!("{name}-{number}");
        event
    };
    let before: Vec<_> = (0..5).map(|number| of("before", number)).collect();
    for event in &before {
        ground.fleet.mesh.accept(event).await;
    }
    let backup = ground.fleet.server.save().await;
    let after: Vec<_> = (0..5).map(|number| of("after", number)).collect();
    for event in &after {
        ground.fleet.mesh.accept(event).await;
    }
    ground.count(10).await;
    ground.versions_go_on().await;
    ground.fleet.server.restore(&backup).await;
    ground.recovers(2).await;
    let stored = ground.kubectl(&["get", "releaseoutcomes", "-o", "name"]).await;
    assert_eq!(stored.lines().count(), 5, "what was acknowledged after the backup is gone: {stored}");
    // Whoever delivered knew of it, and names it.
    let gone: Vec<_> =
        after.iter().map(|event| format!("is not done any more\",\"key\":\"{}\"", event.key())).collect();
    eventually("what is gone is named", LONG, || {
        let named = gone.iter().filter(|gone| (0..2).any(|edge| ground.said(edge, gone) > 0)).count();
        async move { if named == 5 { Ok(()) } else { Err(format!("{named} of 5")) } }
    })
    .await;
    ground.broker.accept().await;
    assert_eq!(ground.fleet.all_delivered(LONG).await, 5);
    let arrived: BTreeSet<_> = ground
        .broker
        .received()
        .iter()
        .filter_map(|r| r.header("transponder-key").map(str::to_owned))
        .collect();
    assert_eq!(arrived, before.iter().map(TestEvent::key).collect());
    // It is new when it is sent again, and counted once whichever the recorder remembers.
    for event in &after {
        assert_eq!(ground.post(event).await.0, 202);
    }
    assert_eq!(ground.fleet.all_delivered(LONG).await, 10);
    ground.count(10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_older_backup_is_restored_while_nothing_happens_every_edge_is_told_of_what_comes() {
    let _alone = alone().await;
    let mut ground = running(2).await;
    let backup = ground.fleet.server.save().await;
    let first = event("gone");
    ground.fleet.mesh.accept(&first).await;
    ground.fleet.all_delivered(LONG).await;
    ground.count(1).await;
    ground.versions_go_on().await;
    ground.fleet.server.restore(&backup).await;
    // A watch from a version that is no more is not refused: nothing comes.
    let path = format!("/apis/transponder.dev/v1/namespaces/{NAMESPACE}/releaseoutcomes");
    let silent = format!("{path}?watch=1&timeoutSeconds=2&resourceVersion=1000000");
    let ran = ground.fleet.server.kubectl(["get", "--raw", &silent]).await;
    assert_eq!((ran.text(), ran.stderr), (String::new(), String::new()));
    ground.recovers(2).await;
    let events: Vec<_> = (0..6).map(|number| event(&format!("new-{number}"))).collect();
    for event in &events {
        ground.fleet.mesh.accept(event).await;
    }
    assert_eq!(ground.fleet.all_delivered(LONG).await, 6);
    ground.count(7).await;
    assert_eq!(ground.broker.received().len(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_missed_what_is_compacted_lists_again() {
    let _alone = alone().await;
    // Without its cache the API server remembers no more than etcd does.
    let mut ground = ground(&["--watch-cache=false"]).await;
    let line = ground.line("edge").await;
    ground.fleet.start_all(2, 1).await;
    let first = event("first");
    ground.fleet.mesh.accept(&first).await;
    ground.fleet.all_delivered(LONG).await;
    let leader = ground.fleet.leader("edge").await;
    // Shorter than its Lease lasts: nobody takes over.
    ground.fleet.freeze("edge", leader);
    line.cut();
    let mut keys = vec![first.key()];
    for number in 0..5 {
        let missed = event(&format!("missed-{number}"));
        let accepted = eventually("the other edge accepts", SHORT, || async {
            let (status, _) = ground.post(&missed).await;
            if status == 202 || status == 200 { Ok(()) } else { Err(status.to_string()) }
        });
        accepted.await;
        keys.push(missed.key());
    }
    ground.fleet.server.compact().await;
    ground.fleet.thaw("edge", leader);
    ground.delivered_once(&keys).await;
    assert_eq!(ground.fleet.leader("edge").await, leader);
    assert!(ground.said(leader, "changes were missed") > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_creation_is_not_answered_is_known_when_it_comes_again() {
    let _alone = alone().await;
    let mut ground = ground(&[]).await;
    let line = ground.line("edge").await;
    ground.fleet.mesh.set("kubernetes.request_timeout", "1s");
    ground.fleet.start_all(1, 1).await;
    // The cluster's Secret is known by then.
    let (first, event) = (event("first"), event("unanswered"));
    ground.fleet.mesh.accept(&first).await;
    ground.fleet.all_delivered(LONG).await;
    line.lose_answers();
    let (status, wait) = ground.post(&event).await;
    assert_eq!((status, wait.is_some()), (503, true));
    // It is there for all that.
    ground.kubectl(&["get", "releaseoutcome", &event.key()]).await;
    line.cut();
    ground.recovers(1).await;
    assert_eq!(ground.post(&event).await.0, 200);
    ground.delivered_once(&[first.key(), event.key()]).await;
    assert_eq!(ground.broker.received().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_deleted_while_it_is_open_is_named_and_holds_up_nobody() {
    let _alone = alone().await;
    let mut ground = running(2).await;
    ground.broker.refuse().await;
    let (deleted, other) = (event("deleted"), event("other"));
    ground.fleet.mesh.accept(&deleted).await;
    ground.fleet.mesh.accept(&other).await;
    ground.count(2).await;
    ground.kubectl(&["delete", "releaseoutcome", &deleted.key()]).await;
    let leader = ground.fleet.leader("edge").await;
    eventually("the loss is named", LONG, || {
        let said = ground.said(leader, "was deleted before it was delivered");
        async move { if said > 0 { Ok(()) } else { Err(String::new()) } }
    })
    .await;
    ground.recovers(2).await;
    ground.broker.accept().await;
    assert_eq!(ground.fleet.all_delivered(LONG).await, 1);
    // Sent again it is a new event, of a release that is counted.
    assert_eq!(ground.post(&deleted).await.0, 202);
    ground.fleet.all_delivered(LONG).await;
    ground.delivered_once(&[deleted.key(), other.key()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_being_terminated_is_503_and_named() {
    let _alone = alone().await;
    let ground = running(1).await;
    // Nobody finishes it: that takes a controller, which would take the rights of everybody first.
    ground.fleet.server.kubectl(["delete", "namespace", NAMESPACE, "--wait=false"]).await.success();
    ground.refuses(1, &event("too-late"), &["because it is being terminated"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_says_to_come_again_loses_nothing() {
    let _alone = alone().await;
    let small = [
        "--enable-priority-and-fairness=false",
        "--max-requests-inflight=4",
        "--max-mutating-requests-inflight=2",
    ];
    let mut ground = ground(&small).await;
    ground.fleet.start_all(2, 1).await;
    let load = Load::start(&ground.fleet.mesh, "kind-prod", 60);
    load.more(600).await;
    let report = load.stop().await;
    let refused = ground.fleet.server.audit().iter().filter(|request| request.code == 429).count();
    println!("requests answered 429: {refused}; {} of {} accepted", report.acknowledged.len(), report.ended);
    assert!(refused > 0, "the API server is too quick for this test");
    assert!(report.failed.iter().all(|failed| failed.contains(": 503 ")), "{:?}", report.failed);
    assert!(!report.acknowledged.is_empty());
    ground.recovers(2).await;
    ground.delivered_once(&report.acknowledged).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_whose_store_is_away_is_asked_rarely() {
    let _alone = alone().await;
    let mut ground = running(2).await;
    ground.fleet.mesh.accept(&event("before")).await;
    ground.fleet.all_delivered(LONG).await;
    ground.fleet.server.kill_etcd();
    let before = ground.asked().await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let after = ground.asked().await;
    println!("requests for what edges use: {}", after - before);
    ground.fleet.server.start_etcd().await;
    ground.fleet.server.ready().await;
    ground.recovers(2).await;
    assert!(after - before < 60.0, "{} requests in 20 s", after - before);
    let next = event("next");
    eventually("an event is accepted", SHORT, || async {
        let (status, _) = ground.post(&next).await;
        if status == 202 { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    ground.delivered_once(&[next.key()]).await;
}
