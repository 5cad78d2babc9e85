//! The door: HTTP/1.1 over TLS, with our own accept loop.

mod body;
mod handler;
mod listener;
mod problem;
mod receipt;

pub(crate) use handler::Handler;
pub(crate) use listener::Listener;
