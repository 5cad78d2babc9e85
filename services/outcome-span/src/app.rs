//! Build and run.

use std::{net::SocketAddr, sync::Arc};

use transponder_core::ServiceName;
use transponder_proto::v1::outcome_span_server::OutcomeSpanServer;
use transponder_runtime::{
    Context,
    admin::Part,
    auth::TokenReviewer,
    grpc::{self, Server},
    mesh::{MeshConfig, MeshIdentity},
};

use crate::{Config, Error, Settings, anchor::Tracking, sender::Sender, service::Service};

/// OutcomeSpan, bound and not yet serving.
pub struct App {
    server: Server,
    address: SocketAddr,
    service: Service,
    part: Part,
}

impl App {
    /// Loads what it needs and binds the listener.
    ///
    /// # Errors
    /// When certificates, settings, configuration or address cannot be used. A backend that is away is no error.
    pub async fn build(
        config: Config,
        settings: Settings,
        mesh: &MeshConfig,
        reviewer: Arc<dyn TokenReviewer>,
        context: &Context,
    ) -> Result<Self, Error> {
        config.check()?;
        let part = context.readiness.part("outcome-span");
        let identity = MeshIdentity::load(ServiceName::OutcomeSpan, mesh, context)?;
        let channel = grpc::channel(&config.release_tracking, ServiceName::ReleaseTracking, identity.clone())
            .map_err(Error::ReleaseTracking)?;
        match &settings.endpoint {
            None => {
                tracing::warn!(file = %config.file.display(), "no OTLP endpoint: spans are written to a file")
            }
            Some(endpoint) => {
                let backend = endpoint.url().origin().ascii_serialization();
                tracing::info!(backend, protocol = ?settings.protocol, "spans go to the tracing backend");
            }
        }
        let service = Service {
            tracking: Tracking::new(channel),
            service_name: settings.service_name.clone(),
            sender: Sender::new(settings, config.file, config.unknown_wait, context)?,
        };
        let server = Server::bind(config.listen, identity, reviewer, context).await?;
        let address = server.address()?;
        Ok(Self { server, address, service, part })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until shutdown. It is ready whatever the backend does: the outbox keeps what the backend does not take.
    ///
    /// # Errors
    /// When the server fails as a whole.
    pub async fn run(self) -> Result<(), Error> {
        self.part.ready();
        self.server.serve(OutcomeSpanServer::new(self.service)).await?;
        Ok(())
    }
}
