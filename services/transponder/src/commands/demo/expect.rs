//! What each step does, and what it expects of whom.

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use serde_json::Value;
use transponder_core::{Phase, Target, TargetState};
use transponder_hook::post::Answer;
use transponder_proto::v1::{Release, ReleaseState};

use super::{
    hook::{Event, release},
    look::{Scrape, Span, eventually},
    stage::CLUSTER,
    story::Story,
    task::PullRequest,
};
use crate::{installation::TASK_NAMESPACE, receipt};

/// What DORA must have counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) deployments: u32,
    pub(super) succeeded: u32,
    pub(super) failed: u32,
}

impl Story {
    /// Sends a new event of a release and expects it to be stored, and a failure to wait for what may follow it.
    pub(super) async fn send(&mut self, chain_id: &str, phase: Phase, after: i64) -> anyhow::Result<Event> {
        let event = self.hooks.event(chain_id, phase, after)?;
        let body = Bytes::from(event.built.body.clone());
        let outcome = self.post(&body).await.and_then(|(answer, taken)| {
            ensure!(answer.status == 202, "expected 202, got {}: {taken}", answer.status);
            let dora = &taken["targets"]["dora"]["state"];
            let waits = phase == Phase::Failed;
            ensure!(
                !waits || dora == "waiting",
                "expected dora to wait for the failure to settle, it is {dora}"
            );
            let more = if waits { ", waits to be counted" } else { "" };
            Ok(format!("202, stored as {}{more}", event.built.key))
        });
        if outcome.is_ok() {
            self.forwarded.push(body);
        }
        self.teller.outcome("edge", outcome);
        Ok(event)
    }

    /// Posts any bytes and answers what the edge says.
    pub(super) async fn post(&self, body: &[u8]) -> anyhow::Result<(Answer, Value)> {
        let event: Value = serde_json::from_slice(body)?;
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

    /// Expects this of an event's receipt, sooner or later.
    pub(super) async fn receipt(&mut self, event: &Event, of: &str, expected: &[(Target, TargetState)]) {
        let outcome = eventually(self.teller.patience(), async || {
            let receipt = self.stage.relay.receipt(&event.built.key.to_string()).await?;
            let targets = receipt::targets(&receipt);
            ensure!(
                targets == expected,
                "the receipt{of} says {}, expected {}",
                list(&targets),
                list(expected)
            );
            Ok(format!("receipt{of}: {}", list(&targets)))
        });
        let outcome = outcome.await;
        self.teller.outcome("edge", outcome);
    }

    /// Expects the broker to have every event that was stored so far, once, in order, with the bytes that were sent.
    pub(super) async fn broker(&mut self) {
        let outcome = eventually(self.teller.patience(), async || {
            let arrivals = self.stage.broker.arrivals();
            let (got, expected) = (arrivals.len(), self.forwarded.len());
            ensure!(got == expected, "{got} events arrived, expected {expected}");
            for (arrival, body) in arrivals.iter().zip(&self.forwarded) {
                let key = &arrival.key;
                ensure!(arrival.body == *body, "the bytes of {key} are not those that were sent");
                let kind = &arrival.content_type;
                ensure!(kind == "application/cloudevents+json", "the content type of {key} became {kind}");
            }
            Ok(got)
        });
        let outcome = outcome.await.map(|got| match got - std::mem::replace(&mut self.shown, got) {
            0 => format!("nothing new, {got} in all"),
            new => format!("{new} new, {got} in all, byte for byte as sent"),
        });
        self.teller.outcome("broker", outcome);
    }

    /// Puts a pull request and expects this state of its release.
    pub(super) async fn put(&mut self, release: &Release, pull: PullRequest<'_>, expected: ReleaseState) {
        let record = self.stage.task.put(release, pull).await;
        let outcome = record.and_then(|record| in_state(record.state, expected));
        self.teller.outcome("release-tracking", outcome);
    }

    /// Expects this state of a release, sooner or later.
    pub(super) async fn tracked(&mut self, env: &str, chain_id: &str, expected: ReleaseState) {
        let release = release(env, chain_id);
        let outcome = eventually(self.teller.patience(), async || {
            let record = self.stage.task.resolve(&release).await?.context("there is no record")?;
            in_state(record.state, expected)
        });
        let outcome = outcome.await;
        self.teller.outcome("release-tracking", outcome);
    }

    /// Expects these counts on `/metrics`, sooner or later.
    pub(super) async fn dora(&mut self, expected: Counted) {
        let url = self.stage.metrics_url();
        let outcome = eventually(self.teller.patience(), async || {
            let scrape = Scrape::of(&self.stage.http, &url).await?;
            let labels =
                [("app_namespace", TASK_NAMESPACE), ("app", "shop"), ("env", "prod"), ("cluster", CLUSTER)];
            let releases = |outcome| {
                scrape.sum("dora_releases_total", &[labels.as_slice(), &[("outcome", outcome)]].concat())
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

    /// Expects so many spans to have been sent, sooner or later.
    pub(super) async fn span_count(&mut self, expected: usize) {
        let path = self.stage.installation.spans();
        let outcome = eventually(self.teller.patience(), async || {
            let got = Span::read(&path)?.len();
            ensure!(got == expected, "{got} spans were sent, expected {expected}");
            Ok(format!("{got} span{} in all", if got == 1 { "" } else { "s" }))
        });
        let outcome = outcome.await;
        self.teller.outcome("outcome-span", outcome);
    }
}

fn in_state(state: i32, expected: ReleaseState) -> anyhow::Result<String> {
    let state = ReleaseState::try_from(state).unwrap_or_default();
    if state != expected {
        bail!("the release is {}, expected {}", name_of(state), name_of(expected));
    }
    Ok(format!("state {}", name_of(state)))
}

fn name_of(state: ReleaseState) -> String {
    state.as_str_name().trim_start_matches("RELEASE_STATE_").to_lowercase()
}

fn list(targets: &[(Target, TargetState)]) -> String {
    targets.iter().map(|(target, state)| format!("{target} {state}")).collect::<Vec<_>>().join(", ")
}
