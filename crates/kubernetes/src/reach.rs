//! Whether what is kept in the API server can be written, as seen by whoever writes.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;
use transponder_runtime::{Shutdown, admin::Part, pauses::Pauses};
use transponder_store::{Health, StoreError};

use crate::{ApiError, Kind};

/// First and longest pause between two tries of a store that failed.
const PROBE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(8)];

/// The health of a store. Clones share it.
#[derive(Clone)]
pub struct Reach(Arc<watch::Sender<Health>>);

impl Reach {
    /// A store that has not shown yet that it can be written.
    #[must_use]
    pub fn new() -> Self {
        let problem = Some(StoreError::Unavailable {
            action: "be written",
            problem: "the API server has not answered yet".to_owned(),
        });
        Self(Arc::new(watch::Sender::new(Health { generation: 0, problem })))
    }

    /// How it is, and how that changes.
    #[must_use]
    pub fn health(&self) -> watch::Receiver<Health> {
        self.0.subscribe()
    }

    /// Takes note of how a request ended. An answer that refuses one object for what it is says nothing of the store, nor
    /// does one that says to come again.
    pub fn note<T>(&self, ended: &Result<T, ApiError>) {
        match ended {
            Err(error) if matches!(error.kind, Kind::Unavailable | Kind::Refused | Kind::Missing) => {
                self.failed(error.clone().into());
            }
            _ => {}
        }
    }

    /// The store cannot be written. The end of a write may be unknown.
    pub fn failed(&self, problem: StoreError) {
        self.0.send_if_modified(|health| {
            let news = health.problem.as_ref() != Some(&problem);
            health.problem = Some(problem);
            news
        });
    }

    /// The store was written. After a failure, whoever keeps a picture of it reads again.
    pub fn works(&self) {
        self.0.send_if_modified(|health| {
            let news = health.problem.take().is_some();
            health.generation += u64::from(news);
            news
        });
    }

    /// Tries a store that failed until it works, with growing pauses; for as long as the process lives. `probe` is to
    /// write something that leaves nothing behind.
    pub async fn watch_over<P>(self, shutdown: Shutdown, mut probe: impl FnMut() -> P)
    where
        P: Future<Output = Result<(), ApiError>>,
    {
        let mut health = self.health();
        let mut pauses = Pauses::new(PROBE[0], PROBE[1]);
        loop {
            if health.borrow_and_update().problem.is_none() {
                pauses.reset();
                match shutdown.or(health.changed()).await {
                    Some(Ok(())) => continue,
                    _ => return,
                }
            }
            let asked = match shutdown.or(probe()).await {
                None => return,
                Some(Ok(())) => {
                    self.works();
                    continue;
                }
                Some(Err(error)) => {
                    let asked = error.retry_after;
                    self.failed(error.into());
                    asked
                }
            };
            if shutdown.or(tokio::time::sleep(pauses.next(asked))).await.is_none() {
                return;
            }
        }
    }
}

/// Tells readiness how a store is, until shutdown.
pub async fn tell(mut health: watch::Receiver<Health>, part: Part, shutdown: Shutdown) {
    loop {
        match &health.borrow_and_update().problem {
            None => part.ready(),
            Some(problem) => part.not_ready(problem.to_string()),
        }
        match shutdown.or(health.changed()).await {
            Some(Ok(())) => {}
            Some(Err(_)) | None => return,
        }
    }
}

impl Default for Reach {
    fn default() -> Self {
        Self::new()
    }
}
