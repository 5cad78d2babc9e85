//! Logs: JSON on one line each, control characters escaped by the JSON itself.

use std::io::IsTerminal as _;

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _};

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object a line.
    #[default]
    Json,
    /// For reading on a terminal.
    Text,
}

/// Starts logging to stderr. `filter` is a tracing filter such as `info` or `info,transponder_edge=debug`.
///
/// # Errors
/// When the filter cannot be read or logging has been started before.
pub fn init(filter: &str, format: LogFormat) -> Result<(), String> {
    // h2, hyper and rustls log headers at trace; a token must not reach a log at any level.
    let quiet = "h2=info,hyper=info,hyper_util=info,rustls=info,tonic=info,tower=info,reqwest=info";
    let filter =
        EnvFilter::try_new(format!("{filter},{quiet}")).map_err(|e| format!("log filter '{filter}': {e}"))?;
    let registry = tracing_subscriber::registry().with(filter);
    let layer = fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Json => registry
            // `target` is a word of ours: the module's path would stand under the same name.
            .with(
                layer
                    .json()
                    .with_target(false)
                    .flatten_event(true)
                    .with_current_span(true)
                    .with_span_list(false),
            )
            .try_init(),
        LogFormat::Text => registry.with(layer.with_target(false)).try_init(),
    }
    .map_err(|e| e.to_string())
}
