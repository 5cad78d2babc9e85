//! The HTTP client: one connection, one request, no redirect, no proxy.

use std::{fmt, sync::Arc, time::Duration};

use ureq::{
    Agent,
    tls::{TlsConfig, TlsProvider},
};

use crate::trust::Roots;

/// Most that is read of an answer to a post. Answers of the edge are far smaller.
pub(crate) const MAX_ANSWER: u64 = 64 * 1024;

/// Why there was no answer.
#[derive(Debug)]
pub struct TransportError(ureq::Error);

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ureq::Error::Io(error) => error.fmt(f),
            ureq::Error::Timeout(_) => f.write_str("no answer in time"),
            ureq::Error::HostNotFound => f.write_str("the host name is not known"),
            other => other.fmt(f),
        }
    }
}

impl std::error::Error for TransportError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

impl From<ureq::Error> for TransportError {
    fn from(error: ureq::Error) -> Self {
        Self(error)
    }
}

/// A client for one request. Each request gets its own, so that no connection is used twice: on one that has gone
/// stale, a post fails that the server never saw, or did. `within` bounds all of it, name resolution included.
pub(crate) fn client(roots: &Roots, within: Duration) -> Agent {
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(roots.certificates())
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    Agent::config_builder()
        .tls_config(tls)
        .proxy(None)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .max_idle_connections(0)
        .timeout_global(Some(within))
        .user_agent(concat!("transponder-hook/", env!("CARGO_PKG_VERSION")))
        .build()
        .new_agent()
}
