//! What the whole mesh holds in memory, and whether what it has on disk makes an event dearer.

use std::{thread, time::Duration};

use anyhow::Result;

use super::{
    Bench, costs,
    load::{Press, Wrk},
    mesh::{Installation, Mesh, Parts},
    sample::median,
};

/// Below the default budget of undelivered events, most of the time: memory is what a mesh in order needs.
const PRESS: Press = Press { connections: 32, seconds: 2, streams: 1200 };
/// Events after which memory is looked at.
const HALF: u64 = 50_000;

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    let installation = Installation::make(bench, "memory", 10)?;
    let mesh = Mesh::start(bench, &installation, Parts::All)?;
    let idle = settled(&mesh)?;
    let start = bench.sinks.arrived()?.1;
    feed(bench, &mesh, &installation, start + HALF)?;
    let half = settled(&mesh)?;
    feed(bench, &mesh, &installation, start + 2 * HALF)?;
    let loaded = settled(&mesh)?;
    let events = bench.sinks.arrived()?.1 - start;
    bench.raw("anonymous memory in MiB: idle, after half, after all", &[idle, half, loaded]);
    bench.raw("events", &[events as f64]);
    bench.value("rss_idle_mib", idle);
    bench.value("rss_loaded_mib", loaded);
    bench.value("rss_growth_mib", loaded - half);
    costs::records(bench, &installation, &mesh)
}

/// Posts until so many events have come out.
fn feed(bench: &Bench, mesh: &Mesh, installation: &Installation, until: u64) -> Result<()> {
    while bench.sinks.arrived()?.1 < until {
        Wrk::start(bench, mesh.address("edge")?, installation, PRESS)?.finish()?;
        bench.sinks.quiet()?;
    }
    Ok(())
}

/// The middle of five looks, once the mesh has come to rest.
fn settled(mesh: &Mesh) -> Result<f64> {
    thread::sleep(Duration::from_secs(2));
    let look = |_| {
        thread::sleep(Duration::from_millis(200));
        mesh.process.anonymous()
    };
    median(&(0..5).map(look).collect::<Result<Vec<_>>>()?)
}
