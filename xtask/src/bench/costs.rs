//! Whether size makes an event dearer: many clusters, many records, many outcomes that wait.

use anyhow::Result;

use super::{
    Bench, ROUNDS,
    load::{Press, Wrk, paced},
    mesh::{Installation, Mesh, Parts},
    sample::median,
};

/// Few enough that what is small stays small.
const EVENTS: usize = 1500;
const MANY: f64 = 100_000.0;

/// Ten thousand clusters beside ten: an edge alone, so that nothing else thins out the difference.
pub(super) fn clusters(bench: &mut Bench) -> Result<()> {
    let few = Installation::make(bench, "clusters-few", 10)?;
    let many = Installation::make(bench, "clusters-many", 10_000)?;
    let few = (Mesh::start(bench, &few, Parts::Edge)?, few);
    let many = (Mesh::start(bench, &many, Parts::Edge)?, many);
    let ratio = compare(bench, "clusters", (&many.0, &many.1), (&few.0, &few.1), 750)?;
    bench.value("clusters_cost", ratio);
    Ok(())
}

/// A mesh that has 100 000 records and outcomes beside a new one, everything delivered; and an edge with 100 000
/// outcomes that wait beside a new one. The dearer of the two counts.
pub(super) fn records(bench: &mut Bench, installation: &Installation, loaded: &Mesh) -> Result<()> {
    let fresh = Installation::make(bench, "records-few", 10)?;
    let mesh = Mesh::start(bench, &fresh, Parts::All)?;
    let delivered = compare(bench, "records", (loaded, installation), (&mesh, &fresh), 500)?;
    drop(mesh);

    let waiting = Installation::make(bench, "waiting-many", 10)?;
    let many = Mesh::start(bench, &waiting, Parts::Edge)?;
    while many.stored()? < MANY {
        let press = Press { connections: 64, seconds: 3, streams: 1200 };
        Wrk::start(bench, many.address("edge")?, &waiting, press)?.finish()?;
    }
    let fresh = Installation::make(bench, "waiting-few", 10)?;
    let few = Mesh::start(bench, &fresh, Parts::Edge)?;
    let waits = compare(bench, "waiting outcomes", (&many, &waiting), (&few, &fresh), 750)?;
    bench.value("records_cost", delivered.max(waits));
    Ok(())
}

/// CPU per event of one mesh over that of another, in turns.
fn compare(
    bench: &mut Bench,
    what: &str,
    many: (&Mesh, &Installation),
    few: (&Mesh, &Installation),
    rate: u32,
) -> Result<f64> {
    let (mut of_many, mut of_few) = (Vec::new(), Vec::new());
    // The first round opens connections and fills caches.
    for round in 0..=ROUNDS {
        for ((mesh, installation), costs) in [(many, &mut of_many), (few, &mut of_few)] {
            let cpu = mesh.process.cpu()?;
            paced(bench, mesh.address("edge")?, installation, rate, EVENTS, 0)?;
            bench.sinks.quiet()?;
            if round > 0 {
                costs.push((mesh.process.cpu()? - cpu) / EVENTS as f64 * 1e6);
            }
        }
    }
    bench.raw(&format!("{what}: CPU per event in µs with many"), &of_many);
    bench.raw(&format!("{what}: with few"), &of_few);
    let ratio = median(&of_many)? / median(&of_few)?;
    bench.raw(&format!("{what}: ratio"), &[ratio]);
    Ok(ratio)
}
