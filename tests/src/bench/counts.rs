//! What the API server is asked for and made to keep, by its own counters.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;
use transponder_tests::{Run, TestEvent, kubernetes::ApiServer};

use crate::{ROUNDS, event::event, fleet::Bench, median, raw, value};

/// What those that have just begun do once is over.
const SETTLED: Duration = Duration::from_secs(20);
const MINUTE: Duration = Duration::from_secs(60);
/// Events of a round, one after the other: nothing is saved by doing many at once.
const EVENTS: usize = 30;
const APART: Duration = Duration::from_millis(100);

/// Requests of each verb and resource.
type Counts = BTreeMap<String, f64>;

/// Requests of an idle fleet, requests for each event, and what is stored of it.
pub(crate) async fn requests() {
    let (mut bench, idle) = idle(10, "k8s_idle_requests_per_min").await;
    let (mut each, mut pairs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let events: Vec<_> = (0..EVENTS).map(|number| two_kib(&bench, round, number)).collect();
        each.push(for_each(&mut bench, &events, &idle).await);
    }
    for round in 0..ROUNDS {
        let release = |number: usize| {
            let cluster = &bench.clusters[number % bench.clusters.len()];
            ["Syncing", "Succeeded"].map(|phase| {
                let event = TestEvent::new(phase, &format!("pair-{round}-{number}")).cluster(cluster);
                (cluster.clone(), event.body())
            })
        };
        let events: Vec<_> = (0..EVENTS / 2).flat_map(release).collect();
        pairs.push(for_each(&mut bench, &events, &idle).await);
    }
    raw("requests for each event of a terminal phase", &each);
    raw("requests for each event of releases that begin and end", &pairs);
    value("k8s_requests_per_event", median(&each));
    let sizes = sizes(&bench.fleet.server).await;
    raw(
        "bytes of a delivered event in etcd ÷ bytes of its body: median, largest",
        &[median(&sizes), sizes.iter().copied().fold(0.0, f64::max)],
    );
    value("k8s_object_bytes", sizes.into_iter().fold(0.0, f64::max));
}

/// Requests of an idle fleet with a thousand clusters.
pub(crate) async fn idle_with_many() {
    idle(1000, "k8s_idle_requests_per_min_1000").await;
}

/// A fleet with so many clusters, and all that is asked in a minute in which nothing happens.
async fn idle(clusters: usize, key: &str) -> (Bench, Counts) {
    let mut bench = Bench::new(ApiServer::start().await, clusters).await;
    tokio::time::sleep(SETTLED).await;
    let own = minute(&bench).await;
    bench.start().await;
    tokio::time::sleep(SETTLED).await;
    let by_log = bench.fleet.server.audit().len();
    let all = minute(&bench).await;
    let log = bench.fleet.server.audit().split_off(by_log);
    let ours = log.iter().filter(|event| event.user.contains(":transponder-")).count();
    raw(
        &format!("requests a minute with {clusters} clusters: all, of the API server itself"),
        &[total(&all), total(&own)],
    );
    raw("of the services by the audit log", &[ours as f64]);
    for (kind, count) in &all {
        raw(&format!("  {kind}"), &[*count, own.get(kind).copied().unwrap_or(0.0)]);
    }
    value(key, total(&all) - total(&own));
    (bench, all)
}

async fn minute(bench: &Bench) -> Counts {
    let before = counts(&bench.fleet.server).await;
    tokio::time::sleep(MINUTE).await;
    since(&before, &counts(&bench.fleet.server).await)
}

/// Posts events one after the other, and answers how many requests each has cost until it was delivered, less what is
/// asked meanwhile in any case.
async fn for_each(bench: &mut Bench, events: &[(String, String)], idle: &Counts) -> f64 {
    let (begun, before) = (Instant::now(), counts(&bench.fleet.server).await);
    let came = bench.broker.count();
    for (cluster, body) in events {
        let (status, answer) = bench.fleet.mesh.post(cluster, body.clone()).await.expect("an answer");
        assert_eq!(status, 202, "{answer}");
        tokio::time::sleep(APART).await;
    }
    let terminal = events.iter().filter(|(_, body)| !body.contains("Syncing")).count();
    bench.delivered(came + terminal).await;
    // What was delivered is noted after.
    let mut last = counts(&bench.fleet.server).await;
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = counts(&bench.fleet.server).await;
        let of_outcomes = |counts: &Counts| -> f64 {
            counts.iter().filter(|(kind, _)| kind.contains("release")).map(|(_, n)| n).sum()
        };
        if of_outcomes(&now) == of_outcomes(&last) {
            break;
        }
        last = now;
    }
    let asked = total(&since(&before, &counts(&bench.fleet.server).await));
    let in_any_case = total(idle) * begun.elapsed().as_secs_f64() / MINUTE.as_secs_f64();
    (asked - in_any_case) / events.len() as f64
}

fn two_kib(bench: &Bench, round: usize, number: usize) -> (String, String) {
    let cluster = &bench.clusters[number % bench.clusters.len()];
    (cluster.clone(), event(cluster, round * EVENTS + number, number))
}

/// All requests so far by `apiserver_request_total`; a watch counts when it ends. Left out is what is asked of no resource,
/// such as this very page.
async fn counts(server: &ApiServer) -> Counts {
    let page = server.kubectl(["get", "--raw", "/metrics"]).await.success().text();
    let mut counts = Counts::new();
    for line in page.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
        let (series, number) = line.rsplit_once(' ').expect("a sample has a value");
        let label = |name: &str| {
            let (_, rest) = series.split_once(&format!("{name}=\"")).unwrap_or_default();
            rest.split('"').next().unwrap_or_default()
        };
        // `resource` is the end of `subresource`, too, which comes after it.
        if !label(",resource").is_empty() {
            let kind = format!("{} {} {}", label("verb"), label(",resource"), label("subresource"));
            *counts.entry(kind.trim_end().to_owned()).or_default() +=
                number.parse::<f64>().expect("a number");
        }
    }
    counts
}

fn since(before: &Counts, now: &Counts) -> Counts {
    let more = |(kind, count): (&String, &f64)| {
        let more = count - before.get(kind).copied().unwrap_or(0.0);
        (more > 0.0).then(|| (kind.clone(), more))
    };
    now.iter().filter_map(more).collect()
}

fn total(counts: &Counts) -> f64 {
    counts.values().sum()
}

/// Of each delivered event of 2 KiB: what lies in etcd, over its body.
async fn sizes(server: &ApiServer) -> Vec<f64> {
    let get = ["get", "--prefix", "/registry/transponder.dev/releaseoutcomes/", "-w", "json"];
    let etcdctl = Run::tool("etcdctl").env("ETCDCTL_API", "3").args(["--endpoints", &server.etcd_url()]);
    let all = etcdctl.args(get).run().await.success().json();
    let objects = all["kvs"].as_array().expect("objects").iter().map(|pair| {
        let stored = STANDARD.decode(pair["value"].as_str().expect("a value")).expect("base64");
        let object: Value = serde_json::from_slice(&stored).expect("an object in JSON");
        let body = object["spec"]["body"].as_str().expect("a body").len();
        let delivered = object["status"]["state"] == "Delivered";
        (stored.len() as f64 / body as f64, delivered && body > 1800)
    });
    objects.filter_map(|(ratio, counts)| counts.then_some(ratio)).collect()
}
