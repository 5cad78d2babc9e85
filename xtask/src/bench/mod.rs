//! Measures the product against yardsticks that run beside it, and says what it reached.
//!
//! Every value is a ratio of things measured in turns in the same run, or an absolute of the process itself. What is
//! measured how is told in `docs/benchmarks.md`.

mod accept;
mod chain;
mod costs;
mod hook;
mod keys;
mod load;
mod memory;
mod mesh;
mod process;
mod programs;
mod sample;
mod times;

use std::{collections::BTreeMap, fs, path::PathBuf, process::ExitCode, time::Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{report, workspace};
use keys::{Group, KEYS, Key};
use mesh::Sinks;
use programs::Programs;

/// Rounds of every comparison.
const ROUNDS: usize = 5;

/// What `cargo xtask bench` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Write values and raw numbers to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure what this key needs, and nothing else
    #[arg(long, value_name = "KEY")]
    only: Option<String>,
    /// Use the programs of the last build as they are
    #[arg(long)]
    no_build: bool,
}

/// A run: what is measured with, and what has come out.
struct Bench {
    programs: Programs,
    sinks: Sinks,
    /// On the disk that the target directory is on.
    directory: TempDir,
    values: BTreeMap<&'static str, f64>,
    raw: BTreeMap<String, Value>,
}

impl Bench {
    /// Prints a raw number, or several of the same kind, and keeps them.
    fn raw(&mut self, name: &str, values: &[f64]) {
        let shown: Vec<String> = values.iter().map(|value| number(*value)).collect();
        report::line(&format!("      {name}: {}", shown.join(" ")));
        self.raw.insert(name.to_owned(), json!(values));
    }

    /// Keeps the value of a key.
    fn value(&mut self, key: &'static str, value: f64) {
        self.values.insert(key, value);
    }
}

/// Runs the benchmarks.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let groups = chosen(arguments.only.as_deref())?;
    let root = workspace::root()?;
    let programs = Programs::prepare(&root, &groups, !arguments.no_build)?;
    let started = Instant::now();
    let directory = tempfile::Builder::new().prefix("bench-").tempdir_in(&programs.target)?;
    let sinks = Sinks::start(&programs.bench)?;
    let mut bench = Bench { programs, sinks, directory, values: BTreeMap::new(), raw: BTreeMap::new() };
    let mut failed = false;
    for group in groups {
        report::line(&format!("   …  {}", group.title()));
        let began = Instant::now();
        let measured = match group {
            Group::Accept => accept::measure(&mut bench),
            Group::Chain => chain::measure(&mut bench),
            Group::Memory => memory::measure(&mut bench),
            Group::Clusters => costs::clusters(&mut bench),
            Group::Hook => hook::measure(&mut bench),
            Group::Times => times::measure(&mut bench),
        };
        if let Err(error) = measured {
            failed = true;
            report::line(&format!("FAIL  {}: {error:#}", group.title()));
        }
        report::line(&format!("      took {}", report::duration(began.elapsed())));
    }
    let table: Vec<String> =
        KEYS.iter().filter_map(|key| Some(verdict(key, *bench.values.get(key.name)?))).collect();
    report::line(&format!("\n{}\n\ntook {}", table.join("\n"), report::duration(started.elapsed())));
    if let Some(path) = &arguments.json {
        fs::write(path, format!("{:#}\n", document(&bench)))
            .with_context(|| format!("write {}", path.display()))?;
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn chosen(only: Option<&str>) -> Result<Vec<Group>> {
    let Some(name) = only else { return Ok(Group::ALL.to_vec()) };
    let Some(key) = KEYS.iter().find(|key| key.name == name) else {
        let known: Vec<_> = KEYS.iter().map(|key| key.name).collect();
        bail!("no key is called `{name}`; there are {}", known.join(", "));
    };
    Ok(vec![key.group])
}

fn verdict(key: &Key, value: f64) -> String {
    let word = match key.target.reached(value) {
        None => "reported",
        Some(true) => "reached",
        Some(false) => "MISSED",
    };
    format!("{:<20} {:>10}   {:<14} {word}", key.name, number(value), key.target.to_string())
}

fn document(bench: &Bench) -> Value {
    let mut keys = serde_json::Map::new();
    for key in KEYS {
        if let Some(value) = bench.values.get(key.name) {
            let reached = key.target.reached(*value);
            keys.insert(
                key.name.into(),
                json!({ "value": value, "target": key.target.to_string(), "reached": reached }),
            );
        }
    }
    json!({ "keys": keys, "raw": bench.raw })
}

/// Three figures that matter.
fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        middle if middle >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}
