//! gRPC between the parts and for Tasks: mutual TLS, callers, health, reflection, trace context, drain.

mod channel;
mod connection;
mod identify;
mod server;

pub use channel::{MeshChannel, channel};
pub use server::Server;
