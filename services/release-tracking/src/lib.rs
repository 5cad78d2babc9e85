//! ReleaseTracking: a short-lived record of each release, from its pull request to what was last reported of it.
//!
//! What must hold:
//! - an observation is counted once, however often and in whatever order it comes; the state is a function of the
//!   facts, not of their order;
//! - nothing is consumed or deleted by reading, and a read that fails is an error, never absence;
//! - silence is told apart from an outcome: `unreported` claims no time and no result;
//! - an application's Task sees and touches the records of its own app namespace alone;
//! - what is answered is on disk.
//!
//! What it does not do: it decides no deployment, counts nothing for DORA, and calls no other service. With the embedded
//! store it keeps no copy of all records in memory; with the Kubernetes API each replica keeps one.

pub mod app;
pub mod budget;
pub mod change;
pub mod config;
pub mod error;
mod metrics;
mod older;
mod operator;
pub mod page;
pub mod record;
mod service;
pub mod state;
pub mod store;
mod sweeper;
mod tracker;

pub use app::App;
pub use config::Config;
pub use error::Error;
pub use operator::kubernetes_operator;
pub use store::kubernetes::crd;
