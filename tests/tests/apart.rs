//! Each service as a process of its own: they find each other, and one that is slow, gone or restarted is nobody else's
//! trouble.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use transponder_tests::{
    Apart, Broker, LONG, Load, Mesh, OtlpReceiver, ReceivedSpan, TestEvent, eventually, usage,
};

const TARGETS: [&str; 4] = ["broker", "tracking", "dora", "span"];

async fn apart(broker: &Broker, otlp: &OtlpReceiver) -> Apart {
    let mut mesh = Mesh::new(broker).await;
    mesh.env("OTEL_EXPORTER_OTLP_ENDPOINT", &otlp.url());
    mesh.set("edge.budget.rate", "1000");
    let mut apart = Apart::new(mesh);
    apart.start_all().await;
    apart
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorder_that_hangs_delays_nobody_and_counts_everything_once_it_is_back() {
    let (broker, otlp) = (Broker::start().await, OtlpReceiver::start().await);
    let mut apart = apart(&broker, &otlp).await;
    let first = TestEvent::new("Succeeded", "first");
    assert_eq!(apart.mesh.post("kind-prod", first.body()).await.unwrap().0, 202);
    apart.mesh.wait_final("kind-prod", &first.key()).await;

    // Its connections stay open, and nothing comes over them.
    apart.process("dora-recorder").signal(Signal::STOP);
    let load = Load::start(&apart.mesh, "kind-prod", 50);
    load.more(600).await;
    let report = load.stop().await;
    report.assert_flawless();
    assert!(report.slowest < Duration::from_secs(5), "{:?}", report.slowest);
    // Everybody else has all of it while the recorder hangs.
    eventually("the other targets have everything", LONG, || async {
        let mut waiting = Vec::new();
        for target in TARGETS {
            let label = format!("target=\"{target}\"");
            waiting.push(apart.mesh.metric("transponder_waiting_events", &[&label]).await);
        }
        if waiting[0] + waiting[1] + waiting[3] == 0.0 { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;
    assert_eq!(broker.received().len(), report.acknowledged.len() + 1);
    assert!(apart.mesh.metric("transponder_waiting_events", &["target=\"dora\""]).await > 0.0);
    let spans: BTreeSet<_> = otlp.spans().iter().map(ReceivedSpan::span_id).collect();
    assert_eq!(spans.len(), report.acknowledged.len() + 1);
    // And the edge waits at ease.
    let used = usage::cpu_percent(apart.process("edge").pid(), Duration::from_secs(5)).await;
    assert!(used < 20.0, "{used} % of one core");

    apart.process("dora-recorder").signal(Signal::CONT);
    report.assert_delivered(&apart.mesh, &broker).await;
    let counted = apart.metric("dora-recorder", "dora_deployments_total", &[]).await;
    assert_eq!(counted, report.acknowledged.len() as f64 + 1.0);
    assert_eq!(broker.received().len(), report.acknowledged.len() + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_service_is_restarted_and_killed_under_load_and_nothing_is_lost_or_doubled() {
    let (broker, otlp) = (Broker::start().await, OtlpReceiver::start().await);
    let mut apart = apart(&broker, &otlp).await;
    let load = Load::start(&apart.mesh, "kind-prod", 50);
    for service in ["dora-recorder", "forwarder", "outcome-span", "release-tracking"] {
        load.more(50).await;
        apart.restart(service).await;
        load.more(50).await;
        apart.process(service).kill();
        load.more(50).await;
        apart.start(service).await;
    }
    let begun = Instant::now();
    let report = load.stop().await;
    report.assert_flawless();
    report.assert_delivered(&apart.mesh, &broker).await;
    println!("{} reports, delivered {:?} after the last restart", report.ended, begun.elapsed());
    let acknowledged = report.acknowledged.len();
    let counted = apart.metric("dora-recorder", "dora_deployments_total", &[]).await;
    assert_eq!(counted, acknowledged as f64);
    let keys: BTreeSet<_> =
        broker.received().iter().filter_map(|r| r.header("transponder-key").map(str::to_owned)).collect();
    assert_eq!(keys.len(), acknowledged);
    let spans: BTreeSet<_> = otlp.spans().iter().map(ReceivedSpan::span_id).collect();
    assert_eq!(spans.len(), acknowledged);
}

#[tokio::test(flavor = "multi_thread")]
async fn services_that_start_in_any_order_find_each_other() {
    let (broker, otlp) = (Broker::start().await, OtlpReceiver::start().await);
    let mut mesh = Mesh::new(&broker).await;
    mesh.env("OTEL_EXPORTER_OTLP_ENDPOINT", &otlp.url());
    let mut apart = Apart::new(mesh);
    // The edge alone takes reports in and keeps them.
    apart.start("edge").await;
    let event = TestEvent::new("Failed", "early");
    assert_eq!(apart.mesh.post("kind-prod", event.body()).await.unwrap().0, 202);
    for service in ["outcome-span", "dora-recorder", "forwarder", "release-tracking"] {
        apart.start(service).await;
    }
    let receipt = apart.mesh.wait_final("kind-prod", &event.key()).await;
    for target in TARGETS {
        assert_eq!(receipt["targets"][target]["state"], "delivered", "{receipt}");
    }
    let failed = apart.metric("dora-recorder", "dora_releases_total", &["outcome=\"failed\""]).await;
    assert_eq!((failed, broker.received().len(), otlp.spans().len()), (1.0, 1, 1));
}
