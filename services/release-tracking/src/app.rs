//! The service as a whole: built, then run until shutdown.

use std::{net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use tokio::{sync::watch, task::JoinSet};
use transponder_core::ServiceName;
use transponder_kubernetes::{
    Access,
    lease::{self, Leadership},
    reach,
};
use transponder_proto::v1::release_tracking_server::ReleaseTrackingServer;
use transponder_runtime::{
    Context, Shutdown,
    admin::Part,
    auth::TokenReviewer,
    grpc::Server,
    mesh::{MeshConfig, MeshIdentity},
    operator,
    outage::Outage,
};
use transponder_store::{DataDirectory, Health};

use crate::{
    Config, Error,
    metrics::{Counting, Metrics},
    older::OlderRecords,
    operator::Desk,
    service::Service,
    store::{Store, kubernetes::KubernetesStore, sqlite::SqliteStore},
    sweeper::Sweeper,
    tracker::Tracker,
};

/// How often a store that failed is tried when nobody else writes.
const PROBE: Duration = Duration::from_secs(1);

/// Longest wait for an API server that is to take the Lease back.
const GIVE_BACK: Duration = Duration::from_secs(3);
/// The Lease of the replica that sweeps.
const LEASE: &str = "transponder-release-tracking";

/// The service, bound and not yet serving.
pub struct App {
    place: Place,
    tracker: Tracker,
    sweeper: Sweeper,
    health: watch::Receiver<Health>,
    server: Server,
    address: SocketAddr,
    part: Part,
    shutdown: Shutdown,
}

/// Where the records are.
enum Place {
    /// In a directory that this process alone has.
    Directory(DataDirectory),
    /// In an API server, for several replicas, of which the holder of the Lease sweeps.
    Kubernetes { store: Arc<KubernetesStore>, access: Access, standing: Part },
}

impl App {
    /// Opens the store, loads identity and callers, binds the listener.
    ///
    /// # Errors
    /// When any of it cannot be done.
    pub async fn build(
        config: Config,
        mesh: &MeshConfig,
        reviewer: Arc<dyn TokenReviewer>,
        kubernetes: Option<&Access>,
        context: &Context,
    ) -> Result<Self, Error> {
        config.check()?;
        let part = context.readiness.part("release-tracking");
        let (place, store, health, counting): (_, Arc<dyn Store>, _, _) = match kubernetes {
            None => {
                let directory = DataDirectory::open(&config.data_directory)?;
                let store = SqliteStore::open(directory.path(), config.budgets())?;
                let health = store.health();
                (Place::Directory(directory), Arc::new(store), health, Counting::Alone)
            }
            Some(access) => {
                let store = Arc::new(KubernetesStore::new(access, config.budgets()));
                let health = store.health();
                let standing = context.readiness.part("release-tracking lease");
                let place = Place::Kubernetes { store: store.clone(), access: access.clone(), standing };
                (place, store, health, Counting::InTurn)
            }
        };
        let older = match kubernetes.filter(|_| !config.older_records.is_empty()) {
            Some(access) => Some(Arc::new(OlderRecords::new(access, config.older_records()?))),
            None => None,
        };
        if older.is_none() && !config.older_records.is_empty() {
            tracing::warn!("release_tracking.older_records are read with store.kind = \"kubernetes\" alone");
        }
        let metrics = Metrics::register(context, config.max_cluster_labels, counting);
        if let Place::Directory(_) = place {
            metrics.count(&store.tally().await?);
            metrics.restore_reports(&store.reports().await?, context.clock.wall());
        }
        let identity = MeshIdentity::load(ServiceName::ReleaseTracking, mesh, context)?;
        let server = Server::bind(config.listen, identity, reviewer, context).await.map_err(Error::Listen)?;
        let address = server.address().map_err(Error::Listen)?;
        let tracker = Tracker {
            store,
            metrics: Arc::new(metrics),
            clock: context.clock.clone(),
            no_room: Arc::new(Outage::new("finding room for a new record")),
            older,
        };
        let sweeper = Sweeper::new(tracker.clone(), &config);
        let shutdown = context.shutdown.clone();
        Ok(Self { place, tracker, sweeper, health, server, address, part, shutdown })
    }

    /// Where gRPC listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until shutdown, then lets calls in flight finish.
    ///
    /// # Errors
    /// When the transport fails, or a task dies without which the service would lie.
    pub async fn run(self) -> Result<(), Error> {
        // All of them end with shutdown. Their death at any other time is the service's: no sweeper means that silence
        // looks like success, no watch over the store that it looks well.
        let mut tasks = JoinSet::new();
        let shutdown = self.shutdown;
        // With it goes the lock of the directory, so it stays until the end.
        let place = self.place;
        let leadership = match &place {
            Place::Directory(directory) => {
                let desk = Arc::new(Desk::new(self.tracker.store.clone()));
                operator::serve(directory.path(), desk, shutdown.clone()).map_err(Error::Operator)?;
                tasks.spawn(self.sweeper.run(shutdown.clone()));
                tasks.spawn(watch_store(self.health, self.part, self.tracker.clone(), shutdown));
                None
            }
            Place::Kubernetes { store, access, standing } => {
                let leadership = lease::stand(access, LEASE, standing.clone(), shutdown.clone());
                tasks.spawn(store.clone().run(shutdown.clone()));
                tasks.spawn(self.sweeper.run_in_turn(leadership.clone(), shutdown.clone()));
                tasks.spawn(reach::tell(self.health, self.part, shutdown));
                Some(leadership)
            }
        };

        let store = self.tracker.store.clone();
        let mut serving = pin!(self.server.serve(ReleaseTrackingServer::new(Service::new(self.tracker))));
        loop {
            tokio::select! {
                served = &mut serving => {
                    served?;
                    if let Err(error) = store.close().await {
                        tracing::warn!(%error, "the store was not closed: its log is read at the next start");
                    }
                    given_back(leadership).await;
                    return Ok(());
                }
                Some(ended) = tasks.join_next() => {
                    if let Err(death) = ended {
                        let problem = death.to_string();
                        return Err(Error::Task { task: "sweeper or the watch over the store", problem });
                    }
                }
            }
        }
    }
}

/// Waits until the Lease is given back, so that the next holder need not wait for its end.
async fn given_back(leadership: Option<Leadership>) {
    if let Some(mut leadership) = leadership {
        let _ = tokio::time::timeout(GIVE_BACK, leadership.over()).await;
    }
}

/// Tells readiness how the store is. Only a commit shows that writing works again, so while it does not, one is tried.
async fn watch_store(mut health: watch::Receiver<Health>, part: Part, tracker: Tracker, shutdown: Shutdown) {
    loop {
        let problem = health.borrow_and_update().problem.clone();
        let Some(problem) = problem else {
            part.ready();
            match shutdown.or(health.changed()).await {
                Some(Ok(())) => continue,
                Some(Err(_)) | None => return,
            }
        };
        part.not_ready(problem.to_string());
        if shutdown.or(tokio::time::sleep(PROBE)).await.is_none() {
            return;
        }
        // Its failure is what the loop sees next.
        let _ = tracker.store.probe(tracker.clock.wall()).await;
    }
}
