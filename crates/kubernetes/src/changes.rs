//! What changes after a list that the caller made itself, for whoever lists in pages and keeps little of them.

use std::{fmt::Debug, pin::pin, time::Duration};

use futures_util::StreamExt as _;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::{
    Api, Resource, ResourceExt as _,
    api::{ListParams, WatchEvent, WatchParams},
};
use transponder_runtime::{Shutdown, outage::Outage};

use crate::{ApiError, Kind, watch::News};

/// How long the API server keeps a watch, and how much longer nothing may come before it is taken for dead.
const LIFE: u32 = 290;
const MARGIN: Duration = Duration::from_secs(5);
/// First and longest pause before a watch that ended badly is begun again.
const AGAIN: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

/// What the API server is asked for here.
const ACTION: &str = "watch";

/// Follows what changes after `version`. Ends at shutdown with `None`, or with the reason when the API server remembers
/// so far back no more: then it is time for another list.
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
    let mut pause = AGAIN[0];
    let mut broken = false;
    loop {
        let parameters = WatchParams::default().fields(fields).timeout(LIFE);
        let watch = async {
            if broken {
                known(api, &version).await?;
            }
            api.watch(&parameters, &version).await.map_err(|error| ApiError::of(ACTION, &error))
        };
        let ended = match shutdown.or(tokio::time::timeout(MARGIN, watch)).await? {
            Err(_) => Some(ApiError::timeout(ACTION, MARGIN)),
            Ok(Err(error)) => Some(error),
            Ok(Ok(stream)) => {
                broken = false;
                let mut stream = pin!(stream);
                loop {
                    let patience = Duration::from_secs(LIFE.into()) + MARGIN;
                    let event = shutdown.or(tokio::time::timeout(patience, stream.next())).await?;
                    let object = match event {
                        // Silence, or the end that every watch comes to.
                        Err(_) | Ok(None) => break None,
                        Ok(Some(Err(error))) => break Some(ApiError::of(ACTION, &error)),
                        Ok(Some(Ok(WatchEvent::Error(status)))) => {
                            break Some(ApiError::of_status(ACTION, &status));
                        }
                        Ok(Some(Ok(WatchEvent::Bookmark(mark)))) => {
                            version = mark.metadata.resource_version;
                            continue;
                        }
                        Ok(Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)))) => {
                            News::Changed(object)
                        }
                        Ok(Some(Ok(WatchEvent::Deleted(object)))) => News::Gone(object),
                    };
                    outage.worked();
                    pause = AGAIN[0];
                    if let News::Changed(object) | News::Gone(object) = &object {
                        version = object.resource_version().unwrap_or(version);
                    }
                    told(object);
                }
            }
        };
        let Some(error) = ended else { continue };
        if error.kind == Kind::Expired {
            return Some(error);
        }
        outage.failed(&error);
        broken = true;
        let wait = error.retry_after.unwrap_or_default().max(pause).min(AGAIN[1]);
        shutdown.or(tokio::time::sleep(wait.mul_f64(0.5 + fastrand::f64() / 2.0))).await?;
        pause = (pause * 2).min(AGAIN[1]);
    }
}

/// Makes sure that the store still knows a version. It does not after it was set back to a backup, for which the API
/// server is stopped: a watch from a version of the future would be silent, not refused, until versions have come there.
async fn known<K>(api: &Api<K>, version: &str) -> Result<(), ApiError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let one = ListParams::default().limit(1);
    let list = api.list_metadata(&one).await.map_err(|error| ApiError::of(ACTION, &error))?;
    let now = list.metadata.resource_version.unwrap_or_default();
    match (now.parse::<u64>(), version.parse::<u64>()) {
        (Ok(now), Ok(version)) if now < version => Err(ApiError {
            action: ACTION,
            kind: Kind::Expired,
            problem: format!("version {version} is not known any more, the newest is {now}"),
            retry_after: None,
        }),
        _ => Ok(()),
    }
}
