//! Hands events to the platform's broker with this pod's own identity.
//!
//! What it does: reads the broker token anew for each event, checks that it is one the broker will take, posts the
//! exact bytes once, and says whose fault a refusal is.
//!
//! What must hold:
//! - the bytes and the content type at the broker are those of the request;
//! - the token goes to the configured broker and nowhere else: no redirect is followed, no proxy is used;
//! - a token that is missing, expired or for another audience sends nothing: a broker may answer 202 to it and lose
//!   the event;
//! - nothing of an event reaches a header, other than its content type and its key, both checked.
//!
//! What it does not do: keep state, retry (the edge's outbox does), look into the event, or claim more of a 202 than
//! that the broker accepted.

mod answer;
mod app;
mod broker;
mod config;
mod error;
mod metrics;
mod service;
mod token;
mod transport;

pub use app::App;
pub use config::Config;
pub use error::Error;
pub use token::{TokenError, TokenFacts, check_file};
