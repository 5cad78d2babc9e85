//! How soon a span is there, and how soon the mesh is.

use std::{process::Command, time::Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{
    Bench, load,
    mesh::{Installation, Mesh, Parts, Sinks},
    process::Running,
    sample::median,
};

const STARTS: usize = 7;
const POSTS: usize = 21;

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    let installation = Installation::make(bench, "times", 1)?;
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        let started = Instant::now();
        let mesh = Mesh::start(bench, &installation, Parts::All)?;
        starts.push(started.elapsed().as_secs_f64() * 1e3);
        drop(mesh);
    }
    bench.raw("start to ready in ms", &starts);
    bench.value("start_ms", median(&starts)?);

    let (mut spans, line) = Running::yardstick("spans", Command::new(&bench.programs.bench).arg("spans"))?;
    let text = |key: &str| Ok::<_, anyhow::Error>(line[key].as_str().context("no address")?.to_owned());
    let sinks = Sinks::of(text("broker")?, text("otlp")?);
    let mesh = Mesh::start_to(bench, &installation, Parts::All, &sinks)?;
    let (cluster, token) = &installation.tokens()?[0];
    let order = json!({
        "url": format!("https://{}/outcome/{cluster}", mesh.address("edge")?),
        "ca": installation.ca(),
        "token": token,
        "bodies": load::events(cluster, POSTS)?,
    });
    spans.feed(&order.to_string())?;
    let answer: Value = spans.line()?;
    let millis: Vec<f64> =
        answer["millis"].as_array().context("no times")?.iter().filter_map(Value::as_f64).collect();
    bench.raw("post to span in ms", &millis);
    bench.value("span_ms", median(&millis)?);
    Ok(())
}
