//! The service as a whole: built, then run until shutdown.

use std::{net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use tokio::{sync::watch, task::JoinSet};
use transponder_core::ServiceName;
use transponder_kubernetes::Access;
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
    metrics::Metrics,
    operator::Desk,
    service::Service,
    store::{Store as _, sqlite::SqliteStore},
    sweeper::Sweeper,
    tracker::Tracker,
};

/// How often a store that failed is tried when nobody else writes.
const PROBE: Duration = Duration::from_secs(1);

/// The service, bound and not yet serving.
pub struct App {
    directory: DataDirectory,
    tracker: Tracker,
    sweeper: Sweeper,
    health: watch::Receiver<Health>,
    server: Server,
    address: SocketAddr,
    part: Part,
    shutdown: Shutdown,
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
        let _ = kubernetes;
        let part = context.readiness.part("release-tracking");
        let directory = DataDirectory::open(&config.data_directory)?;
        let store = SqliteStore::open(directory.path(), config.budgets())?;
        let health = store.health();
        let metrics = Metrics::register(context, config.max_cluster_labels);
        metrics.count(&store.tally().await?);
        metrics.restore_reports(&store.reports().await?, context.clock.wall());
        let identity = MeshIdentity::load(ServiceName::ReleaseTracking, mesh, context)?;
        let server = Server::bind(config.listen, identity, reviewer, context).await.map_err(Error::Listen)?;
        let address = server.address().map_err(Error::Listen)?;
        let tracker = Tracker {
            store: Arc::new(store),
            metrics: Arc::new(metrics),
            clock: context.clock.clone(),
            no_room: Arc::new(Outage::new("finding room for a new record")),
        };
        let sweeper = Sweeper::new(tracker.clone(), &config);
        let shutdown = context.shutdown.clone();
        Ok(Self { directory, tracker, sweeper, health, server, address, part, shutdown })
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
        let desk = Arc::new(Desk::new(self.tracker.clone()));
        operator::serve(self.directory.path(), desk, self.shutdown.clone()).map_err(Error::Operator)?;

        // Both end with shutdown. Their death at any other time is the service's: no sweeper means that silence looks
        // like success, no watch over the store that it looks well.
        let mut tasks = JoinSet::new();
        let shutdown = self.shutdown.clone();
        tasks.spawn(self.sweeper.run(shutdown));
        tasks.spawn(watch_store(self.health, self.part, self.tracker.clone(), self.shutdown));

        let store = self.tracker.store.clone();
        let mut serving = pin!(self.server.serve(ReleaseTrackingServer::new(Service::new(self.tracker))));
        loop {
            tokio::select! {
                served = &mut serving => {
                    served?;
                    if let Err(error) = store.close().await {
                        tracing::warn!(%error, "the store was not closed: its log is read at the next start");
                    }
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
