//! Releases of this cluster's own Argo CD: the sync that a release awaits is read off its Application.
//!
//! What must hold: nothing of Argo CD's is ever written; an operation is judged by one read of the Application, and only
//! when Argo CD has reconciled it since; whoever holds the Lease counts, and forgets in the same write what it awaited.
//!
//! Applications are followed by the holder alone. What has ended is compared with what is awaited twice a second, in
//! memory: so it does not matter which of the two becomes known first.

mod annotations;
mod expect;
mod object;
mod seen;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use kube::Api;
use transponder_core::{ClusterName, Maker, Stream};
use transponder_kubernetes::{
    Access, Kind,
    lease::Term,
    watch::{News, Selection, follow},
};
use transponder_runtime::{Shutdown, outage::Outage};

pub(crate) use self::expect::ExpectError;
use self::{
    object::Application,
    seen::{Known, Seen},
};
use crate::{
    config::Config,
    ledger::{Ledger, Told},
};

/// First and longest pause before what could not be counted is tried again.
const AGAIN: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(8)];

/// The Applications of this cluster.
pub(crate) struct Applications {
    access: Access,
    api: Api<Application>,
    namespace: String,
    prefix: String,
    cluster: ClusterName,
    seen: Mutex<Seen>,
    counting: Mutex<Counting>,
    outage: Outage,
}

/// When counting may be tried.
#[derive(Debug, Default)]
struct Counting {
    not_before: Option<Instant>,
    pause: Duration,
}

impl Applications {
    /// Those that `config` names; `None`: releases of this cluster are not looked at. Nothing is asked of the API server
    /// yet.
    pub(crate) fn new(access: &Access, config: &Config) -> Option<Self> {
        let cluster = config.local_cluster.clone()?;
        let namespace = config.applications.namespace.clone();
        Some(Self {
            access: access.clone(),
            api: Api::namespaced(access.client(), &namespace),
            namespace,
            prefix: config.applications.prefix.clone(),
            cluster,
            seen: Mutex::default(),
            counting: Mutex::default(),
            outage: Outage::new("counting a sync of an Application"),
        })
    }

    /// The value of the label `cluster`.
    pub(crate) fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    fn label(&self) -> String {
        format!("{}/dora-track", self.prefix)
    }

    /// Follows the Applications until shutdown.
    pub(crate) async fn follow(self: Arc<Self>, shutdown: Shutdown) {
        let labels = format!("{}=true", self.label());
        let selection = Selection { labels, ..Selection::all("watching Applications of Argo CD") };
        let (api, mut said) = (self.api.clone(), None);
        follow(api, selection, shutdown, async move |news| {
            if let News::Lost(error) = &news {
                if said != Some(error.kind) {
                    self.explain(error.kind);
                }
                said = Some(error.kind);
            } else {
                said = None;
            }
            self.seen().learn(news, &self.prefix, &self.cluster);
        })
        .await;
    }

    /// What is missing is not of our own manifests.
    fn explain(&self, kind: Kind) {
        let namespace = &self.namespace;
        match kind {
            Kind::Missing => tracing::warn!(
                "the API server serves no applications.argoproj.io: until Argo CD is installed no release of this cluster is counted; without one, unset dora.local_cluster"
            ),
            Kind::Refused => tracing::warn!(
                "no right to watch Applications: until the manifests of `transponder manifests applications` are applied in namespace {namespace} no release of this cluster is counted"
            ),
            _ => {}
        }
    }

    /// Counts the syncs that are awaited and have ended, for as long as the term lasts.
    pub(crate) async fn count(&self, ledger: &Arc<Ledger>, term: &Term) {
        if self.counting().not_before.is_some_and(|at| Instant::now() < at)
            || ledger.store().health().borrow().problem.is_some()
            || ledger.loaded().borrow().is_err()
        {
            return;
        }
        let awaiting = ledger.awaiting();
        let known = self.seen().pending(|uid| awaiting.contains_key(uid));
        let mut all_counted = true;
        for (uid, known) in known {
            let annotated = known.annotated.as_ref().map(|(stream, _)| stream);
            let own = awaiting.get(&uid).into_iter().flatten().filter(|own| Some(*own) != annotated);
            for stream in annotated.into_iter().chain(own) {
                all_counted &= self.count_in(stream, &uid, &known, ledger, term).await;
            }
        }
        if all_counted && term.lasts() {
            self.seen().forget_gone();
        }
        self.wait_if(!all_counted);
    }

    /// Counts all that a stream awaits of an Application. `false`: it failed.
    async fn count_in(
        &self,
        stream: &Stream,
        uid: &str,
        known: &Known,
        ledger: &Arc<Ledger>,
        term: &Term,
    ) -> bool {
        let pending = known.annotated.as_ref().filter(|(annotated, _)| annotated == stream);
        let told = Told {
            application: uid.to_owned(),
            ended: known.ended.clone(),
            annotated: pending.map(|(_, awaited)| awaited.clone()),
        };
        let (source, application) = (stream.source(), &known.name);
        while term.lasts() {
            // A new stream is one that an app's Task made.
            match ledger.settle(stream, Maker::App, &told).await {
                Ok(Some(disposition)) => {
                    tracing::debug!(source, application, ?disposition, "a sync is counted");
                }
                Ok(None) => break,
                Err(error) => {
                    self.outage.failed(&format_args!("{error} ({source})"));
                    return false;
                }
            }
        }
        true
    }

    fn wait_if(&self, failed: bool) {
        let mut counting = self.counting();
        if failed {
            counting.pause = (counting.pause * 2).clamp(AGAIN[0], AGAIN[1]);
            counting.not_before = Some(Instant::now() + counting.pause);
        } else {
            *counting = Counting::default();
            self.outage.worked();
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counting(&self) -> MutexGuard<'_, Counting> {
        self.counting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
