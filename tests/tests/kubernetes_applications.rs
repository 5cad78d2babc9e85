//! Releases of this cluster's own Argo CD, with its real definition: what is read off Applications is counted once.

#[path = "kubernetes_applications/argo.rs"]
mod argo;
#[expect(dead_code, reason = "shared with the suite of the counts, which uses all of it")]
#[path = "kubernetes_dora/ground.rs"]
mod ground;

use std::time::Duration;

use argo::{Argo, expect, proto, time, until_counted};
use ground::{Ground, shared};
use rustix::process::Signal;
use serde_json::json;
use tonic::Code;
use transponder_tests::{
    SHORT, eventually,
    kubernetes::{ApiServer, AuditEvent},
};

/// Longest wait for a replica that takes over from one that was killed.
const TAKEN_OVER: Duration = Duration::from_secs(25);

/// A namespace of recorders and one of an Argo CD.
async fn ready(server: &ApiServer, namespace: &'static str) -> (Ground, Argo) {
    argo::define(server).await;
    let mut ground = Ground::new(server, namespace).await;
    let argo = Argo::new(server, &mut ground).await;
    argo.give_rights(server, &ground).await;
    (ground, argo)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_read_off_applications_is_counted_once() {
    let server = shared().await;
    let (ground, argo) = ready(&server, "counted").await;
    argo.create(&server, "shop-test").await;
    let mut first = ground.start("first").await;
    first.replica.ready().await;
    first.shows(SHORT).await;

    // The first sync of all.
    assert_eq!(expect(&first, &ground, "test", "r-1").await.unwrap(), None);
    argo.runs(&server, "shop-test", 100).await;
    // Said again while it runs: the baseline stays.
    assert_eq!(expect(&first, &ground, "test", "r-1").await.unwrap(), None);
    argo.ended(&server, "shop-test", "Succeeded", 100).await;
    until_counted(&first, "test", 1, 0).await;
    let shown = first.shown().await.unwrap();
    assert_eq!(shown.sum("dora_lead_time_seconds_sum", &["cluster=\"dev\"", "env=\"test\""]), 105.0);

    // Shown again, and healed by itself: nobody awaits that.
    argo.reconciled(&server, "shop-test", 200).await;
    argo.ended(&server, "shop-test", "Failed", 300).await;
    assert_eq!(expect(&first, &ground, "test", "r-2").await.unwrap(), Some(proto(300)));
    argo.reconciled(&server, "shop-test", 400).await;

    // Killed, and the sync ends while nobody looks; not yet reconciled, it is not judged.
    first.replica.process().kill();
    ground.release_lease(&server).await;
    argo.runs(&server, "shop-test", 500).await;
    let ended = json!({ "phase": "Error", "finishedAt": time(505) });
    argo.patch(&server, "shop-test", json!({ "status": { "operationState": ended } })).await;
    let mut second = ground.start("second").await;
    second.replica.ready().await;
    second.shows(SHORT).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    until_counted(&second, "test", 1, 0).await;
    argo.reconciled(&server, "shop-test", 505).await;
    until_counted(&second, "test", 1, 1).await;

    // The same release is tried again, told to the replica that does not count.
    let mut third = ground.start("third").await;
    third.replica.ready().await;
    assert_eq!(expect(&third, &ground, "test", "r-2").await.unwrap(), Some(proto(500)));
    argo.ended(&server, "shop-test", "Succeeded", 600).await;
    until_counted(&second, "test", 2, 1).await;

    // Handed over, restarted and shown again.
    assert!(second.replica.process().terminate(Duration::from_secs(20)).await.success());
    third.shows(SHORT).await;
    argo.reconciled(&server, "shop-test", 700).await;
    argo.ended(&server, "shop-test", "Succeeded", 800).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    until_counted(&third, "test", 2, 1).await;
    let object = ground.object(&server).await;
    assert_eq!(object["status"].get("awaited"), None, "{object}");
    assert_eq!(object["status"]["countedSyncs"][0]["startedAt"], time(600), "{object}");
    argo.assert_read_only(&server, &ground);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_older_tasks_annotate_is_counted_once_though_nobody_clears_it() {
    let server = shared().await;
    let (ground, argo) = ready(&server, "annotated").await;
    argo.create(&server, "shop-pre-prod").await;
    argo.ended(&server, "shop-pre-prod", "Succeeded", 50).await;
    let annotate = async |baseline: &str| {
        let annotations = json!({
            "hangar.io/dora-pending": "true",
            "hangar.io/dora-baseline-started-at": baseline,
            "hangar.io/dora-flow-start-time": time(0),
            "hangar.io/dora-app-namespace": "app-shop-cicd",
            "hangar.io/dora-app": "shop",
        });
        argo.patch(&server, "shop-pre-prod", json!({ "metadata": { "annotations": annotations } })).await;
    };
    let mut recorder = ground.start("first").await;
    recorder.replica.ready().await;
    annotate("yesterday").await;
    eventually("the log names it", SHORT, || {
        let said = recorder.replica.process().stderr();
        let named = said.contains("shop-pre-prod") && said.contains("yesterday");
        async move { if named { Ok(()) } else { Err(said) } }
    })
    .await;
    annotate(&time(50)).await;
    argo.ended(&server, "shop-pre-prod", "Failed", 100).await;
    until_counted(&recorder, "pre-prod", 0, 1).await;

    argo.reconciled(&server, "shop-pre-prod", 200).await;
    argo.ended(&server, "shop-pre-prod", "Succeeded", 300).await;
    recorder.replica.process().kill();
    ground.release_lease(&server).await;
    let recorder = ground.start("second").await;
    recorder.shows(SHORT).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    until_counted(&recorder, "pre-prod", 0, 1).await;
    annotate(&time(300)).await;
    argo.ended(&server, "shop-pre-prod", "Succeeded", 400).await;
    until_counted(&recorder, "pre-prod", 1, 1).await;
    argo.assert_read_only(&server, &ground);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_that_cannot_be_awaited_is_refused_with_the_reason() {
    let server = shared().await;
    let (ground, argo) = ready(&server, "refused").await;
    let mut recorder = ground.start("first").await;
    recorder.replica.ready().await;
    let status = expect(&recorder, &ground, "test", "r-1").await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "{status}");
    assert!(status.message().contains("there is no Application argo-refused/shop-test"), "{status}");
    argo.create(&server, "shop-test").await;
    let label = json!({ "metadata": { "labels": { "hangar.io/dora-track": null } } });
    argo.patch(&server, "shop-test", label).await;
    let status = expect(&recorder, &ground, "test", "r-1").await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert!(status.message().contains("has no label hangar.io/dora-track=true"), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_argo_cd_or_the_right_to_look_at_it_everything_else_works_and_the_log_says_so() {
    let server = ApiServer::start().await;
    server.define(&transponder_dora_recorder::crd()).await;
    let mut ground = Ground::new(&server, "missing").await;
    let argo = Argo::new(&server, &mut ground).await;
    let mut recorder = ground.start("first").await;
    recorder.replica.ready().await;
    let says = async |recorder: &mut ground::Recorder, wanted: &'static str| {
        eventually("what is missing is named", SHORT, || {
            let said = recorder.replica.process().stderr();
            let named = said.contains(wanted);
            async move { if named { Ok(()) } else { Err(said) } }
        })
        .await;
    };
    says(&mut recorder, "transponder manifests applications").await;
    argo.give_rights(&server, &ground).await;
    says(&mut recorder, "serves no applications.argoproj.io").await;
    let status = expect(&recorder, &ground, "test", "r-1").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    recorder.record("shop", "r-0", transponder_proto::v1::Phase::Succeeded, 100).await;
    assert!(recorder.replica.readiness().await.is_ok());
    // Its coming is enough.
    argo::define(&server).await;
    argo.create(&server, "shop-test").await;
    assert_eq!(expect(&recorder, &ground, "test", "r-1").await.unwrap(), None);
    argo.ended(&server, "shop-test", "Succeeded", 100).await;
    until_counted(&recorder, "test", 1, 0).await;
    recorder.shows(TAKEN_OVER).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_dies_before_or_after_the_write_leaves_a_sync_that_is_counted_once() {
    let server = shared().await;
    let (ground, argo) = ready(&server, "killed").await;
    for (env, point) in [("before", "dora.commit.before:2"), ("after", "dora.commit.after:2")] {
        let application = format!("shop-{env}");
        argo.create(&server, &application).await;
        // The first write is the expectation, the second the count.
        let mut recorder = ground.start_with(env, &[("TRANSPONDER_CRASH_AT", point.to_owned())]).await;
        recorder.replica.ready().await;
        recorder.shows(SHORT).await;
        assert_eq!(expect(&recorder, &ground, env, "r-1").await.unwrap(), None);
        argo.ended(&server, &application, "Succeeded", 100).await;
        recorder.ends(SHORT).await;
        ground.release_lease(&server).await;
        let mut next = ground.start(&format!("{env}-next")).await;
        next.replica.ready().await;
        until_counted(&next, env, 1, 0).await;
        argo.reconciled(&server, &application, 200).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        until_counted(&next, env, 1, 0).await;
        assert!(next.replica.process().terminate(Duration::from_secs(20)).await.success());
    }
    argo.assert_read_only(&server, &ground);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_hangs_and_one_that_takes_over_count_a_sync_once() {
    let server = shared().await;
    let (ground, argo) = ready(&server, "hangs").await;
    argo.create(&server, "shop-test").await;
    let mut one = ground.start("one").await;
    one.replica.ready().await;
    one.shows(SHORT).await;
    let mut two = ground.start("two").await;
    two.replica.ready().await;
    assert_eq!(expect(&two, &ground, "test", "r-1").await.unwrap(), None);
    one.replica.process().signal(Signal::STOP);
    argo.ended(&server, "shop-test", "Failed", 100).await;
    two.shows(TAKEN_OVER).await;
    until_counted(&two, "test", 0, 1).await;
    assert_eq!(expect(&two, &ground, "test", "r-2").await.unwrap(), Some(proto(100)));
    argo.ended(&server, "shop-test", "Succeeded", 200).await;
    one.replica.process().signal(Signal::CONT);
    until_counted(&two, "test", 1, 1).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    until_counted(&two, "test", 1, 1).await;
    let totals = &ground.object(&server).await["status"]["totals"];
    assert_eq!((&totals["succeeded"], &totals["failed"]), (&json!(1), &json!(1)), "{totals}");
    argo.assert_read_only(&server, &ground);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_that_ended_while_changes_were_forgotten_is_found_by_listing_again() {
    let mut server = ApiServer::start().await;
    server.define(&transponder_dora_recorder::crd()).await;
    let (ground, argo) = ready(&server, "compacted").await;
    argo.create(&server, "shop-test").await;
    argo.ended(&server, "shop-test", "Failed", 50).await;
    let mut recorder = ground.start("first").await;
    recorder.replica.ready().await;
    recorder.shows(SHORT).await;
    assert_eq!(expect(&recorder, &ground, "test", "r-1").await.unwrap(), Some(proto(50)));

    server.kill_apiserver();
    let lists = recorder_lists(&server, &argo);
    argo.ended_unseen(&server, "shop-test", 100).await;
    server.start_apiserver().await;
    recorder.shows(TAKEN_OVER).await;
    until_counted(&recorder, "test", 1, 0).await;
    assert!(recorder_lists(&server, &argo) > lists, "the Applications were not listed again");
    argo.reconciled(&server, "shop-test", 200).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    until_counted(&recorder, "test", 1, 0).await;
    // An API server that has just begun refuses what it does not know yet to be allowed.
    argo.assert_nothing_written(&server, &ground);
}

fn recorder_lists(server: &ApiServer, argo: &Argo) -> usize {
    let lists = |event: &AuditEvent| {
        event.verb == "list" && event.resource == "applications" && event.namespace == argo.namespace
    };
    server.audit().iter().filter(|event| lists(event)).count()
}
