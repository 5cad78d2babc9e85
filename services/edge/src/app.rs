//! Building and running the edge.

use std::{net::SocketAddr, pin::pin, sync::Arc};

use futures_util::future::BoxFuture;
use rustls::ServerConfig;
use transponder_core::ServiceName;
use transponder_kubernetes::Access;
use transponder_runtime::{
    Context,
    mesh::{MeshConfig, MeshIdentity},
    tls::{self, LiveCertificate, TlsError, Usage},
    watch,
};
use transponder_store::DataDirectory;

use crate::{
    backing::{Backing, Ground},
    budget::Budgets,
    config::Config,
    delivery::Peers,
    error::Error,
    http::{Handler, Listener},
    metrics::Metrics,
    registry::{self, Directory, Registry, Report},
    sweeper,
};

/// The edge, bound and ready to run.
pub struct App {
    listener: Listener,
    handler: Arc<Handler>,
    delivering: BoxFuture<'static, Result<(), Error>>,
    context: Context,
    _directory: Option<DataDirectory>,
}

impl App {
    /// Opens the outbox, reads the registry, binds the listener. Delivery of what was left over starts here.
    ///
    /// # Errors
    /// Names what cannot be used.
    pub async fn build(
        mut config: Config,
        mesh: &MeshConfig,
        kubernetes: Option<&Access>,
        context: &Context,
    ) -> Result<Self, Error> {
        config.check()?;
        if kubernetes.is_some() {
            config.budget = config.budget.on_kubernetes();
        }
        let metrics = Metrics::register(context);
        let identity = MeshIdentity::load(ServiceName::Edge, mesh, context)?;
        let peers = Peers::new(&config.peers, &config.delivery, &identity, &context.tracer)?;
        let tls = server_tls(&config, context)?;
        let budgets = Budgets::new(&config.budget, &config.http);
        let registry = Arc::new(Registry::new());
        let secrets = follow_registry(&config, kubernetes, &registry, &budgets, &metrics, context);

        let listener = Listener::bind(config.listen, tls, config.http.clone(), metrics.clone()).await?;
        let ground = Ground { config: &config, context, peers, budgets, metrics: &metrics };
        let Backing { outbox, delivery, delivering, directory } = match kubernetes {
            None => ground.embedded()?,
            Some(access) => ground.on_kubernetes(access)?,
        };
        sweeper::spawn(outbox.clone(), &config.retention, context);
        let handler = Arc::new(Handler {
            registry,
            secrets,
            outbox,
            delivery,
            clock: context.clock.clone(),
            metrics,
            tracer: context.tracer.clone(),
            config,
        });
        Ok(Self { listener, handler, delivering, context: context.clone(), _directory: directory })
    }

    /// Where reports come in.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Runs until shutdown; ends when what was accepted is stored and what was delivered is noted.
    ///
    /// # Errors
    /// When delivery has died: an edge that takes reports in and delivers none must not go on.
    pub async fn run(self) -> Result<(), Error> {
        let Self { listener, handler, delivering, context, .. } = self;
        let outbox = handler.outbox.clone();
        both(listener.run(handler, context.shutdown.clone()), delivering).await?;
        if let Err(error) = outbox.close().await {
            tracing::warn!(%error, "the outbox was not closed: its log is read at the next start");
        }
        Ok(())
    }
}

/// Waits for both to end; not for the listener once delivery has died.
async fn both(
    listening: impl Future<Output = ()>,
    mut delivering: BoxFuture<'static, Result<(), Error>>,
) -> Result<(), Error> {
    let mut listening = pin!(listening);
    tokio::select! {
        () = &mut listening => delivering.await,
        ended = &mut delivering => {
            ended?;
            listening.await;
            Ok(())
        }
    }
}

/// TLS for the listener, with a certificate that is replaced when its file changes.
fn server_tls(config: &Config, context: &Context) -> Result<Arc<ServerConfig>, Error> {
    let (pair, facts) = tls::load_pair(&config.certificate, &config.key, Usage::Server)?;
    let certificates = context.certificates.clone();
    certificates.expires("edge", facts.not_after);
    let material = pair.cert.clone();
    let live = Arc::new(LiveCertificate::new(pair));
    let failed = |e: rustls::Error| TlsError { path: config.certificate.clone(), problem: e.to_string() };
    let mut tls = ServerConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .with_no_client_auth()
        .with_cert_resolver(live.clone());
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];

    let (certificate, key) = (config.certificate.clone(), config.key.clone());
    let directories =
        [&certificate, &key].into_iter().filter_map(|path| path.parent()).map(Into::into).collect();
    let current = std::sync::Mutex::new(material);
    watch::spawn_shallow(directories, context.shutdown.clone(), move || {
        match tls::load_pair(&certificate, &key, Usage::Server) {
            Ok((pair, facts)) => {
                certificates.works("edge");
                let mut current = current.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                if *current != pair.cert {
                    current.clone_from(&pair.cert);
                    certificates.expires("edge", facts.not_after);
                    live.replace(pair);
                    tracing::info!(not_after = %facts.not_after, "edge certificate replaced");
                }
            }
            Err(error) => {
                if certificates.failed("edge", &error) {
                    tracing::error!(%error, "edge certificate not replaced, the last good one stays");
                }
            }
        }
    });
    Ok(Arc::new(tls))
}

/// Follows the registry; on Kubernetes answers what reads a cluster's Secret when it reports.
fn follow_registry(
    config: &Config,
    kubernetes: Option<&Access>,
    registry: &Arc<Registry>,
    budgets: &Budgets,
    metrics: &Metrics,
    context: &Context,
) -> Option<Arc<registry::Kubernetes>> {
    let report = Report::new(metrics, context);
    if let Some(access) = kubernetes {
        let shutdown = &context.shutdown;
        return Some(registry::Kubernetes::follow(access, registry, budgets, report, shutdown));
    }
    let directory = Directory::new(&config.registry, budgets.clone());
    let (registry, path) = (registry.clone(), directory.path().to_owned());
    let read = move || report.tell(&registry, directory.load_into(&registry));
    read();
    watch::spawn(vec![path], context.shutdown.clone(), read);
    None
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn an_edge_whose_delivery_has_died_ends_and_says_so() {
        let died = || Box::pin(ready(Err(Error::Delivery)));
        assert!(matches!(both(pending(), died()).await, Err(Error::Delivery)));
        assert!(matches!(both(ready(()), died()).await, Err(Error::Delivery)));
    }

    #[tokio::test]
    async fn a_stop_waits_for_listener_and_delivery_both() {
        let (over, listening) = tokio::sync::oneshot::channel();
        let listening = async {
            let _: Result<(), _> = listening.await;
        };
        let mut waiting = tokio::spawn(both(listening, Box::pin(ready(Ok(())))));
        let moment = std::time::Duration::from_millis(50);
        assert!(tokio::time::timeout(moment, &mut waiting).await.is_err());
        over.send(()).unwrap();
        assert!(waiting.await.unwrap().is_ok());
    }
}
