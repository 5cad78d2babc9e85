//! What changes after a list that the caller made itself, for whoever lists in pages and keeps little of them.

use std::{
    fmt::Debug,
    pin::pin,
    time::{Duration, Instant},
};

use futures_util::StreamExt as _;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::{
    Api, Resource, ResourceExt as _,
    api::{WatchEvent, WatchParams},
};
use transponder_runtime::{Shutdown, outage::Outage, pauses::Pauses};

use crate::{ApiError, Kind, watch::News};

/// How long the API server keeps a watch, and how much longer nothing may come before it is taken for dead.
const LIFE: u32 = 290;
const MARGIN: Duration = Duration::from_secs(5);
/// First and longest pause before a watch that ended badly is begun again.
const AGAIN: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

/// What the API server is asked for here.
const ACTION: &str = "watch";

/// Follows what changes after `version`. Ends at shutdown with `None`, or with the reason when it is time for another
/// list: the API server remembers so far back no more, or it is there again after it was away. Meanwhile its store may
/// have been set back to a backup, and a watch from a version of the future is silent, not refused.
pub async fn changes<K>(
    api: &Api<K>,
    what: &'static str,
    fields: &str,
    mut version: String,
    shutdown: &Shutdown,
    mut told: impl FnMut(News<K>),
) -> Option<ApiError>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let outage = Outage::new(what);
    let mut pauses = Pauses::new(AGAIN[0], AGAIN[1]);
    let mut away = false;
    loop {
        let parameters = WatchParams::default().fields(fields).timeout(LIFE);
        let watch = api.watch(&parameters, &version);
        let begun = Instant::now();
        let ended = match shutdown.or(tokio::time::timeout(MARGIN, watch)).await? {
            Err(_) => Some(ApiError::timeout(ACTION, MARGIN)),
            Ok(Err(error)) => Some(ApiError::of(ACTION, &error)),
            Ok(Ok(_)) if away => return Some(back(&version)),
            Ok(Ok(stream)) => {
                let mut stream = pin!(stream);
                loop {
                    let patience = Duration::from_secs(LIFE.into()) + MARGIN;
                    let event = shutdown.or(tokio::time::timeout(patience, stream.next())).await?;
                    let object = match event {
                        Err(_) => break Some(ApiError::timeout(ACTION, patience)),
                        // The end that every watch comes to.
                        Ok(None) => break None,
                        Ok(Some(Err(error))) => break Some(ApiError::of(ACTION, &error)),
                        Ok(Some(Ok(WatchEvent::Error(status)))) => {
                            break Some(ApiError::of_status(ACTION, &status));
                        }
                        Ok(Some(Ok(WatchEvent::Bookmark(mark)))) => {
                            outage.worked();
                            pauses.reset();
                            version = mark.metadata.resource_version;
                            continue;
                        }
                        Ok(Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)))) => {
                            News::Changed(object)
                        }
                        Ok(Some(Ok(WatchEvent::Deleted(object)))) => News::Gone(object),
                    };
                    outage.worked();
                    pauses.reset();
                    if let News::Changed(object) | News::Gone(object) = &object {
                        version = object.resource_version().unwrap_or(version);
                    }
                    told(object);
                }
            }
        };
        let asked = match ended {
            // One that lasted is begun again at once; not one after the other, from whoever closes each.
            None if begun.elapsed() >= AGAIN[1] => continue,
            None => None,
            Some(error) if error.kind == Kind::Expired => return Some(error),
            Some(error) => {
                outage.failed(&error);
                away |= error.kind == Kind::Unavailable;
                error.retry_after
            }
        };
        shutdown.or(tokio::time::sleep(pauses.next(asked))).await?;
    }
}

fn back(version: &str) -> ApiError {
    ApiError {
        action: ACTION,
        kind: Kind::Expired,
        problem: format!("the API server was away, and version {version} may be of another history"),
        retry_after: None,
    }
}
