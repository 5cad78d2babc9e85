//! Durable accepts against what this machine's TLS and this machine's disk can do, and how late the slowest are.

use std::{process::Command, thread, time::Duration};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{
    Bench, ROUNDS,
    load::{Press, Wrk, paced},
    mesh::{Installation, Mesh, Parts},
    process::{Running, get},
    sample::{median, quantile},
};
use crate::command;

const CONNECTIONS: usize = 512;
/// How long wrk presses, and between which times it is counted: 512 handshakes come first, and the same for both.
const PRESS: u64 = 5;
const FROM: Duration = Duration::from_millis(1700);
const FOR: Duration = Duration::from_secs(3);
/// Seconds of a slice at a constant rate, and those at its beginning that are not counted.
const PACED: f64 = 3.0;
const UNCOUNTED: f64 = 1.2;

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    let installation = Installation::make(bench, "accept", 10)?;
    let mesh = Mesh::start(bench, &installation, Parts::Edge)?;
    let door = Door::start(bench, &installation)?;
    let edge = mesh.address("edge")?.to_owned();
    let (mut durable, mut empty, mut syncs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        durable.push(rate(bench, &edge, &installation, || mesh.stored())?);
        empty.push(rate(bench, &door.address, &installation, || door.served())?);
        syncs.extend(disk(bench, 300)?);
    }
    let sync = median(&syncs)? / 1e6;
    let disk_limit = CONNECTIONS as f64 / (2.0 * sync);
    let limit = median(&empty)?.min(disk_limit);
    let accepts = median(&durable)?;
    bench.raw("durable accepts a second", &durable);
    bench.raw("answers of the empty handler a second", &empty);
    bench.raw(
        "write + fdatasync: median in ms, and the accepts a second that it allows",
        &[sync * 1e3, disk_limit],
    );
    bench.value("accept_over_limit", accepts / limit);

    let half = accepts / 2.0;
    let slice = |to: &str| {
        let (count, skip) = ((half * PACED) as usize, (half * UNCOUNTED) as usize);
        paced(bench, to, &installation, half as u32, count, skip)
    };
    let (mut late, mut control, mut syncs, mut slices) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        syncs.extend(disk(bench, 500)?);
        let durable = slice(&edge)?;
        slices.push(quantile(&durable, 0.99)?);
        late.extend(durable);
        control.extend(slice(&door.address)?);
    }
    let (p99, sync) = (quantile(&late, 0.99)?, quantile(&syncs, 0.99)? / 1e3);
    bench.raw("at a constant rate a second", &[half]);
    for (what, latencies) in [("durable accepts", &late), ("the empty handler", &control)] {
        let quantiles = [median(latencies)?, quantile(latencies, 0.9)?, quantile(latencies, 0.99)?];
        bench.raw(&format!("latency of {what} in ms: p50, p90, p99"), &quantiles);
        bench.raw("samples", &[latencies.len() as f64]);
    }
    bench.raw("p99 of each slice of durable accepts in ms", &slices);
    bench.raw(
        "write + fdatasync in ms: p50, p99, samples",
        &[median(&syncs)? / 1e3, sync, syncs.len() as f64],
    );
    bench.value("accept_p99_fsyncs", p99 / sync);
    Ok(())
}

/// Answers a second in the steady middle of a press, as the server counts them.
fn rate(
    bench: &Bench,
    to: &str,
    installation: &Installation,
    count: impl Fn() -> Result<f64>,
) -> Result<f64> {
    let press = Press { connections: CONNECTIONS, seconds: PRESS, streams: 1000 };
    let wrk = Wrk::start(bench, to, installation, press)?;
    thread::sleep(FROM);
    let (from, started) = (count()?, std::time::Instant::now());
    thread::sleep(FOR);
    let rate = (count()? - from) / started.elapsed().as_secs_f64();
    wrk.finish()?;
    Ok(rate)
}

/// Microseconds of bare writes on the disk of the outbox.
fn disk(bench: &Bench, millis: u64) -> Result<Vec<f64>> {
    let mut disk = Command::new(&bench.programs.bench);
    disk.arg("disk").arg(bench.directory.path()).arg("--millis").arg(millis.to_string());
    let line = command::succeed(&mut disk, "disk", Duration::from_secs(60))?;
    let value: Value = serde_json::from_str(&line)?;
    Ok(value["micros"].as_array().context("no latencies")?.iter().filter_map(Value::as_f64).collect())
}

/// The empty handler behind the same listener.
pub(super) struct Door {
    pub(super) address: String,
    control: String,
    _process: Running,
}

impl Door {
    pub(super) fn start(bench: &Bench, installation: &Installation) -> Result<Self> {
        let mut door = Command::new(&bench.programs.bench);
        door.arg("door").arg("--certificate").arg(installation.path("edge/edge.crt"));
        door.arg("--key").arg(installation.path("edge/edge.key"));
        let (process, line) = Running::yardstick("door", &mut door)?;
        let text = |key: &str| Ok::<_, anyhow::Error>(line[key].as_str().context("no address")?.to_owned());
        Ok(Self { address: text("edge")?, control: text("control")?, _process: process })
    }

    fn ask(&self, key: &str) -> Result<f64> {
        let (_, page) = get(&self.control, "/")?;
        serde_json::from_str::<Value>(&page)?[key].as_f64().context("no number")
    }

    /// Requests answered.
    pub(super) fn served(&self) -> Result<f64> {
        self.ask("served")
    }

    /// Seconds that its connections kept it busy.
    pub(super) fn busy(&self) -> Result<f64> {
        Ok(self.ask("nanos")? / 1e9)
    }
}
