//! The store on the Kubernetes API: one custom resource `Release` per record, and a copy of all of them in each replica.
//!
//! What must hold:
//! - a record is written with the version that it was decided from, and decided again when that is not the last one;
//! - the copy answers only what it has. What it has not is asked of the API server before it is called absent, and so is
//!   everything while the copy may lag behind by more than a watch does;
//! - a change that the copy says is none is believed only of a Task's mere look: what was told is on record, or written.
//!
//! One observation supersedes other records, each an object of its own. It is written first, so that a crash leaves
//! records that are not superseded yet, and the sweeper finds them by their times.

mod cache;
mod kept;
mod object;
mod overdue;
mod requests;
mod store;
mod write;

use std::{sync::Arc, time::Duration};

use tokio::sync::{Mutex, Notify, watch};
use transponder_core::ReleaseKey;
use transponder_kubernetes::{
    Access, ApiError, Kind,
    watch::{News, Selection, follow},
};
use transponder_runtime::Shutdown;
use transponder_store::{Health, StoreError};

use self::{
    cache::{Cache, Standing},
    kept::Kept,
    requests::Requests,
};
use super::Error;
use crate::budget::Budgets;

pub use object::crd;

/// Changes of one release by this replica wait for each other instead of running into conflicts.
const TURNS: usize = 64;
/// How long a watch that was lost may say nothing. When nothing changes it says nothing however well it is again, so
/// then everything is listed anew, which settles it.
const SILENT: Duration = Duration::from_secs(15);

/// The store on the Kubernetes API.
pub struct KubernetesStore {
    requests: Requests,
    cache: Cache,
    budgets: Budgets,
    turns: [Mutex<()>; TURNS],
    /// The watch was lost.
    lost: Notify,
}

impl KubernetesStore {
    /// A store of which nothing is known yet. Nothing is asked before it [runs](Self::run).
    #[must_use]
    pub fn new(access: &Access, budgets: Budgets) -> Self {
        Self {
            requests: Requests::new(access),
            cache: Cache::default(),
            budgets,
            turns: std::array::from_fn(|_| Mutex::new(())),
            lost: Notify::new(),
        }
    }

    /// How the store is.
    #[must_use]
    pub fn health(&self) -> watch::Receiver<Health> {
        self.requests.reach().health()
    }

    /// Reads everything once, for whoever only looks and then goes.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn read_all(&self) -> Result<(), Error> {
        let all = self.requests.select("").await?;
        self.cache.tell(News::All(all));
        Ok(())
    }

    /// Keeps the copy, and tries a store that failed, until shutdown.
    pub async fn run(self: Arc<Self>, shutdown: Shutdown) {
        let store = self.clone();
        let probe = move || {
            let store = store.clone();
            async move { store.probe().await }
        };
        let watching = self.requests.reach().clone().watch_over(shutdown.clone(), probe);
        tokio::join!(watching, self.follow(shutdown));
    }

    async fn follow(self: &Arc<Self>, shutdown: Shutdown) {
        while !shutdown.has_begun() {
            let (api, selection) = (self.requests.api(), Selection::all("watching releases"));
            let store = self.clone();
            let told = async move |news| store.tell(news).await;
            let following = follow(api, selection, shutdown.clone(), told);
            tokio::select! {
                () = following => {}
                () = self.lost_for_long() => {}
            }
        }
    }

    async fn tell(&self, news: News<Kept>) {
        let error = match &news {
            News::Lost(error) => Some(error.clone()),
            News::All(_) | News::Changed(_) | News::Gone(_) => None,
        };
        let listed = matches!(news, News::All(_));
        self.cache.tell(news);
        match (self.cache.standing(), error) {
            (Standing::Unlisted(_), Some(error)) => self.requests.reach().failed(error.into()),
            // Whether that is the API server's trouble or the watch's alone, a try to write tells.
            (Standing::Lost, Some(error)) => {
                self.requests.reach().note::<()>(&Err(error));
                self.lost.notify_one();
            }
            _ => {}
        }
        // Nobody waits for the next try who need not.
        if listed && self.health().borrow().problem.is_some() && self.probe().await.is_ok() {
            self.requests.reach().works();
        }
    }

    /// Waits until a watch that was lost has said nothing for long, although the API server answers.
    async fn lost_for_long(&self) {
        loop {
            self.lost.notified().await;
            while self.cache.standing() == Standing::Lost {
                tokio::time::sleep(SILENT.mul_f64(1.0 + fastrand::f64() / 2.0)).await;
                let answers = self.health().borrow().problem.is_none();
                if answers && self.cache.standing() == Standing::Lost {
                    return;
                }
            }
        }
    }

    /// Whether a record could be written, and all can be read.
    async fn probe(&self) -> Result<(), ApiError> {
        self.requests.try_to_create().await?;
        match self.cache.standing() {
            Standing::Unlisted(Some(error)) => Err(error),
            Standing::Unlisted(None) => Err(unlisted()),
            Standing::Live | Standing::Lost => Ok(()),
        }
    }

    /// Whether the copy may be believed; an error before there is one.
    fn is_live(&self) -> Result<bool, Error> {
        match self.cache.standing() {
            Standing::Unlisted(error) => Err(StoreError::from(error.unwrap_or_else(unlisted)).into()),
            Standing::Live => Ok(true),
            Standing::Lost => Ok(false),
        }
    }

    fn turn(&self, key: &ReleaseKey) -> &Mutex<()> {
        &self.turns[usize::from(key.as_bytes()[0]) % TURNS]
    }
}

fn unlisted() -> ApiError {
    let problem = "they have not been listed yet".to_owned();
    ApiError { action: "list releases", kind: Kind::Unavailable, problem, retry_after: None }
}

impl From<ApiError> for Error {
    fn from(error: ApiError) -> Self {
        Self::Unavailable(error.into())
    }
}
