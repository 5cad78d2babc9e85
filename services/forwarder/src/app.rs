//! Build and run.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use transponder_core::ServiceName;
use transponder_proto::v1::forwarder_server::ForwarderServer;
use transponder_runtime::{
    Context,
    admin::Part,
    auth::TokenReviewer,
    grpc::Server,
    mesh::{MeshConfig, MeshIdentity},
    outage::Outage,
};

use crate::{Config, Error, broker::Broker, metrics::Metrics, service::Service, token::TokenSource};

/// How often the token is looked at while no event uses it.
const TOKEN_CHECK: Duration = Duration::from_secs(5);

/// The Forwarder, bound and not yet serving.
pub struct App {
    server: Server,
    address: SocketAddr,
    service: Service,
    part: Part,
    context: Context,
}

impl App {
    /// Loads what it needs and binds the listener.
    ///
    /// # Errors
    /// When certificates, configuration or address cannot be used. A bad token is no error: it may come any time.
    pub async fn build(
        config: Config,
        mesh: &MeshConfig,
        reviewer: Arc<dyn TokenReviewer>,
        context: &Context,
    ) -> Result<Self, Error> {
        config.check()?;
        let part = context.readiness.part("forwarder");
        let identity = MeshIdentity::load(ServiceName::Forwarder, mesh, context)?;
        let service = Service {
            broker: Broker::new(&config, context.shutdown.clone())?,
            token: TokenSource::new(&config.token_file, &config.audience).map(Arc::new),
            metrics: Arc::new(Metrics::register(context)),
            outage: Outage::new("forwarding to the broker"),
            clock: context.clock.clone(),
        };
        let server = Server::bind(config.listen, identity, reviewer, context).await?;
        let address = server.address()?;
        Ok(Self { server, address, service, part, context: context.clone() })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until shutdown.
    ///
    /// # Errors
    /// When the server fails as a whole.
    pub async fn run(self) -> Result<(), Error> {
        let Self { server, service, part, context, .. } = self;
        match service.token.clone() {
            None => part.ready(),
            Some(token) => {
                tokio::spawn(watch_token(token, service.metrics.clone(), part, context));
            }
        }
        server.serve(ForwarderServer::new(service)).await?;
        Ok(())
    }
}

/// Without a token that may be sent the Forwarder is not ready, and says why before an event has to.
async fn watch_token(token: Arc<TokenSource>, metrics: Arc<Metrics>, part: Part, context: Context) {
    loop {
        match token.current(context.clock.wall()) {
            Ok(token) => {
                metrics.token_expires(token.facts.expires.map(|at| at.as_second()));
                part.ready();
            }
            Err(error) => {
                metrics.token_expires(None);
                part.not_ready(error.to_string());
            }
        }
        if context.shutdown.or(tokio::time::sleep(TOKEN_CHECK)).await.is_none() {
            return;
        }
    }
}
