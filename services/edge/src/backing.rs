//! What the edge stands on: a file of its own, or the API server that all edges share.

use std::sync::Arc;

use bytesize::ByteSize;
use futures_util::future::BoxFuture;
use transponder_kubernetes::{Access, lease, reach};
use transponder_runtime::{Context, Shutdown, config::BadValue, operator};
use transponder_store::DataDirectory;

use crate::{
    budget::Budgets,
    config::Config,
    delivery::{Delivery, Engine, Peers, Terms},
    error::Error,
    metrics::Metrics,
    operator::EdgeOperator,
    outbox::{KubernetesOutbox, Outbox, SqliteOutbox, count_budgets},
};

/// The Lease of which the holder delivers.
const LEASE: &str = "transponder-edge";
/// Largest body that fits an object. One in which much must be escaped is refused when it comes.
const LARGEST: ByteSize = ByteSize::kib(512);

/// Where events are kept, and who delivers them.
pub(crate) struct Backing {
    pub outbox: Arc<dyn Outbox>,
    /// Who is told of what is accepted.
    pub delivery: Delivery,
    /// Ends after shutdown, when what was delivered is noted.
    pub delivering: BoxFuture<'static, Result<(), Error>>,
    /// Held for as long as the edge lives.
    pub directory: Option<DataDirectory>,
}

/// What both rest on.
pub(crate) struct Ground<'a> {
    pub config: &'a Config,
    pub context: &'a Context,
    pub peers: Peers,
    pub budgets: Budgets,
    pub metrics: &'a Metrics,
}

impl Ground<'_> {
    /// A file in the data directory. Delivery of what was left over starts here.
    pub(crate) fn embedded(self) -> Result<Backing, Error> {
        let (config, context) = (self.config, self.context);
        let directory = DataDirectory::open(&config.data_directory)?;
        let outbox: Arc<dyn Outbox> = Arc::new(SqliteOutbox::open(directory.path())?);
        let engine = Engine {
            outbox: outbox.clone(),
            peers: self.peers,
            budgets: self.budgets,
            clock: context.clock.clone(),
            metrics: self.metrics.clone(),
            part: context.readiness.part("edge outbox"),
            shutdown: context.shutdown.clone(),
        };
        let (delivery, drained) = engine.start(&config.delivery, &config.settle);
        let answers = EdgeOperator {
            outbox: outbox.clone(),
            delivery: Some(delivery.clone()),
            clock: context.clock.clone(),
        };
        operator::serve(directory.path(), Arc::new(answers), context.shutdown.clone())
            .map_err(Error::Operator)?;
        let delivering = Box::pin(async move { drained.await.map_err(|_| Error::Delivery) });
        Ok(Backing { outbox, delivery, delivering, directory: Some(directory) })
    }

    /// Objects of the API server. Every edge accepts; the holder of the Lease delivers.
    pub(crate) fn on_kubernetes(self, access: &Access) -> Result<Backing, Error> {
        let (config, context) = (self.config, self.context);
        if config.body_limit > LARGEST {
            let problem = format!("must be at most {LARGEST} where events are kept in the API server");
            return Err(BadValue::new("edge.body_limit", config.body_limit, problem).into());
        }
        let outbox = Arc::new(KubernetesOutbox::new(access, &config.retention, context.clock.clone()));
        let (probed, shutdown) = (outbox.clone(), context.shutdown.clone());
        tokio::spawn(outbox.reach().watch_over(shutdown, move || {
            let probed = probed.clone();
            async move { probed.probe().await }
        }));
        let part = context.readiness.part("edge outbox");
        tokio::spawn(reach::tell(outbox.health(), part, context.shutdown.clone()));
        let (delivery, counting) = count_budgets(access, self.budgets.clone(), &context.shutdown);
        tokio::spawn(counting);

        let part = context.readiness.part("edge delivery");
        let stop = Shutdown::default();
        let standing = context.readiness.part("edge lease");
        let mut leadership = lease::stand(access, LEASE, standing, stop.clone());
        let engine = {
            let (outbox, peers, metrics) = (outbox.clone(), self.peers, self.metrics.clone());
            let (clock, part) = (context.clock.clone(), part.clone());
            // What every edge counts for itself, the engine must not count again.
            let budgets = self.budgets.apart();
            move |shutdown| Engine {
                outbox: outbox.clone(),
                peers: peers.clone(),
                budgets: budgets.clone(),
                clock: clock.clone(),
                metrics: metrics.clone(),
                part: part.clone(),
                shutdown,
            }
        };
        let terms = Terms {
            outbox: outbox.clone(),
            leadership: leadership.clone(),
            engine: Box::new(engine),
            part,
            delivery: config.delivery.clone(),
            settle: config.settle.clone(),
            shutdown: context.shutdown.clone(),
        };
        let delivering = Box::pin(async move {
            let ended = terms.run().await;
            // Not before what was delivered is noted: the next holder begins with it.
            stop.begin();
            leadership.over().await;
            ended
        });
        Ok(Backing { outbox, delivery, delivering, directory: None })
    }
}
