//! Sends one standalone span per outcome to the tracing backend.
//!
//! What it does: settles from when the span starts, builds it, sends it by OTLP over gRPC or HTTP, and answers when
//! the backend has it. Without an endpoint the span goes to a file, as a line of OTLP/JSON.
//!
//! What must hold:
//! - OK means that the backend took the span: a partial success that rejects it is a failure;
//! - the same event gives the same trace id and span id, for ever;
//! - no span ends before it starts, and none has a time that nobody reported;
//! - trouble asking for the pull request's time never yields a lower anchor;
//! - after a send whose end is unknown, the same span is not sent again for a while.
//!
//! What it does not do: keep state, repeat for longer than one call (the edge's outbox does), batch, sample, or send
//! Transponder's own traces.

mod anchor;
mod app;
mod config;
mod error;
mod exporter;
mod metrics;
mod sender;
mod service;
mod settings;
mod span;
mod waiting;

pub use app::App;
pub use config::Config;
pub use error::Error;
pub use settings::{Endpoint, Protocol, SettingError, Settings};
