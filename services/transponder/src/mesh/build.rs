//! Building everything first: what cannot work fails here.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use anyhow::Context as _;
use transponder_core::ServiceName;
use transponder_kubernetes::{Access, Reviewer};
use transponder_runtime::{
    Context,
    admin::Admin,
    auth::{TokenFile, TokenReviewer},
};

use super::{Addresses, Mesh, Part, Selection, reachable};
use crate::config::{Config, StoreKind};

impl Mesh {
    /// Loads, checks and binds what `selection` names. The edge comes last: its peers are those of this process,
    /// wherever they were bound. `otlp` tells where spans go.
    ///
    /// # Errors
    /// Names the part and why it cannot be built.
    pub async fn build(
        mut config: Config,
        selection: Selection,
        otlp: transponder_outcome_span::Settings,
        context: &Context,
    ) -> anyhow::Result<Self> {
        let admin = Admin::bind(config.admin.listen, context)
            .await
            .with_context(|| format!("admin cannot listen on {} (admin.listen)", config.admin.listen))?;
        let kubernetes = match config.store.kind {
            StoreKind::Embedded => None,
            StoreKind::Kubernetes => Some(Access::find(&config.kubernetes).await?),
        };
        let reviewer = reviewer(&config, kubernetes.as_ref(), context)?;
        let mut built = Built::default();
        if selection.includes(ServiceName::Forwarder) {
            let app =
                transponder_forwarder::App::build(config.forwarder, &config.mesh, reviewer.clone(), context)
                    .await
                    .context("forwarder cannot start")?;
            config.edge.peers.forwarder =
                built.add(ServiceName::Forwarder, app.address(), async { Ok(app.run().await?) });
        }
        if selection.includes(ServiceName::DoraRecorder) {
            let app = transponder_dora_recorder::App::build(
                config.dora,
                &config.mesh,
                reviewer.clone(),
                kubernetes.as_ref(),
                context,
            )
            .await
            .context("dora-recorder cannot start")?;
            config.edge.peers.dora_recorder =
                built.add(ServiceName::DoraRecorder, app.address(), async { Ok(app.run().await?) });
        }
        if selection.includes(ServiceName::ReleaseTracking) {
            let app = transponder_release_tracking::App::build(
                config.release_tracking,
                &config.mesh,
                reviewer.clone(),
                kubernetes.as_ref(),
                context,
            )
            .await
            .context("release-tracking cannot start")?;
            let address =
                built.add(ServiceName::ReleaseTracking, app.address(), async { Ok(app.run().await?) });
            config.outcome_span.release_tracking.clone_from(&address);
            config.edge.peers.release_tracking = address;
        }
        if selection.includes(ServiceName::OutcomeSpan) {
            let app = transponder_outcome_span::App::build(
                config.outcome_span,
                otlp,
                &config.mesh,
                reviewer.clone(),
                context,
            )
            .await
            .context("outcome-span cannot start")?;
            config.edge.peers.outcome_span =
                built.add(ServiceName::OutcomeSpan, app.address(), async { Ok(app.run().await?) });
        }
        if selection.includes(ServiceName::Edge) {
            let app = transponder_edge::App::build(config.edge, &config.mesh, kubernetes.as_ref(), context)
                .await
                .context("edge cannot start")?;
            built.add(ServiceName::Edge, app.address(), async { Ok(app.run().await?) });
        }
        let addresses = Addresses { admin: admin.address()?, services: built.addresses };
        Ok(Self { context: context.clone(), admin, addresses: Arc::new(addresses), parts: built.parts })
    }
}

/// Who tells whose token a Task has.
fn reviewer(
    config: &Config,
    kubernetes: Option<&Access>,
    context: &Context,
) -> anyhow::Result<Arc<dyn TokenReviewer>> {
    config.callers.check()?;
    let reviewer = match kubernetes {
        None => TokenFile::load(&config.callers, context).map(|file| file as Arc<dyn TokenReviewer>),
        Some(access) => {
            Reviewer::new(access, &config.callers, context).map(|all| all as Arc<dyn TokenReviewer>)
        }
    };
    reviewer.map_err(anyhow::Error::msg).context("callers cannot be told apart")
}

#[derive(Default)]
struct Built {
    addresses: BTreeMap<ServiceName, SocketAddr>,
    parts: Vec<Part>,
}

impl Built {
    /// Adds a part and answers where the others reach it.
    fn add(
        &mut self,
        service: ServiceName,
        address: SocketAddr,
        run: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) -> String {
        self.addresses.insert(service, address);
        self.parts.push(Part { service, run: Box::pin(run) });
        reachable(address).to_string()
    }
}
