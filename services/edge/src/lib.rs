//! The edge: the only part that is reachable from outside.
//!
//! It authenticates a report, stores it, answers, settles verdicts and delivers from the outbox.
//!
//! What must hold:
//! - a 2xx is given only for what is on disk;
//! - the bytes that are forwarded are the bytes that came in;
//! - nothing acknowledged is forgotten before every target has it, refused it for good, or had a day to take it;
//! - no cluster can act in another's name, fill another's room or see another's events.
//!
//! What it does not do: talk to the broker, count, or send spans. It calls the services that do.

mod app;
mod backing;
mod budget;
mod config;
mod delivery;
mod error;
mod http;
mod metrics;
mod operator;
mod outbox;
pub mod registry;
mod sweeper;
mod trace;

pub use app::App;
pub use config::{
    BudgetConfig, Config, DeliveryConfig, HttpConfig, PeersConfig, RetentionConfig, SettleConfig,
};
pub use error::Error;
pub use operator::kubernetes_operator;
pub use outbox::crd;
