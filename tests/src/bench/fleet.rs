//! The product as it is measured: on an API server of its own, with the rights of its ServiceAccounts.

use std::time::{Duration, Instant};

use transponder_tests::{Broker, Fleet, Mesh, OtlpReceiver, kubernetes::ApiServer};

use crate::wrk::Press;

/// What is left when everything is delivered goes within this time.
const DELIVERED: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(250);

/// Replicas, and what they deliver to.
pub(crate) struct Bench {
    pub fleet: Fleet,
    pub broker: Broker,
    pub clusters: Vec<String>,
    _otlp: OtlpReceiver,
}

impl Bench {
    /// Makes everything with so many clusters, and starts none of it but the API server.
    pub(crate) async fn new(server: ApiServer, clusters: usize) -> Self {
        let (broker, otlp) = (Broker::start().await, OtlpReceiver::start().await);
        let mut mesh = Mesh::new(&broker).await;
        mesh.env("OTEL_EXPORTER_OTLP_ENDPOINT", &otlp.url());
        // A cluster's budgets are what a benchmark exceeds.
        for key in ["rate", "burst", "undelivered_events", "store_events"] {
            mesh.set(&format!("edge.budget.{key}"), "1000000");
        }
        for key in ["undelivered_bytes", "store_bytes"] {
            mesh.set(&format!("edge.budget.{key}"), "8 GiB");
        }
        let mut fleet = Fleet::new(mesh, server).await;
        let clusters: Vec<_> = (0..clusters).map(|number| format!("bench-{number:05}")).collect();
        fleet.register(&clusters).await;
        Self { fleet, broker, clusters, _otlp: otlp }
    }

    /// Starts three replicas of everything, and waits until each service has its leader.
    pub(crate) async fn start(&mut self) {
        self.fleet.start_all(3, 3).await;
        for service in ["edge", "dora-recorder", "release-tracking"] {
            self.fleet.leader(service).await;
        }
    }

    /// Posts to whichever edge answers, each event of a release of its own.
    pub(crate) fn press(&self, to: String, apps: usize) -> Press {
        let target = |cluster: &String| {
            [cluster.clone(), format!("/outcome/{cluster}"), self.fleet.mesh.token(cluster).to_owned()]
        };
        Press {
            to,
            targets: self.clusters.iter().map(target).collect(),
            content_type: "application/cloudevents+json",
            body: crate::event::template(),
            apps,
        }
    }

    /// Waits until so many events have come out and nothing is left to deliver. Answers when the last one came out.
    ///
    /// # Panics
    ///
    /// When that takes minutes.
    pub(crate) async fn delivered(&mut self, events: usize) -> Instant {
        let begun = Instant::now();
        loop {
            let came = self.broker.count();
            let left = if came < events { f64::INFINITY } else { self.left().await };
            if left == 0.0 {
                return self.broker.received().last().map_or(begun, |last| last.at);
            }
            assert!(begun.elapsed() < DELIVERED, "{came} of {events} came out, {left} are left");
            // To look costs the two cores something, too.
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn left(&mut self) -> f64 {
        let waiting = self.fleet.metric("edge", "transponder_waiting_events", &[]).await;
        waiting + self.fleet.metric("edge", "transponder_pending_verdicts", &[]).await
    }
}
