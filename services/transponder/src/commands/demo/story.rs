//! The story: what is sent, and what must come of it.

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use transponder_core::{Phase, Target, TargetState, Timestamp};
use transponder_proto::v1::ReleaseState;

use super::{
    expect::Counted,
    hook::{Event, FLOW_AGE, Hooks, PULL_REQUEST_AGE, age, release},
    look::{Scrape, Span, eventually},
    stage::{CLUSTER, SETTLE, SILENCE, Stage},
    task::PullRequest,
    teller::Teller,
};
use crate::output::{FAINT, paint, print};

use TargetState::{Delivered, Replaced};

const PULL_REQUEST: &str = "https://git.example/shop/pull/17";
const FORGOTTEN: &str = "https://git.example/shop/pull/18";

/// The story as it is told.
pub(super) struct Story {
    pub(super) stage: Stage,
    pub(super) teller: Teller,
    pub(super) hooks: Hooks,
    /// What the broker must have, in order.
    pub(super) forwarded: Vec<Bytes>,
    /// How many of them have been told of.
    pub(super) shown: usize,
}

impl Story {
    pub(super) fn new(stage: Stage) -> Self {
        let hooks = Hooks { began: Timestamp::now() };
        Self { stage, teller: Teller::new(), hooks, forwarded: Vec::new(), shown: 0 }
    }

    /// Sums up; gives the stage back, and whether everything came out as it should.
    pub(super) fn end(self) -> (Stage, bool) {
        let held = self.teller.end();
        (self.stage, held)
    }

    /// Tells all of it; answers the first release's outcome, for those who want to look at it, and one of a release
    /// that comes after the story, for those who want to send one.
    pub(super) async fn tell(&mut self) -> anyhow::Result<(Event, Event)> {
        self.pull_request().await;
        self.pre_sync().await?;
        let outcome = self.post_sync().await?;
        self.post_sync_again(&outcome).await;
        self.fails_twice_then_succeeds().await?;
        self.stays_failed().await?;
        self.lies().await?;
        self.wrong_token().await?;
        self.never_reports().await;
        self.metrics().await;
        self.spans(&outcome).await;
        Ok((outcome, self.hooks.event("demo-5", Phase::Succeeded, 8)?))
    }

    async fn pull_request(&mut self) {
        self.teller.step("A Task records the release's pull request, then its merge");
        let opened = self.hooks.began - PULL_REQUEST_AGE;
        self.teller
            .sent(&format!("ReleaseTracking.Put  {PULL_REQUEST}, opened {} ago", age(PULL_REQUEST_AGE)));
        let pull = PullRequest { url: PULL_REQUEST, created_at: Some(opened), merged_at: None };
        self.put(&release("prod", "demo-1"), pull, ReleaseState::Expected).await;
        self.teller.sent("ReleaseTracking.Put  merged now");
        let merged = PullRequest { merged_at: Some(self.hooks.began), ..pull };
        self.put(&release("prod", "demo-1"), merged, ReleaseState::Merged).await;
    }

    async fn pre_sync(&mut self) -> anyhow::Result<()> {
        self.teller.step("Argo CD begins to sync: the PreSync hook reports");
        let event = self.send("demo-1", Phase::Syncing, 0).await?;
        self.receipt(&event, "", &[(Target::Broker, Delivered), (Target::Tracking, Delivered)]).await;
        self.broker().await;
        self.tracked("prod", "demo-1", ReleaseState::Progressing).await;
        Ok(())
    }

    async fn post_sync(&mut self) -> anyhow::Result<Event> {
        self.teller.step("The sync is done: the PostSync hook reports the outcome");
        let event = self.send("demo-1", Phase::Succeeded, 1).await?;
        self.receipt(&event, "", &dora_is(Delivered)).await;
        self.broker().await;
        self.tracked("prod", "demo-1", ReleaseState::Succeeded).await;
        self.dora(Counted { deployments: 1, succeeded: 1, failed: 0 }).await;
        self.span_count(1).await;
        Ok(event)
    }

    async fn post_sync_again(&mut self, first: &Event) {
        self.teller.step("The hook's pod died before it read the answer: its retry sends the same again");
        let outcome = self.post(&first.built.body).await.and_then(|(answer, taken)| {
            ensure!(answer.status == 200, "expected 200, got {}", answer.status);
            ensure!(taken["identical"] == true, "expected an identical event, got {taken}");
            Ok("200, known already: nothing to do".to_owned())
        });
        self.teller.outcome("edge", outcome);
        self.broker().await;
        self.dora(Counted { deployments: 1, succeeded: 1, failed: 0 }).await;
        self.span_count(1).await;
    }

    async fn fails_twice_then_succeeds(&mut self) -> anyhow::Result<()> {
        self.teller.step("The next release fails, fails in Argo CD's retry, and then succeeds");
        let failed = self.send("demo-2", Phase::Failed, 2).await?;
        let again = self.hooks.event("demo-2", Phase::Failed, 3)?;
        let outcome = self.post(&again.built.body).await.and_then(|(answer, taken)| {
            ensure!(answer.status == 200, "expected 200, got {}", answer.status);
            ensure!(taken["identical"] == false, "expected another finish time, got {taken}");
            Ok("200, the same event with a later finish: noted, not sent on".to_owned())
        });
        self.teller.outcome("edge", outcome);
        let succeeded = self.send("demo-2", Phase::Succeeded, 4).await?;
        self.receipt(&failed, " of the failure", &dora_is(Replaced)).await;
        self.receipt(&succeeded, " of the success", &dora_is(Delivered)).await;
        self.broker().await;
        self.tracked("prod", "demo-2", ReleaseState::Succeeded).await;
        self.dora(Counted { deployments: 2, succeeded: 2, failed: 0 }).await;
        self.span_count(3).await;
        Ok(())
    }

    async fn stays_failed(&mut self) -> anyhow::Result<()> {
        self.teller.step("Another release fails and stays so");
        let event = self.send("demo-3", Phase::Failed, 5).await?;
        self.teller
            .waiting(&format!("it may still succeed: counted after {SETTLE}, 20 min outside the demo"));
        self.receipt(&event, "", &dora_is(Delivered)).await;
        self.broker().await;
        self.tracked("prod", "demo-3", ReleaseState::Failed).await;
        self.dora(Counted { deployments: 2, succeeded: 2, failed: 1 }).await;
        self.span_count(4).await;
        Ok(())
    }

    async fn lies(&mut self) -> anyhow::Result<()> {
        self.teller.step("A cluster reports in another cluster's name");
        let event = self.hooks.event("demo-1", Phase::Succeeded, 6)?;
        let own = format!(r#""cluster":"{CLUSTER}""#);
        let text = String::from_utf8_lossy(&event.built.body).replace(&own, r#""cluster":"kind-other""#);
        let outcome = self.post(text.as_bytes()).await.and_then(|(answer, problem)| {
            let detail = problem["detail"].as_str().unwrap_or_default();
            ensure!(answer.status == 400, "expected 400, got {}", answer.status);
            let both = detail.contains("kind-other") && detail.contains(CLUSTER);
            ensure!(both, "expected both names in the problem, got '{detail}'");
            Ok(format!("400, {detail}"))
        });
        self.teller.outcome("edge", outcome);
        self.broker().await;
        Ok(())
    }

    async fn wrong_token(&mut self) -> anyhow::Result<()> {
        self.teller.step("Somebody without the cluster's token tries");
        let body = self.hooks.event("demo-1", Phase::Succeeded, 7)?.built.body;
        self.teller.sent(&format!("POST /outcome/{CLUSTER}  with a wrong token"));
        let posted = self.stage.relay_with("a-token-of-somebody-else")?.post(body).await;
        let outcome = posted.and_then(|answer| {
            ensure!(answer.status == 401, "expected 401, got {}", answer.status);
            Ok("401".to_owned())
        });
        self.teller.outcome("edge", outcome);
        self.broker().await;
        Ok(())
    }

    async fn never_reports(&mut self) {
        self.teller.step("A pull request is merged, and then: silence");
        self.teller.sent(&format!("ReleaseTracking.Put  {FORGOTTEN}, merged now"));
        let merged_at = Some(Timestamp::now());
        let pull = PullRequest { url: FORGOTTEN, created_at: merged_at, merged_at };
        self.put(&release("staging", "demo-4"), pull, ReleaseState::Merged).await;
        self.teller.waiting(&format!("silence is an outcome after {SILENCE}, 45 min outside the demo"));
        self.tracked("staging", "demo-4", ReleaseState::Unreported).await;
        let url = self.stage.metrics_url();
        let scraped = eventually(self.teller.patience(), async || {
            let scrape = Scrape::of(&self.stage.http, &url).await?;
            let alert = scrape.sum("transponder_unreported_total", &[("cluster", CLUSTER)]);
            ensure!(alert == 1.0, "transponder_unreported_total is {alert}, expected 1");
            Ok("metric transponder_unreported_total 1, for an alert".to_owned())
        });
        let outcome = scraped.await;
        self.teller.outcome("release-tracking", outcome);
    }

    async fn metrics(&mut self) {
        self.teller.step("What Prometheus scrapes");
        let url = self.stage.metrics_url();
        let scraped = Scrape::of(&self.stage.http, &url).await;
        let outcome = scraped.and_then(|scrape| {
            print(&format!("   {}\n", paint(FAINT, &format!("… is {}", Scrape::labels(CLUSTER)))));
            for line in scrape.dora(CLUSTER) {
                print(&format!("   {line}\n"));
            }
            let of = |what: &str| scrape.sum(&format!("dora_lead_time_seconds_{what}"), &[("env", "prod")]);
            let (count, sum, expected) = (of("count"), of("sum"), 2.0 * FLOW_AGE.as_secs_f64());
            ensure!(count == 2.0, "{count} lead times, expected 2");
            ensure!((sum - expected).abs() < 1.0, "lead times add up to {sum} s, expected {expected} s");
            Ok(format!("2 lead times of {} each", age(FLOW_AGE)))
        });
        self.teller.outcome("dora-recorder", outcome);
        let observed = eventually(self.teller.patience(), async || {
            let scrape = Scrape::of(&self.stage.http, &url).await?;
            let observations = scrape.sum("transponder_observations_total", &[]);
            ensure!(observations == 6.0, "expected 6 observations, counted {observations}");
            Ok("6 observations of 5 events".to_owned())
        });
        let outcome = observed.await;
        self.teller.outcome("edge", outcome);
    }

    async fn spans(&mut self, outcome: &Event) {
        self.teller.step("What the tracing backend gets");
        let shown = self.span_of(outcome);
        self.teller.outcome("outcome-span", shown);
    }

    /// The span of the first release's outcome, which must say what happened, when, and from when on.
    fn span_of(&self, outcome: &Event) -> anyhow::Result<String> {
        let spans = Span::read(&self.stage.installation.spans())?;
        let name = "release-outcome:shop/prod [Succeeded]";
        let span = spans
            .iter()
            .find(|span| span.attribute("platform.chain_id") == "demo-1")
            .context("there is no span of demo-1")?;
        ensure!(span.text("name") == name, "the span is called '{}', not '{name}'", span.text("name"));
        let (start, end) = (span.time("startTimeUnixNano")?, span.time("endTimeUnixNano")?);
        let opened = self.hooks.began - PULL_REQUEST_AGE;
        ensure!(start == opened, "the span starts at {start}, the pull request was opened at {opened}");
        // Times in an event have milliseconds.
        let finished = Timestamp::from_millisecond(outcome.finished_at.as_millisecond())?;
        ensure!(end == finished, "the span ends at {end}, the release finished at {finished}");
        ensure!(span.attribute("platform.pr_url") == PULL_REQUEST, "the span names no pull request");
        let mut ids: Vec<&str> = spans.iter().map(|span| span.text("spanId")).collect();
        ids.sort_unstable();
        ids.dedup();
        ensure!(ids.len() == 4, "{} spans, {} ids; expected 4 of each", spans.len(), ids.len());
        let length = age(end.duration_since(start));
        let indent = " ".repeat(23);
        Ok(format!(
            "{name}\n{indent}{length} long, from the opening of {PULL_REQUEST}\n{indent}trace {}",
            span.text("traceId"),
        ))
    }
}

/// An outcome that every target has, with this state at DORA.
fn dora_is(state: TargetState) -> [(Target, TargetState); 4] {
    [
        (Target::Broker, Delivered),
        (Target::Tracking, Delivered),
        (Target::Dora, state),
        (Target::Span, Delivered),
    ]
}
