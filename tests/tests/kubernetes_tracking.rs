//! Release tracking on the Kubernetes API: several replicas with their ServiceAccount's rights, a real API server, and
//! what becomes of records when either dies.

#[path = "kubernetes_tracking/ground.rs"]
mod ground;
#[path = "kubernetes_tracking/stale.rs"]
mod stale;

use std::time::Duration;

use ground::{Ground, insist, observation, release, shared, time, until_not_ready, url};
use serde_json::json;
use tonic::Code;
use transponder_proto::v1::{self, Phase, ReleaseState};
use transponder_tests::{LONG, SHORT, eventually, kubernetes::ApiServer};

/// Longer than the next replica waits for a Lease whose holder was killed.
const TAKEOVER: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn a_record_lives_with_two_replicas_that_are_called_in_turn() {
    let server = shared().await;
    let ground = Ground::new(&server, "life").await;
    let (a, b) = (ground.start("a").await, ground.start("b").await);
    let shop = release("c=1,x");
    let opened = v1::PutRequest {
        release: Some(shop.clone()),
        pr_url: url("c-1"),
        pr_created_at: time(-500),
        ..Default::default()
    };
    let put = a.task.put(opened).await.unwrap();
    assert_eq!(put.state(), ReleaseState::Expected);
    // The other one has it at once, whatever of its key is given.
    let found = b.task.resolve(shop.clone()).await.unwrap();
    assert_eq!(found.record, Some(put.clone()));
    let flow = v1::Release { chain_id: "c=1,x".into(), ..Default::default() };
    assert_eq!(b.task.resolve(flow.clone()).await.unwrap().record, Some(put.clone()));
    let merged = v1::PutRequest { pr_url: url("c-1"), merged_at: time(-60), ..Default::default() };
    assert_eq!(b.task.put(merged).await.unwrap().state(), ReleaseState::Merged);

    let syncing = a.observe(shop.clone(), Phase::Syncing, -20).await;
    assert_eq!(syncing.state(), ReleaseState::Progressing);
    let seen = b.observe(shop.clone(), Phase::Succeeded, -10).await;
    assert_eq!((seen.state(), seen.observations), (ReleaseState::Succeeded, 2));
    assert_eq!((&seen.pr_url, seen.pr_created_at), (&url("c-1"), put.pr_created_at));
    // What is said again is known at both, and the answer is as new as the last write of anybody.
    let mut again = observation(shop.clone(), Phase::Succeeded, -10);
    again.finished_at = seen.last_finished_at;
    assert_eq!(a.try_observe(again.clone()).await.unwrap().record, Some(seen.clone()));
    assert_eq!(b.try_observe(again).await.unwrap().record, Some(seen.clone()));
    assert_eq!(a.task.list().await.unwrap().len(), 1);

    let [object] = &ground.objects(&server).await[..] else { panic!("not one object") };
    assert_eq!(object["spec"]["chainId"], "c=1,x");
    assert_eq!(object["status"]["state"], "succeeded");
    let raw = "/apis/transponder.dev/v1/namespaces/life/releases";
    println!("a list of one: {} bytes", server.kubectl(["get", "--raw", raw]).await.success().text().len());
    let table = server.kubectl(["get", "rel", "-n", "life"]).await.success().text();
    println!("{table}");
    for part in ["APP", "LAST SEEN", "shop", "prod", "kind-prod", "succeeded", &url("c-1")] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let by_state = ["get", "rel", "-n", "life", "--field-selector=status.state=succeeded", "-o", "name"];
    assert_eq!(server.kubectl(by_state).await.success().text().lines().count(), 1);

    assert!(a.task.delete(shop.clone()).await.unwrap());
    // Told again at the other one, it is there again: what it answers is not what it remembers.
    let put = v1::PutRequest { release: Some(shop.clone()), pr_url: url("c-1"), ..Default::default() };
    b.task.put(put).await.unwrap();
    assert_eq!(a.state(&shop).await, ReleaseState::Expected);
    assert!(b.task.delete(shop.clone()).await.unwrap());
    assert!(!a.task.delete(shop.clone()).await.unwrap());
    for release in [shop, flow] {
        assert_eq!(a.task.resolve(release).await.unwrap().reason, "unknown");
    }
    let asked = ground.asked(&server);
    for used in ["create releases", "patch releases", "get releases", "list releases", "delete releases"] {
        assert!(asked.contains(used), "{asked:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_writers_on_one_release_lose_no_observation() {
    let server = shared().await;
    let ground = Ground::new(&server, "writers").await;
    let (a, b) = (ground.start("a").await, ground.start("b").await);
    let c = ground.start("c").await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8u64 {
        let client = [&a, &b, &c][writer as usize % 3].edge.clone();
        writers.spawn(async move {
            for number in 0..6u64 {
                let mut seen = observation(release("c-1"), Phase::Failed, -100);
                seen.event_key = format!("{:040x}", writer * 100 + number);
                let call = || {
                    let (mut client, seen) = (client.clone(), seen.clone());
                    async move { client.observe(seen).await }
                };
                insist("an observation is taken", LONG, call).await;
            }
        });
    }
    writers.join_all().await;
    let [object] = &ground.objects(&server).await[..] else { panic!("not one object") };
    assert_eq!(object["status"]["observations"], 48);
    let resolved = a.task.resolve(release("c-1")).await.unwrap().record.unwrap();
    assert!(resolved.observations <= 48);
    // Each is known at every replica, so none is counted again.
    let mut last = observation(release("c-1"), Phase::Failed, -100);
    last.event_key = format!("{:040x}", 705);
    eventually("the copy has caught up", SHORT, || async {
        let record = b.task.resolve(release("c-1")).await.unwrap().record.unwrap();
        if record.observations == 48 { Ok(()) } else { Err(record.observations.to_string()) }
    })
    .await;
    ground.asked(&server);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_release_supersedes_is_finished_after_a_kill_between_the_writes() {
    let server = shared().await;
    let ground = Ground::new(&server, "superseded").await;
    let a = ground.start("a").await;
    for number in 0..3 {
        a.merged(release(&format!("old-{number}")), -100).await;
    }
    // In the usual case it is done when the call is answered.
    a.observe(release("first"), Phase::Syncing, -1).await;
    for number in 0..3 {
        assert_eq!(a.state(&release(&format!("old-{number}"))).await, ReleaseState::Superseded);
    }
    let crash = [("TRANSPONDER_CRASH_AT", "tracking.supersede.before:1".to_owned())];
    let mut b = ground.launch("b", &crash).await;
    b.replica.ready().await;
    a.merged(release("merged"), -50).await;
    let killed = b.try_observe(observation(release("second"), Phase::Succeeded, 0)).await;
    assert!(killed.is_err(), "{killed:?}");
    eventually("it is dead", SHORT, || {
        let ended = b.replica.process().ended();
        async move { ended.map(drop).ok_or_else(|| "it lives: is crash-points built in?".to_owned()) }
    })
    .await;
    assert_eq!(a.state(&release("second")).await, ReleaseState::Succeeded);
    for waiting in ["merged", "first"] {
        a.until_state(&release(waiting), ReleaseState::Superseded, TAKEOVER).await;
    }
    ground.asked(&server);
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_is_noticed_once_by_the_holder_and_by_another_one_after_its_death() {
    let server = shared().await;
    let mut ground = Ground::new(&server, "silence").await;
    ground.mesh.set("release_tracking.silence", "1s");
    let mut replicas = [ground.start("a").await, ground.start("b").await];
    replicas[0].merged(release("quiet"), 0).await;
    replicas[1].until_state(&release("quiet"), ReleaseState::Unreported, TAKEOVER).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let counted = "transponder_unreported_total{cluster=\"kind-prod\"} 1";
    let mut noticed = Vec::new();
    for replica in &replicas {
        noticed.push(replica.metric(counted).await.len());
    }
    noticed.sort_unstable();
    assert_eq!(noticed, [0, 1]);
    // The states are shown by who sweeps, and by nobody else.
    let mut shown = Vec::new();
    for replica in &replicas {
        shown.push(replica.metric("transponder_releases{").await.len());
    }
    let leader = usize::from(shown[1] > 0);
    assert_eq!((shown[leader], shown[1 - leader]), (8, 0));
    let state = "transponder_releases{state=\"unreported\"} 1";
    assert_eq!(replicas[leader].metric(state).await.len(), 1);

    let before = ground.holder(&server).await;
    replicas[leader].replica.process().kill();
    let other = &replicas[1 - leader];
    other.merged(release("quieter"), 0).await;
    other.until_state(&release("quieter"), ReleaseState::Unreported, TAKEOVER).await;
    assert_ne!(ground.holder(&server).await, before);
    assert_eq!(other.metric(counted).await.len(), 1);
    assert_eq!(other.metric("transponder_releases{").await.len(), 8);
    // A late report takes it back, and its cluster's last report is on record for everybody.
    assert_eq!(other.observe(release("quieter"), Phase::Failed, -1).await.state(), ReleaseState::Failed);
    let next = ground.start("c").await;
    eventually("the last report is shown", SHORT, || async {
        let shown = next.metric("transponder_cluster_last_report_timestamp_seconds{").await;
        if shown.len() == 1 { Ok(()) } else { Err(format!("{shown:?}")) }
    })
    .await;
    ground.asked(&server);
}

#[tokio::test(flavor = "multi_thread")]
async fn records_go_when_their_time_is_over_and_no_other_does() {
    let server = shared().await;
    let mut ground = Ground::new(&server, "expiry").await;
    ground.mesh.set("release_tracking.keep_ended", "2s");
    let a = ground.start("a").await;
    for number in 0..40 {
        a.observe(release(&format!("ended-{number}")), Phase::Failed, -1).await;
    }
    a.merged(release("open"), 0).await;
    let names = async || ground.objects(&server).await.len();
    eventually("the ended ones are gone", TAKEOVER, || async {
        match names().await {
            1 => Ok(()),
            count => Err(format!("{count} are left")),
        }
    })
    .await;
    assert_eq!(a.state(&release("open")).await, ReleaseState::Merged);
    assert_eq!(a.task.resolve(release("ended-7")).await.unwrap().reason, "unknown");
    ground.asked(&server);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_of_somebody_elses_making_is_nobody_elses_trouble() {
    let server = shared().await;
    let ground = Ground::new(&server, "strange").await;
    let mut a = ground.start("a").await;
    a.merged(release("good"), 0).await;
    a.merged(release("newer"), 0).await;
    let objects = ground.objects(&server).await;
    let object = |chain_id: &str| {
        let found = objects.iter().find(|object| object["spec"]["chainId"] == chain_id);
        found.unwrap_or_else(|| panic!("{chain_id}: {objects:?}")).clone()
    };
    // A name that is not that of its release.
    let mut wrong = object("good");
    wrong["metadata"] = json!({ "name": "wrong", "namespace": "strange" });
    server.apply(&wrong.to_string()).await;
    let newer = object("newer")["metadata"]["name"].as_str().unwrap().to_owned();
    let patch = |patch: &str| {
        let (newer, patch) = (newer.clone(), patch.to_owned());
        let server = &server;
        async move {
            server.kubectl(["patch", "rel", &newer, "-n", "strange", "--type=merge", "-p", &patch]).await
        }
    };
    patch(r#"{ "status": { "schema": 2 } }"#).await.success();
    eventually("the broken one is named", SHORT, || {
        let said = a.replica.process().said("\"wrong\"");
        async move { if said > 0 { Ok(()) } else { Err("nothing is said".to_owned()) } }
    })
    .await;
    assert_eq!(a.task.list().await.unwrap().len(), 2);
    assert_eq!(a.observe(release("good"), Phase::Failed, -1).await.state(), ReleaseState::Failed);
    // What a later version wrote is read, and left as it is.
    assert_eq!(a.state(&release("newer")).await, ReleaseState::Merged);
    let refused = a.try_observe(observation(release("newer"), Phase::Failed, -1)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(a.replica.process().said("run the newer version") > 0);

    // The API server itself refuses what is no release.
    for (bad, why) in [
        (r#"{ "spec": { "env": "staging" } }"#, "a release is not renamed"),
        (r#"{ "spec": { "chainId": null, "eventId": "e" } }"#, "a release is not renamed"),
        (r#"{ "status": { "state": "lost" } }"#, "Unsupported value"),
        (r#"{ "status": { "mergedAt": "yesterday" } }"#, "date-time"),
    ] {
        let refused = patch(bad).await;
        assert!(refused.stderr.contains(why), "{refused:?}");
    }
    let mut both = object("good");
    both["metadata"] = json!({ "name": "both", "namespace": "strange" });
    both["spec"]["eventId"] = "e".into();
    let file = ground.mesh.path("both.json");
    std::fs::write(&file, both.to_string()).unwrap();
    let refused = server.kubectl(["create", "-f", file.to_str().unwrap()]).await;
    assert!(refused.stderr.contains("exactly one of"), "{refused:?}");

    // And takes whatever the service takes.
    let mut extreme = observation(release(&"ü".repeat(512)), Phase::Succeeded, 0);
    for (seconds, nanos) in [(1, 0), (9_183_110_399, 999_999_999)] {
        extreme.finished_at = Some(prost_types::Timestamp { seconds, nanos });
        a.try_observe(extreme.clone()).await.unwrap_or_else(|status| panic!("{status}"));
    }
    // A label of somebody else's stays.
    server.kubectl(["label", "rel", "--all", "-n", "strange", "ours=1"]).await.success();
    a.observe(release("good"), Phase::Succeeded, -1).await;
    let labelled = ground.objects(&server).await;
    assert!(labelled.iter().all(|object| object["metadata"]["labels"]["ours"] == "1"), "{labelled:?}");
    ground.asked(&server);
}

/// What an app's chart gives, for as long as there are older records.
const OLDER: &str = "
apiVersion: v1
kind: ConfigMap
metadata: { name: release-tracking-older, namespace: app-shop-cicd }
data: { prUrl: 'https://git.example/older', prCreatedAt: '2026-09-14T10:00:00Z' }
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: { name: older-tracking-records, namespace: app-shop-cicd }
rules: [{ apiGroups: [''], resources: [configmaps], verbs: [get] }]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: { name: older-tracking-records, namespace: app-shop-cicd }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: Role, name: older-tracking-records }
subjects: [{ kind: ServiceAccount, name: transponder-release-tracking, namespace: older }]
";

#[tokio::test(flavor = "multi_thread")]
async fn what_older_tasks_wrote_is_found_and_that_it_may_not_be_read_is_no_absence() {
    let server = shared().await;
    let mut ground = Ground::new(&server, "older").await;
    ground.mesh.set("release_tracking.older_records", "[\"app-shop-*\"]");
    let a = ground.start("a").await;
    let observed = observation(release("older"), Phase::Syncing, -5);
    let refused = a.try_observe(observed.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    server.kubectl(["create", "namespace", "app-shop-cicd"]).await.success();
    server.apply(OLDER).await;

    // A Task that knows no more than its flow.
    let flow = v1::Release { chain_id: "older-flow".into(), ..Default::default() };
    let missing = || a.task.resolve(flow.clone());
    assert_eq!(insist("it may be read", SHORT, missing).await.reason, "unknown");
    // The edge asks again, and what was noted before is not noted twice.
    let record = insist("it is observed", SHORT, || a.try_observe(observed.clone())).await.record.unwrap();
    assert_eq!((record.pr_url.as_str(), record.observations), ("https://git.example/older", 1));
    assert_eq!(record.pr_created_at.map(|at| at.seconds), Some(1_789_380_000));
    let older = v1::Release { env: "staging".into(), ..release("older") };
    let answer = a.task.resolve(older).await.unwrap();
    let (found, known) = (answer.found, answer.record.unwrap());
    assert!(found);
    assert_eq!((known.pr_url, known.pr_created_at), (record.pr_url, record.pr_created_at));
    // It is a record now, and asked for no more.
    server.kubectl(["delete", "configmap", "release-tracking-older", "-n", "app-shop-cicd"]).await.success();
    let kept = a.task.resolve(release("older")).await.unwrap().record.unwrap();
    assert_eq!(kept.pr_created_at, record.pr_created_at);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_starts_without_its_definition_and_goes_on_after_the_api_server_was_away() {
    let mut server = ApiServer::start().await;
    let ground = Ground::new(&server, "away").await;
    let mut a = ground.launch("a", &[]).await;
    until_not_ready(&a, &["release-tracking", "transponder manifests crds"]).await;
    let refused = a.try_observe(observation(release("early"), Phase::Failed, -1)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    let refused = a.task.resolve(release("early")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    server.define(&transponder_release_tracking::crd()).await;
    a.replica.ready().await;
    let seen = a.observe(release("c-1"), Phase::Failed, -1).await;
    ground.asked(&server);

    server.kill_apiserver();
    let refused = a.task.resolve(release("unknown")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    let refused = a.try_observe(observation(release("c-1"), Phase::Succeeded, 0)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    until_not_ready(&a, &["release-tracking", "the store cannot"]).await;
    // One that starts meanwhile waits for it.
    let mut b = ground.launch("b", &[]).await;
    until_not_ready(&b, &["release-tracking"]).await;
    server.start_apiserver().await;
    a.replica.ready().await;
    b.replica.ready().await;
    let request = observation(release("c-1"), Phase::Succeeded, 0);
    let answer = insist("it is observed", LONG, || b.try_observe(request.clone())).await;
    let record = answer.record.unwrap();
    assert_eq!((record.observations, record.first_observed_at), (2, seen.first_observed_at));
    // The copies live again by themselves.
    for tracking in [&a, &b] {
        tracking.until_state(&release("c-1"), ReleaseState::Succeeded, LONG).await;
        assert_eq!(tracking.task.list().await.unwrap().len(), 1);
    }
    // Once they do, what they have is asked of nobody.
    eventually("a look at what is there costs no request", LONG, || async {
        let gets = |server: &ApiServer| {
            server.audit().iter().filter(|e| e.verb == "get" && e.resource == "releases").count()
        };
        let before = gets(&server);
        a.state(&release("c-1")).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        if gets(&server) == before { Ok(()) } else { Err("it asked".to_owned()) }
    })
    .await;
    // A rolling update leaves no Lease behind that somebody would have to wait for.
    for mut tracking in [a, b] {
        let status = tracking.replica.process().terminate(Duration::from_secs(25)).await;
        assert!(status.success(), "{status}");
    }
    assert_eq!(ground.holder(&server).await, "");
}
