//! How long from a post to its span at the backend.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use transponder_runtime::tls::{load_roots, provider};

use crate::sinks::Sinks;

/// Starts sinks and says where, reads what to post from standard input, posts one after the other, and prints how
/// many milliseconds each took from the start of its post until the backend had its span.
pub(crate) async fn run() -> anyhow::Result<()> {
    let mut sinks = Sinks::start().await?;
    crate::say(&json!({ "broker": sinks.broker, "otlp": sinks.otlp }));
    let line = tokio::task::spawn_blocking(|| std::io::read_to_string(std::io::stdin())).await??;
    let order: Value = serde_json::from_str(&line).context("read what to post")?;
    let text = |key: &str| order[key].as_str().with_context(|| format!("no {key}"));
    let tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(load_roots(&[PathBuf::from(text("ca")?)])?)
        .with_no_client_auth();
    let client = reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy().build()?;
    let mut millis = Vec::new();
    for body in order["bodies"].as_array().context("no bodies")? {
        let body = body.as_str().context("a body is no text")?.to_owned();
        let before = sinks.arrived.borrow_and_update().spans;
        let started = Instant::now();
        let request = client
            .post(text("url")?)
            .bearer_auth(text("token")?)
            .header("content-type", "application/cloudevents+json");
        let answer = request.body(body).send().await?;
        ensure!(answer.status() == 202, "the edge answered {}", answer.status());
        let arrived = sinks.arrived.wait_for(|now| now.spans > before);
        let arrived =
            tokio::time::timeout(Duration::from_secs(20), arrived).await.context("no span came")??;
        millis.push(arrived.last_span.duration_since(started).as_secs_f64() * 1e3);
        drop(arrived);
        // The next one finds nothing on its way.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    crate::say(&json!({ "millis": millis }));
    Ok(())
}
