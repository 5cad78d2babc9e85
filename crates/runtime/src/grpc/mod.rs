//! gRPC between the parts and for Tasks: mutual TLS, callers, health, reflection, trace context, drain.

mod channel;
mod connection;
mod identify;
mod seats;
mod server;
#[cfg(test)]
mod tests;

pub use channel::{MeshChannel, channel};
pub use server::Server;
