//! A broker that does as it is told.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde_json::Value;
use tonic::body::Body;

use crate::{
    eventually,
    server::{Connection, Handler, Server},
};

/// An HTTP broker on a free port of 127.0.0.1. It records every request it has read, and answers as a Tekton
/// EventListener does until it is told otherwise.
pub struct Broker {
    server: Server<Script>,
}

/// What the broker does with one request.
#[derive(Clone, Debug)]
pub enum Behaviour {
    /// Answers 202 with an event id of its own, like a Tekton EventListener.
    Accept,
    /// Answers this.
    Answer(Answer),
    /// Answers this, so much later.
    Slow(Duration, Answer),
    /// Reads the request and never answers.
    Hang,
    /// Closes the connection when the head has arrived. Nothing is recorded.
    CutBeforeReading,
    /// Reads and records the request, then closes the connection.
    CutAfterReading,
}

/// An HTTP answer.
#[derive(Clone, Debug)]
pub struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Bytes,
}

/// A request that the broker has read.
#[derive(Clone, Debug)]
pub struct Received {
    /// Counts from 1; [`Broker::event_id`] of it is what the broker answered.
    pub number: usize,
    /// When it had been read.
    pub at: Instant,
    /// Which connection it came on, counted from 1.
    pub connection: u64,
    /// The method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, to the byte.
    pub body: Bytes,
}

type Condition = Box<dyn Fn(&Received) -> bool + Send + Sync>;

#[derive(Default)]
struct Script {
    state: Mutex<State>,
}

struct State {
    received: Vec<Received>,
    queue: VecDeque<Behaviour>,
    rules: Vec<(Condition, Behaviour)>,
    default: Behaviour,
}

impl Default for State {
    fn default() -> Self {
        Self { received: Vec::new(), queue: VecDeque::new(), rules: Vec::new(), default: Behaviour::Accept }
    }
}

impl Broker {
    /// Starts a broker.
    pub async fn start() -> Self {
        Self { server: Server::start(Script::default()).await }
    }

    /// Its URL, without a path or a slash at the end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// What it does with the next request that has no behaviour queued yet; overrides rules and default.
    pub fn next(&self, behaviour: Behaviour) {
        self.state().queue.push_back(behaviour);
    }

    /// What it does with requests that `condition` holds for, whenever nothing is queued. The first rule that holds
    /// counts. The condition sees the whole request, so [`Behaviour::CutBeforeReading`] only comes after reading.
    pub fn when(&self, condition: impl Fn(&Received) -> bool + Send + Sync + 'static, behaviour: Behaviour) {
        self.state().rules.push((Box::new(condition), behaviour));
    }

    /// What it does with all other requests. Forgets queue and rules.
    pub fn always(&self, behaviour: Behaviour) {
        let mut state = self.state();
        state.queue.clear();
        state.rules.clear();
        state.default = behaviour;
    }

    /// Cuts all connections and refuses new ones.
    pub async fn refuse(&self) {
        self.server.refuse().await;
    }

    /// Accepts connections again.
    pub async fn accept(&self) {
        self.server.accept().await;
    }

    /// All requests read so far, in the order in which they were read.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        self.state().received.clone()
    }

    /// How many those are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.state().received.len()
    }

    /// Waits until at least `count` requests have been read, and returns all.
    ///
    /// # Panics
    ///
    /// When that takes longer than `timeout`.
    pub async fn wait_for(&self, count: usize, timeout: Duration) -> Vec<Received> {
        eventually(&format!("{count} requests at the broker"), timeout, || async {
            let received = self.received();
            if received.len() >= count { Ok(received) } else { Err(format!("{} requests", received.len())) }
        })
        .await
    }

    /// The event id with which [`Behaviour::Accept`] answers the request of this number.
    #[must_use]
    pub fn event_id(number: usize) -> String {
        format!("00000000-0000-4000-8000-{number:012}")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.server.handler().state()
    }
}

impl Answer {
    /// An answer without a body.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Bytes::new() }
    }

    /// A redirect to `location`.
    #[must_use]
    pub fn redirect(status: u16, location: &str) -> Self {
        Self::status(status).header("location", location)
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets body and content type.
    #[must_use]
    pub fn body(mut self, content_type: &str, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self.header("content-type", content_type)
    }

    fn accepted(number: usize) -> Self {
        let body = serde_json::json!({
            "eventListener": "cdevents-broker",
            "namespace": "platform-system",
            "eventListenerUID": "5f9fe9c2-6c3b-4c3e-8f0a-2f6d3f1a9b77",
            "eventID": Broker::event_id(number),
        });
        Self::status(202).body("application/json", body.to_string())
    }

    fn response(self) -> Response<Body> {
        let mut response = Response::builder().status(self.status);
        for (name, value) in self.headers {
            response = response.header(name, value);
        }
        response.body(Body::new(Full::new(self.body))).expect("a test's answer is valid HTTP")
    }
}

impl Received {
    /// The value of a header, if it is there and text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body as JSON.
    ///
    /// # Panics
    ///
    /// When it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the body is JSON")
    }
}

impl Script {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what is queued for this request; an error means that it is to be cut without being read.
    fn before_reading(&self) -> Result<Option<Behaviour>, ()> {
        let mut state = self.state();
        let queued = state.queue.pop_front();
        let unconditional = state.rules.is_empty().then_some(&state.default);
        match queued.as_ref().or(unconditional) {
            Some(Behaviour::CutBeforeReading) => Err(()),
            _ => Ok(queued),
        }
    }

    /// Records the request and decides what to do with it, in one step, so that order and number belong together.
    fn record(&self, mut received: Received, queued: Option<Behaviour>) -> (usize, Behaviour) {
        let mut state = self.state();
        let number = state.received.len() + 1;
        received.number = number;
        let rule =
            state.rules.iter().find(|(condition, _)| condition(&received)).map(|(_, then)| then.clone());
        let behaviour = queued.or(rule).unwrap_or_else(|| state.default.clone());
        state.received.push(received);
        (number, behaviour)
    }
}

impl Handler for Script {
    async fn handle(&self, request: Request<Incoming>, connection: Connection) -> Response<Body> {
        let Ok(queued) = self.before_reading() else { return connection.cut().await };
        let (head, body) = request.into_parts();
        let Ok(body) = body.collect().await else { return connection.cut().await };
        let received = Received {
            number: 0,
            at: Instant::now(),
            connection: connection.number,
            method: head.method,
            path: head.uri.path_and_query().map_or_else(String::new, ToString::to_string),
            headers: head.headers,
            body: body.to_bytes(),
        };
        match self.record(received, queued) {
            (number, Behaviour::Accept) => Answer::accepted(number).response(),
            (_, Behaviour::Answer(answer)) => answer.response(),
            (_, Behaviour::Slow(delay, answer)) => {
                tokio::time::sleep(delay).await;
                answer.response()
            }
            (_, Behaviour::Hang) => std::future::pending().await,
            (_, Behaviour::CutBeforeReading | Behaviour::CutAfterReading) => connection.cut().await,
        }
    }
}
