//! What each service holds in memory once much was delivered, and how much is delivered in a second.

use std::time::{Duration, Instant};

use transponder_tests::kubernetes::{ApiServer, Durability, Settings};

use crate::{fleet::Bench, median, raw, value};

/// Outcomes, and as many records: each event is of a release of its own.
const EVENTS: usize = 10_000;
const CONNECTIONS: usize = 32;
const SECONDS: u64 = 3;
const APPS: usize = 120;
const SERVICES: [&str; 5] = ["edge", "forwarder", "release-tracking", "dora-recorder", "outcome-span"];

pub(crate) async fn measure() {
    let settings = Settings { durability: Durability::PowerLoss, ..Settings::default() };
    let mut bench = Bench::new(ApiServer::with(settings).await, 10).await;
    bench.start().await;
    let press = bench.press(bench.fleet.mesh.address("edge").to_string(), APPS);
    let (mut sent, mut accepted, mut delivered) = (0, Vec::new(), Vec::new());
    while sent < EVENTS {
        let begun = Instant::now();
        let pressed = press.run(bench.fleet.server.folder(), CONNECTIONS, SECONDS).await;
        sent += pressed.requests as usize;
        let done = bench.delivered(sent).await;
        accepted.push(pressed.rate);
        delivered.push(pressed.requests / (done - begun).as_secs_f64());
    }
    raw("events", &[sent as f64]);
    raw("accepted a second while others are delivered", &accepted);
    raw("delivered a second, from the first post to the last delivery", &delivered);
    raw("delivered a second: median", &[median(&delivered)]);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut largest = 0.0_f64;
    for service in SERVICES {
        let all: Vec<_> =
            (0..3).map(|number| anonymous_mib(bench.fleet.process(service, number).pid())).collect();
        raw(&format!("anonymous memory of {service} in MiB"), &all);
        largest = all.iter().copied().fold(largest, f64::max);
    }
    value("k8s_rss_mib", largest);
}

fn anonymous_mib(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("its anonymous memory");
    line.trim().trim_end_matches(" kB").parse::<f64>().expect("a number of kB") / 1024.0
}
