//! The DoraRecorder on a Kubernetes API: several replicas count together, and one at a time shows what that comes to.

#[path = "kubernetes_dora/ground.rs"]
mod ground;
#[path = "kubernetes_dora/watcher.rs"]
mod watcher;

use std::time::Duration;

use ground::{Ground, shared, until_shown};
use rustix::process::Signal;
use serde_json::json;
use tokio::task::JoinSet;
use tonic::Code;
use transponder_proto::v1::{
    Disposition,
    Phase::{Failed, Succeeded},
};
use transponder_tests::{FakeClock, LONG, SHORT, eventually, kubernetes::ApiServer};
use watcher::{Reports, Watcher};

/// Longest wait for a replica that takes over from one that cannot give the Lease back.
const TAKE_OVER: Duration = Duration::from_secs(15);
/// The same with what a busy machine adds.
const TAKEN_OVER: Duration = Duration::from_secs(25);

#[tokio::test(flavor = "multi_thread")]
async fn counts_survive_every_end_of_a_process_and_kubectl_shows_them() {
    let server = shared().await;
    let ground = Ground::new(&server, "restarts").await;
    let mut recorder = ground.start("first").await;
    recorder.replica.ready().await;
    assert_eq!(recorder.record("shop", "r-1", Failed, 100).await, Disposition::New);
    assert_eq!(recorder.record("shop", "r-1", Failed, 100).await, Disposition::Repeated);
    assert_eq!(recorder.record("shop", "r-2", Succeeded, 400).await, Disposition::New);
    assert_eq!(recorder.record("shop", "r-2", Failed, 500).await, Disposition::Conflict);
    assert_eq!(recorder.record("shop", "r-3", Failed, 600).await, Disposition::New);
    let shown = recorder.shows(SHORT).await;
    assert_eq!(shown.sum("dora_releases_total", &["outcome=\"failed\""]), 2.0);
    let restore = "dora_time_to_restore_seconds_experimental_sum";
    assert_eq!((shown.deployments(), shown.sum(restore, &[])), (1.0, 300.0));

    let table = server.kubectl(["get", "dst", "-n", "restarts"]).await.success().text();
    println!("{table}");
    let row: Vec<_> = table.lines().nth(1).expect("a row").split_whitespace().collect();
    assert_eq!(row[1..8], ["app-shop-cicd", "shop", "prod", "kind-prod", "1", "1", "2"], "{table}");
    let all = server.kubectl(["get", "transponder", "-n", "restarts", "-o", "name"]).await.success().text();
    assert!(all.contains("dorastream.transponder.dev/"), "{all}");

    let status = recorder.replica.process().terminate(Duration::from_secs(20)).await;
    assert!(status.success(), "{status}");
    let mut second = ground.start("second").await;
    // The first one has given the Lease back.
    assert_eq!(second.shows(SHORT).await, shown);
    second.replica.ready().await;
    assert_eq!(second.record("shop", "r-3", Failed, 600).await, Disposition::Repeated);
    second.replica.process().kill();
    let third = ground.start("third").await;
    assert_eq!(third.shows(TAKEN_OVER).await, shown);
    ground.assert_modest(&server);
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_replicas_that_write_one_stream_lose_and_double_nothing() {
    const RELEASES: i64 = 25;
    let server = shared().await;
    let ground = Ground::new(&server, "eight").await;
    let mut recorders = Vec::new();
    for number in 0..8 {
        let mut recorder = ground.start(&format!("replica-{number}")).await;
        recorder.replica.ready().await;
        recorders.push(recorder);
    }
    // Each release is told to two of them at the same time.
    let mut callers = JoinSet::new();
    for (number, recorder) in recorders.iter().enumerate() {
        let mut caller = recorder.caller();
        let team = number / 2;
        callers.spawn(async move {
            let mut new = 0;
            for release in 0..RELEASES {
                let name = format!("{team}-{release}");
                let disposition =
                    caller.record("shop", &name, Succeeded, release).await.expect("it is taken");
                new += i64::from(disposition == Disposition::New);
            }
            new
        });
    }
    let new: i64 = callers.join_all().await.into_iter().sum();
    assert_eq!(new, 4 * RELEASES);
    let object = ground.object(&server).await;
    assert_eq!(object["status"]["totals"]["deployments"], 4 * RELEASES, "{object}");
    // The one that shows knows what the others wrote, and the others show nothing.
    let mut showing = 0;
    for recorder in &recorders {
        if let Some(shown) = recorder.shown().await {
            showing += 1;
            assert!(shown.deployments() <= (4 * RELEASES) as f64);
            until_shown(recorder, (4 * RELEASES) as f64).await;
        }
    }
    assert_eq!(showing, 1);
    ground.assert_modest(&server);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_sample_decreases_when_the_one_that_shows_ends_dies_or_hangs() {
    let server = shared().await;
    let ground = Ground::new(&server, "hand-over").await;
    let mut replicas = vec![ground.start("one").await];
    replicas[0].shows(SHORT).await;
    replicas.push(ground.start("two").await);
    replicas.push(ground.start("three").await);
    let mut watcher = Watcher::of(&replicas);
    // Releases come all the time.
    let reports = Reports::start(&[replicas[1].caller(), replicas[2].caller()]);
    assert_eq!(watcher.until_other_than(usize::MAX, SHORT).await, 0);

    // Asked to end: the Lease is given back, and the next one shows at once.
    let status = replicas[0].replica.process().terminate(Duration::from_secs(20)).await;
    assert!(status.success(), "{status}");
    let second = watcher.until_other_than(0, SHORT).await;

    // Stopped for longer than its term lasts, and asked the moment it goes on.
    let third = 3 - second;
    replicas[second].replica.process().signal(Signal::STOP);
    assert_eq!(watcher.until_other_than(second, TAKEN_OVER).await, third);
    replicas[second].replica.process().signal(Signal::CONT);
    let stale =
        eventually("it answers again", SHORT, || async { replicas[second].replica.metrics().await }).await;
    assert!(!stale.lines().any(|line| line.starts_with("dora_deployments")), "{stale}");

    // Killed: nobody gives anything back.
    replicas[third].replica.process().kill();
    assert_eq!(watcher.until_other_than(third, TAKEN_OVER).await, second);
    let told = reports.stop().await;
    until_shown(&replicas[second], told as f64).await;
    let seen = watcher.stop().await;
    println!("{told} releases, {seen} scrapes that showed something");
    ground.assert_modest(&server);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_stream_stands_at_zero_first_and_no_other_clock_takes_back_what_was_shown() {
    let server = shared().await;
    let mut ground = Ground::new(&server, "hold").await;
    ground.mesh.set("dora.zero_hold", "3s");
    let mut first = ground.start("first").await;
    first.replica.ready().await;
    first.shows(SHORT).await;
    first.record("shop", "r-1", Succeeded, 100).await;
    let shown = first.shown().await.expect("it shows the totals");
    assert_eq!(shown.deployments(), 0.0);
    assert!(shown.0.keys().any(|series| series.contains("app-shop-cicd")), "{shown:?}");
    // Committed at once.
    assert_eq!(ground.object(&server).await["status"]["totals"]["deployments"], 1);
    until_shown(&first, 1.0).await;
    // By the clock of the next one the hold would last for another hour.
    let clock = FakeClock::new();
    clock.set_hours_off(-1);
    let mut second = ground.start_with("second", &clock.environment()).await;
    second.replica.ready().await;
    assert!(first.replica.process().terminate(Duration::from_secs(20)).await.success());
    assert_eq!(second.shows(SHORT).await.deployments(), 1.0);
    ground.assert_modest(&server);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_broken_newer_or_gone_is_a_matter_of_its_stream_alone() {
    let server = shared().await;
    let ground = Ground::new(&server, "broken").await;
    let mut recorder = ground.start("first").await;
    recorder.replica.ready().await;
    recorder.shows(SHORT).await;
    recorder.record("shop", "r-1", Succeeded, 100).await;
    until_shown(&recorder, 1.0).await;
    let name = ground.object(&server).await["metadata"]["name"].as_str().expect("a name").to_owned();
    let patch = async |patch: serde_json::Value| {
        let patch = patch.to_string();
        let patch = ["patch", "dst", &name, "-n", "broken", "--type=merge", "-p", &patch];
        server.kubectl(patch).await
    };

    // Nobody makes it another stream's.
    let refused = patch(json!({ "spec": { "app": "pay" } })).await;
    assert!(refused.stderr.contains("the identity of a stream cannot be changed"), "{}", refused.stderr);
    // Labels and annotations of others stay.
    patch(json!({ "metadata": { "labels": { "of": "somebody" } } })).await.success();
    assert_eq!(recorder.record("shop", "r-2", Succeeded, 200).await, Disposition::New);
    assert_eq!(ground.object(&server).await["metadata"]["labels"]["of"], "somebody");

    // Broken: not counted from zero, and not by a process that never saw it whole.
    let releases = ground.object(&server).await["status"]["releases"].clone();
    patch(json!({ "status": { "releases": [format!("{} yesterday", "ab".repeat(20))] } })).await.success();
    let mut late = ground.start("late").await;
    late.replica.ready().await;
    for recorder in [&mut recorder, &mut late] {
        let refused = recorder.caller().record("shop", "r-3", Succeeded, 300).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
        recorder.record("pay", "p-1", Succeeded, 300).await;
        assert!(recorder.replica.readiness().await.is_ok());
        eventually("the log names it", SHORT, || {
            let said = recorder.replica.process().stderr();
            let named = said.contains(&name) && said.contains("yesterday");
            async move { if named { Ok(()) } else { Err(said) } }
        })
        .await;
    }
    patch(json!({ "status": { "releases": releases } })).await.success();
    assert_eq!(late.caller().insist("shop", "r-3", Succeeded, 300).await, Disposition::New);

    // Of a newer version: shown, and not written.
    patch(json!({ "status": { "schema": 2 } })).await.success();
    let refused = recorder.caller().record("shop", "r-4", Succeeded, 400).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(recorder.replica.process().stderr().contains("has schema 2, this version writes 1"));
    assert_eq!(recorder.shown().await.expect("it shows").sum("dora_deployments_total", &["shop"]), 3.0);
    patch(json!({ "status": { "schema": 1 } })).await.success();
    assert_eq!(recorder.caller().insist("shop", "r-4", Succeeded, 400).await, Disposition::New);

    // Deleted: what is remembered is written anew with the next verdict.
    server.kubectl(["delete", "dst", &name, "-n", "broken"]).await.success();
    assert_eq!(recorder.record("shop", "r-4", Succeeded, 400).await, Disposition::Repeated);
    assert_eq!(recorder.record("shop", "r-5", Succeeded, 500).await, Disposition::New);
    let object = server.kubectl(["get", "dst", &name, "-n", "broken", "-o", "json"]).await.success().json();
    assert_eq!(object["status"]["totals"]["deployments"], 5, "{object}");
    ground.assert_modest(&server);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_at_the_start_is_named_and_its_coming_is_enough() {
    let server = ApiServer::start().await;
    let ground = Ground::without_rights(&server, "missing").await;
    let mut recorder = ground.start("first").await;
    let says = async |wanted: &'static [&'static str]| {
        eventually("what is missing is named", SHORT, || async {
            let said = recorder.replica.readiness().await.err().unwrap_or_default();
            if wanted.iter().all(|text| said.contains(text)) { Ok(()) } else { Err(said) }
        })
        .await;
    };
    says(&["dorastreams", "transponder manifests rbac"]).await;
    ground.give_rights(&server).await;
    says(&["dorastreams.transponder.dev", "transponder manifests crds"]).await;
    let refused = recorder.caller().record("shop", "r-1", Succeeded, 100).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    server.define(&transponder_dora_recorder::crd()).await;
    recorder.replica.ready().await;
    assert_eq!(recorder.record("shop", "r-1", Succeeded, 100).await, Disposition::New);
    recorder.shows(TAKEN_OVER).await;
    until_shown(&recorder, 1.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_api_server_nothing_is_counted_or_lost_and_it_is_ready_by_itself() {
    let mut server = ApiServer::start().await;
    server.define(&transponder_dora_recorder::crd()).await;
    let ground = Ground::new(&server, "away").await;
    server.kill_apiserver();
    // It starts all the same.
    let mut recorder = ground.start("first").await;
    eventually("it says why it is not ready", SHORT, || async {
        match recorder.replica.readiness().await {
            Err(reason) if reason.contains("the store cannot ") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let refused = recorder.caller().record("shop", "r-1", Succeeded, 100).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    server.start_apiserver().await;
    recorder.replica.ready().await;
    assert_eq!(recorder.record("shop", "r-1", Succeeded, 100).await, Disposition::New);
    recorder.shows(TAKEN_OVER).await;

    let reports = Reports::start(&[recorder.caller()]);
    let watcher = Watcher::of(std::slice::from_ref(&recorder));
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.kill_apiserver();
    let refused = recorder.caller().record("shop", "other", Succeeded, 100).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    eventually("it is not ready", SHORT, || async {
        match recorder.replica.readiness().await {
            Err(reason) if reason.contains("the store cannot ") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    // Somebody else may hold the Lease by now, for all it knows.
    eventually("it shows nothing", TAKE_OVER, || async {
        recorder.shown().await.map_or(Ok(()), |shown| Err(format!("{shown:?}")))
    })
    .await;
    server.start_apiserver().await;
    recorder.replica.ready().await;
    recorder.shows(LONG).await;
    let told = reports.stop().await;
    until_shown(&recorder, told as f64 + 1.0).await;
    watcher.stop().await;

    // Nor does it wait for one when it is to end.
    server.kill_apiserver();
    let status = recorder.replica.process().terminate(Duration::from_secs(15)).await;
    assert!(status.success(), "{status}");
}

/// What an older exporter left.
const LEGACY: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: { name: dora-metrics-state }
data:
  app-shop-cicd.shop: '{"deployments":7,"releasesSucceeded":7,"releasesFailed":3,"leadTimeObservations":[60,7200],"mttrObservations":[301]}'
  app-pay-cicd.pay: '{"deployments":2,"releasesSucceeded":2,"releasesFailed":1}'
  app-odd-cicd.odd: '{'
---
apiVersion: v1
kind: ConfigMap
metadata: { name: dora-cluster-mapped-state }
data:
  app-shop-cicd.shop: '2023-11-14T22:13:20.123456789Z'
  app-new-cicd.new: '2023-11-14T22:13:20Z'
"#;

#[tokio::test(flavor = "multi_thread")]
async fn what_an_older_exporter_left_is_imported_once_whoever_is_killed_when() {
    let server = shared().await;
    let ground = Ground::new(&server, "import").await;
    server.apply_in(ground.namespace, LEGACY).await;
    // With none of three objects made, with one, two and three.
    for point in
        ["dora.import.before:1", "dora.import.after:1", "dora.import.before:2", "dora.import.after:1"]
    {
        let crash = [("TRANSPONDER_CRASH_AT", point.to_owned())];
        let mut killed = ground.start_with(&format!("killed-{point}"), &crash).await;
        killed.ends(TAKEN_OVER).await;
        let refused = killed.caller().record("shop", "r-0", Succeeded, 200).await;
        assert!(refused.is_err(), "{refused:?}");
        ground.release_lease(&server).await;
    }
    let crash = [("TRANSPONDER_CRASH_AT", "dora.claim.after:1".to_owned())];
    let mut killed = ground.start_with("killed-claim", &crash).await;
    killed.replica.ready().await;
    let shown = killed.shows(SHORT).await;
    let shop = [r#"app="shop",env="",cluster="""#];
    assert_eq!(shown.sum("dora_deployments_total", &shop), 7.0);
    assert_eq!(shown.sum("dora_releases_total", &[shop[0], "outcome=\"failed\""]), 3.0);
    assert_eq!(shown.sum("dora_lead_time_seconds_sum", &shop), 7_260.0);
    assert_eq!(shown.sum("dora_time_to_restore_seconds_experimental_count", &shop), 1.0);
    assert!(killed.replica.process().stderr().contains("app-odd-cicd.odd"));
    // The first success ends the failure, and whoever notes that dies before it is counted.
    killed.caller().record("shop", "r-1", Succeeded, 100).await.unwrap_err();
    killed.ends(SHORT).await;
    ground.release_lease(&server).await;

    let mut last = ground.start("last").await;
    last.replica.ready().await;
    let mut other = ground.start("other").await;
    other.replica.ready().await;
    assert_eq!(last.record("shop", "r-1", Succeeded, 100).await, Disposition::New);
    assert_eq!(other.record("shop", "r-2", Succeeded, 200).await, Disposition::New);
    // The same app elsewhere: it is no failure there any more.
    assert_eq!(other.caller().record_in("staging", "shop", "r-3", 300).await.unwrap(), Disposition::New);
    assert_eq!(last.caller().record_in("staging", "new", "n-1", 60).await.unwrap(), Disposition::New);
    until_shown(&last, 7.0 + 2.0 + 4.0).await;
    let shown = last.shown().await.expect("it shows");
    let restore = |app, env| {
        let labels = [app, env];
        let sum = shown.sum("dora_time_to_restore_seconds_experimental_sum", &labels);
        (shown.sum("dora_time_to_restore_seconds_experimental_count", &labels), sum)
    };
    assert_eq!(restore("app=\"shop\"", "env=\"prod\""), (1.0, 100.0));
    assert_eq!(restore("app=\"shop\"", "env=\"staging\""), (0.0, 0.0));
    assert_eq!(restore("app=\"new\"", "env=\"staging\""), (1.0, 60.123_456_789));
    let objects = server.kubectl(["get", "dst", "-n", "import", "-o", "json"]).await.success().json();
    let imports = objects["items"].as_array().expect("a list").iter();
    assert_eq!(imports.filter(|object| object["spec"]["maker"] == "import").count(), 3);
    ground.assert_modest(&server);
}
