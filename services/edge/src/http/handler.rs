//! One request: path and method, then the token, then the body; stored, then answered.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use sha2::{Digest as _, Sha256};
use transponder_core::{Event, EventKey, Target, settle::Observation};
use transponder_runtime::{Clock, crash, trace::Tracer};

use super::{
    body::{check_head, receive},
    carried::Carried,
    problem::Problem,
    receipt::Receipt,
    seats::Seat,
};
use crate::{
    budget::{Budget, Spent},
    config::Config,
    delivery::{Delivery, Message},
    metrics::Metrics,
    outbox::{Accepted, NewEvent, Outbox, Place, Sequence, StoredObservation},
    registry::{Cluster, Kubernetes, Refusal, Registry},
    trace::{self, Reported},
};

/// Bodies above this are parsed on the blocking pool.
const INLINE: usize = 16 * 1024;

/// Handles requests. Shared by all connections.
pub(crate) struct Handler {
    pub registry: Arc<Registry>,
    /// Where a cluster's tokens are read when it reports.
    pub secrets: Option<Arc<Kubernetes>>,
    pub outbox: Arc<dyn Outbox>,
    pub delivery: Delivery,
    pub clock: Arc<dyn Clock>,
    pub metrics: Metrics,
    pub tracer: Tracer,
    pub config: Config,
}

type Answer = Response<Full<Bytes>>;

impl Handler {
    /// Answers a request that came over the connection in `seat`.
    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>, seat: &Seat) -> Answer {
        let method = match *request.method() {
            Method::POST => "POST",
            Method::GET => "GET",
            _ => "other",
        };
        let answer = self.clone().route(request, seat).await.unwrap_or_else(Problem::into_response);
        self.metrics.answered(method, answer.status().as_u16());
        answer
    }

    async fn route(self: Arc<Self>, request: Request<Incoming>, seat: &Seat) -> Result<Answer, Problem> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().strip_prefix("/outcome/").filter(|rest| !rest.is_empty());
        let (cluster, key) = match path.map(|rest| rest.split_once('/')) {
            None => return Err(Problem::NotFound),
            Some(None) => (path.unwrap_or_default(), None),
            Some(Some((cluster, key))) => (cluster, Some(key)),
        };
        let (allow, right) = match key {
            None => ("POST", parts.method == Method::POST),
            Some(_) => ("GET", parts.method == Method::GET),
        };
        if !right {
            return Err(Problem::Method { allow });
        }
        let cluster = self.authenticate(cluster, &parts.headers).await?;
        seat.trust(&cluster.budget).map_err(|()| Problem::Budget {
            what: "connections at a time",
            retry_after: Duration::from_secs(1),
        })?;
        let spent = |wait| Problem::Budget { what: "requests a second", retry_after: wait };
        cluster.budget.request().map_err(spent)?;
        match key {
            Some(key) => self.show(&cluster, key).await,
            None => self.take(&cluster, &parts.headers, body).await,
        }
    }

    async fn authenticate(&self, cluster: &str, headers: &HeaderMap) -> Result<Arc<Cluster>, Problem> {
        let token = bearer(headers).unwrap_or_default();
        if let Some(secrets) = self.secrets.as_ref().filter(|_| !token.is_empty()) {
            secrets.refresh(cluster).await;
        }
        self.registry.authenticate(cluster, token).map_err(|refusal| match refusal {
            Refusal::Denied => Problem::Unauthorized,
            Refusal::Unavailable(why) => {
                tracing::error!(cluster = %printable(cluster), why, "a report cannot be authenticated");
                Problem::Unavailable("the cluster registry cannot be read")
            }
        })
    }

    async fn show(&self, cluster: &Cluster, key: &str) -> Result<Answer, Problem> {
        let key: EventKey = key.parse().map_err(|_| Problem::NotFound)?;
        let view = self.outbox.view(key).await.map_err(|error| {
            tracing::error!(%error, "a receipt cannot be read");
            Problem::Unavailable("the outbox cannot be read")
        })?;
        // Another cluster's event is no event.
        let view = view.filter(|view| view.cluster == cluster.name).ok_or(Problem::NotFound)?;
        Ok(json(StatusCode::OK, Receipt::of(&view).to_json()))
    }

    async fn take(
        self: Arc<Self>,
        cluster: &Arc<Cluster>,
        headers: &HeaderMap,
        mut body: Incoming,
    ) -> Result<Answer, Problem> {
        let arrived = SystemTime::now();
        let limit = self.config.body_limit.as_u64();
        let content_type = check_head(headers, limit)?;
        let (bytes, room) =
            receive(&mut body, limit, self.config.http.body_timeout, cluster.budget.clone()).await?;
        let event = parse(bytes.clone()).await?;
        self.check(cluster, &event)?;
        let new = self.new_event(cluster, event, content_type, bytes);
        let key = new.key;
        let reported = self.tracer.is_on().then(|| Reported::new(&new, arrived));
        let started = Instant::now();
        // What is stored must reach the engine even if the client has gone.
        let (handler, budget) = (self.clone(), cluster.budget.clone());
        let stored = Carried::new(async move {
            let stored = handler.store(new, budget).await;
            drop(room);
            stored
        });
        let stored = stored.await;
        let status = stored.as_ref().map_or_else(Problem::status, |(status, _)| *status);
        if let Some(reported) = &reported {
            trace::reported(&self.tracer, reported, status);
        }
        let (status, receipt) = stored?;
        self.metrics.store_took(started.elapsed().as_secs_f64());
        crash::point("answer.before");
        let mut answer = json(status, receipt);
        if let Ok(location) = HeaderValue::from_str(&format!("/outcome/{}/{key}", cluster.name)) {
            answer.headers_mut().insert(header::LOCATION, location);
        }
        Ok(answer)
    }

    /// What the cluster may send at all.
    fn check(&self, cluster: &Cluster, event: &Event) -> Result<(), Problem> {
        if let Some(named) = event.cluster.as_deref().filter(|named| *named != cluster.name.as_str()) {
            tracing::warn!(cluster = %cluster.name, named = %printable(named), "event refused: it names another cluster");
            return Err(Problem::Event {
                field: "subject.content.cluster".into(),
                reason: format!("is '{}', but the path is of '{}'", printable(named), cluster.name),
            });
        }
        if event.kind.starts_with("dev.tekton.") || !cluster.may_send(&event.kind) {
            return Err(Problem::Event {
                field: "context.type".into(),
                reason: format!("'{}' is not accepted from this cluster", printable(&event.kind)),
            });
        }
        match &event.report {
            Some(report) if !cluster.may_report_for(&report.release.stream.app_namespace) => {
                let namespace = &report.release.stream.app_namespace;
                tracing::warn!(cluster = %cluster.name, %namespace, "event refused: app namespace not permitted");
                Err(Problem::AppNamespace(namespace.to_string()))
            }
            _ => Ok(()),
        }
    }

    fn new_event(&self, cluster: &Cluster, event: Event, content_type: String, body: Bytes) -> NewEvent {
        let mut targets = vec![Target::Broker];
        if let Some(report) = &event.report {
            targets.push(Target::Tracking);
            if report.phase.is_terminal() {
                targets.extend(&self.config.delivery.targets);
            }
        }
        NewEvent {
            place: event.report.as_ref().map(|report| Place::from(&report.release)),
            key: event.key(&cluster.name),
            cluster: cluster.name.clone(),
            source: event.source,
            id: event.id,
            kind: event.kind,
            content_type,
            digest: Sha256::digest(&body).into(),
            body,
            received_at: self.clock.wall(),
            report: event.report,
            targets,
        }
    }

    /// Stores an event and tells the engine. The answer is right whatever dies after it.
    async fn store(&self, event: NewEvent, budget: Arc<Budget>) -> Result<(StatusCode, Vec<u8>), Problem> {
        let bytes = event.body.len() as u64;
        let room = self.room(&event, &budget, bytes).await?;
        crash::point("store.before");
        let event = Arc::new(event);
        let accepted = self.outbox.accept(event.clone()).await;
        crash::point("store.after");
        let accepted = accepted.map_err(|error| {
            tracing::error!(%error, cluster = %event.cluster, "an event cannot be stored");
            Problem::Unavailable("the event cannot be stored")
        });
        if room && !matches!(accepted, Ok(Accepted::New { .. })) {
            budget.give_back(bytes);
        }
        match accepted? {
            Accepted::Conflict => Err(Problem::Conflict),
            Accepted::TooLarge { bytes, limit } => Err(Problem::TooLargeToStore { bytes, limit }),
            Accepted::Unfit => {
                Err(Problem::Event { field: "the event".into(), reason: "is refused by the store".into() })
            }
            Accepted::New { sequence, observation } => {
                let receipt = Receipt::fresh(&event).to_json();
                self.metrics.stored(&event.cluster);
                self.log(&event, "accepted");
                let observation = self.observation(&event, sequence, observation);
                self.delivery.send(Message::Stored { event, budget, sequence, observation });
                Ok((StatusCode::ACCEPTED, receipt))
            }
            Accepted::Known { sequence, observation, identical } => {
                if let Some(observation) = self.observation(&event, sequence, observation) {
                    self.log(&event, "observed again");
                    self.delivery.send(Message::Observed { sequence, observation });
                }
                let view = self.outbox.view(event.key).await.ok().flatten();
                let mut receipt = view.as_ref().map_or_else(|| Receipt::fresh(&event), Receipt::of);
                receipt.identical = Some(identical);
                Ok((StatusCode::OK, receipt.to_json()))
            }
        }
    }

    /// Takes room for a new event; a known one needs none.
    async fn room(&self, event: &NewEvent, budget: &Budget, bytes: u64) -> Result<bool, Problem> {
        let Err(spent) = budget.take_room(bytes) else { return Ok(true) };
        match (self.outbox.knows(event.key).await, spent) {
            (Ok(true), _) => Ok(false),
            (Ok(false), Spent::Cluster) => {
                Err(Problem::Budget { what: "undelivered events", retry_after: Duration::from_secs(30) })
            }
            (Ok(false), Spent::Store) => Err(Problem::Unavailable("the store is full")),
            (Err(error), _) => {
                tracing::error!(%error, "the outbox cannot be read");
                Err(Problem::Unavailable("the outbox cannot be read"))
            }
        }
    }

    fn observation(
        &self,
        event: &NewEvent,
        sequence: Sequence,
        number: Option<i64>,
    ) -> Option<StoredObservation> {
        let (number, report, place) = (number?, event.report.as_ref()?, event.place?);
        self.metrics.observed(report.phase);
        let observation = Observation {
            event: event.key,
            phase: report.phase,
            finished_at: report.finished_at,
            received_at: event.received_at,
        };
        Some(StoredObservation { number, sequence, place, observation })
    }

    fn log(&self, event: &NewEvent, what: &str) {
        let stream = event.report.as_ref().map(|report| &report.release.stream);
        let app = stream.map(|stream| stream.app.as_str()).unwrap_or_default();
        let env = stream.map(|stream| stream.env.as_str()).unwrap_or_default();
        let phase = event.phase().map(|phase| phase.as_str()).unwrap_or_default();
        tracing::info!(key = %event.key, cluster = %event.cluster, id = event.id, kind = event.kind, app, env, phase, "{what}");
    }
}

async fn parse(bytes: Bytes) -> Result<Event, Problem> {
    if bytes.len() <= INLINE {
        return Ok(Event::parse(&bytes)?);
    }
    let parsed = tokio::task::spawn_blocking(move || Event::parse(&bytes)).await;
    Ok(parsed.map_err(|_| Problem::Unavailable("the event could not be read"))??)
}

/// The token of `Authorization: Bearer <token>`; the scheme in any case, as RFC 9110 has it.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (value, None) = (all.next()?, all.next()) else { return None };
    let value = value.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Text from a request for a log or an answer: short and without control characters.
fn printable(text: &str) -> String {
    text.chars().take(100).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn json(status: StatusCode, text: Vec<u8>) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
