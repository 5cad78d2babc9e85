//! What the operator may see of a running service: `GET /releases?state=&app_namespace=&limit=` and `GET /clusters`.

use std::{pin::Pin, sync::Arc};

use http::{Method, StatusCode};
use serde_json::{Value, json};
use transponder_core::{AppNamespace, ReleaseId};
use transponder_kubernetes::Access;
use transponder_runtime::operator::{Answer, Ask, Operator, not_found};

use crate::{
    config::Config,
    record::Record,
    state::State,
    store::{self, Filter, Store, kubernetes::KubernetesStore},
};

/// Records that are listed when nothing else is asked for.
const LIMIT: u32 = 100;
/// Most records that are listed.
const MAX_LIMIT: u32 = 10_000;

/// Answers operators from the store.
pub(crate) struct Desk {
    store: Arc<dyn Store>,
}

impl Desk {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    async fn releases(&self, query: &str) -> Answer {
        let (filter, limit) = match parse(query) {
            Ok(asked) => asked,
            Err(problem) => return (StatusCode::BAD_REQUEST, json!({ "error": problem })),
        };
        match self.store.list(filter, None, limit).await {
            Ok(records) => {
                (StatusCode::OK, json!({ "releases": records.iter().map(view).collect::<Vec<_>>() }))
            }
            Err(error) => trouble(&error),
        }
    }

    async fn clusters(&self) -> Answer {
        match self.store.reports().await {
            Ok(reports) => {
                let clusters = reports.iter().map(|report| {
                    json!({ "cluster": report.cluster.as_str(), "lastReportAt": report.at.to_string() })
                });
                (StatusCode::OK, json!({ "clusters": clusters.collect::<Vec<_>>() }))
            }
            Err(error) => trouble(&error),
        }
    }
}

/// Answers operators from a Kubernetes API as the service does from its own records, by the right that `access` has to list
/// `releases`. All of them are read once, here.
///
/// # Errors
/// When they cannot be read.
pub async fn kubernetes_operator(access: &Access) -> Result<impl Operator, store::Error> {
    let store = KubernetesStore::new(access, Config::default().budgets());
    store.read_all().await?;
    Ok(Desk::new(Arc::new(store)))
}

impl Operator for Desk {
    fn answer(&self, ask: Ask) -> Pin<Box<dyn Future<Output = Answer> + Send + '_>> {
        Box::pin(async move {
            if ask.method != Method::GET {
                let error = json!({ "error": "only GET: releases are read here, not changed" });
                return (StatusCode::METHOD_NOT_ALLOWED, error);
            }
            match ask.path.as_str() {
                "/releases" => self.releases(&ask.query).await,
                "/clusters" => self.clusters().await,
                other => not_found(other),
            }
        })
    }
}

fn trouble(error: &store::Error) -> Answer {
    (StatusCode::SERVICE_UNAVAILABLE, json!({ "error": error.to_string() }))
}

fn parse(query: &str) -> Result<(Filter, u32), String> {
    let mut filter = Filter::default();
    let mut limit = LIMIT;
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match name.as_ref() {
            _ if value.is_empty() => {}
            "state" => {
                for word in value.split(',') {
                    let state = State::parse(word).ok_or_else(|| format!("'{word}' is no state"))?;
                    if !filter.states.contains(&state) {
                        filter.states.push(state);
                    }
                }
            }
            "app_namespace" => {
                let namespace = AppNamespace::new(&value).map_err(|e| format!("app_namespace {e}"))?;
                filter.app_namespace = Some(namespace);
            }
            "limit" => {
                limit = value
                    .parse()
                    .ok()
                    .filter(|limit| (1..=MAX_LIMIT).contains(limit))
                    .ok_or_else(|| format!("limit must be a number from 1 to {MAX_LIMIT}"))?;
            }
            other => return Err(format!("there is no parameter '{other}'")),
        }
    }
    Ok((filter, limit))
}

/// A record as operators see it.
fn view(record: &Record) -> Value {
    let stream = &record.release.stream;
    let (chain_id, event_id) = match &record.release.id {
        ReleaseId::ChainId(id) => (id.as_str(), ""),
        ReleaseId::GitRevision(_) => ("", ""),
        ReleaseId::EventId(id) => ("", id.as_str()),
    };
    let last = record.last();
    json!({
        "key": record.release.key().to_string(),
        "appNamespace": stream.app_namespace.as_str(),
        "app": stream.app.as_str(),
        "env": stream.env.as_str(),
        "cluster": stream.cluster.as_str(),
        "chainId": chain_id,
        "gitRevision": record.git_revision,
        "eventId": event_id,
        "state": record.state(),
        "prUrl": record.pr_url,
        "prCreatedAt": record.pr_created_at,
        "mergedAt": record.merged_at,
        "lastPhase": last.map(|last| last.phase.as_str()),
        "lastFinishedAt": last.map(|last| last.finished_at),
        "firstObservedAt": record.first_observed_at,
        "lastObservedAt": record.last_observed_at,
        "observations": record.observations,
        "quietSince": record.quiet_since(),
        "createdAt": record.created_at,
        "updatedAt": record.updated_at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_or_refused_by_name() {
        let (filter, limit) = parse("state=unreported,failed&app_namespace=app-a-cicd&limit=7").unwrap();
        assert_eq!(filter.states, [State::Unreported, State::Failed]);
        assert_eq!(filter.app_namespace.unwrap().as_str(), "app-a-cicd");
        assert_eq!(limit, 7);
        assert_eq!(parse("state=&limit=").unwrap(), (Filter::default(), LIMIT));
        for (query, named) in [
            ("state=lost", "'lost'"),
            ("app_namespace=A", "app_namespace"),
            ("limit=0", "limit"),
            ("x=1", "'x'"),
        ] {
            assert!(parse(query).unwrap_err().contains(named), "{query}");
        }
    }
}
