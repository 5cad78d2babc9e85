//! Three edges and two of each other service on one API server, while anything of it is killed, frozen and restarted at
//! random: every acknowledged event arrives with its bytes, every release is counted once, every outcome has one span.
//!
//! `cargo xtask soak --store kubernetes` runs the same for longer, by `TRANSPONDER_SOAK_KILLS` and
//! `TRANSPONDER_SOAK_EVENTS`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use transponder_tests::{
    Broker, Fleet, Load, Mesh, OtlpReceiver, Poster, Prometheus, TestEvent, alone, eventually,
    kubernetes::ApiServer,
};

/// How long it may take until everything is delivered once everything runs again.
const DRAIN: Duration = Duration::from_secs(180);
/// Reports that are out at a time.
const HOOKS: usize = 8;
const SERVICES: [&str; 5] = ["edge", "forwarder", "dora-recorder", "release-tracking", "outcome-span"];

fn replicas(service: &str) -> usize {
    if service == "edge" { 3 } else { 2 }
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// What was acknowledged: the bytes by the key.
type Sent = Arc<Mutex<BTreeMap<String, (String, &'static str)>>>;

/// Reports as hooks do: again and again until the report is taken.
async fn report(
    poster: Arc<Poster>,
    clusters: Arc<Vec<String>>,
    next: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    sent: Sent,
) {
    while !stop.load(Relaxed) {
        let number = next.fetch_add(1, Relaxed);
        let cluster = &clusters[number % clusters.len()];
        let phase = ["Succeeded", "Succeeded", "Failed", "Syncing"][number % 4];
        let app = format!("app{}", number % 7);
        let event = TestEvent::new(phase, &format!("release-{number}")).cluster(cluster).app(&app);
        let body = event.body();
        loop {
            match poster.post(cluster, body.clone()).await {
                Ok(200 | 202) => break,
                Ok(429 | 503) | Err(_) => tokio::time::sleep(Duration::from_millis(300)).await,
                Ok(status) => panic!("{cluster} is answered {status}"),
            }
        }
        sent.lock().unwrap().insert(event.key(), (body, phase));
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
}

/// Something that happens to a cluster on a bad day.
async fn disturb(fleet: &mut Fleet) -> String {
    let service = SERVICES[fastrand::usize(..SERVICES.len())];
    let replica = fastrand::usize(..replicas(service));
    match fastrand::u8(..10) {
        0..=4 => {
            fleet.kill(service, replica);
            tokio::time::sleep(Duration::from_millis(fastrand::u64(..1000))).await;
            fleet.launch(service, replica);
            format!("{service} {replica} killed")
        }
        5 | 6 => {
            fleet.freeze(service, replica);
            tokio::time::sleep(Duration::from_millis(fastrand::u64(1000..4000))).await;
            fleet.thaw(service, replica);
            format!("{service} {replica} frozen")
        }
        7 => {
            fleet.server.kill_apiserver();
            fleet.server.start_apiserver().await;
            "API server killed".to_owned()
        }
        8 => {
            fleet.server.kill_etcd();
            fleet.server.start_etcd().await;
            fleet.server.ready().await;
            "etcd killed".to_owned()
        }
        _ => {
            let leader = fleet.leader("edge").await;
            fleet.kill("edge", leader);
            fleet.launch("edge", leader);
            format!("edge {leader}, which held the Lease, killed")
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_killed_each_event_arrives_each_release_counts_once_and_each_outcome_has_one_span() {
    let _alone = alone().await;
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    fastrand::seed(seed);
    let kills = number("TRANSPONDER_SOAK_KILLS", 12);
    let events = number("TRANSPONDER_SOAK_EVENTS", 400);
    let (broker, otlp) = (Broker::start().await, OtlpReceiver::start().await);
    let mut mesh = Mesh::new(&broker).await;
    mesh.env("OTEL_EXPORTER_OTLP_ENDPOINT", &otlp.url());
    mesh.set("edge.budget.rate", "1000");
    mesh.set("log.filter", "warn,transponder_kubernetes=info");
    let mut fleet = Fleet::new(mesh, ApiServer::start().await).await;
    let clusters: Vec<String> = (0..if events > 5000 { 100 } else { 10 }).map(|n| format!("c-{n}")).collect();
    fleet.register(&clusters).await;
    fleet.start_all(3, 2).await;

    let poster = Arc::new(fleet.poster(&clusters));
    let (next, stop, sent) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default(), Sent::default());
    let clusters = Arc::new(clusters);
    let hooks: Vec<_> = (0..HOOKS)
        .map(|_| {
            tokio::spawn(report(poster.clone(), clusters.clone(), next.clone(), stop.clone(), sent.clone()))
        })
        .collect();
    for kill in 0..kills {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(500..3000))).await;
        let what = disturb(&mut fleet).await;
        println!("{kill}: {what}, {} events taken", sent.lock().unwrap().len());
    }
    eventually("enough events are taken", DRAIN * 10, || async {
        let taken = sent.lock().unwrap().len();
        if taken >= events { Ok(()) } else { Err(format!("{taken} of {events}")) }
    })
    .await;
    stop.store(true, Relaxed);
    for service in SERVICES {
        for replica in 0..replicas(service) {
            fleet.wait_ready(service, replica).await;
        }
    }
    for hook in hooks {
        hook.await.expect("a hook reports to its end");
    }

    let sent = sent.lock().unwrap().clone();
    fleet.all_delivered(DRAIN).await;
    let received = broker.received();
    let arrived: BTreeMap<_, _> = received
        .iter()
        .map(|r| (r.header("transponder-key").unwrap().to_owned(), String::from_utf8_lossy(&r.body)))
        .collect();
    let (mut outcomes, mut succeeded, mut failed) = (0, 0.0, 0.0);
    for (key, (body, phase)) in &sent {
        assert_eq!(arrived.get(key).map(AsRef::as_ref), Some(body.as_str()), "{key}");
        outcomes += usize::from(*phase != "Syncing");
        succeeded += f64::from(*phase == "Succeeded");
        failed += f64::from(*phase == "Failed");
    }
    // Each hook saw its report taken before it went on: there is nothing that was not sent.
    assert_eq!(arrived.len(), sent.len());
    let repeated = received.len() - arrived.len();
    let spans: BTreeSet<_> = otlp.spans().iter().map(|span| span.span_id()).collect();
    let counted = fleet.metric("dora-recorder", "dora_deployments_total", &[]).await;
    let failures = fleet.metric("dora-recorder", "dora_releases_total", &["outcome=\"failed\""]).await;
    println!(
        "{kills} disturbances, {} events taken; broker: {} and {repeated} again; spans {} of {outcomes}; deployments \
         {counted} of {succeeded}; failed {failures} of {failed}",
        sent.len(),
        arrived.len(),
        spans.len()
    );
    assert_eq!((counted, failures, spans.len()), (succeeded, failed, outcomes));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_of_everything_is_not_noticed_by_those_who_report() {
    let _alone = alone().await;
    let (broker, otlp) = (Broker::start().await, OtlpReceiver::start().await);
    let mut mesh = Mesh::new(&broker).await;
    mesh.env("OTEL_EXPORTER_OTLP_ENDPOINT", &otlp.url());
    mesh.set("edge.budget.rate", "1000");
    let mut fleet = Fleet::new(mesh, ApiServer::start().await).await;
    fleet.start_all(3, 2).await;
    let rate = u32::try_from(number("TRANSPONDER_LOAD_RATE", 25)).expect("a rate");
    let load = Load::start(&fleet.mesh, "kind-prod", rate);
    load.more(50).await;
    for service in SERVICES {
        for replica in 0..replicas(service) {
            fleet.roll(service, replica).await;
        }
    }
    load.more(50).await;
    let report = load.stop().await;
    println!("{} reports at {rate} a second, the slowest in {:?}", report.ended, report.slowest);
    report.assert_flawless();
    fleet.all_delivered(DRAIN).await;
    let arrived: BTreeSet<_> =
        broker.received().iter().map(|r| r.header("transponder-key").unwrap().to_owned()).collect();
    assert_eq!(arrived, report.acknowledged);
    let spans: BTreeSet<_> = otlp.spans().iter().map(|span| span.span_id()).collect();
    let counted = fleet.metric("dora-recorder", "dora_deployments_total", &[]).await;
    assert_eq!((counted, spans.len()), (report.acknowledged.len() as f64, report.acknowledged.len()));
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_sees_each_release_once_over_hand_overs_and_no_sample_that_decreases() {
    let _alone = alone().await;
    let (broker, otlp) = (Broker::start().await, OtlpReceiver::start().await);
    let mut mesh = Mesh::new(&broker).await;
    mesh.env("OTEL_EXPORTER_OTLP_ENDPOINT", &otlp.url());
    mesh.set("dora.zero_hold", "4s");
    mesh.set("edge.budget.rate", "1000");
    let mut fleet = Fleet::new(mesh, ApiServer::start().await).await;
    fleet.start_all(1, 3).await;
    let targets: Vec<_> = (0..3).map(|n| fleet.admin("dora-recorder", n)).collect();
    let prometheus = Prometheus::scraping_one_series(&targets).await;
    eventually("Prometheus scrapes all of them", Duration::from_secs(30), || async {
        let up = prometheus.value("sum(up)").await?;
        if up == 3.0 { Ok(()) } else { Err(up.to_string()) }
    })
    .await;
    let mut releases = 0.0;
    let mut leader = fleet.leader("dora-recorder").await;
    for round in 0..4 {
        for _ in 0..5 {
            releases += 1.0;
            fleet.mesh.accept(&TestEvent::new("Succeeded", &format!("release-{releases}"))).await;
        }
        if round == 0 {
            // A series must have stood at 0 before it can be seen to increase.
            tokio::time::sleep(Duration::from_secs(8)).await;
        }
        match round {
            1 => fleet.kill("dora-recorder", leader),
            2 => fleet.roll("dora-recorder", leader).await,
            _ => {}
        }
        if round > 0 && round < 3 {
            let (next, _) = fleet.next_leader("dora-recorder", leader).await;
            if round == 1 {
                fleet.start("dora-recorder", leader).await;
            }
            leader = next;
        }
    }
    eventually("Prometheus sees every release", Duration::from_secs(60), || async {
        let seen = prometheus.value("sum(increase(dora_deployments_total[10m]))").await.unwrap_or(0.0);
        // `increase()` extrapolates to the ends of its range; what it rests on is exact.
        let last = prometheus.value("sum(dora_deployments_total)").await.unwrap_or(0.0);
        let resets = prometheus.value("sum(resets(dora_deployments_total[10m]))").await;
        if last == releases && resets == Ok(0.0) && seen >= releases {
            Ok(())
        } else {
            Err(format!("increase {seen}, last {last}, resets {resets:?} of {releases}"))
        }
    })
    .await;
}
