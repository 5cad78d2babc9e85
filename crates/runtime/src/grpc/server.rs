//! The gRPC server of one service.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use http::{Request, Response};
use tokio::{net::TcpListener, sync::mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{body::Body, server::NamedService};
use tower::Service;

use super::{connection::accept, identify::AuthLayer, seats::Seats};
use crate::{Context, Shutdown, auth::TokenReviewer, config, mesh::MeshIdentity, trace::Tracer};

/// Connections that are served at a time.
const CONNECTIONS: usize = 1024;
/// Of these, connections of Tasks that keep their place.
const TASKS: usize = 768;
/// Streams of one connection at a time.
const STREAMS: u32 = 256;

/// A gRPC server of one service that is bound and not yet serving.
pub struct Server {
    listener: TcpListener,
    identity: Arc<MeshIdentity>,
    reviewer: Arc<dyn TokenReviewer>,
    shutdown: Shutdown,
    tracer: Tracer,
    pub(super) seats: Arc<Seats>,
}

impl Server {
    /// Binds the listener.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn bind(
        address: SocketAddr,
        identity: Arc<MeshIdentity>,
        reviewer: Arc<dyn TokenReviewer>,
        context: &Context,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await.map_err(|e| {
            let section = config::section(identity.service());
            std::io::Error::new(e.kind(), format!("cannot listen on {address} ({section}.listen): {e}"))
        })?;
        Ok(Self {
            listener,
            identity,
            reviewer,
            shutdown: context.shutdown.clone(),
            tracer: context.tracer.clone(),
            seats: Arc::new(Seats::new(CONNECTIONS, TASKS)),
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the socket does not know.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until shutdown, then lets calls in flight finish.
    ///
    /// # Errors
    /// When the transport fails as a whole.
    pub async fn serve<S>(self, service: S) -> Result<(), tonic::transport::Error>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_serving::<S>().await;
        let shutdown = self.shutdown.clone();
        let stopping = async move {
            shutdown.wait().await;
            health.set_not_serving::<S>().await;
        };
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(transponder_proto::DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
                // So that a client can read the details of a refusal.
                .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
                .with_service_name(S::NAME)
                .with_service_name("grpc.health.v1.Health")
        };
        let mut server = tonic::transport::Server::builder()
            .max_concurrent_streams(STREAMS)
            .http2_keepalive_interval(Some(Duration::from_secs(30)))
            .http2_keepalive_timeout(Some(Duration::from_secs(10)))
            .timeout(Duration::from_secs(60))
            .layer(AuthLayer {
                reviewer: self.reviewer.clone(),
                service: self.identity.service(),
                tracer: self.tracer.clone(),
            });
        let mut routes = server.add_service(health_service).add_service(service);
        match (reflection().build_v1(), reflection().build_v1alpha()) {
            (Ok(v1), Ok(alpha)) => routes = routes.add_service(v1).add_service(alpha),
            (Err(error), _) | (_, Err(error)) => tracing::error!(%error, "no reflection"),
        }
        let (sender, incoming) = mpsc::channel(16);
        let accepting = tokio::spawn(accept(self.listener, self.identity, self.seats, sender, self.shutdown));
        let served = routes.serve_with_incoming_shutdown(ReceiverStream::new(incoming), stopping).await;
        accepting.abort();
        served
    }
}
