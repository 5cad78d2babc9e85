//! From a report to what comes out at the other end.

use std::{fs, path::Path, time::Duration};

use serde_json::Value;
use transponder_tests::{Answer, Behaviour, Broker, LONG, Mesh, OtlpReceiver, TestEvent, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_comes_out_as_event_metric_and_span() {
    let (broker, otlp) = (Broker::start().await, OtlpReceiver::start().await);
    let mut mesh = Mesh::new(&broker).await;
    mesh.env("OTEL_EXPORTER_OTLP_ENDPOINT", &otlp.url());
    mesh.run().await;
    let event = TestEvent::new("Succeeded", "chain-1").flow_start("2026-01-01T00:00:00Z");
    let answer = mesh.curl("kind-prod", &event.body(), &[]).await.unwrap();
    assert_eq!(answer.status, 202, "{}", answer.body_text());
    assert_eq!(answer.header("location"), Some(format!("/outcome/kind-prod/{}", event.key()).as_str()));
    let receipt = mesh.wait_final("kind-prod", &event.key()).await;
    for target in ["broker", "tracking", "dora", "span"] {
        assert_eq!(receipt["targets"][target]["state"], "delivered", "{receipt}");
    }
    let received = &broker.received()[0];
    assert_eq!(received.body, event.body().as_bytes());
    assert_eq!(received.header("content-type"), Some("application/cloudevents+json"));
    assert_eq!(received.header("transponder-key"), Some(event.key().as_str()));
    assert_eq!(mesh.metric("dora_deployments_total", &["app=\"shop\"", "cluster=\"kind-prod\""]).await, 1.0);
    let span = &otlp.wait_for_spans(1, LONG).await[0];
    assert_eq!(span.span.name, "release-outcome:shop/prod [Succeeded]");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_event_again_is_answered_200_and_forwarded_counted_and_traced_once() {
    let (broker, otlp) = (Broker::start().await, OtlpReceiver::start().await);
    let mut mesh = Mesh::new(&broker).await;
    mesh.env("OTEL_EXPORTER_OTLP_ENDPOINT", &otlp.url());
    mesh.run().await;
    let event = TestEvent::new("Succeeded", "chain-1");
    assert_eq!(mesh.post("kind-prod", event.body()).await.unwrap().0, 202);
    mesh.wait_final("kind-prod", &event.key()).await;
    let (status, receipt) = mesh.post("kind-prod", event.body()).await.unwrap();
    assert_eq!((status, &receipt["identical"]), (200, &Value::Bool(true)), "{receipt}");
    // Another finish of the same event is an observation: known to tracking and the verdict, never sent on.
    let later = event.clone().finished("2031-01-01T00:00:00Z");
    let (status, receipt) = mesh.post("kind-prod", later.body()).await.unwrap();
    assert_eq!((status, &receipt["identical"]), (200, &Value::Bool(false)), "{receipt}");
    assert_eq!(mesh.wait_final("kind-prod", &event.key()).await["observations"], 2);
    assert_eq!(broker.received().len(), 1);
    assert_eq!(broker.received()[0].body, event.body().as_bytes());
    assert_eq!(otlp.spans().len(), 1);
    assert_eq!(mesh.metric("dora_deployments_total", &[]).await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_final_and_is_observed_again_becomes_final_again_however_close_the_reports_are() {
    let broker = Broker::start().await;
    let mut mesh = Mesh::new(&broker).await;
    mesh.set("edge.budget.rate", "1000");
    mesh.set("edge.settle.failed", "0s");
    // Where a commit takes no time, it overtakes what is read at the same moment.
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    mesh.set("edge.data_directory", memory.path().to_str().unwrap());
    mesh.run().await;
    let events: Vec<_> = (0..60)
        .map(|n| {
            TestEvent::new(["Succeeded", "Failed"][n % 2], &format!("again-{n}")).app(&format!("app-{n}"))
        })
        .collect();
    for event in &events {
        assert_eq!(mesh.post("kind-prod", event.body()).await.unwrap().0, 202);
    }
    for event in &events {
        mesh.wait_final("kind-prod", &event.key()).await;
    }
    let mut observations = 1;
    for burst in [1, 1, 1, 3] {
        for event in &events {
            for number in 0..burst {
                let time: jiff::Timestamp = event.finished_at.parse().unwrap();
                let later = jiff::SignedDuration::from_secs(observations + number);
                let again = event.clone().finished(time + later);
                assert_eq!(mesh.post("kind-prod", again.body()).await.unwrap().0, 200);
            }
        }
        observations += burst;
        for event in &events {
            mesh.wait_final("kind-prod", &event.key()).await;
        }
    }
    for event in &events {
        let receipt = mesh.wait_final("kind-prod", &event.key()).await;
        assert_eq!(receipt["observations"], observations, "{receipt}");
    }
    eventually("nothing is left to be done", LONG, || async {
        let waiting = mesh.metric("transponder_waiting_events", &[]).await;
        let settling = mesh.metric("transponder_pending_verdicts", &[]).await;
        if waiting + settling == 0.0 {
            Ok(())
        } else {
            Err(format!("{waiting} waiting, {settling} settling"))
        }
    })
    .await;
    assert_eq!(broker.received().len(), events.len());
    assert_eq!(mesh.metric("dora_releases_total", &[]).await, 60.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_of_the_cdevents_project_is_accepted_and_forwarded_byte_for_byte() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/cdevents-conformance");
    let files =
        fs::read_dir(root).unwrap().flat_map(|release| fs::read_dir(release.unwrap().path()).unwrap());
    let events = files
        .map(|file| file.unwrap().path())
        .filter(|path| !path.to_string_lossy().ends_with("_schema.json"));
    let events: Vec<_> = events.map(|path| (fs::read(&path).unwrap(), path)).collect();
    assert!(events.len() > 120, "{}", events.len());
    let broker = Broker::start().await;
    let mut mesh = Mesh::new(&broker).await;
    // Many of the events share source and id, so each comes from a cluster of its own.
    let cluster = |n: usize| format!("cluster-{n}");
    for n in 0..events.len() {
        let may = ["--forward-types", "dev.cdevents.*", "--forward-types", "dev.cdeventsx.*"];
        mesh.add_cluster_that(&cluster(n), &may).await;
    }
    mesh.run().await;
    for (n, (bytes, path)) in events.iter().enumerate() {
        let (status, answer) = mesh.post(&cluster(n), bytes.clone()).await.unwrap();
        assert_eq!(status, 202, "{}: {answer}", path.display());
    }
    let received = broker.wait_for(events.len(), LONG).await;
    let mut received: Vec<_> = received.into_iter().map(|r| r.body.to_vec()).collect();
    let mut sent: Vec<_> = events.into_iter().map(|(bytes, _)| bytes).collect();
    received.sort();
    sent.sort();
    assert_eq!(received, sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn five_attempts_of_one_operation_that_fail_are_one_failed_release() {
    let broker = Broker::start().await;
    let mesh = Mesh::start(&broker).await;
    let failed = TestEvent::new("Failed", "chain-1");
    for second in 1..=5 {
        let again = failed.clone().finished(format!("2026-03-01T10:00:0{second}Z"));
        mesh.post("kind-prod", again.body()).await.unwrap();
    }
    let receipt = mesh.wait_final("kind-prod", &failed.key()).await;
    assert_eq!(
        (&receipt["targets"]["dora"]["state"], &receipt["observations"]),
        (&"delivered".into(), &5.into())
    );
    assert_eq!(broker.received().len(), 1);
    assert_eq!(mesh.metric("dora_releases_total", &["outcome=\"failed\""]).await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_fails_twice_and_then_succeeds_has_not_failed() {
    let broker = Broker::start().await;
    let mesh = Mesh::start(&broker).await;
    let failed = TestEvent::new("Failed", "chain-1");
    for second in [1, 2] {
        let again = failed.clone().finished(format!("2026-03-01T10:00:0{second}Z"));
        mesh.post("kind-prod", again.body()).await.unwrap();
    }
    let succeeded = TestEvent::new("Succeeded", "chain-1").finished("2026-03-01T10:00:03Z");
    mesh.post("kind-prod", succeeded.body()).await.unwrap();
    mesh.wait_final("kind-prod", &succeeded.key()).await;
    let receipt = mesh.wait_final("kind-prod", &failed.key()).await;
    assert_eq!(receipt["targets"]["dora"]["state"], "replaced");
    assert_eq!(mesh.metric("dora_releases_total", &["outcome=\"failed\""]).await, 0.0);
    assert_eq!(mesh.metric("dora_deployments_total", &[]).await, 1.0);
    assert_eq!(broker.received().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_event_is_dead_at_once_and_holds_up_nobody() {
    let broker = Broker::start().await;
    let mesh = Mesh::start(&broker).await;
    broker.when(
        |r| String::from_utf8_lossy(&r.body).contains("\"poison\""),
        Behaviour::Answer(Answer::status(422)),
    );
    let poison = TestEvent::new("Succeeded", "poison");
    let good = TestEvent::new("Succeeded", "good");
    mesh.post("kind-prod", poison.body()).await.unwrap();
    mesh.post("kind-prod", good.body()).await.unwrap();
    let receipt = mesh.wait_final("kind-prod", &poison.key()).await;
    assert_eq!(receipt["targets"]["broker"]["state"], "dead");
    assert_eq!(receipt["targets"]["broker"]["code"], "refused");
    assert_eq!(receipt["targets"]["dora"]["state"], "delivered", "the other targets have it");
    assert_eq!(mesh.wait_final("kind-prod", &good.key()).await["targets"]["broker"]["state"], "delivered");
    // The operator lists and replays it.
    let listed =
        mesh.operate(["outcomes", "list", "--state", "dead", "--output", "json"]).await.success().json();
    assert!(listed.to_string().contains(&poison.key()), "{listed}");
    broker.always(Behaviour::Answer(Answer::status(202)));
    mesh.operate(["outcomes", "replay", &poison.key()]).await.success();
    eventually("the replayed event is at the broker", LONG, || async {
        let (_, receipt) = mesh.receipt("kind-prod", &poison.key()).await?;
        let state = receipt["targets"]["broker"]["state"].clone();
        if state == "delivered" { Ok(()) } else { Err(receipt.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_was_away_gets_everything_in_the_order_of_each_stream() {
    let broker = Broker::start().await;
    let mesh = Mesh::start(&broker).await;
    broker.refuse().await;
    let mut expected = Vec::new();
    for n in 0..20 {
        for phase in ["Syncing", "Succeeded"] {
            let event = TestEvent::new(phase, &format!("chain-{n:02}"));
            assert_eq!(mesh.post("kind-prod", event.body()).await.unwrap().0, 202);
            expected.push(event.body().into_bytes());
        }
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    broker.accept().await;
    let received = broker.wait_for(expected.len(), LONG).await;
    let received: Vec<_> = received.into_iter().map(|r| r.body.to_vec()).collect();
    assert_eq!(received, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_before_a_kill_is_delivered_after_the_restart() {
    let (broker, otlp) = (Broker::start().await, OtlpReceiver::start().await);
    let mut mesh = Mesh::new(&broker).await;
    mesh.env("OTEL_EXPORTER_OTLP_ENDPOINT", &otlp.url());
    mesh.run().await;
    broker.refuse().await;
    otlp.refuse().await;
    let event = TestEvent::new("Succeeded", "chain-1");
    assert_eq!(mesh.post("kind-prod", event.body()).await.unwrap().0, 202);
    mesh.kill();
    broker.accept().await;
    otlp.accept().await;
    mesh.run().await;
    let receipt = mesh.wait_final("kind-prod", &event.key()).await;
    assert_eq!(receipt["targets"]["broker"]["state"], "delivered");
    assert_eq!(broker.received().len(), 1);
    assert_eq!(otlp.wait_for_spans(1, LONG).await.len(), 1);
    assert_eq!(mesh.metric("dora_deployments_total", &[]).await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overtaken_outcome_is_replaced_even_if_the_mesh_dies_before_that_is_written() {
    let broker = Broker::start().await;
    let mut mesh = Mesh::new(&broker).await;
    mesh.set("edge.settle.failed", "5s");
    mesh.env("TRANSPONDER_CRASH_AT", "hand-over.before:1");
    mesh.run().await;
    let failed = TestEvent::new("Failed", "chain-1").finished("2026-01-01T00:00:00Z");
    let succeeded = TestEvent::new("Succeeded", "chain-1").finished("2026-01-01T00:05:00Z");
    assert_eq!(mesh.post("kind-prod", failed.body()).await.unwrap().0, 202);
    // It may be answered or not: it is stored before the mesh dies.
    let _ = mesh.post("kind-prod", succeeded.body()).await;
    eventually("the mesh dies", LONG, || {
        let ended = mesh.process().ended();
        async move { ended.map(|_| ()).ok_or_else(|| "it runs".to_owned()) }
    })
    .await;
    mesh.unset("TRANSPONDER_CRASH_AT");
    mesh.run().await;
    let receipt = mesh.wait_final("kind-prod", &failed.key()).await;
    assert_eq!(receipt["targets"]["dora"]["state"], "replaced", "{receipt}");
    mesh.wait_final("kind-prod", &succeeded.key()).await;
    assert_eq!(mesh.metric("dora_deployments_total", &[]).await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_presync_that_is_observed_again_while_it_is_open_gives_its_room_back() {
    let broker = Broker::start().await;
    let mut mesh = Mesh::new(&broker).await;
    mesh.set("edge.budget.undelivered_events", "3");
    mesh.run().await;
    broker.refuse().await;
    for n in 0..3 {
        let event = TestEvent::new("Syncing", &format!("chain-{n}"));
        assert_eq!(mesh.post("kind-prod", event.body()).await.unwrap().0, 202);
        let again = event.finished("2026-01-01T00:00:00Z");
        assert_eq!(mesh.post("kind-prod", again.body()).await.unwrap().0, 200);
    }
    let next = TestEvent::new("Succeeded", "chain-3");
    assert_eq!(mesh.post("kind-prod", next.body()).await.unwrap().0, 429);
    broker.accept().await;
    broker.wait_for(3, LONG).await;
    eventually("there is room again", LONG, || async {
        let (status, answer) = mesh.post("kind-prod", next.body()).await?;
        if status == 202 { Ok(()) } else { Err(format!("{status} {answer}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_id_from_two_clusters_is_two_events() {
    let broker = Broker::start().await;
    let mut mesh = Mesh::new(&broker).await;
    mesh.add_cluster("kind-test").await;
    mesh.run().await;
    let event = TestEvent::new("Succeeded", "chain-1");
    let mut of_another = event.json();
    of_another["subject"]["content"]["cluster"] = "kind-test".into();
    assert_eq!(mesh.post("kind-prod", event.body()).await.unwrap().0, 202);
    assert_eq!(mesh.post("kind-test", of_another.to_string()).await.unwrap().0, 202);
    // The broker tells them apart by the key: by the id alone, one PipelineRun would not be made.
    let received = broker.wait_for(2, LONG).await;
    let keys: Vec<_> = received.iter().map(|r| r.header("transponder-key").unwrap()).collect();
    assert_ne!(keys[0], keys[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_broker_sees_the_retry_schedule_that_is_configured() {
    let (fast, slow) = tokio::join!(attempts("50ms", 5), attempts("1h", 1));
    // The schedule is an upper bound: five delays of at most 50 to 100 ms, and chance cannot stretch them.
    assert!(fast[4] - fast[0] < Duration::from_secs(5), "{fast:?}");
    assert_eq!(slow.len(), 1, "{slow:?}");
}

/// When a broker that refuses everything got the first `count` posts, and those of the two seconds after.
async fn attempts(base: &str, count: usize) -> Vec<std::time::Instant> {
    let broker = Broker::start().await;
    broker.always(Behaviour::Answer(Answer::status(500)));
    let mut mesh = Mesh::new(&broker).await;
    mesh.set("edge.delivery.retry_base", base);
    mesh.set("edge.delivery.retry_cap", base);
    mesh.run().await;
    let event = TestEvent::new("Succeeded", "chain-1");
    assert_eq!(mesh.post("kind-prod", event.body()).await.unwrap().0, 202);
    broker.wait_for(count, LONG).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    broker.received().iter().map(|received| received.at).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_spell_of_errors_has_left_is_replayed_by_one_command() {
    let broker = Broker::start().await;
    broker.always(Behaviour::Answer(Answer::status(422)));
    let mut mesh = Mesh::new(&broker).await;
    mesh.set("edge.budget.rate", "1000");
    mesh.run().await;
    let events: Vec<_> = (0..60).map(|n| TestEvent::new("Succeeded", &format!("chain-{n}"))).collect();
    for event in &events {
        assert_eq!(mesh.post("kind-prod", event.body()).await.unwrap().0, 202);
    }
    for event in &events {
        let receipt = mesh.wait_final("kind-prod", &event.key()).await;
        assert_eq!(receipt["targets"]["broker"]["state"], "dead", "{receipt}");
    }
    let listed = mesh.operate(["outcomes", "list", "--state", "dead"]).await.success().text();
    assert!(listed.contains("50 shown; there may be more"), "{listed}");
    let other = mesh.operate(["outcomes", "replay", &events[0].key(), "--target", "dora"]).await;
    assert!(other.stderr.contains("dora of this outcome is not dead"), "{}", other.stderr);
    broker.always(Behaviour::Accept);
    let refused = broker.received().len();
    let replayed =
        mesh.operate(["outcomes", "replay", "--all-dead", "--output", "json"]).await.success().json();
    assert_eq!(replayed["replayed"], 60);
    for event in &events {
        let receipt = mesh.wait_final("kind-prod", &event.key()).await;
        assert_eq!(receipt["targets"]["broker"]["state"], "delivered", "{receipt}");
    }
    assert_eq!(broker.received().len(), refused + 60);
    let again = mesh.operate(["outcomes", "replay", "--all-dead"]).await.success().text();
    assert!(again.contains("0 outcomes"), "{again}");
}
