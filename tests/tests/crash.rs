//! `kill -9` at named points and at random moments: what was acknowledged is at every target, once where once counts.
//!
//! `cargo xtask soak` runs the same with more kills and more events, by `TRANSPONDER_SOAK_KILLS` and
//! `TRANSPONDER_SOAK_EVENTS`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::sync::{Mutex, RwLock};
use transponder_tests::{Broker, LONG, Mesh, OtlpReceiver, TestEvent, eventually};

/// Long enough for everything to settle and to be delivered after the last restart.
const CALM: Duration = Duration::from_secs(90);

/// Clients that post at a time.
const CLIENTS: usize = 8;

/// What the clients were told is safe.
#[derive(Default)]
struct Ledger {
    bodies: BTreeSet<Vec<u8>>,
    outcomes: BTreeSet<String>,
    succeeded: BTreeSet<String>,
    failed_only: BTreeSet<String>,
}

/// A client that posts like the hook: again and again, until it is told that the event is stored.
async fn post(mesh: &RwLock<Mesh>, ledger: &Mutex<Ledger>, event: &TestEvent) {
    let body = event.body();
    loop {
        let answer = mesh.read().await.post("kind-prod", body.clone()).await;
        match answer {
            Ok((200 | 202, _)) => break,
            Ok((status @ (429 | 503), _)) => {
                println!("{status}, again");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Ok((status, answer)) => panic!("{status}: {answer}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    let mut ledger = ledger.lock().await;
    ledger.bodies.insert(body.into_bytes());
    if event.phase != "Syncing" {
        ledger.outcomes.insert(event.key());
    }
}

/// One release: begins, may fail, may succeed; every post may come twice.
async fn release(mesh: &RwLock<Mesh>, ledger: &Mutex<Ledger>, number: usize) {
    let chain = format!("chain-{number}");
    // One client goes through a stream's releases one after the other: a success of another release at the same time
    // would rightly count an open failure at once.
    let app = format!("app{}", number % (3 * CLIENTS));
    let event = |phase| TestEvent::new(phase, &chain).app(&app);
    post(mesh, ledger, &event("Syncing")).await;
    let fails = !number.is_multiple_of(3);
    let succeeds = number % 3 != 1;
    if fails {
        let failed = event("Failed");
        post(mesh, ledger, &failed).await;
        if number.is_multiple_of(2) {
            post(mesh, ledger, &failed).await;
        }
    }
    if succeeds {
        let succeeded = event("Succeeded");
        post(mesh, ledger, &succeeded).await;
        if number.is_multiple_of(2) {
            post(mesh, ledger, &succeeded).await;
        }
        ledger.lock().await.succeeded.insert(chain);
    } else {
        ledger.lock().await.failed_only.insert(chain);
    }
}

async fn mesh(broker: &Broker, otlp: &OtlpReceiver) -> Mesh {
    let mut mesh = Mesh::new(broker).await;
    mesh.env("OTEL_EXPORTER_OTLP_ENDPOINT", &otlp.url());
    // A failure that is followed by a success must still be open then, however often the mesh dies between.
    mesh.set("edge.settle.failed", "20s");
    mesh.set("edge.settle.max", "10m");
    mesh.set("edge.budget.rate", "100000");
    mesh.set("edge.budget.burst", "100000");
    mesh
}

/// Compares what came out with what was acknowledged.
async fn compare(mesh: &Mesh, ledger: &Ledger, broker: &Broker, otlp: &OtlpReceiver) {
    let last = eventually("everything acknowledged is everywhere", CALM, || async {
        let bodies: BTreeSet<Vec<u8>> = broker.received().into_iter().map(|r| r.body.to_vec()).collect();
        let missing = ledger.bodies.difference(&bodies).count();
        let invented = bodies.difference(&ledger.bodies).count();
        let mut traces: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for span in otlp.spans() {
            traces.entry(span.trace_id()).or_default().insert(span.span_id());
        }
        let deployments = mesh.metric("dora_deployments_total", &[]).await;
        let succeeded = mesh.metric("dora_releases_total", &["outcome=\"succeeded\""]).await;
        let failed = mesh.metric("dora_releases_total", &["outcome=\"failed\""]).await;
        let dead = mesh.metric("transponder_dead_letters_total", &[]).await;
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let expected = (ledger.succeeded.len() as f64, ledger.failed_only.len() as f64);
        let told = format!(
            "broker: {missing} missing, {invented} invented of {}; spans: {} of {}; deployments {deployments}, \
             succeeded {succeeded} of {}; failed {failed} of {}; dead {dead}",
            ledger.bodies.len(),
            traces.len(),
            ledger.outcomes.len(),
            expected.0,
            expected.1,
        );
        assert!(succeeded <= expected.0 && failed <= expected.1 && invented == 0, "too many: {told}");
        assert!(traces.values().all(|spans| spans.len() == 1), "one span a trace");
        let counted = deployments == expected.0 && succeeded == expected.0 && failed == expected.1;
        if missing == 0 && traces.len() == ledger.outcomes.len() && counted && dead == 0.0 { Ok(told) } else { Err(told) }
    })
    .await;
    eventually("nothing waits for ever", LONG, || async {
        let list = ["outcomes", "list", "--state", "waiting", "--output", "json"];
        let listed = mesh.operate(list).await.success().json();
        let waiting = listed["outcomes"].as_array().map_or(0, Vec::len);
        if waiting == 0 { Ok(()) } else { Err(format!("{waiting} outcomes wait")) }
    })
    .await;
    println!("{last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_at_any_named_point_loses_doubles_and_invents_nothing() {
    let points = [
        "store.before",
        "store.after",
        "answer.before",
        "broker.before",
        "broker.after",
        "tracking.before",
        "tracking.after",
        "hand-over.before",
        "hand-over.after",
        "dora.before",
        "dora.after",
        "span.before",
        "span.after",
        "status.before",
        "status.after",
        "dora.commit.before",
        "dora.commit.after",
        "tracking.commit.before",
        "tracking.commit.after",
    ];
    let (broker, otlp) = (Broker::start().await, OtlpReceiver::start().await);
    let mut mesh = mesh(&broker, &otlp).await;
    mesh.set("edge.settle.failed", "3s");
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let mut first = 0;
    for point in points {
        mesh.env("TRANSPONDER_CRASH_AT", &format!("{point}:2"));
        mesh.run().await;
        let shared = Arc::new(RwLock::new(mesh));
        // Releases that fail and succeed, only succeed, only fail.
        let tasks: Vec<_> = (first..first + 3)
            .map(|number| {
                let (mesh, ledger) = (shared.clone(), ledger.clone());
                tokio::spawn(async move { release(&mesh, &ledger, number).await })
            })
            .collect();
        first += 3;
        eventually(&format!("the mesh dies at {point}"), Duration::from_secs(30), || async {
            shared.write().await.process().ended().map(|_| ()).ok_or_else(|| "it runs".to_owned())
        })
        .await;
        let mut guard = shared.write().await;
        guard.unset("TRANSPONDER_CRASH_AT");
        guard.run().await;
        drop(guard);
        for task in tasks {
            task.await.unwrap();
        }
        mesh = Arc::into_inner(shared).unwrap().into_inner();
        println!("{point}:");
        compare(&mesh, &*ledger.lock().await, &broker, &otlp).await;
        mesh.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_at_random_moments_lose_double_and_invent_nothing() {
    let number =
        |name: &str, default| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    let kills: usize = number("TRANSPONDER_SOAK_KILLS", 50);
    let events: usize = number("TRANSPONDER_SOAK_EVENTS", 0);
    let (broker, otlp) = (Broker::start().await, OtlpReceiver::start().await);
    let mut mesh = mesh(&broker, &otlp).await;
    mesh.run().await;
    let shared = Arc::new(RwLock::new(mesh));
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (mesh, ledger, stopped) = (shared.clone(), ledger.clone(), stopped.clone());
            tokio::spawn(async move {
                let mut number = client;
                while !*stopped.borrow() || number < events / 3 {
                    release(&mesh, &ledger, number).await;
                    number += CLIENTS;
                }
            })
        })
        .collect();
    for _ in 0..kills {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(10..800))).await;
        let mut mesh = shared.write().await;
        mesh.kill();
        mesh.run().await;
    }
    stop.send(true).unwrap();
    for client in clients {
        client.await.unwrap();
    }
    let mesh = Arc::into_inner(shared).unwrap().into_inner();
    let ledger = ledger.lock().await;
    println!("{kills} kills, {} events acknowledged", ledger.bodies.len());
    compare(&mesh, &ledger, &broker, &otlp).await;
}
