//! The registry on Kubernetes: a ConfigMap that is followed, and a Secret per cluster that is read when it reports.
//!
//! What must hold:
//! - a Secret is read by its name, that of a registered cluster alone, one at a time and at most every [`FRESH`]: whoever
//!   names other clusters costs no request, whoever brings wrong tokens one in that time;
//! - while the API server is away, what was read stays in force, and nobody is refused for what may have changed since;
//! - a Secret that is gone or broken concerns its cluster alone.
//!
//! What it does not do: list or watch Secrets, which would need the right to read all of them.

mod state;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};
use transponder_core::ClusterName;
use transponder_kubernetes::{
    Access, ApiError, Kind,
    watch::{News, Selection, follow},
};
use transponder_runtime::{Shutdown, outage::Outage, pauses::Pauses};

use self::state::{Look, State};
use super::{Registry, Report, check::Tokens, decoy::Decoy};
use crate::budget::Budgets;

/// The ConfigMap: one key per cluster.
const CONFIG_MAP: &str = "cluster-registry";
/// How long a Secret that was read is taken as it is.
const FRESH: Duration = Duration::from_secs(2);
/// How long a report waits for its Secret. Then it is judged by what was read before.
const PATIENCE: Duration = Duration::from_secs(1);
/// First and longest pause between two tries of an API server that is away.
const AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(8)];

/// Keeps a registry as it is on Kubernetes.
pub(crate) struct Kubernetes {
    access: Access,
    registry: Arc<Registry>,
    report: Report,
    state: Mutex<State>,
    decoy: Decoy,
    outage: Outage,
    /// The API server has answered, so that it is worth a try.
    answered: Notify,
}

impl Kubernetes {
    /// Follows the ConfigMap until shutdown. The API server need not be there yet.
    pub(crate) fn follow(
        access: &Access,
        registry: &Arc<Registry>,
        budgets: &Budgets,
        report: Report,
        shutdown: &Shutdown,
    ) -> Arc<Self> {
        let kubernetes = Arc::new(Self {
            access: access.clone(),
            registry: registry.clone(),
            report,
            state: Mutex::new(State::new(budgets.clone(), access.namespace())),
            decoy: Decoy::new(),
            outage: Outage::new("reading the Secrets of clusters"),
            answered: Notify::new(),
        });
        let selection = Selection::named("watching the cluster registry", CONFIG_MAP);
        let told = kubernetes.clone();
        let hear = async move |news| told.hear(news);
        tokio::spawn(follow(access.api::<ConfigMap>(), selection, shutdown.clone(), hear));
        tokio::spawn(kubernetes.clone().recover(shutdown.clone()));
        kubernetes
    }

    /// Brings the tokens of a cluster up to date, before a report in its name is judged. For a cluster that there is not
    /// it takes as long, and asks nobody.
    pub(crate) async fn refresh(self: &Arc<Self>, cluster: &str) {
        let name = ClusterName::new(cluster).ok();
        let look = name.as_ref().map_or(Look::Unknown, |name| self.state().look(name));
        let mut reading = match (look, name) {
            (Look::Known, _) => return,
            (Look::Wait(reading), _) => reading,
            (Look::Read { secret, reading, end }, Some(name)) => {
                // On a task of its own: a report that is given up does not end it for the others.
                tokio::spawn(self.clone().read(name, secret, end));
                reading
            }
            _ => return sleep(self.decoy.wait(cluster, FRESH)).await,
        };
        let left = PATIENCE.saturating_sub(reading.since.elapsed());
        // A reading ends when its other side goes, however that comes.
        if timeout(left, reading.ended.changed()).await.is_err() {
            self.registry.doubt("the API server takes too long to answer".into());
        }
    }

    async fn read(self: Arc<Self>, name: ClusterName, secret: String, _end: watch::Sender<()>) {
        let begun = Instant::now();
        let api = self.access.api::<Secret>();
        let got = self.access.call("read a Secret", api.get(&secret)).await;
        let namespace = self.access.namespace();
        let tokens = match got {
            Ok(found) => {
                let at = |key: &str| format!("Secret {secret}: {key}");
                let data = found.data.unwrap_or_default();
                Tokens::read(at, |key| Ok(data.get(key).map(|bytes| bytes.0.clone())))
            }
            Err(error) if matches!(error.kind, Kind::Unavailable | Kind::Busy) => {
                self.outage.failed(&error);
                return self.registry.doubt(error.to_string());
            }
            Err(error) if error.kind == Kind::NotFound => {
                Tokens::none(format!("there is no Secret {secret} in namespace {namespace}"))
            }
            Err(error) => Tokens::none(format!("Secret {secret}: {error}")),
        };
        self.outage.worked();
        self.answered.notify_one();
        self.decoy.took(begun.elapsed());
        let mut state = self.state();
        if state.learn(&name, &secret, tokens) {
            self.tell(&state);
        }
    }

    fn hear(&self, news: News<ConfigMap>) {
        match news {
            News::All(mut all) => self.take(all.pop()),
            News::Changed(map) => self.take(Some(map)),
            News::Gone(_) => self.take(None),
            // It lists again at once.
            News::Lost(error) if error.kind == Kind::Expired => {}
            News::Lost(error) => self.lost(&error),
        }
    }

    fn take(&self, map: Option<ConfigMap>) {
        let mut state = self.state();
        state.take(map.map(|map| map.data.unwrap_or_default()));
        self.tell(&state);
        drop(state);
        self.registry.trust();
    }

    fn lost(&self, error: &ApiError) {
        self.registry.doubt(error.to_string());
        let mut state = self.state();
        if state.cannot(error) {
            self.tell(&state);
        }
    }

    /// Under the lock of the state, so that nothing older takes the place of something newer.
    fn tell(&self, state: &State) {
        self.registry.replace(state.picture());
        self.report.tell(&self.registry, state.findings());
    }

    /// Asks for the ConfigMap after trouble, since a watch that goes on says nothing until something changes.
    async fn recover(self: Arc<Self>, shutdown: Shutdown) {
        let mut doubt = self.registry.doubt.subscribe();
        loop {
            let doubtful = async { doubt.wait_for(Option::is_some).await.map(drop) };
            let Some(Ok(())) = shutdown.or(doubtful).await else { return };
            let mut pauses = Pauses::new(AGAIN[0], AGAIN[1]);
            while self.registry.doubt.borrow().is_some() {
                let answered = timeout(pauses.next(None), self.answered.notified());
                if shutdown.or(answered).await.is_none() {
                    return;
                }
                self.ask().await;
            }
        }
    }

    async fn ask(&self) {
        if self.registry.doubt.borrow().is_none() {
            return;
        }
        let before = self.state().version();
        let api = self.access.api::<ConfigMap>();
        let map = match self.access.call("read the cluster registry", api.get(CONFIG_MAP)).await {
            Ok(map) => Some(map),
            Err(error) if error.kind == Kind::NotFound => None,
            Err(error) => return self.registry.doubt(error.to_string()),
        };
        if self.state().version() == before {
            self.take(map);
        } else {
            // The watch was quicker.
            self.registry.trust();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
