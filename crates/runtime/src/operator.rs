//! The operator's way into a running service: HTTP over a Unix socket (0600) in its data directory.

use std::{
    convert::Infallible,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::{UnixListener, UnixStream};

use crate::Shutdown;

/// Name of the socket in a data directory.
pub const SOCKET: &str = "operator.sock";

/// What an operator asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// GET to look, POST to do.
    pub method: Method,
    /// Path, such as `/outcomes`.
    pub path: String,
    /// Query, such as `state=dead&limit=10`; empty when there is none.
    pub query: String,
}

/// A status and a JSON answer.
pub type Answer = (StatusCode, Value);

/// Answers operators.
pub trait Operator: Send + Sync + 'static {
    /// Answers one.
    fn answer(&self, ask: Ask) -> Pin<Box<dyn Future<Output = Answer> + Send + '_>>;
}

/// Serves the socket of a data directory until shutdown. The caller holds the directory's lock, so a socket that is
/// there already is left over.
///
/// # Errors
/// When the socket cannot be made.
pub fn serve(directory: &Path, operator: Arc<dyn Operator>, shutdown: Shutdown) -> std::io::Result<()> {
    let path = directory.join(SOCKET);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    tokio::spawn(async move {
        while let Some(accepted) = shutdown.or(listener.accept()).await {
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let operator = operator.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| handle(request, operator.clone()));
                let connection = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(Duration::from_secs(10))
                    .serve_connection(TokioIo::new(stream), service);
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "operator connection");
                }
            });
        }
        let _ = std::fs::remove_file(path);
    });
    Ok(())
}

async fn handle(
    request: Request<Incoming>,
    operator: Arc<dyn Operator>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let ask = Ask {
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        query: request.uri().query().unwrap_or_default().to_owned(),
    };
    let (status, value) = operator.answer(ask).await;
    let mut response = Response::new(Full::new(Bytes::from(value.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    Ok(response)
}

/// A 404 answer.
#[must_use]
pub fn not_found(what: &str) -> Answer {
    (StatusCode::NOT_FOUND, json!({ "error": format!("there is no {what}") }))
}

/// What keeps an operator from being answered.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// No service answers at the socket.
    #[error("no service is running on {}: {source}", path.display())]
    NotRunning {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The socket is another user's.
    #[error("{} may not be opened: run the command as the user of the service", path.display())]
    NotPermitted {
        /// The socket.
        path: PathBuf,
    },
    /// The service answered with an error.
    #[error("{0}")]
    Refused(String),
    /// The answer could not be read.
    #[error("the service did not answer: {0}")]
    Broken(String),
}

/// Asks whoever answers in this very process; `target` is path and query.
///
/// # Errors
/// What is refused, in its own words.
pub async fn ask_here(operator: &dyn Operator, method: Method, target: &str) -> Result<Value, OperatorError> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (status, value) =
        operator.answer(Ask { method, path: path.to_owned(), query: query.to_owned() }).await;
    told(status, value)
}

/// Asks the service of a data directory; `target` is path and query.
///
/// # Errors
/// When no service runs there, or it refuses.
pub async fn ask(directory: &Path, method: Method, target: &str) -> Result<Value, OperatorError> {
    let path = directory.join(SOCKET);
    let broken = |e: &dyn std::fmt::Display| OperatorError::Broken(e.to_string());
    let stream = UnixStream::connect(&path).await.map_err(|source| match source.kind() {
        std::io::ErrorKind::PermissionDenied => OperatorError::NotPermitted { path },
        _ => OperatorError::NotRunning { path, source },
    })?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| broken(&e))?;
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(target)
        .header(header::HOST, "operator")
        .body(Full::<Bytes>::default())
        .map_err(|e| broken(&e))?;
    let response = sender.send_request(request).await.map_err(|e| broken(&e))?;
    let status = response.status();
    let body = response.into_body().collect().await.map_err(|e| broken(&e))?.to_bytes();
    let value: Value = serde_json::from_slice(&body).map_err(|e| broken(&e))?;
    told(status, value)
}

fn told(status: StatusCode, value: Value) -> Result<Value, OperatorError> {
    if status.is_success() {
        return Ok(value);
    }
    Err(OperatorError::Refused(value["error"].as_str().unwrap_or("the service refused").to_owned()))
}
