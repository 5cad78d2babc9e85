//! The story: what is sent, and what must come of it.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use jiff::SignedDuration;
use serde_json::Value;
use transponder_core::{Phase, Stream, Target, TargetState, Timestamp};
use transponder_hook::{
    event::{self, Built, Fields},
    post::Answer,
};
use transponder_proto::v1::{Release, ReleaseState};

use super::{
    look::{Scrape, Span, eventually},
    stage::{CLUSTER, SETTLE, SILENCE, Stage},
    task::PullRequest,
    teller::Teller,
};
use crate::{
    installation::TASK_NAMESPACE,
    output::{FAINT, paint, print},
    receipt,
};

use TargetState::{Delivered, Replaced, Waiting};

/// The pull request of the first release was opened so long ago.
const PULL_REQUEST_AGE: SignedDuration = SignedDuration::from_hours(74);
/// And its flow, which makes the lead time, began so long ago.
const FLOW_AGE: SignedDuration = SignedDuration::from_hours(50);
const PULL_REQUEST: &str = "https://git.example/shop/pull/17";

/// The story as it is told.
pub(super) struct Story {
    stage: Stage,
    teller: Teller,
    /// When it begins: all times in it are reckoned from here.
    now: Timestamp,
    /// What the broker must have, in order.
    forwarded: Vec<Bytes>,
}

/// One event as a hook sent it.
pub(super) struct Sent {
    pub(super) key: String,
    pub(super) body: Bytes,
    finished_at: Timestamp,
}

impl Story {
    pub(super) fn new(stage: Stage) -> Self {
        Self { stage, teller: Teller::new(), now: Timestamp::now(), forwarded: Vec::new() }
    }

    /// Sums up; gives the stage back.
    pub(super) fn end(self) -> (Stage, bool) {
        let held = self.teller.end();
        (self.stage, held)
    }

    /// Tells all of it; answers the first release's outcome, for those who want to look at it.
    pub(super) async fn tell(&mut self) -> Sent {
        self.pull_request().await;
        self.pre_sync().await;
        let outcome = self.post_sync().await;
        self.post_sync_again(&outcome).await;
        self.fails_twice_then_succeeds().await;
        self.stays_failed().await;
        self.lies().await;
        self.wrong_token().await;
        self.never_reports().await;
        self.metrics().await;
        self.spans(&outcome).await;
        outcome
    }

    async fn pull_request(&mut self) {
        self.teller.step("A Task records the release's pull request, then its merge");
        let opened = self.now - PULL_REQUEST_AGE;
        let pull_request = PullRequest { url: PULL_REQUEST, created_at: Some(opened), merged_at: None };
        self.teller
            .sent(&format!("ReleaseTracking.Put  {PULL_REQUEST}, opened {} ago", age(PULL_REQUEST_AGE)));
        self.put(&release("prod", "demo-1"), pull_request, ReleaseState::Expected).await;
        let merged = PullRequest { merged_at: Some(self.now), ..pull_request };
        self.put(&release("prod", "demo-1"), merged, ReleaseState::Merged).await;
    }

    async fn pre_sync(&mut self) {
        self.teller.step("Argo CD begins to sync: the PreSync hook reports");
        let event = self.event("demo-1", Phase::Syncing, "presync", 0);
        let sent = self.send(event, 202).await;
        self.receipt(&sent, &[(Target::Broker, Delivered), (Target::Tracking, Delivered)]).await;
        self.broker().await;
        self.tracked("prod", "demo-1", ReleaseState::Progressing).await;
    }

    async fn post_sync(&mut self) -> Sent {
        self.teller.step("The sync is done: the PostSync hook reports the outcome");
        let event = self.event("demo-1", Phase::Succeeded, "postsync", 1);
        let sent = self.send(event, 202).await;
        self.receipt(&sent, &ALL_DELIVERED).await;
        self.broker().await;
        self.tracked("prod", "demo-1", ReleaseState::Succeeded).await;
        self.dora(Counted { deployments: 1, succeeded: 1, failed: 0 }).await;
        self.span_count(1).await;
        sent
    }

    async fn post_sync_again(&mut self, first: &Sent) {
        self.teller.step("The hook's pod died before it read the answer: its retry sends the same again");
        let answer = self.post(first.body.clone()).await;
        let outcome = answer.and_then(|(answer, taken)| {
            ensure!(answer.status == 200, "expected 200, got {}", answer.status);
            ensure!(taken["identical"] == true, "expected an identical event, got {taken}");
            Ok("200, known already, nothing new to do".to_owned())
        });
        self.teller.outcome("edge", outcome);
        self.broker().await;
        self.dora(Counted { deployments: 1, succeeded: 1, failed: 0 }).await;
        self.span_count(1).await;
    }

    async fn fails_twice_then_succeeds(&mut self) {
        self.teller.step("The next release fails, fails in Argo CD's retry, and then succeeds");
        let failed = self.event("demo-2", Phase::Failed, "syncfail", 2);
        let failed = self.send(failed, 202).await;
        let again = self.event("demo-2", Phase::Failed, "syncfail", 3);
        let answer = self.post(again.1.body.into()).await;
        let outcome = answer.and_then(|(answer, taken)| {
            ensure!(answer.status == 200, "expected 200, got {}", answer.status);
            ensure!(taken["identical"] == false, "expected another finish time, got {taken}");
            Ok("200, the same event with a later finish: observed, not sent on".to_owned())
        });
        self.teller.outcome("edge", outcome);
        let succeeded = self.event("demo-2", Phase::Succeeded, "postsync", 4);
        let succeeded = self.send(succeeded, 202).await;
        self.receipt(&succeeded, &ALL_DELIVERED).await;
        let overtaken = [
            (Target::Broker, Delivered),
            (Target::Tracking, Delivered),
            (Target::Dora, Replaced),
            (Target::Span, Delivered),
        ];
        self.receipt(&failed, &overtaken).await;
        self.broker().await;
        self.tracked("prod", "demo-2", ReleaseState::Succeeded).await;
        self.dora(Counted { deployments: 2, succeeded: 2, failed: 0 }).await;
    }

    async fn stays_failed(&mut self) {
        self.teller.step("Another release fails and stays so");
        let event = self.event("demo-3", Phase::Failed, "syncfail", 5);
        let sent = self.send(event, 202).await;
        let settling = [
            (Target::Broker, Delivered),
            (Target::Tracking, Delivered),
            (Target::Dora, Waiting),
            (Target::Span, Delivered),
        ];
        self.receipt(&sent, &settling).await;
        self.teller
            .waiting(&format!("it may still succeed: counted after {SETTLE} (20 min outside the demo)"));
        self.receipt(&sent, &ALL_DELIVERED).await;
        self.broker().await;
        self.tracked("prod", "demo-3", ReleaseState::Failed).await;
        self.dora(Counted { deployments: 2, succeeded: 2, failed: 1 }).await;
    }

    async fn lies(&mut self) {
        self.teller.step("A cluster reports in another cluster's name");
        let event = self.event("demo-1", Phase::Succeeded, "postsync", 6).1;
        let text = String::from_utf8_lossy(&event.body)
            .replace(&format!(r#""cluster":"{CLUSTER}""#), r#""cluster":"kind-other""#);
        let answer = self.post(text.into_bytes().into()).await;
        let outcome = answer.and_then(|(answer, problem)| {
            let detail = problem["detail"].as_str().unwrap_or_default();
            ensure!(answer.status == 400, "expected 400, got {}", answer.status);
            ensure!(
                detail.contains("kind-other") && detail.contains(CLUSTER),
                "expected both names in the problem, got '{detail}'"
            );
            Ok(format!("400, {detail}"))
        });
        self.teller.outcome("edge", outcome);
        self.broker().await;
    }

    async fn wrong_token(&mut self) {
        self.teller.step("Somebody without the cluster's token tries");
        let body = self.event("demo-1", Phase::Succeeded, "postsync", 7).1.body;
        self.teller.sent(&format!("POST /outcome/{CLUSTER}  with a wrong token"));
        let posted = async {
            let answer = self.stage.relay_with("a-token-of-somebody-else")?.post(body).await?;
            ensure!(answer.status == 401, "expected 401, got {}", answer.status);
            Ok("401, and nothing was stored".to_owned())
        };
        let outcome = posted.await;
        self.teller.outcome("edge", outcome);
        self.broker().await;
    }

    async fn never_reports(&mut self) {
        self.teller.step("A pull request is merged, and then: silence");
        self.teller.sent("ReleaseTracking.Put  https://git.example/shop/pull/18, merged just now");
        let release = release("staging", "demo-4");
        let merged_at = Some(Timestamp::now());
        let pull_request =
            PullRequest { url: "https://git.example/shop/pull/18", created_at: merged_at, merged_at };
        self.put(&release, pull_request, ReleaseState::Merged).await;
        self.teller.waiting(&format!("silence is an outcome after {SILENCE} (45 min outside the demo)"));
        self.tracked("staging", "demo-4", ReleaseState::Unreported).await;
    }

    async fn metrics(&mut self) {
        self.teller.step("What Prometheus scrapes");
        let url = self.stage.metrics_url();
        let outcome = match Scrape::of(&self.stage.http, &url).await {
            Err(error) => Err(error),
            Ok(scrape) => {
                for line in scrape.dora() {
                    print(&format!("   {}\n", paint(FAINT, line)));
                }
                lead_times(&scrape, self.now)
            }
        };
        self.teller.outcome("dora-recorder", outcome);
        let unreported = eventually(async || {
            let scrape = Scrape::of(&self.stage.http, &url).await?;
            let observations = scrape.sum("transponder_observations_total", &[]);
            ensure!(observations == 6.0, "expected 6 observations, counted {observations}");
            Ok("6 observations of 5 events".to_owned())
        });
        let outcome = unreported.await;
        self.teller.outcome("edge", outcome);
    }

    async fn spans(&mut self, outcome: &Sent) {
        self.teller.step("What the tracing backend gets");
        self.span_count(4).await;
        let shown = self.span_of(outcome);
        self.teller.outcome("outcome-span", shown);
    }

    fn span_of(&self, outcome: &Sent) -> anyhow::Result<String> {
        let spans = Span::read(&self.stage.installation.spans())?;
        let name = "release-outcome:shop/prod [Succeeded]";
        let span = spans
            .iter()
            .find(|span| span.attribute("platform.chain_id") == "demo-1")
            .context("there is no span of demo-1")?;
        ensure!(span.text("name") == name, "the span is called '{}', not '{name}'", span.text("name"));
        let (start, end) = (span.time("startTimeUnixNano")?, span.time("endTimeUnixNano")?);
        let opened = self.now - PULL_REQUEST_AGE;
        ensure!(start == opened, "the span starts at {start}, the pull request was opened at {opened}");
        let finished = millis(outcome.finished_at);
        ensure!(end == finished, "the span ends at {end}, the release finished at {finished}");
        ensure!(span.attribute("platform.pr_url") == PULL_REQUEST, "the span names no pull request");
        let mut ids: Vec<&str> = spans.iter().map(|span| span.text("spanId")).collect();
        ids.sort_unstable();
        ids.dedup();
        ensure!(ids.len() == spans.len(), "two spans have one id");
        Ok(format!(
            "{name}, {} long, from the pull request's opening\n{:22}trace {}",
            age(end.duration_since(start)),
            "",
            span.text("traceId"),
        ))
    }
}

const ALL_DELIVERED: [(Target, TargetState); 4] = [
    (Target::Broker, Delivered),
    (Target::Tracking, Delivered),
    (Target::Dora, Delivered),
    (Target::Span, Delivered),
];

/// What DORA must have counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counted {
    deployments: u32,
    succeeded: u32,
    failed: u32,
}

/// What each step does and looks at.
impl Story {
    /// An event of app `shop` in `prod`, finished some milliseconds after the story began. All of one release and one
    /// kind of hook have one name, as in the retries of one operation of Argo CD.
    fn event(&self, chain_id: &str, phase: Phase, hook: &str, after: i64) -> (Timestamp, Built) {
        let finished_at = self.now + SignedDuration::from_millis(after);
        let fields = Fields {
            stream: stream("prod"),
            phase,
            finished_at,
            chain_id: chain_id.to_owned(),
            gitops_revision: "4b1d9e0c".into(),
            git_url: "https://git.example/shop".into(),
            git_revision: format!("{chain_id}-revision"),
            flow_start_time: (self.now - FLOW_AGE).to_string(),
            config_json: "{}".into(),
        };
        let job = format!("shop-outcome-{chain_id}-{hook}-{}", self.now.as_second());
        let attempt = event::attempt(Some(&job), None, phase, finished_at);
        #[expect(clippy::expect_used, reason = "an event of fixed texts is always written")]
        let built = event::build(&fields, &attempt).expect("an event");
        (finished_at, built)
    }

    async fn send(&mut self, event: (Timestamp, Built), status: u16) -> Sent {
        let (finished_at, built) = event;
        let sent = Sent { key: built.key.to_string(), body: built.body.into(), finished_at };
        let outcome = self.post(sent.body.clone()).await.and_then(|(answer, taken)| {
            ensure!(answer.status == status, "expected {status}, got {}: {taken}", answer.status);
            Ok(format!("{status}, stored as {}", sent.key))
        });
        if outcome.is_ok() {
            self.forwarded.push(sent.body.clone());
        }
        self.teller.outcome("edge", outcome);
        sent
    }

    async fn post(&self, body: Bytes) -> anyhow::Result<(Answer, Value)> {
        let event: Value = serde_json::from_slice(&body)?;
        let content = &event["subject"]["content"];
        let field = |name: &str| content[name].as_str().unwrap_or_default();
        self.teller.sent(&format!(
            "POST /outcome/{CLUSTER}  {} of {} in {} on {}, {} bytes",
            field("phase"),
            event["context"]["chainId"].as_str().unwrap_or_default(),
            field("env"),
            field("cluster"),
            body.len(),
        ));
        let answer = self.stage.relay.post(body.to_vec()).await?;
        let document = serde_json::from_slice(&answer.body).unwrap_or_default();
        Ok((answer, document))
    }

    async fn receipt(&mut self, sent: &Sent, expected: &[(Target, TargetState)]) {
        let outcome = eventually(async || {
            let receipt = self.stage.relay.receipt(&sent.key).await?;
            let targets = receipt::targets(&receipt);
            ensure!(targets == expected, "the receipt says {}, expected {}", list(&targets), list(expected));
            Ok(format!("receipt: {}", list(&targets)))
        });
        let outcome = outcome.await;
        self.teller.outcome("edge", outcome);
    }

    async fn broker(&mut self) {
        let outcome = eventually(async || {
            let arrivals = self.stage.broker.arrivals();
            let (got, expected) = (arrivals.len(), self.forwarded.len());
            ensure!(got == expected, "{got} events arrived, expected {expected}");
            // Order holds within a release; two releases may overtake each other nowhere here, as each step waits.
            for (arrival, body) in arrivals.iter().zip(&self.forwarded) {
                ensure!(arrival.body == *body, "the bytes of {} are not those that were sent", arrival.key);
                ensure!(
                    arrival.content_type == "application/cloudevents+json",
                    "the content type of {} became {}",
                    arrival.key,
                    arrival.content_type
                );
            }
            Ok(format!("{got} events so far, byte for byte as they were sent"))
        });
        let outcome = outcome.await;
        self.teller.outcome("broker", outcome);
    }

    async fn put(&mut self, release: &Release, pull_request: PullRequest<'_>, expected: ReleaseState) {
        let record = self.stage.task.put(release, pull_request).await;
        let outcome = record.and_then(|record| in_state(record.state, expected));
        self.teller.outcome("release-tracking", outcome);
    }

    async fn tracked(&mut self, env: &str, chain_id: &str, expected: ReleaseState) {
        let release = release(env, chain_id);
        let mut waited = Duration::ZERO;
        let outcome = loop {
            let record = self.stage.task.resolve(&release).await;
            let state =
                record.and_then(|record| in_state(record.context("there is no record")?.state, expected));
            if state.is_ok() || waited >= super::look::PATIENCE {
                break state;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            waited += Duration::from_millis(10);
        };
        self.teller.outcome("release-tracking", outcome);
    }

    async fn dora(&mut self, expected: Counted) {
        let url = self.stage.metrics_url();
        let outcome = eventually(async || {
            let scrape = Scrape::of(&self.stage.http, &url).await?;
            let labels =
                [("app_namespace", TASK_NAMESPACE), ("app", "shop"), ("env", "prod"), ("cluster", CLUSTER)];
            let releases = |outcome| {
                let with = [labels.as_slice(), &[("outcome", outcome)]].concat();
                scrape.sum("dora_releases_total", &with)
            };
            let deployments = scrape.sum("dora_deployments_total", &labels);
            let counted = [deployments, releases("succeeded"), releases("failed")];
            let wanted = [expected.deployments, expected.succeeded, expected.failed].map(f64::from);
            ensure!(counted == wanted, "deployments, succeeded, failed are {counted:?}, expected {wanted:?}");
            let Counted { deployments, succeeded, failed } = expected;
            Ok(format!("deployments {deployments}, releases succeeded {succeeded}, failed {failed}"))
        });
        let outcome = outcome.await;
        self.teller.outcome("dora-recorder", outcome);
    }

    async fn span_count(&mut self, expected: usize) {
        let path = self.stage.installation.spans();
        let outcome = eventually(async || {
            let got = Span::read(&path)?.len();
            ensure!(got == expected, "{got} spans were sent, expected {expected}");
            Ok(format!("{got} span{} so far", if got == 1 { "" } else { "s" }))
        });
        let outcome = outcome.await;
        self.teller.outcome("outcome-span", outcome);
    }
}

fn lead_times(scrape: &Scrape, now: Timestamp) -> anyhow::Result<String> {
    let labels = [("app", "shop"), ("env", "prod"), ("cluster", CLUSTER)];
    let count = scrape.sum("dora_lead_time_seconds_count", &labels);
    let sum = scrape.sum("dora_lead_time_seconds_sum", &labels);
    ensure!(count == 2.0, "{count} lead times, expected 2");
    // Two releases, finished 1 ms and 4 ms after the story began; times in events have milliseconds.
    let expected = 2.0 * FLOW_AGE.as_secs_f64();
    ensure!((sum - expected).abs() < 1.0, "lead times add up to {sum} s, expected {expected} s from {now}");
    Ok(format!("2 lead times of {} each", age(FLOW_AGE)))
}

fn in_state(state: i32, expected: ReleaseState) -> anyhow::Result<String> {
    let state = ReleaseState::try_from(state).unwrap_or_default();
    if state != expected {
        bail!("the release is {}, expected {}", name_of(state), name_of(expected));
    }
    Ok(format!("the release is {}", name_of(state)))
}

fn name_of(state: ReleaseState) -> String {
    state.as_str_name().trim_start_matches("RELEASE_STATE_").to_lowercase()
}

fn list(targets: &[(Target, TargetState)]) -> String {
    targets.iter().map(|(target, state)| format!("{target} {state}")).collect::<Vec<_>>().join(", ")
}

fn stream(env: &str) -> Stream {
    let parse = || {
        Some(Stream {
            app_namespace: TASK_NAMESPACE.parse().ok()?,
            app: "shop".parse().ok()?,
            env: env.parse().ok()?,
            cluster: CLUSTER.parse().ok()?,
        })
    };
    #[expect(clippy::expect_used, reason = "fixed names that are DNS labels")]
    parse().expect("DNS labels")
}

fn release(env: &str, chain_id: &str) -> Release {
    Release {
        app_namespace: TASK_NAMESPACE.into(),
        app_name: "shop".into(),
        env: env.into(),
        cluster: CLUSTER.into(),
        chain_id: chain_id.into(),
        ..Default::default()
    }
}

/// Times in an event have milliseconds.
fn millis(time: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time)
}

fn age(duration: SignedDuration) -> String {
    let hours = duration.as_hours();
    format!("{} d {} h", hours / 24, hours % 24)
}
