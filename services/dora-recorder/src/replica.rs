//! One of several replicas on a Kubernetes API: each takes verdicts, and the holder of the Lease shows what they add up
//! to, and counts the syncs of this cluster's own Argo CD.
//!
//! What must hold: a sample never decreases when another one begins to show. So the holder shows nothing before it has
//! read, in its term, everything as it is now; it shows nothing from the moment at which its term ends; and what it
//! shows is stored, the end of a stream's hold included.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};
use transponder_kubernetes::{
    Access,
    lease::{self, Leadership, Term},
};
use transponder_runtime::{Context, Shutdown, admin::Part, outage::Outage, pauses::Pauses};

use crate::{
    applications::Applications,
    import::{self, Legacy},
    ledger::Ledger,
    showing::Showing,
    state::Imported,
    store::{Imports as _, KubernetesStore, kubernetes::Heard},
};

/// What there is to be imported, once that is known.
type Found = watch::Sender<Option<Arc<Legacy>>>;

/// The Lease of who shows the totals.
const LEASE: &str = "transponder-dora-recorder";
/// How long a start says no more than that it is one.
const START: Duration = Duration::from_secs(1);
/// Changes that wait to be taken note of.
const HEARD: usize = 64;
/// How often the holder looks which holds are over, and which awaited syncs have ended.
const HOLDS: Duration = Duration::from_millis(500);
/// First and longest pause before streams that could not be listed are listed again.
const AGAIN: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(8)];

/// This replica.
pub(crate) struct Replica {
    access: Access,
    store: KubernetesStore,
    showing: Showing,
    applications: Option<Arc<Applications>>,
}

impl Replica {
    pub(crate) fn new(
        access: &Access,
        store: KubernetesStore,
        showing: Showing,
        applications: Option<Arc<Applications>>,
    ) -> Self {
        Self { access: access.clone(), store, showing, applications }
    }

    pub(crate) fn namespace(&self) -> &str {
        self.access.namespace()
    }

    /// Begins to follow what others write and to stand for the Lease, all of it until shutdown.
    pub(crate) fn start(
        &self,
        ledger: &Arc<Ledger>,
        part: Part,
        context: &Context,
        beside: &mut JoinSet<()>,
    ) {
        let shutdown = &context.shutdown;
        let standing = context.readiness.part("dora-recorder lease");
        let leadership = lease::stand(&self.access, LEASE, standing, shutdown.clone());
        let (store, until) = (self.store.clone(), shutdown.clone());
        beside.spawn(async move { store.watch_over(until).await });
        let (told, heard) = mpsc::channel(HEARD);
        let (store, until) = (self.store.clone(), shutdown.clone());
        beside.spawn(async move { store.follow(until, told).await });
        let (found, legacy) = watch::channel(None);
        let (access, reading, until) = (self.access.clone(), ledger.clone(), shutdown.clone());
        beside.spawn(async move {
            if let Some(read) = until.or(read_legacy(&access, &reading)).await {
                found.send_replace(Some(Arc::new(read)));
                learn(heard, &reading, &found).await;
            }
        });
        beside.spawn(tell(ledger.clone(), part, shutdown.clone()));
        let holder = Holder {
            ledger: ledger.clone(),
            store: self.store.clone(),
            showing: self.showing.clone(),
            legacy,
            applications: self.applications.clone(),
            shutdown: shutdown.clone(),
        };
        beside.spawn(holder.hold(leadership));
    }
}

/// Finds out what there is to be imported.
async fn read_legacy(access: &Access, ledger: &Ledger) -> Legacy {
    let mut pauses = Pauses::new(AGAIN[0], AGAIN[1]);
    loop {
        match import::read(access).await {
            Ok(legacy) => return legacy,
            Err(error) => ledger.unknown(error.to_string()),
        }
        tokio::time::sleep(pauses.next(None)).await;
    }
}

/// Keeps memory what the API server has. It counts as known once all is there that was to be imported.
async fn learn(mut heard: mpsc::Receiver<Heard>, ledger: &Ledger, legacy: &Found) {
    let mut listed = false;
    while let Some(heard) = heard.recv().await {
        match heard {
            Heard::All(everything) => {
                ledger.know_all(everything).await;
                listed = true;
            }
            Heard::Changed(item) => ledger.know(item),
            Heard::Gone(last) => ledger.know_gone(&last),
            Heard::Lost(error) => ledger.unknown(format!("the streams have not been read yet: {error}")),
        }
        if listed && ledger.loaded().borrow().is_err() {
            match left(legacy.borrow().as_deref(), ledger).len() {
                0 => ledger.known(),
                left => ledger.unknown(format!(
                    "the counts that an older exporter left of {left} apps are still to be imported, by the holder of Lease {LEASE}"
                )),
            }
        }
    }
}

/// What is still to be imported.
fn left<'a>(legacy: Option<&'a Legacy>, ledger: &Ledger) -> Vec<&'a Imported> {
    let imported = ledger.imported();
    let left = legacy.into_iter().flatten().filter(|(app, _)| !imported.contains(*app));
    left.map(|(_, import)| import).collect()
}

/// Ready while the API server can be written, once it is known what was counted before.
async fn tell(ledger: Arc<Ledger>, part: Part, shutdown: Shutdown) {
    let (mut health, mut loaded) = (ledger.store().health(), ledger.loaded());
    // A start takes its moment, and that is no trouble to warn of.
    let started = async {
        let _ = health.wait_for(|health| health.problem.is_none()).await;
        let _ = loaded.wait_for(Result::is_ok).await;
    };
    let _ = shutdown.or(tokio::time::timeout(START, started)).await;
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

/// What this replica does while it holds the Lease.
struct Holder {
    ledger: Arc<Ledger>,
    store: KubernetesStore,
    showing: Showing,
    legacy: watch::Receiver<Option<Arc<Legacy>>>,
    applications: Option<Arc<Applications>>,
    shutdown: Shutdown,
}

impl Holder {
    /// Shows the totals in each term of this replica, until the Lease is given back.
    async fn hold(mut self, mut leadership: Leadership) {
        while let Some(mut term) = leadership.term().await {
            let serving = term.clone();
            tokio::select! {
                () = term.ended() => tracing::info!("this replica shows the totals no more"),
                () = self.serve(serving) => {}
            }
        }
    }

    /// Never ends of itself.
    async fn serve(&mut self, term: Term) {
        let outage = Outage::new("reading all streams");
        let mut pauses = Pauses::new(AGAIN[0], AGAIN[1]);
        while let Err(error) = self.ledger.refresh().await {
            outage.failed(&error);
            tokio::time::sleep(pauses.next(None)).await;
        }
        outage.worked();
        self.showing.begin(term.clone());
        tracing::info!("this replica shows the totals");
        self.import(&term).await;
        // Ends with the term, too: it is dropped then.
        let mut following = JoinSet::new();
        if let Some(applications) = self.applications.clone() {
            let until = self.shutdown.clone();
            following.spawn(applications.follow(until));
        }
        loop {
            self.ledger.end_holds(|| term.lasts()).await;
            if let Some(applications) = &self.applications {
                applications.count(&self.ledger, &term).await;
            }
            tokio::time::sleep(HOLDS).await;
        }
    }

    /// Imports what an older exporter left, where that is not done. The watch tells all replicas of it.
    async fn import(&mut self, term: &Term) {
        let Ok(legacy) = self.legacy.wait_for(Option::is_some).await.map(|legacy| legacy.clone()) else {
            return;
        };
        let outage = Outage::new("importing what an older exporter counted");
        let mut pauses = Pauses::new(AGAIN[0], AGAIN[1]);
        for import in left(legacy.as_deref(), &self.ledger) {
            while term.lasts()
                && let Err(error) = self.store.import(import).await
            {
                outage.failed(&error);
                tokio::time::sleep(pauses.next(None)).await;
            }
            outage.worked();
        }
    }
}
