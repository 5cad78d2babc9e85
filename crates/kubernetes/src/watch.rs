//! Following objects: a list first, then every change, and a list again when the API server has forgotten too much.

use std::{fmt::Debug, time::Duration};

use futures_util::{StreamExt as _, stream::BoxStream};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::{
    Api, Resource,
    runtime::watcher::{self, Event},
};
use transponder_runtime::{Shutdown, outage::Outage, pauses::Pauses};

use crate::{ApiError, Kind};

/// First and longest pause before what failed is begun anew.
const AGAIN: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(10)];

/// What the API server is asked for here.
const ACTION: &str = "watch";

/// What is followed, and how that is called in the log.
#[derive(Debug, Clone)]
pub struct Selection {
    /// As it reads before "fails", such as `watching the cluster registry`.
    pub what: &'static str,
    /// A label selector; empty for all.
    pub labels: String,
    /// A field selector; empty for all.
    pub fields: String,
}

impl Selection {
    /// All objects.
    #[must_use]
    pub fn all(what: &'static str) -> Self {
        Self { what, labels: String::new(), fields: String::new() }
    }

    /// The object of this name.
    #[must_use]
    pub fn named(what: &'static str, name: &str) -> Self {
        Self { fields: format!("metadata.name={name}"), ..Self::all(what) }
    }

    fn config(&self) -> watcher::Config {
        let mut config = watcher::Config::default();
        if !self.labels.is_empty() {
            config = config.labels(&self.labels);
        }
        if !self.fields.is_empty() {
            config = config.fields(&self.fields);
        }
        config
    }
}

/// What a follower is told.
#[derive(Debug)]
pub enum News<K> {
    /// Everything that there is now, after a start or when changes were missed: what is not among it is gone.
    All(Vec<K>),
    /// An object is new or has changed.
    Changed(K),
    /// An object is gone, or is not selected any more.
    Gone(K),
    /// Nothing is known of changes for now. What was told before still stands.
    Lost(ApiError),
}

/// Follows objects until shutdown; of an `Api<PartialObjectMeta<K>>` no more than their metadata.
pub async fn follow<K>(api: Api<K>, selection: Selection, shutdown: Shutdown, told: impl AsyncFnMut(News<K>))
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    run(&selection, shutdown, || watcher::watcher(api.clone(), selection.config()).boxed(), told).await;
}

async fn run<K>(
    selection: &Selection,
    shutdown: Shutdown,
    mut begin: impl FnMut() -> BoxStream<'static, watcher::Result<Event<K>>>,
    mut told: impl AsyncFnMut(News<K>),
) {
    let outage = Outage::new(selection.what);
    let mut pauses = Pauses::new(AGAIN[0], AGAIN[1]);
    let mut events = begin();
    let mut listed = Vec::new();
    while let Some(Some(event)) = shutdown.or(events.next()).await {
        // That a list begins says nothing of how it ends.
        if !matches!(event, Err(_) | Ok(Event::Init)) {
            pauses.reset();
            outage.worked();
        }
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => listed.push(object),
            Ok(Event::InitDone) => told(News::All(std::mem::take(&mut listed))).await,
            Ok(Event::Apply(object)) => told(News::Changed(object)).await,
            Ok(Event::Delete(object)) => told(News::Gone(object)).await,
            Err(error) => {
                let lost = is_lost(&error);
                let error = failure(&error);
                outage.failed(&error);
                // The client lists again when a watch that runs is told so, but not when one is refused for it. Nor when
                // the API server was away, which may have been to set its store back: it would be silent for long then.
                if lost || error.kind == Kind::Expired {
                    events = begin();
                }
                let pause = pauses.next(error.retry_after);
                told(News::Lost(error)).await;
                if shutdown.or(tokio::time::sleep(pause)).await.is_none() {
                    return;
                }
            }
        }
    }
}

/// Whether there was no answer at all.
fn is_lost(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => !matches!(error, kube::Error::Api(_)),
        _ => false,
    }
}

fn failure(error: &watcher::Error) -> ApiError {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => ApiError::of(ACTION, error),
        watcher::Error::WatchError(status) => ApiError::of_status(ACTION, status),
        other => ApiError {
            action: ACTION,
            kind: Kind::Unavailable,
            problem: other.to_string(),
            retry_after: None,
        },
    }
}
