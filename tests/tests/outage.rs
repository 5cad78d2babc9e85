//! Everything around the mesh fails: disk, broker, tracing backend. Late or refused, never lost, no hot loop, and
//! well again without a hand.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::{Signal, geteuid};
use serde_json::json;
use transponder_tests::{
    ALL_DELIVERED, Answer, Behaviour, Broker, HttpResponse, LONG, Load, Mesh, OtlpReceiver, OtlpReply, SHORT,
    TestEvent, alone, eventually, http, usage,
};

/// A mesh that waits for something may use this much of one core.
const CPU: f64 = 20.0;

async fn readyz(mesh: &Mesh) -> HttpResponse {
    http(["--max-time", "5", &format!("http://{}/readyz", mesh.address("admin"))]).await.unwrap()
}

async fn assert_idle(mesh: &mut Mesh, what: &str) {
    let used = usage::cpu_percent(mesh.process().pid(), Duration::from_secs(5)).await;
    println!("{what}: {used:.1} % of one core");
    assert!(used < CPU, "{what}: {used} % of one core");
}

/// A small file system over a directory. Taken away when dropped; those who use it keep it until they end.
struct SmallDisk {
    path: PathBuf,
    filler: u32,
}

impl SmallDisk {
    /// `None`, and a line that says so, where mounting is not permitted. In CI, which runs as root, that is a failure: a
    /// pass would show nothing.
    fn over(path: &Path) -> Option<Self> {
        let in_ci = std::env::var_os("CI").is_some();
        if !geteuid().is_root() {
            assert!(!in_ci, "only root can mount a small disk");
            println!("skipped: only root can mount a small disk");
            return None;
        }
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(path).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self { path: path.to_owned(), filler: 0 }),
            other => {
                assert!(!in_ci, "a small disk cannot be mounted here: {other:?}");
                println!("skipped: a small disk cannot be mounted here: {other:?}");
                None
            }
        }
    }

    /// Fills it to the last byte.
    fn fill(&mut self) {
        self.filler += 1;
        let mut file = File::create(self.path.join(format!("filler-{}", self.filler))).ok();
        for size in [65_536, 4096, 1] {
            let block = vec![0; size];
            while file.as_mut().is_some_and(|file| file.write_all(&block).is_ok()) {}
        }
    }

    fn free(&self) {
        for number in 1..=self.filler {
            let _ = fs::remove_file(self.path.join(format!("filler-{number}")));
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_503_and_not_ready_and_loses_nothing() {
    let _alone = alone().await;
    let (broker, otlp) = (Broker::start().await, OtlpReceiver::start().await);
    let mut mesh = Mesh::new(&broker).await;
    let Some(mut disk) = SmallDisk::over(&mesh.path("data")) else { return };
    mesh.env("OTEL_EXPORTER_OTLP_ENDPOINT", &otlp.url());
    mesh.set("edge.budget.rate", "1000");
    mesh.run().await;
    let mut acknowledged = Vec::new();
    let large = |number: usize| {
        let event = TestEvent::new("Succeeded", &format!("disk-{number}"));
        let mut json = event.json();
        json["subject"]["content"]["configJson"] = json!("x".repeat(30_000));
        (event, json.to_string())
    };
    let (mut number, mut refused) = (0, 0);
    while refused < 5 {
        number += 1;
        assert!(number < 1000, "the disk does not get full");
        if number > 5 {
            disk.fill();
        }
        let (event, body) = large(number);
        let answer = mesh.curl("kind-prod", &body, &[]).await.unwrap();
        match answer.status {
            202 => acknowledged.push((event, body)),
            503 => {
                assert!(answer.header("retry-after").is_some(), "{:?}", answer.headers);
                refused += 1;
            }
            status => panic!("{status}: {}", answer.body_text()),
        }
    }
    assert!(acknowledged.len() >= 5);
    let ready = readyz(&mesh).await;
    assert_eq!(ready.status, 503);
    assert!(ready.body_text().contains("disk is full"), "{}", ready.body_text());
    let alive = http([format!("http://{}/healthz", mesh.address("admin"))]).await.unwrap();
    assert_eq!(alive.status, 200, "a restart would not help");
    disk.fill();
    assert_idle(&mut mesh, "a full disk").await;
    assert_eq!(readyz(&mesh).await.status, 503, "it does not take a moment's room for recovery");

    disk.free();
    eventually("it is ready by itself", LONG, || async {
        let ready = readyz(&mesh).await;
        if ready.status == 200 { Ok(()) } else { Err(ready.body_text()) }
    })
    .await;
    let (event, body) = large(number + 1);
    assert_eq!(mesh.curl("kind-prod", &body, &[]).await.unwrap().status, 202);
    acknowledged.push((event, body));
    for (event, body) in &acknowledged {
        mesh.wait_for(event, &ALL_DELIVERED).await;
        let received = broker.received();
        let ours = received.iter().find(|r| r.header("transponder-key") == Some(event.key().as_str()));
        assert_eq!(ours.unwrap().body, body.as_bytes());
    }
    let counted = mesh.metric("dora_deployments_total", &[]).await;
    assert!(counted >= acknowledged.len() as f64, "{counted}");
    // One that was refused may be on disk nevertheless; sent again, it is counted once like the others.
    for number in 1..=number {
        let answer = mesh.curl("kind-prod", &large(number).1, &[]).await.unwrap();
        assert!([200, 202].contains(&answer.status), "{}", answer.body_text());
        mesh.wait_for(&large(number).0, &ALL_DELIVERED).await;
    }
    assert_eq!(mesh.metric("dora_deployments_total", &[]).await, (number + 1) as f64);
    assert!(mesh.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_away_holds_up_no_other_target_and_costs_next_to_nothing() {
    let _alone = alone().await;
    let (broker, otlp) = (Broker::start().await, OtlpReceiver::start().await);
    let mut mesh = Mesh::new(&broker).await;
    mesh.env("OTEL_EXPORTER_OTLP_ENDPOINT", &otlp.url());
    mesh.run().await;
    broker.refuse().await;
    let events: Vec<_> = (0..30)
        .map(|n| TestEvent::new("Succeeded", &format!("away-{n}")).app(["shop", "blog", "wiki"][n % 3]))
        .collect();
    for event in &events {
        mesh.accept(event).await;
    }
    for event in &events {
        mesh.wait_for(event, &ALL_DELIVERED[1..]).await;
    }
    assert_idle(&mut mesh, "no broker").await;
    assert_eq!(mesh.metric("transponder_target_down", &["target=\"broker\""]).await, 1.0);
    assert_eq!(mesh.metric("transponder_target_down", &[]).await, 1.0, "the others are well");
    assert_eq!(readyz(&mesh).await.status, 200, "reports are taken");
    assert_eq!(mesh.process().said("target does not take events"), 1, "one line in the first minute");
    broker.accept().await;
    let received = broker.wait_for(events.len(), LONG).await;
    let keys: BTreeSet<_> = received.iter().filter_map(|r| r.header("transponder-key")).collect();
    assert_eq!(
        keys,
        events.iter().map(TestEvent::key).collect::<Vec<_>>().iter().map(String::as_str).collect()
    );
    for event in &events {
        mesh.wait_for(event, &ALL_DELIVERED).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tracing_backend_that_is_unavailable_for_ever_holds_up_nobody_else() {
    let _alone = alone().await;
    let (broker, otlp) = (Broker::start().await, OtlpReceiver::start().await);
    otlp.always(OtlpReply::unavailable(None));
    let mut mesh = Mesh::new(&broker).await;
    mesh.env("OTEL_EXPORTER_OTLP_ENDPOINT", &otlp.url());
    mesh.run().await;
    let events: Vec<_> = (0..20).map(|n| TestEvent::new("Succeeded", &format!("span-{n}"))).collect();
    for event in &events {
        mesh.accept(event).await;
    }
    for event in &events {
        mesh.wait_for(event, &ALL_DELIVERED[..3]).await;
    }
    eventually("the backend is known to be away", LONG, || async {
        let down = mesh.metric("transponder_target_down", &["span"]).await;
        if down == 1.0 { Ok(()) } else { Err(down.to_string()) }
    })
    .await;
    // What was on its way before that has had its repetitions.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = otlp.exports().len();
    assert_idle(&mut mesh, "no tracing backend").await;
    let calls = otlp.exports().len() - before;
    println!("{before} exports at first, {calls} in five seconds of outage");
    assert!(calls <= 15, "{calls} exports in five seconds");
    let log = mesh.process().stderr();
    let warnings: Vec<&str> = log
        .lines()
        .filter(|l| l.contains("\"WARN\"") && (l.contains("span") || l.contains("OTLP")))
        .collect();
    let told = warnings.iter().filter(|line| !line.contains("not ready")).count();
    // One of the part that sends, one of the edge that waits for it.
    assert!((1..=2).contains(&told), "{warnings:#?}");
    assert_eq!(readyz(&mesh).await.status, 200, "reports are taken");

    assert!(mesh.stop().await.success());
    otlp.always(OtlpReply::Accept);
    mesh.run().await;
    for event in &events {
        mesh.wait_for(event, &ALL_DELIVERED).await;
    }
    let ids: BTreeSet<_> = otlp.spans().iter().map(transponder_tests::ReceivedSpan::span_id).collect();
    assert_eq!(ids.len(), events.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_a_tracing_backend_that_hangs_and_keeps_its_span() {
    let _alone = alone().await;
    let (broker, otlp) = (Broker::start().await, OtlpReceiver::start().await);
    otlp.always(OtlpReply::Hang);
    let mut mesh = Mesh::new(&broker).await;
    mesh.env("OTEL_EXPORTER_OTLP_ENDPOINT", &otlp.url());
    mesh.run().await;
    let event = TestEvent::new("Succeeded", "hang");
    mesh.accept(&event).await;
    otlp.wait_for_exports(1, LONG).await;
    let started = Instant::now();
    assert!(mesh.stop().await.success());
    println!("the stop took {:?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(25));
    otlp.always(OtlpReply::Accept);
    mesh.run().await;
    mesh.wait_for(&event, &ALL_DELIVERED).await;
    assert_eq!(otlp.spans().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_under_load_keeps_every_promise() {
    let _alone = alone().await;
    let (broker, otlp) = (Broker::start().await, OtlpReceiver::start().await);
    broker.always(Behaviour::Slow(Duration::from_millis(300), Answer::status(202)));
    let mut mesh = Mesh::new(&broker).await;
    mesh.env("OTEL_EXPORTER_OTLP_ENDPOINT", &otlp.url());
    mesh.set("edge.budget.rate", "1000");
    mesh.run().await;
    let load = Load::start(&mesh, "kind-prod", 50);
    load.more(100).await;
    assert_eq!(readyz(&mesh).await.status, 200);
    let started = Instant::now();
    mesh.process().signal(Signal::TERM);
    let url = format!("http://{}/readyz", mesh.address("admin"));
    let mut said = Vec::new();
    // Until the process is gone.
    while let Ok(answer) = http(["--max-time", "5", &url]).await {
        said.push((answer.status, answer.body_text()));
    }
    let status = mesh.process().terminate(Duration::from_secs(25)).await;
    println!("the stop took {:?}", started.elapsed());
    assert!(status.success(), "{status}");
    assert!(started.elapsed() < Duration::from_secs(25));
    // Each file holds everything by itself.
    for log in ["edge/outbox.db-wal", "dora-recorder/dora.db-wal", "release-tracking/tracking.db-wal"] {
        let left = fs::metadata(mesh.path("data").join(log)).map_or(0, |file| file.len());
        assert_eq!(left, 0, "{log}");
    }
    let last = said.last().expect("readiness was told during the stop");
    assert_eq!((last.0, last.1.as_str()), (503, "stopping\n"), "{said:?}");
    let report = load.stop().await;
    assert!(report.acknowledged.len() >= 100, "{}", report.acknowledged.len());
    // A connection that is idle is closed, and a request that is sent at that moment gets no answer, however that looks
    // to the client. One that waits in vain is not the same.
    let cut_off = |failure: &str| failure.contains("kind: Request") && !failure.contains("TimedOut");
    let other: Vec<_> =
        report.failed.iter().filter(|f| !f.contains("503") && !cut_off(f.as_str())).take(3).collect();
    assert!(other.is_empty(), "a request was neither refused nor cut off by the stop: {other:#?}");
    broker.always(Behaviour::Accept);
    mesh.run().await;
    report.assert_delivered(&mesh, &broker).await;
    let counted = mesh.metric("dora_deployments_total", &[]).await;
    assert!(counted >= report.acknowledged.len() as f64, "{counted} of {}", report.acknowledged.len());
    let spans: BTreeSet<_> = otlp.spans().iter().map(transponder_tests::ReceivedSpan::span_id).collect();
    assert!(spans.len() >= report.acknowledged.len(), "{} spans", spans.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_takes_calls_and_answers_none_costs_next_to_nothing() {
    let _alone = alone().await;
    let broker = Broker::start().await;
    broker.always(Behaviour::Hang);
    let mut mesh = Mesh::new(&broker).await;
    mesh.run().await;
    for n in 0..20 {
        mesh.accept(&TestEvent::new("Succeeded", "chain").app(&format!("app-{n}"))).await;
    }
    let down = || async {
        let down = mesh.metric("transponder_target_down", &["broker"]).await;
        if down == 1.0 { Ok(()) } else { Err(down.to_string()) }
    };
    eventually("the broker is known to be away", LONG, down).await;
    // Long enough for a probe that hangs to be out.
    for _ in 0..4 {
        assert_idle(&mut mesh, "a broker that hangs").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_broker_does_not_take_of_one_cluster_delays_no_other() {
    let _alone = alone().await;
    let broker = Broker::start().await;
    let mut mesh = Mesh::new(&broker).await;
    mesh.add_cluster("kind-loud").await;
    mesh.run().await;
    let loud = |body: &[u8]| String::from_utf8_lossy(body).contains("kind-loud");
    for refusal in [Answer::status(503).header("Retry-After", "300"), Answer::status(500)] {
        let name = format!("{refusal:?}");
        broker.always(Behaviour::Accept);
        broker.when(move |request| loud(&request.body), Behaviour::Answer(refusal));
        let mut slowest = Duration::ZERO;
        for n in 0..30 {
            for flood in 0..5 {
                let event = TestEvent::new("Succeeded", &format!("{name}-{n}")).cluster("kind-loud");
                let event = event.app(&format!("app-{flood}"));
                assert_eq!(mesh.post("kind-loud", event.body()).await.unwrap().0, 202);
            }
            let event = TestEvent::new("Succeeded", &format!("{name}-{n}"));
            let started = Instant::now();
            mesh.accept(&event).await;
            mesh.wait_for(&event, &[("broker", "delivered")]).await;
            slowest = slowest.max(started.elapsed());
        }
        println!("{name}: at most {slowest:?}");
        assert!(slowest < Duration::from_secs(2), "{name}: {slowest:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_finds_fault_with_every_event_is_known_to_be_wrong() {
    let _alone = alone().await;
    let broker = Broker::start().await;
    broker.always(Behaviour::Answer(Answer::status(400)));
    let mut mesh = Mesh::new(&broker).await;
    mesh.run().await;
    let down = async |mesh: &Mesh| mesh.metric("transponder_target_down", &["broker"]).await;
    for n in 0..10 {
        assert_eq!(down(&mesh).await, 0.0, "{n}");
        let event = TestEvent::new("Succeeded", &format!("chain-{n}"));
        mesh.accept(&event).await;
        mesh.wait_for(&event, &[("broker", "dead")]).await;
    }
    let known = || async { if down(&mesh).await == 1.0 { Ok(()) } else { Err("not down".to_owned()) } };
    eventually("the broker is known to be wrong", SHORT, known).await;
    assert_eq!(mesh.process().said("target refuses every event: is its address right?"), 1);
    broker.always(Behaviour::Accept);
    let event = TestEvent::new("Succeeded", "good");
    mesh.accept(&event).await;
    mesh.wait_for(&event, &ALL_DELIVERED).await;
    assert_eq!(down(&mesh).await, 0.0);
}
