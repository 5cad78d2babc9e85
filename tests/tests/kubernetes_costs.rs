//! What the API server is asked for and made to keep: counts, which are the same on a busy machine.

use std::time::Duration;

use serde_json::Value;
use transponder_tests::{
    Broker, Fleet, LONG, Mesh, NAMESPACE, OtlpReceiver, TestEvent, kubernetes::ApiServer,
};

/// Requests a minute of three replicas of everything, while nothing happens.
const IDLE: usize = 60;
/// Requests for one event, from its acceptance to its last target, of all services together.
const PER_EVENT: f64 = 7.0;
/// Bytes in etcd for each byte of an event of 2 KiB.
const BYTES: f64 = 3.0;

fn requests(fleet: &Fleet) -> Vec<String> {
    let ours = fleet.server.audit().into_iter().filter(|event| event.user.contains(":transponder-"));
    ours.map(|event| format!("{} {} {}", event.user, event.verb, event.resource)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_fleet_asks_for_little_an_event_for_no_more_than_it_needs_and_an_object_is_small() {
    let (broker, otlp) = (Broker::start().await, OtlpReceiver::start().await);
    let mut mesh = Mesh::new(&broker).await;
    mesh.env("OTEL_EXPORTER_OTLP_ENDPOINT", &otlp.url());
    mesh.set("edge.settle.failed", "1s");
    let mut fleet = Fleet::new(mesh, ApiServer::start().await).await;
    let clusters: usize =
        std::env::var("TRANSPONDER_COST_CLUSTERS").ok().and_then(|n| n.parse().ok()).unwrap_or(10);
    let clusters: Vec<_> = (0..clusters).map(|number| format!("c-{number}")).collect();
    fleet.register(&clusters).await;
    fleet.start_all(3, 3).await;
    for service in ["edge", "dora-recorder", "release-tracking"] {
        fleet.leader(service).await;
    }
    // What a new holder does once is over.
    tokio::time::sleep(Duration::from_secs(15)).await;

    let before = requests(&fleet).len();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let idle = requests(&fleet).split_off(before);
    println!("{} requests a minute with {} clusters and nothing to do", idle.len(), clusters.len());
    assert!(idle.len() <= IDLE, "{} in a minute: {idle:#?}", idle.len());

    // One release after the other, each with its sync: nothing is saved by doing many at once.
    let before = requests(&fleet).len();
    let releases = 30;
    for number in 0..releases {
        let cluster = &clusters[number % clusters.len()];
        for phase in ["Syncing", "Succeeded"] {
            let event = TestEvent::new(phase, &format!("release-{number}")).cluster(cluster);
            fleet.mesh.accept(&event).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    fleet.all_delivered(LONG).await;
    let asked = requests(&fleet).split_off(before);
    // The Leases go on meanwhile, and the Secret of a cluster is read when it reports.
    let of_events = asked.iter().filter(|request| !request.ends_with(" leases")).count();
    let each = of_events as f64 / (2 * releases) as f64;
    let mut kinds: std::collections::BTreeMap<&String, usize> = Default::default();
    asked.iter().for_each(|request| *kinds.entry(request).or_default() += 1);
    println!("{each:.2} requests an event, {kinds:#?}");
    assert!(each <= PER_EVENT, "{each}: {kinds:#?}");

    let list = ["get", "ro", "-n", NAMESPACE, "-o", "json", "--show-managed-fields"];
    let list = fleet.server.kubectl(list).await.success().json();
    let terminal = list["items"].as_array().unwrap().iter().filter(|o| o["spec"]["phase"] == "Succeeded");
    let overhead: Vec<_> = terminal.map(overhead).collect();
    let largest = overhead.iter().max().unwrap();
    let stored = (2048 + largest) as f64 / 2048.0;
    println!("{largest} bytes beside the event: {stored:.2} times one of 2 KiB");
    assert!(stored <= BYTES, "{stored}");
}

/// What an object takes in etcd beyond the bytes of its event: it is kept as JSON without white space.
fn overhead(object: &Value) -> usize {
    object.to_string().len() - object["spec"]["body"].as_str().unwrap().len()
}
