//! DoraRecorder: deployments, releases by outcome, lead time and time to restore, from settled verdicts.
//!
//! What must hold:
//! - a release counts at most once as failed and once as succeeded, whoever reports it how often;
//! - a verdict is answered after its count is on disk, and only what is on disk is exposed;
//! - totals survive restarts and never run backwards;
//! - a stream's state is bounded, and so is the number of streams: no cluster and no app can take the others' room, and
//!   an app's Task none of a cluster's.
//!
//! What it does not do: it settles nothing (the edge does), keeps no observations, and forgets no series.
//!
//! Code map: `service` decodes and encodes, `ledger` keeps the committed truth and the order within a
//! stream, [`state`] judges, [`store`] keeps it on disk, `exposition` shows it.

mod app;
mod config;
mod error;
mod exposition;
mod health;
mod ledger;
mod metrics;
mod service;
pub mod state;
pub mod store;

pub use app::App;
pub use config::{Budgets, Config};
pub use error::Error;
