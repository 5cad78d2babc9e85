//! The wall clock is a day off, while the mesh runs or over a restart: early or late by a window, never lost.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use transponder_tests::{
    ALL_DELIVERED, Answer, Behaviour, Broker, FakeClock, LONG, Mesh, Run, SHORT, TestEvent, alone,
    eventually, product,
};

const DAY: i64 = 24;

/// A mesh that goes by a clock of our own. Its certificates are a month old, as they would be.
async fn mesh_with(clock: &FakeClock, broker: &Broker) -> Mesh {
    let mut mesh = Mesh::new(broker).await;
    clock.set_hours_off(-30 * DAY);
    for (command, directory) in [("mesh-certs", "mesh"), ("edge-certs", "edge")] {
        let mut issue = Run::program(product("transponder"));
        for (name, value) in clock.environment() {
            issue = issue.env(name, value);
        }
        let directory = mesh.path(directory);
        issue.args([command.as_ref(), "--directory".as_ref(), directory.as_os_str()]).run().await.success();
    }
    clock.set_hours_off(0);
    clock.give_to(&mut mesh);
    mesh
}

/// An event that finished `hours` from now, as a cluster whose clock agrees with the mesh's says.
fn finished_off(event: TestEvent, hours: i64) -> TestEvent {
    event.finished(jiff::Timestamp::now() + jiff::SignedDuration::from_hours(hours))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_a_day_off_while_running_settles_in_time_and_sweeps_nothing() {
    for hours in [DAY, -DAY] {
        let _alone = alone().await;
        let (broker, clock) = (Broker::start().await, FakeClock::new());
        let mut mesh = mesh_with(&clock, &broker).await;
        mesh.set("edge.settle.failed", "4s");
        mesh.set("edge.settle.max", "8s");
        mesh.set("edge.retention.delivered", "2h");
        mesh.set("edge.retention.bodies", "1h");
        mesh.set("edge.retention.sweep", "500ms");
        mesh.set("release_tracking.sweep_interval", "500ms");
        mesh.set("release_tracking.keep_open", "3h");
        mesh.set("release_tracking.keep_ended", "3h");
        mesh.run().await;
        let (old, syncing) = (TestEvent::new("Succeeded", "old"), TestEvent::new("Syncing", "syncing"));
        mesh.accept(&old).await;
        mesh.accept(&syncing).await;
        mesh.wait_for(&old, &ALL_DELIVERED).await;
        mesh.wait_for(&syncing, &ALL_DELIVERED[..2]).await;
        let before = TestEvent::new("Failed", "before").app("blog");
        mesh.accept(&before).await;
        clock.set_hours_off(hours);
        let started = Instant::now();
        let after = finished_off(TestEvent::new("Failed", "after").app("wiki"), hours);
        mesh.accept(&after).await;
        mesh.wait_for(&before, &ALL_DELIVERED).await;
        mesh.wait_for(&after, &ALL_DELIVERED).await;
        // Each window is at most its duration, whatever the wall clock says.
        println!("{hours:+} h: settled after {:?}", started.elapsed());
        assert!(started.elapsed() < Duration::from_secs(20), "{hours}: {:?}", started.elapsed());
        eventually("the sweepers have noticed", SHORT, || {
            let seen = mesh.process().said("wall clock has jumped");
            async move { if seen == 2 { Ok(()) } else { Err(format!("{seen} of 2")) } }
        })
        .await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let (status, receipt) = mesh.receipt("kind-prod", &old.key()).await.unwrap();
        assert_eq!(status, 200, "{hours}: nothing is forgotten: {receipt}");
        assert_eq!(states(&mesh).await, ["failed", "failed", "progressing", "succeeded"], "{hours}");
        // Known as before: a report that comes again is no new one.
        assert_eq!(mesh.post("kind-prod", old.body()).await.unwrap().0, 200);
        assert_eq!(mesh.metric("dora_releases_total", &["failed"]).await, 2.0, "{hours}");
        assert_eq!(mesh.metric("dora_releases_total", &["succeeded"]).await, 1.0, "{hours}");
        clock.set_hours_off(0);
        let late = TestEvent::new("Succeeded", "late").app("blog");
        mesh.accept(&late).await;
        mesh.wait_for(&late, &ALL_DELIVERED).await;
        assert_eq!(mesh.metric("transponder_dead_letters_total", &[]).await, 0.0);
        assert!(mesh.stop().await.success());
    }
}

/// The states of all release records, sorted.
async fn states(mesh: &Mesh) -> Vec<String> {
    let listed = mesh.operate(["releases", "list", "--output", "json"]).await.success().json();
    let releases = listed["releases"].as_array().cloned().unwrap_or_default();
    let mut states: Vec<_> =
        releases.iter().map(|release| release["state"].as_str().unwrap_or_default().to_owned()).collect();
    states.sort();
    states
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_a_day_off_over_a_restart_settles_within_the_window_and_forgets_nothing() {
    for hours in [DAY, -DAY] {
        let _alone = alone().await;
        let (broker, clock) = (Broker::start().await, FakeClock::new());
        let mut mesh = mesh_with(&clock, &broker).await;
        mesh.set("edge.settle.failed", "5s");
        mesh.set("edge.settle.max", "10s");
        mesh.set("edge.retention.sweep", "500ms");
        mesh.set("edge.delivery.retry_cap", "3s");
        mesh.run().await;
        let done = TestEvent::new("Succeeded", "done");
        mesh.accept(&done).await;
        mesh.wait_for(&done, &ALL_DELIVERED).await;
        broker.refuse().await;
        let failed = TestEvent::new("Failed", "failed").app("blog");
        mesh.accept(&failed).await;
        mesh.wait_for(&failed, &[("broker", "retrying"), ("dora", "waiting"), ("span", "delivered")]).await;
        assert!(mesh.stop().await.success());
        clock.set_hours_off(hours);
        broker.accept().await;
        let started = Instant::now();
        mesh.run().await;
        mesh.wait_for(&failed, &ALL_DELIVERED).await;
        println!("{hours:+} h: settled and sent {:?} after the start", started.elapsed());
        assert!(started.elapsed() < Duration::from_secs(30), "{hours}: {:?}", started.elapsed());
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(mesh.post("kind-prod", done.body()).await.unwrap().0, 200, "{hours}: still known");
        assert_eq!(mesh.metric("dora_releases_total", &[]).await, 2.0, "{hours}");
        assert!(mesh.stop().await.success());
        clock.set_hours_off(0);
        mesh.run().await;
        assert_eq!(mesh.post("kind-prod", failed.body()).await.unwrap().0, 200, "{hours}: still known");
        let next = TestEvent::new("Succeeded", "next").app("blog");
        mesh.accept(&next).await;
        mesh.wait_for(&next, &ALL_DELIVERED).await;
        assert_eq!(mesh.metric("dora_releases_total", &[]).await, 3.0, "{hours}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_gone_for_a_day_gets_everything_and_nothing_is_dead() {
    for restart in [false, true] {
        let _alone = alone().await;
        let (broker, clock) = (Broker::start().await, FakeClock::new());
        let mut mesh = mesh_with(&clock, &broker).await;
        mesh.run().await;
        let first = TestEvent::new("Succeeded", "first").app("first");
        mesh.accept(&first).await;
        mesh.wait_for(&first, &ALL_DELIVERED).await;
        broker.refuse().await;
        let events: Vec<_> = (0..40)
            .map(|n| TestEvent::new("Succeeded", &format!("day-{n}")).app(&format!("app-{}", n % 8)))
            .collect();
        for event in &events {
            mesh.accept(event).await;
        }
        for event in &events {
            mesh.wait_for(event, &ALL_DELIVERED[1..]).await;
        }
        let down = || async {
            let down = mesh.metric("transponder_target_down", &["broker"]).await;
            if down == 1.0 { Ok(()) } else { Err(down.to_string()) }
        };
        eventually("the broker is known to be away", LONG, down).await;
        clock.set_hours_off(25);
        if restart {
            assert!(mesh.stop().await.success());
            mesh.run().await;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(mesh.metric("transponder_dead_letters_total", &[]).await, 0.0, "restart: {restart}");
        broker.accept().await;
        for event in &events {
            mesh.wait_for(event, &ALL_DELIVERED).await;
        }
        let keys: BTreeSet<_> =
            broker.received().iter().filter_map(|r| r.header("transponder-key").map(str::to_owned)).collect();
        assert!(events.iter().all(|event| keys.contains(&event.key())), "restart: {restart}");
        assert_eq!(mesh.metric("transponder_dead_letters_total", &[]).await, 0.0, "restart: {restart}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_a_day_ahead_gives_nothing_up_that_has_failed_for_seconds() {
    let _alone = alone().await;
    let (broker, clock) = (Broker::start().await, FakeClock::new());
    let mut mesh = mesh_with(&clock, &broker).await;
    mesh.run().await;
    let (unlucky, other) =
        (TestEvent::new("Succeeded", "unlucky"), TestEvent::new("Succeeded", "other").app("blog"));
    let key = unlucky.key();
    broker.when(
        move |request| request.header("transponder-key") == Some(key.as_str()),
        Behaviour::Answer(Answer::status(500)),
    );
    mesh.accept(&unlucky).await;
    mesh.wait_for(&unlucky, &[("broker", "retrying")]).await;
    assert!(mesh.stop().await.success());
    clock.set_hours_off(25);
    mesh.run().await;
    mesh.accept(&finished_off(other.clone(), 25)).await;
    mesh.wait_for(&other, &ALL_DELIVERED).await;
    // Tried again at least once while the broker takes the other stream's.
    let tried = broker.received().len();
    broker.wait_for(tried + 2, LONG).await;
    mesh.wait_for(&unlucky, &[("broker", "retrying")]).await;
    broker.always(Behaviour::Accept);
    mesh.wait_for(&unlucky, &ALL_DELIVERED).await;
}
