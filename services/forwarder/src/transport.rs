//! The HTTP client, and which of its failures are those of a connection that had gone stale.

use std::{
    cell::Cell,
    error::Error as StdError,
    io,
    path::Path,
    task::{Context, Poll},
    time::Duration,
};

use reqwest::{Client, redirect};
use rustls::ClientConfig;
use tower::{Layer, Service};
use transponder_runtime::tls;

use crate::Error;

/// Longest time to connect, TLS included.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an idle connection is kept: well below the 120 s of a Tekton EventListener, so that we close first.
const IDLE: Duration = Duration::from_secs(30);

tokio::task_local! {
    /// Whether the running request had to connect.
    static CONNECTED: Cell<bool>;
}

/// A pair of clients of one broker: one that reuses connections, and one that never does.
#[derive(Clone)]
pub(crate) struct Clients {
    reusing: Client,
    fresh: Client,
}

impl Clients {
    /// Trusts `ca_file`, or the system's roots.
    pub(crate) fn new(ca_file: Option<&Path>) -> Result<Self, Error> {
        let roots = match ca_file {
            Some(path) => tls::load_roots(&[path.to_owned()])?,
            None => tls::system_roots(),
        };
        let config = ClientConfig::builder_with_provider(tls::provider())
            .with_safe_default_protocol_versions()
            .map_err(Error::Rustls)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let builder = || {
            Client::builder()
                .tls_backend_preconfigured(config.clone())
                .no_proxy()
                .redirect(redirect::Policy::none())
                .referer(false)
                .retry(reqwest::retry::never())
                .user_agent(concat!("transponder-forwarder/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(CONNECT)
                .pool_idle_timeout(IDLE)
        };
        Ok(Self {
            reusing: builder().connector_layer(NoteConnect).build()?,
            fresh: builder().pool_max_idle_per_host(0).build()?,
        })
    }

    /// Sends a request, built by `build`, and answers with the head of the response.
    ///
    /// Reusing connections halves the packets of a post, but the broker may close an idle one just as we write to it
    /// ("connection closed before message completed"). That says nothing of the broker's health, so it is not passed
    /// on: the request is sent once more on a connection of its own, if and only if the first had not been made for it
    /// and broke before an answer. A connection that was made for the request and breaks is a failure: the edge
    /// repeats it, with its own delay.
    pub(crate) async fn send(
        &self,
        build: impl Fn(&Client) -> reqwest::RequestBuilder,
    ) -> Result<reqwest::Response, reqwest::Error> {
        let first = build(&self.reusing);
        let (result, connected) = CONNECTED
            .scope(Cell::new(false), async { (first.send().await, CONNECTED.with(Cell::get)) })
            .await;
        match result {
            Err(error) if !connected && broke(&error) => {
                tracing::debug!("an idle connection to the broker had gone; using a new one");
                build(&self.fresh).send().await
            }
            other => other,
        }
    }
}

/// Whether the connection ended before an answer came.
fn broke(error: &reqwest::Error) -> bool {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(cause) = cause.downcast_ref::<hyper::Error>()
            && (cause.is_incomplete_message() || cause.is_canceled() || cause.is_closed())
        {
            return true;
        }
        if let Some(cause) = cause.downcast_ref::<io::Error>() {
            use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
            return matches!(cause.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof);
        }
        source = cause.source();
    }
    false
}

/// All causes of a failure in one line, without the URL: it is configuration, and said elsewhere.
pub(crate) fn describe(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// Notes in [`CONNECTED`] that a request had to connect.
#[derive(Clone)]
struct NoteConnect;

#[derive(Clone)]
struct Noting<S>(S);

impl<S> Layer<S> for NoteConnect {
    type Service = Noting<S>;

    fn layer(&self, inner: S) -> Noting<S> {
        Noting(inner)
    }
}

impl<S: Service<R>, R> Service<R> for Noting<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, target: R) -> S::Future {
        // Outside a request there is nobody to tell.
        let _ = CONNECTED.try_with(|connected| connected.set(true));
        self.0.call(target)
    }
}
