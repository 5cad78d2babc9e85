//! The door: HTTP/1.1 over TLS, with our own accept loop.

mod body;
mod carried;
mod handler;
mod linger;
mod listener;
mod problem;
mod receipt;
mod seats;

pub(crate) use handler::Handler;
pub(crate) use listener::Listener;
