//! A steady stream of reports from honest clients, which goes on while something else happens to the mesh.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{Broker, LONG, Mesh, TestEvent, eventually, mesh::client};

/// Releases are spread over so many environments, so that no stream's order holds up the rest.
const ENVS: usize = 10;

/// Honest clients of one cluster. Every other report goes over a fresh connection, the rest over kept ones.
pub struct Load {
    shared: Arc<Shared>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

struct Shared {
    cluster: String,
    url: String,
    tls: rustls::ClientConfig,
    kept: reqwest::Client,
    token: Mutex<String>,
    report: Mutex<LoadReport>,
}

/// What came of it.
#[derive(Debug, Clone, Default)]
pub struct LoadReport {
    /// Requests that have ended.
    pub ended: usize,
    /// Keys of the events that were answered with a 2xx.
    pub acknowledged: BTreeSet<String>,
    /// What was answered with anything else, or not at all.
    pub failed: Vec<String>,
    /// The slowest answer.
    pub slowest: Duration,
}

impl Load {
    /// Starts to send `a_second` reports a second in the name of a registered cluster.
    #[must_use]
    pub fn start(mesh: &Mesh, cluster: &str, a_second: u32) -> Self {
        let mut tls = mesh.client_tls();
        // A fresh connection resumes no session: its handshake is a whole one.
        tls.resumption = rustls::client::Resumption::disabled();
        let shared = Arc::new(Shared {
            cluster: cluster.to_owned(),
            url: mesh.url(&format!("/outcome/{cluster}")),
            kept: client(mesh.client_tls()),
            tls,
            token: Mutex::new(mesh.token(cluster).to_owned()),
            report: Mutex::default(),
        });
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(shared.clone(), stop.clone(), Duration::from_secs(1) / a_second));
        Self { shared, stop, task }
    }

    /// The token of all further requests.
    pub fn use_token(&self, token: &str) {
        token.clone_into(&mut self.shared.token.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// What came of it so far.
    #[must_use]
    pub fn so_far(&self) -> LoadReport {
        self.shared.report().clone()
    }

    /// Waits until that many more requests have ended.
    ///
    /// # Panics
    ///
    /// When that takes more than a minute.
    pub async fn more(&self, requests: usize) {
        let wanted = self.shared.report().ended + requests;
        eventually("the load goes on", LONG, || async {
            let ended = self.shared.report().ended;
            if ended >= wanted { Ok(()) } else { Err(format!("{ended} of {wanted} requests")) }
        })
        .await;
    }

    /// Sends no more, waits for what is out, and answers what came of it all.
    ///
    /// # Panics
    ///
    /// When the clients themselves did.
    pub async fn stop(self) -> LoadReport {
        self.stop.cancel();
        self.task.await.expect("the clients ran to their end");
        self.shared.report().clone()
    }
}

impl LoadReport {
    /// Asserts that every request was answered with a 2xx.
    ///
    /// # Panics
    ///
    /// When one was not, with the first few.
    pub fn assert_flawless(&self) {
        let first = &self.failed[..self.failed.len().min(5)];
        assert!(self.failed.is_empty(), "{} of {} failed: {first:#?}", self.failed.len(), self.ended);
        assert!(self.ended > 0, "nothing was sent");
    }

    /// Waits until everything acknowledged is at the broker and the mesh has nothing left to deliver to any target, and
    /// asserts that nothing was given up.
    ///
    /// # Panics
    ///
    /// When that does not come about within a minute.
    pub async fn assert_delivered(&self, mesh: &Mesh, broker: &Broker) {
        eventually("everything acknowledged is delivered", LONG, || async {
            let received = broker.received();
            let there: BTreeSet<&str> = received.iter().filter_map(|r| r.header("transponder-key")).collect();
            let missing = self.acknowledged.iter().filter(|key| !there.contains(key.as_str())).count();
            let waiting = mesh.metric("transponder_waiting_events", &[]).await;
            let settling = mesh.metric("transponder_pending_verdicts", &[]).await;
            if missing == 0 && waiting + settling == 0.0 {
                return Ok(());
            }
            Err(format!("{missing} not at the broker, {waiting} in queues, {settling} settling"))
        })
        .await;
        assert_eq!(mesh.metric("transponder_dead_letters_total", &[]).await, 0.0);
    }
}

impl Shared {
    fn report(&self) -> MutexGuard<'_, LoadReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(self: Arc<Self>, number: usize) {
        let mut event = TestEvent::new("Succeeded", &format!("load-{number}")).cluster(&self.cluster);
        event.env = format!("env-{}", number % ENVS);
        let client = if number.is_multiple_of(2) { self.kept.clone() } else { client(self.tls.clone()) };
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let started = Instant::now();
        let request = client
            .post(&self.url)
            .bearer_auth(token)
            .header("content-type", "application/cloudevents+json")
            .body(event.body());
        let answer = match request.send().await {
            Ok(response) => {
                let status = response.status();
                let text = response.text().await;
                if status.is_success() {
                    text.map_err(|e| format!("{e:?}"))
                } else {
                    Err(format!("{status}: {text:?}"))
                }
            }
            Err(error) => Err(format!("{error:?}")),
        };
        let took = started.elapsed();
        let mut report = self.report();
        report.ended += 1;
        report.slowest = report.slowest.max(took);
        match answer {
            Ok(_) => drop(report.acknowledged.insert(event.key())),
            Err(error) => report.failed.push(format!("request {number} after {took:?}: {error}")),
        }
    }
}

async fn run(shared: Arc<Shared>, stop: CancellationToken, every: Duration) {
    let mut ticks = tokio::time::interval(every);
    let mut requests = JoinSet::new();
    for number in 0.. {
        if stop.run_until_cancelled(ticks.tick()).await.is_none() {
            break;
        }
        requests.spawn(shared.clone().send(number));
        while requests.try_join_next().is_some() {}
    }
    while let Some(ended) = requests.join_next().await {
        ended.expect("a client does not panic");
    }
}
