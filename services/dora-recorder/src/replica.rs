//! One of several replicas on a Kubernetes API: each takes verdicts, and the holder of the Lease shows what they add up
//! to.
//!
//! What must hold: a sample never decreases when another one begins to show. So the holder shows nothing before it has
//! read, in its term, everything as it is now; it shows nothing from the moment at which its term ends; and what it
//! shows is stored, the end of a stream's hold included.

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, task::JoinSet};
use transponder_kubernetes::{
    Access,
    lease::{self, Leadership, Term},
};
use transponder_runtime::{Shutdown, admin::Part, outage::Outage};

use crate::{
    ledger::Ledger,
    showing::Showing,
    store::{KubernetesStore, kubernetes::Heard},
};

/// The Lease of who shows the totals.
const LEASE: &str = "transponder-dora-recorder";
/// Changes that wait to be taken note of.
const HEARD: usize = 64;
/// How often the holder looks which holds are over.
const HOLDS: Duration = Duration::from_millis(500);
/// First and longest pause before streams that could not be listed are listed again.
const AGAIN: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(8)];

/// This replica.
pub(crate) struct Replica {
    access: Access,
    store: KubernetesStore,
    showing: Showing,
}

impl Replica {
    pub(crate) fn new(access: &Access, store: KubernetesStore, showing: Showing) -> Self {
        Self { access: access.clone(), store, showing }
    }

    pub(crate) fn namespace(&self) -> &str {
        self.access.namespace()
    }

    /// Begins to follow what others write and to stand for the Lease, all of it until shutdown.
    pub(crate) fn start(
        &self,
        ledger: &Arc<Ledger>,
        part: Part,
        shutdown: &Shutdown,
        beside: &mut JoinSet<()>,
    ) {
        let leadership = lease::stand(&self.access, LEASE, lease::identity(), shutdown.clone());
        let (store, until) = (self.store.clone(), shutdown.clone());
        beside.spawn(async move { store.watch_over(until).await });
        let (told, heard) = mpsc::channel(HEARD);
        let (store, until) = (self.store.clone(), shutdown.clone());
        beside.spawn(async move { store.follow(until, told).await });
        beside.spawn(learn(heard, ledger.clone()));
        beside.spawn(tell(ledger.clone(), part, shutdown.clone()));
        beside.spawn(hold(leadership, ledger.clone(), self.showing.clone()));
    }
}

/// Keeps memory what the API server has.
async fn learn(mut heard: mpsc::Receiver<Heard>, ledger: Arc<Ledger>) {
    while let Some(heard) = heard.recv().await {
        match heard {
            Heard::All(streams) => ledger.know_all(streams).await,
            Heard::Changed(stored) => ledger.know(stored),
            Heard::Gone(last) => ledger.know_gone(&last),
            Heard::Lost(error) => ledger.unknown(format!("the streams have not been read yet: {error}")),
        }
    }
}

/// Ready while the API server can be written, once it is known what was counted before.
async fn tell(ledger: Arc<Ledger>, part: Part, shutdown: Shutdown) {
    let (mut health, mut loaded) = (ledger.store().health(), ledger.loaded());
    loop {
        let problem = health.borrow_and_update().problem.as_ref().map(ToString::to_string);
        match problem.or_else(|| loaded.borrow_and_update().as_ref().err().cloned()) {
            Some(problem) => part.not_ready(problem),
            None => part.ready(),
        }
        tokio::select! {
            () = shutdown.wait() => return,
            changed = health.changed() => if changed.is_err() { return },
            changed = loaded.changed() => if changed.is_err() { return },
        }
    }
}

/// Shows the totals in each term of this replica, until the Lease is given back.
async fn hold(mut leadership: Leadership, ledger: Arc<Ledger>, showing: Showing) {
    while let Some(mut term) = leadership.term().await {
        let serving = term.clone();
        tokio::select! {
            () = term.ended() => tracing::info!("this replica shows the totals no more"),
            () = serve(&ledger, &showing, serving) => {}
        }
    }
}

/// Never ends of itself.
async fn serve(ledger: &Ledger, showing: &Showing, term: Term) {
    let outage = Outage::new("reading all streams");
    let mut pause = AGAIN[0];
    while let Err(error) = ledger.refresh().await {
        outage.failed(&error);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(AGAIN[1]);
    }
    outage.worked();
    showing.begin(term.clone());
    tracing::info!("this replica shows the totals");
    loop {
        ledger.end_holds(|| term.lasts()).await;
        tokio::time::sleep(HOLDS).await;
    }
}
