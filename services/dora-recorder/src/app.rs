//! Wires the service: build opens and binds everything and fails early, run serves until shutdown.

use std::{net::SocketAddr, sync::Arc};

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
    config::Config, error::Error, exposition::Exposition, health, ledger::Ledger, metrics::Metrics,
    service::Service, store::SqliteStore,
};

/// The DoraRecorder, bound and not yet serving.
pub struct App {
    server: Server,
    address: SocketAddr,
    ledger: Arc<Ledger>,
    part: Part,
    context: Context,
    /// Held for as long as the service lives.
    directory: DataDirectory,
}

impl App {
    /// Opens the store, loads all streams and binds the listener.
    ///
    /// # Errors
    /// When any of that fails.
    pub async fn build(
        config: Config,
        mesh: &MeshConfig,
        reviewer: Arc<dyn TokenReviewer>,
        kubernetes: Option<&Access>,
        context: &Context,
    ) -> Result<Self, Error> {
        config.check()?;
        let _ = kubernetes;
        let part = context.readiness.part("dora-recorder");
        let identity = MeshIdentity::load(ServiceName::DoraRecorder, mesh, context)?;
        let failed = |source: StoreError| Error::Store { directory: config.data_directory.clone(), source };
        let directory = DataDirectory::open(&config.data_directory).map_err(failed)?;
        let store = SqliteStore::open(directory.path()).map_err(failed)?;
        let metrics = Metrics::register(context);
        let ledger =
            Ledger::load(Arc::new(store), &config, context.clock.clone(), metrics).await.map_err(failed)?;
        let server = Server::bind(config.listen, identity, reviewer, context).await?;
        let address = server.address()?;
        let exposition = Exposition(ledger.view());
        context.metrics.register(|registry| registry.register_collector(Box::new(exposition)));
        Ok(Self { server, address, ledger, part, context: context.clone(), directory })
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
        let Self { server, address, ledger, part, context, directory } = self;
        let watching = tokio::spawn(health::watch(ledger.clone(), part, context.shutdown.clone()));
        tracing::info!(%address, data_directory = %directory.path().display(), "dora-recorder listens");
        let no_room = Outage::new("finding room for a new stream");
        let service = Service { ledger: ledger.clone(), clock: context.clock.clone(), no_room };
        let served = server.serve(DoraRecorderServer::new(service)).await;
        watching.abort();
        served?;
        if let Err(error) = ledger.store().close().await {
            tracing::warn!(%error, "the store was not closed: its log is read at the next start");
        }
        Ok(())
    }
}
