//! The broker: one post of one event.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use reqwest::Response;
use transponder_core::EventKey;
use transponder_runtime::{Shutdown, watch};
use url::Url;

use crate::{
    Config, Error,
    answer::{self, Answer},
    token::BrokerToken,
    transport::{Clients, describe},
};

/// The event key, for whoever wants to recognise a repetition.
const KEY: HeaderName = HeaderName::from_static("transponder-key");
/// How much of an answer's body is read.
const BODY: usize = 64 * 1024;
/// How long an answer's body is waited for: the status has decided already, only the event id is in it.
const BODY_WAIT: Duration = Duration::from_secs(2);

/// One event, as it goes out.
pub(crate) struct Post {
    pub(crate) event: Bytes,
    pub(crate) content_type: HeaderValue,
    pub(crate) key: EventKey,
}

/// The broker did not answer, and why.
#[derive(Debug, thiserror::Error)]
#[error("the broker {broker} cannot be reached: {problem}")]
pub(crate) struct Unreachable {
    /// Scheme, host and port: a path may hold a secret.
    broker: String,
    problem: String,
}

/// The broker.
pub(crate) struct Broker {
    url: Url,
    timeout: Duration,
    ca_file: Option<PathBuf>,
    /// The contents of `ca_file` that were looked at last.
    ca: Mutex<Vec<u8>>,
    clients: ArcSwap<Clients>,
}

impl Broker {
    pub(crate) fn new(config: &Config, shutdown: Shutdown) -> Result<Arc<Self>, Error> {
        let broker = Arc::new(Self {
            url: config.url()?,
            timeout: config.timeout,
            ca_file: config.ca_file.clone(),
            ca: Mutex::default(),
            clients: ArcSwap::from_pointee(Clients::new(config.ca_file.as_deref())?),
        });
        tracing::info!(broker = broker.url.origin().ascii_serialization(), "events go to the broker");
        if let Some(directory) = config.ca_file.as_deref().and_then(|path| path.parent()) {
            broker.ca_has_changed();
            let watched = broker.clone();
            watch::spawn_shallow(vec![directory.to_owned()], shutdown, move || watched.reload());
        }
        Ok(broker)
    }

    fn unreachable(&self, problem: String) -> Unreachable {
        Unreachable { broker: self.url.origin().ascii_serialization(), problem }
    }

    /// New connections trust the CA file as it is now; a bad one keeps the last good one.
    fn reload(&self) {
        if !self.ca_has_changed() {
            return;
        }
        match Clients::new(self.ca_file.as_deref()) {
            Ok(clients) => self.clients.store(Arc::new(clients)),
            Err(error) => tracing::error!(%error, "broker CA not taken over, the last good one stays"),
        }
    }

    fn ca_has_changed(&self) -> bool {
        let now = self.ca_file.as_deref().and_then(|path| std::fs::read(path).ok()).unwrap_or_default();
        let mut ca = self.ca.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = *ca != now;
        *ca = now;
        changed
    }

    /// Posts the event. An answer of any status is an answer.
    pub(crate) async fn post(&self, post: &Post, token: Option<BrokerToken>) -> Result<Answer, Unreachable> {
        let clients = self.clients.load_full();
        let sending = clients.send(|client| {
            let mut request = client
                .post(self.url.clone())
                .header(header::CONTENT_TYPE, post.content_type.clone())
                .header(KEY, post.key.to_string())
                .body(post.event.clone());
            if let Some(token) = &token {
                request = request.header(header::AUTHORIZATION, token.header.clone());
            }
            request
        });
        let response = match tokio::time::timeout(self.timeout, sending).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.unreachable(describe(error))),
            Err(_) => return Err(self.unreachable(format!("no answer within {:?}", self.timeout))),
        };
        let retry_after = answer::asked_delay(response.headers(), std::time::SystemTime::now());
        let status = response.status();
        let body = tokio::time::timeout(BODY_WAIT, read(response)).await.unwrap_or_default();
        let event_id = if status.is_success() { answer::event_id(&body) } else { String::new() };
        Ok(Answer { status, retry_after, event_id })
    }
}

/// The first part of a body. One that breaks off is as good as none: its status counts.
async fn read(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        if body.len() + chunk.len() > BODY {
            return Vec::new();
        }
        body.extend_from_slice(&chunk);
    }
    body
}
