//! `cargo xtask test`: every check and every suite, and one line that adds them up.

mod build;
mod libtest;
mod suites;

use std::{collections::BTreeSet, process::ExitCode, time::Instant};

use anyhow::{Result, bail};

use crate::{
    checks::{CHECKS, Check, Context},
    report::{self, Report},
    tools::Toolbox,
    workspace,
};
use suites::Suite;

/// What `cargo xtask test` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Run only this check or suite; may be given more than once
    #[arg(long = "suite", value_name = "NAME")]
    suites: Vec<String>,
    /// List the names that --suite takes, and what each needs
    #[arg(long)]
    list: bool,
    /// For the test programs, such as a part of a test's name
    #[arg(last = true)]
    filter: Vec<String>,
}

/// Runs what was chosen. Fails when anything failed; what was skipped is said, and is no failure.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let started = Instant::now();
    let root = workspace::root()?;
    let suites = suites::discover(&root)?;
    if arguments.list {
        list(&suites);
        return Ok(ExitCode::SUCCESS);
    }
    let checks: Vec<&Check> = CHECKS.iter().filter(|check| chosen(arguments, check.name)).collect();
    let known: BTreeSet<&str> =
        CHECKS.iter().map(|check| check.name).chain(suites.iter().map(|suite| suite.name.as_str())).collect();
    if let Some(unknown) = arguments.suites.iter().find(|name| !known.contains(name.as_str())) {
        bail!("no check or suite is called `{unknown}`; `cargo xtask test --list` shows all");
    }
    let suites: Vec<&Suite> = suites.iter().filter(|suite| chosen(arguments, &suite.name)).collect();

    let needed: BTreeSet<&str> = checks
        .iter()
        .flat_map(|check| check.tools)
        .chain(suites.iter().flat_map(|suite| &suite.tools))
        .copied()
        .collect();
    let toolbox = Toolbox::prepare(&needed.into_iter().collect::<Vec<_>>())?;
    let mut report = Report::default();
    let context = Context { root: &root, toolbox: &toolbox };
    for check in checks {
        report.step(check.name, || (check.run)(&context));
    }
    if !suites.is_empty() {
        let mut products = Vec::new();
        report.step("build", || build::run(&root, &mut products));
        for suite in suites {
            report.step(&suite.name, || suite.run(&root, &toolbox, &products, &arguments.filter));
        }
    }
    report::line(&format!("\n{} in all", report::duration(started.elapsed())));
    Ok(if report.finish() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn chosen(arguments: &Arguments, name: &str) -> bool {
    arguments.suites.is_empty() || arguments.suites.iter().any(|chosen| chosen == name)
}

fn list(suites: &[Suite]) {
    let checks = CHECKS.iter().map(|check| (check.name, check.tools));
    for (name, tools) in checks.chain(suites.iter().map(|suite| (suite.name.as_str(), &*suite.tools))) {
        report::line(format!("{name:20} {}", tools.join(" ")).trim_end());
    }
}
