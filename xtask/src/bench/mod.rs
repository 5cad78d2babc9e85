//! Measures the product against yardsticks that run beside it, and says what it reached.
//!
//! Every value is a ratio of things measured in turns in the same run, or an absolute of the process itself. What is
//! measured how is told in `docs/benchmarks.md`.

mod accept;
mod chain;
mod costs;
mod hook;
mod keys;
mod kubernetes;
mod load;
mod memory;
mod mesh;
mod process;
mod programs;
mod results;
mod sample;
mod times;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::{Result, bail};
use tempfile::TempDir;

use crate::{report, workspace};
use keys::{Group, KEYS};
use kubernetes::OnKubernetes;
use mesh::Sinks;
use programs::Programs;
use results::Results;

/// Rounds of every comparison.
const ROUNDS: usize = 5;

/// Where the product keeps its state.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Store {
    /// Files of its own.
    Embedded,
    /// A Kubernetes API.
    Kubernetes,
}

impl Store {
    /// What is measured of a product on it.
    fn groups(self) -> &'static [Group] {
        match self {
            Self::Embedded => &Group::EMBEDDED,
            Self::Kubernetes => &Group::KUBERNETES,
        }
    }
}

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
    /// What the product stands on
    #[arg(long, value_enum, default_value_t = Store::Embedded)]
    store: Store,
}

/// A run on files: what is measured with, and what has come out.
struct Bench {
    programs: Programs,
    sinks: Sinks,
    /// On the disk that the target directory is on.
    directory: TempDir,
    results: Results,
}

impl Bench {
    /// Prints a raw number, or several of the same kind, and keeps them.
    fn raw(&mut self, name: &str, values: &[f64]) {
        self.results.raw(name, values);
    }

    /// Keeps the value of a key.
    fn value(&mut self, key: &'static str, value: f64) {
        self.results.value(key, value);
    }
}

/// Runs the benchmarks.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let groups = chosen(arguments.store, arguments.only.as_deref())?;
    let root = workspace::root()?;
    match arguments.store {
        Store::Embedded => embedded(arguments, &root, &groups),
        Store::Kubernetes => on_kubernetes(arguments, &root, &groups),
    }
}

fn embedded(arguments: &Arguments, root: &Path, groups: &[Group]) -> Result<ExitCode> {
    let programs = Programs::prepare(root, groups, !arguments.no_build)?;
    let started = Instant::now();
    let directory = tempfile::Builder::new().prefix("bench-").tempdir_in(&programs.target)?;
    let sinks = Sinks::start(&programs.bench)?;
    let mut bench = Bench { programs, sinks, directory, results: Results::default() };
    let well = each(groups, |group| match group {
        Group::Accept => accept::measure(&mut bench),
        Group::Chain => chain::measure(&mut bench),
        Group::Memory => memory::measure(&mut bench),
        Group::Clusters => costs::clusters(&mut bench),
        Group::Hook => hook::measure(&mut bench),
        Group::Times => times::measure(&mut bench),
        Group::OnKubernetes(_) => bail!("it is no part of this store"),
    });
    finish(arguments, &bench.results, started, well)
}

fn on_kubernetes(arguments: &Arguments, root: &Path, groups: &[Group]) -> Result<ExitCode> {
    let programs = OnKubernetes::prepare(root, !arguments.no_build)?;
    let (started, mut results) = (Instant::now(), Results::default());
    let well = each(groups, |group| match group {
        Group::OnKubernetes(part) => programs.measure(part, &mut results),
        _ => bail!("it is no part of this store"),
    });
    finish(arguments, &results, started, well)
}

/// Measures group by group. Answers whether all could be measured.
fn each(groups: &[Group], mut measure: impl FnMut(Group) -> Result<()>) -> bool {
    let mut well = true;
    for group in groups {
        report::line(&format!("   …  {}", group.title()));
        let began = Instant::now();
        if let Err(error) = measure(*group) {
            well = false;
            report::line(&format!("FAIL  {}: {error:#}", group.title()));
        }
        report::line(&format!("      took {}", report::duration(began.elapsed())));
    }
    well
}

fn finish(arguments: &Arguments, results: &Results, started: Instant, well: bool) -> Result<ExitCode> {
    report::line(&format!("\n{}\n\ntook {}", results.table(), report::duration(started.elapsed())));
    if let Some(path) = &arguments.json {
        results.write(path)?;
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn chosen(store: Store, only: Option<&str>) -> Result<Vec<Group>> {
    let groups = store.groups();
    let Some(name) = only else { return Ok(groups.to_vec()) };
    let known: Vec<_> = KEYS.iter().filter(|key| groups.contains(&key.group)).collect();
    let Some(key) = known.iter().find(|key| key.name == name) else {
        let other = KEYS.iter().any(|key| key.name == name);
        let hint = if other { ": it is measured on the other store" } else { "" };
        let known: Vec<_> = known.iter().map(|key| key.name).collect();
        bail!("no key of this store is called `{name}`{hint}; there are {}", known.join(", "));
    };
    Ok(vec![key.group])
}
