//! The HTTP client: one connection, one request, no redirect, no proxy.

use std::{fmt, sync::Arc, time::Duration};

use ureq::{
    Agent,
    tls::{TlsConfig, TlsProvider},
};
use url::Url;

use crate::trust::Roots;

/// Most that is read of an answer to a post. Answers of the edge are far smaller.
pub(crate) const MAX_ANSWER: u64 = 64 * 1024;

/// Why there was no answer. Its text says all that is known: there is no source, which would say it again.
#[derive(Debug, thiserror::Error)]
#[error("{}{hint}", Cause(.error))]
pub struct TransportError {
    error: ureq::Error,
    /// What may mend it; empty, or begins with a space.
    hint: String,
}

impl TransportError {
    /// An error of a post to a relay at `url`, with `roots` to trust.
    pub(crate) fn of_relay(error: ureq::Error, url: &Url, roots: &Roots) -> Self {
        let hint = hint(&error, url, roots).map(|hint| format!(" ({hint})")).unwrap_or_default();
        Self { error, hint }
    }
}

impl From<ureq::Error> for TransportError {
    fn from(error: ureq::Error) -> Self {
        Self { error, hint: String::new() }
    }
}

struct Cause<'a>(&'a ureq::Error);

impl fmt::Display for Cause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ureq::Error::Io(error) => error.fmt(f),
            ureq::Error::Timeout(_) => f.write_str("no answer in time"),
            ureq::Error::HostNotFound => f.write_str("the host name is not known"),
            other => other.fmt(f),
        }
    }
}

/// What may mend it, where the error alone does not tell.
fn hint(error: &ureq::Error, url: &Url, roots: &Roots) -> Option<String> {
    use rustls::{
        CertificateError::{BadSignature, UnknownIssuer},
        InvalidMessage,
    };
    let tls = match error {
        ureq::Error::Rustls(error) => Some(error),
        // As the handshake wraps it.
        ureq::Error::Io(error) => error.get_ref().and_then(|inner| inner.downcast_ref()),
        _ => None,
    };
    match (tls, error) {
        (Some(rustls::Error::InvalidCertificate(UnknownIssuer | BadSignature)), _) => {
            Some(format!("trusted: {}; the relay's certificate is signed by another", roots.name()))
        }
        (Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)), _) => {
            Some("the server seems to speak plain http".to_owned())
        }
        // A TLS alert is no status line. The crate whose error this is is not ours to name, so its text must do.
        (None, ureq::Error::Protocol(inner))
            if url.scheme() == "http" && inner.to_string().contains("http parse fail") =>
        {
            Some("the server seems to speak TLS: https://?".to_owned())
        }
        _ => None,
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
