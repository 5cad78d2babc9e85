//! DoraRecorder: deployments, releases by outcome, lead time and time to restore, from settled verdicts.
//!
//! What must hold:
//! - a release counts at most once as failed and once as succeeded, whoever reports it how often;
//! - a verdict is answered after its count is stored, and only what is stored is exposed;
//! - totals survive restarts and never run backwards;
//! - of several replicas each counts, and one shows;
//! - a stream's state is bounded, and so is the number of streams: no cluster and no app can take the others' room, and
//!   an app's Task none of a cluster's.
//!
//! What it does not do: it settles nothing (the edge does), keeps no observations, and forgets no series.
//!
//! Code map: `service` decodes and encodes, `ledger` keeps the committed truth and the order within a stream, [`state`]
//! judges, [`store`] keeps it on disk or in a Kubernetes API, `replica` is one of several on that, `applications` reads
//! the syncs of this cluster's own Argo CD, `import` reads what an older exporter left, `exposition` shows what was
//! counted, where `showing` says so.

mod app;
mod applications;
mod config;
mod error;
mod exposition;
mod health;
mod import;
mod ledger;
mod metrics;
mod replica;
mod service;
mod showing;
pub mod state;
pub mod store;

pub use app::App;
pub use config::{Applications, Budgets, Config};
pub use error::Error;
pub use store::kubernetes::crd;
