//! Wires the service: build opens and binds everything and fails early, run serves until shutdown.

use std::{net::SocketAddr, sync::Arc};

use tokio::task::JoinSet;
use transponder_core::ServiceName;
use transponder_kubernetes::Access;
use transponder_proto::v1::dora_recorder_server::DoraRecorderServer;
use transponder_runtime::{
    Context,
    admin::Part,
    auth::TokenReviewer,
    grpc::Server,
    mesh::{MeshConfig, MeshIdentity},
    outage::Outage,
};
use transponder_store::{DataDirectory, StoreError};

use crate::{
    applications::Applications,
    config::Config,
    error::Error,
    exposition::Exposition,
    health,
    ledger::Ledger,
    metrics::Metrics,
    replica::Replica,
    service::{Local, Service},
    showing::Showing,
    store::{KubernetesStore, SqliteStore},
};

/// The DoraRecorder, bound and not yet serving.
pub struct App {
    server: Server,
    address: SocketAddr,
    ledger: Arc<Ledger>,
    keeping: Keeping,
    local: Local,
    part: Part,
    context: Context,
}

/// What keeps the ledger and its store together.
enum Keeping {
    /// One process; its directory is held for as long as the service lives.
    Disk(DataDirectory),
    /// One replica of several on a Kubernetes API.
    Api(Box<Replica>),
}

impl App {
    /// Opens the store and binds the listener. Streams on disk are loaded; those on a Kubernetes API are once it can be
    /// reached, after [`run`](Self::run) has begun, and no verdict is taken before.
    ///
    /// # Errors
    /// When any of that fails. An API server that is away is no failure.
    pub async fn build(
        config: Config,
        mesh: &MeshConfig,
        reviewer: Arc<dyn TokenReviewer>,
        kubernetes: Option<&Access>,
        context: &Context,
    ) -> Result<Self, Error> {
        config.check()?;
        let part = context.readiness.part("dora-recorder");
        let identity = MeshIdentity::load(ServiceName::DoraRecorder, mesh, context)?;
        let (ledger, keeping, local) = match kubernetes {
            None => {
                let (ledger, keeping) = on_disk(&config, context).await?;
                (ledger, keeping, Local::NotOnKubernetes)
            }
            Some(access) => on_api(access, &config, context),
        };
        let server = Server::bind(config.listen, identity, reviewer, context).await?;
        let address = server.address()?;
        let exposition = Exposition(ledger.view());
        context.metrics.register(|registry| registry.register_collector(Box::new(exposition)));
        Ok(Self { server, address, ledger, keeping, local, part, context: context.clone() })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until shutdown, then lets calls in flight finish.
    ///
    /// # Errors
    /// When the server fails as a whole.
    pub async fn run(self) -> Result<(), Error> {
        let Self { server, address, ledger, keeping, local, part, context } = self;
        let mut beside = JoinSet::new();
        match &keeping {
            Keeping::Disk(directory) => {
                tracing::info!(%address, data_directory = %directory.path().display(), "dora-recorder listens");
                beside.spawn(health::watch(ledger.clone(), part, context.shutdown.clone()));
            }
            Keeping::Api(replica) => {
                tracing::info!(%address, namespace = replica.namespace(), "dora-recorder listens");
                replica.start(&ledger, part, &context, &mut beside);
            }
        }
        let no_room = Outage::new("finding room for a new stream");
        let service = Service { ledger: ledger.clone(), clock: context.clock.clone(), local, no_room };
        server.serve(DoraRecorderServer::new(service)).await?;
        if matches!(keeping, Keeping::Disk(_)) {
            beside.abort_all();
        }
        // The Lease is given back.
        while beside.join_next().await.is_some() {}
        if let Err(error) = ledger.store().close().await {
            tracing::warn!(%error, "the store was not closed: its log is read at the next start");
        }
        Ok(())
    }
}

async fn on_disk(config: &Config, context: &Context) -> Result<(Arc<Ledger>, Keeping), Error> {
    let failed = |source: StoreError| Error::Store { directory: config.data_directory.clone(), source };
    let directory = DataDirectory::open(&config.data_directory).map_err(failed)?;
    let store = Arc::new(SqliteStore::open(directory.path()).map_err(failed)?);
    let metrics = Metrics::register(context);
    let ledger = Ledger::load(store, config, context.clock.clone(), metrics).await.map_err(failed)?;
    Ok((ledger, Keeping::Disk(directory)))
}

fn on_api(access: &Access, config: &Config, context: &Context) -> (Arc<Ledger>, Keeping, Local) {
    let store = KubernetesStore::new(access);
    let (clock, metrics) = (context.clock.clone(), Metrics::register(context));
    let showing = Showing::replica();
    let streams = Arc::new(store.clone());
    let ledger = Ledger::new(streams.clone(), Some(streams), config, clock, metrics, showing.clone());
    let applications = Applications::new(access, config).map(Arc::new);
    let replica = Replica::new(access, store, showing, applications.clone());
    (ledger, Keeping::Api(Box::new(replica)), applications.map_or(Local::Unnamed, Local::Read))
}
