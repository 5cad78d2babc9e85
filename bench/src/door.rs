//! HTTPS with a handler that does nothing.

use std::sync::atomic::Ordering;

use serde_json::json;

use crate::{listener, listener::Listener, sinks};

/// Serves until it is killed. A second, plain listener answers what it has done.
pub(crate) async fn run(arguments: &listener::Arguments) -> anyhow::Result<()> {
    let listener = Listener::bind(arguments).await?;
    let load = listener.load();
    let count = move |_: &http::Method, _: &str| json!({ "nanos": load.busy.load(Ordering::Relaxed), "served": load.served.load(Ordering::Relaxed) });
    let control = sinks::plain(count).await?;
    crate::say(&json!({ "edge": listener.address()?, "control": control }));
    listener.serve(|_| async { Ok(()) }).await
}
