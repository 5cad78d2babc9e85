//! What an outcome costs from its post to all its targets, against the same calls with nothing behind them.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{
    Bench, ROUNDS,
    load::{Press, Wrk},
    mesh::{Installation, Mesh, Parts},
    process::Running,
    sample::median,
};

const PRESS: Press = Press { connections: 32, seconds: 3, streams: 1200 };

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    let installation = Installation::make(bench, "chain", 10)?;
    let mesh = Mesh::start(bench, &installation, Parts::All)?;
    let (chain, line) = Running::yardstick("chain", &mut command(bench, &installation))?;
    let (edge, bare) =
        (mesh.address("edge")?.to_owned(), line["edge"].as_str().context("no address")?.to_owned());
    // Connections, caches and all streams are there before anything counts.
    for to in [&edge, &bare] {
        per_event(bench, to, &installation, &mesh.process)?;
    }
    let (mut ours, mut theirs, mut events) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (cost, count) = per_event(bench, &edge, &installation, &mesh.process)?;
        ours.push(cost * 1e6);
        events.push(count);
        theirs.push(per_event(bench, &bare, &installation, &chain)?.0 * 1e6);
    }
    bench.raw("CPU of the mesh per delivered event in µs", &ours);
    bench.raw("events of each round", &events);
    bench.raw("CPU of the bare chain per event in µs", &theirs);
    bench.value("cpu_over_bare_chain", median(&ours)? / median(&theirs)?);
    Ok(())
}

/// Presses, waits until everything is delivered, and answers the CPU seconds per event, and how many there were.
fn per_event(bench: &Bench, to: &str, installation: &Installation, process: &Running) -> Result<(f64, f64)> {
    let (before, cpu) = (bench.sinks.arrived()?.1, process.cpu()?);
    Wrk::start(bench, to, installation, PRESS)?.finish()?;
    let events = bench.sinks.quiet()? - before;
    ensure!(events > 500, "only {events} events");
    Ok(((process.cpu()? - cpu) / events as f64, events as f64))
}

fn command(bench: &Bench, installation: &Installation) -> Command {
    let mut chain = Command::new(&bench.programs.bench);
    chain.arg("chain").arg("--mesh").arg(installation.path("mesh"));
    chain.arg("--certificate").arg(installation.path("edge/edge.crt"));
    chain.arg("--key").arg(installation.path("edge/edge.key"));
    chain.args(["--broker", &bench.sinks.broker, "--otlp", &bench.sinks.otlp]);
    chain
}
