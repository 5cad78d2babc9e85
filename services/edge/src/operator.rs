//! What an operator may ask: list, show and replay.

use std::{pin::Pin, sync::Arc};

use http::{Method, StatusCode};
use serde_json::{Value, json};
use transponder_core::{ClusterName, EventKey, Target, TargetState};
use transponder_kubernetes::Access;
use transponder_runtime::{
    Clock, SystemClock,
    operator::{Answer, Ask, Operator, not_found},
};
use transponder_store::StoreError;

use crate::{
    config::RetentionConfig,
    delivery::{Delivery, Message},
    outbox::{Detail, Filter, KubernetesOutbox, Outbox, TargetStatus, View},
};

/// Events that are listed when no limit is given, and at most.
const LIMITS: (usize, usize) = (100, 10_000);

pub(crate) struct EdgeOperator {
    pub outbox: Arc<dyn Outbox>,
    /// Who is told of what is taken up again; nobody where whoever delivers finds that in the outbox.
    pub delivery: Option<Delivery>,
    pub clock: Arc<dyn Clock>,
}

/// Answers operators from a Kubernetes API as the edge does from its own outbox, by the rights that `access` has: to list
/// and get `releaseoutcomes`, and to patch them for a replay.
#[must_use]
pub fn kubernetes_operator(access: &Access) -> impl Operator {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let outbox = Arc::new(KubernetesOutbox::new(access, &RetentionConfig::default(), clock.clone()));
    EdgeOperator { outbox, delivery: None, clock }
}

impl Operator for EdgeOperator {
    fn answer(&self, ask: Ask) -> Pin<Box<dyn Future<Output = Answer> + Send + '_>> {
        Box::pin(async move {
            let segments: Vec<&str> = ask.path.trim_matches('/').split('/').collect();
            match (&ask.method, segments.as_slice()) {
                (&Method::GET, ["outcomes"]) => self.list(&ask.query).await,
                (&Method::GET, ["outcomes", key]) => self.show(key).await,
                (&Method::POST, ["outcomes", "replay"]) => self.replay_all(&ask.query).await,
                (&Method::POST, ["outcomes", key, "replay"]) => self.replay(key, &ask.query).await,
                _ => not_found("such command"),
            }
        })
    }
}

impl EdgeOperator {
    async fn list(&self, query: &str) -> Answer {
        let mut filter = Filter { limit: LIMITS.0, ..Filter::default() };
        for (name, value) in pairs(query) {
            let known = match name {
                "state" => {
                    filter.state = TargetState::parse(value);
                    filter.state.is_some()
                }
                "cluster" => {
                    filter.cluster = ClusterName::new(value).ok();
                    filter.cluster.is_some()
                }
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=LIMITS.1).contains(limit));
                    filter.limit = limit.unwrap_or_default();
                    limit.is_some()
                }
                _ => false,
            };
            if !known {
                return wrong(format!("{name}={value} is not understood"));
            }
        }
        match self.outbox.list(filter).await {
            Ok(views) => {
                (StatusCode::OK, json!({ "outcomes": views.iter().map(summary).collect::<Vec<_>>() }))
            }
            Err(error) => broken(&error),
        }
    }

    async fn show(&self, key: &str) -> Answer {
        let Ok(key) = key.parse::<EventKey>() else { return wrong(format!("'{key}' is no event key")) };
        match self.outbox.view(key).await {
            Ok(Some(view)) => (StatusCode::OK, detail(&view)),
            Ok(None) => not_found("event with this key"),
            Err(error) => broken(&error),
        }
    }

    async fn replay(&self, key: &str, query: &str) -> Answer {
        let Ok(key) = key.parse::<EventKey>() else { return wrong(format!("'{key}' is no event key")) };
        let target = match target(query) {
            Ok(target) => target,
            Err(answer) => return answer,
        };
        match self.take_up(key, target).await {
            Ok(Some(replayed)) => (StatusCode::OK, json!({ "replayed": replayed })),
            Ok(None) => not_found("event with this key"),
            Err(error) => broken(&error),
        }
    }

    /// Everything that was given up at the moment it was asked: what dies again meanwhile is not taken up twice.
    async fn replay_all(&self, query: &str) -> Answer {
        let target = match target(query) {
            Ok(target) => target,
            Err(answer) => return answer,
        };
        let dead = Filter { limit: usize::MAX, state: Some(TargetState::Dead), ..Filter::default() };
        let views = match self.outbox.list(dead).await {
            Ok(views) => views,
            Err(error) => return broken(&error),
        };
        let mut replayed = 0;
        // The oldest first, as they came.
        for view in views.iter().rev() {
            match self.take_up(view.key, target).await {
                Ok(targets) => replayed += usize::from(targets.is_some_and(|targets| !targets.is_empty())),
                Err(error) => return broken(&error),
            }
        }
        (StatusCode::OK, json!({ "replayed": replayed }))
    }

    /// Takes up the dead targets of an event, or this one alone; `None` for an event that is not there.
    async fn take_up(
        &self,
        key: EventKey,
        target: Option<Target>,
    ) -> Result<Option<Vec<Target>>, StoreError> {
        let Some((sequence, replayed)) = self.outbox.replay(key, target, self.clock.wall()).await? else {
            return Ok(None);
        };
        if !replayed.is_empty() {
            tracing::info!(%key, targets = ?replayed, "replayed");
            if let Some(delivery) = &self.delivery
                && let Some(event) = self.outbox.open(sequence).await?
            {
                delivery.send(Message::Replayed(Box::new(event), replayed.clone()));
            }
        }
        Ok(Some(replayed))
    }
}

/// `target=…` of a query, if it is there.
fn target(query: &str) -> Result<Option<Target>, Answer> {
    let mut target = None;
    for (name, value) in pairs(query) {
        target = Target::parse(value);
        if name != "target" || target.is_none() {
            return Err(wrong(format!("{name}={value} is not understood")));
        }
    }
    Ok(target)
}

fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn wrong(error: String) -> Answer {
    (StatusCode::BAD_REQUEST, json!({ "error": error }))
}

fn broken(error: &StoreError) -> Answer {
    (StatusCode::SERVICE_UNAVAILABLE, json!({ "error": error.to_string() }))
}

fn summary(view: &View) -> Value {
    let stream = view.report.as_ref().map(|report| &report.release.stream);
    json!({
        "key": view.key,
        "cluster": view.cluster,
        "appNamespace": stream.map(|s| &s.app_namespace),
        "app": stream.map(|s| &s.app),
        "env": stream.map(|s| &s.env),
        "phase": view.report.as_ref().map(|report| report.phase),
        "type": view.kind,
        "receivedAt": view.received_at,
        "finishedAt": view.report.as_ref().map(|report| report.finished_at),
        "targets": view.targets.iter().map(|(t, s)| (t.to_string(), status(s))).collect::<serde_json::Map<_, _>>(),
    })
}

fn detail(view: &View) -> Value {
    let mut value = summary(view);
    value["id"] = json!(view.id);
    value["source"] = json!(view.source);
    value["bytes"] = json!(view.bytes);
    value["observations"] = json!(view.observations);
    value["report"] = view.report.as_ref().map_or(Value::Null, |report| {
        json!({
            "chainId": report.chain_id,
            "gitRevision": report.git_revision,
            "gitUrl": report.git_url,
            "flowStartTime": report.flow_start_time,
            "prCreatedAt": report.pr_created_at,
            "prUrl": report.pr_url,
            "traceparent": report.traceparent,
        })
    });
    value
}

fn status(status: &TargetStatus) -> Value {
    let mut value = json!({ "state": status.state, "since": status.updated_at, "attempts": status.attempts });
    if !status.code.is_empty() {
        value["code"] = json!(status.code);
        value["error"] = json!(status.error);
    }
    if let Some(next) = status.next_at {
        value["nextTryAt"] = json!(next);
    }
    match &status.detail {
        Detail::None => {}
        Detail::BrokerEventId(id) => value["brokerEventId"] = json!(id),
        Detail::Verdict { order, verdict } => {
            value["order"] = json!(order);
            value["verdict"] = json!({
                "event": verdict.event,
                "phase": verdict.phase,
                "finishedAt": verdict.finished_at,
                "firstFinishedAt": verdict.first_finished_at,
                "receivedAt": verdict.received_at,
            });
        }
        Detail::Anchor(anchor) => {
            value["anchor"] = json!({
                "kind": anchor.kind,
                "prCreatedAt": anchor.pr_created_at,
                "prUrl": anchor.pr_url,
            });
        }
    }
    value
}
