//! Developer tasks, run as `cargo xtask <task>`.
//!
//! One module per task. Nothing here is part of the product, and no task needs more than Rust, Go, Node, Python
//! and the system's packages.

mod baseline;
mod bench;
mod checks;
mod command;
mod crd;
mod fuzz;
mod rbac;
mod report;
mod soak;
mod test;
mod tools;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Developer tasks of Transponder")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Set up the programs that tests run against, in a cache outside the tree
    Tools(tools::Arguments),
    /// Run every check and every test suite, or the chosen ones
    Test(test::Arguments),
    /// Measure the product against yardsticks that run beside it
    Bench(bench::Arguments),
    /// Throw inputs at a parser or at the edge's door, guided by the code that they reach
    Fuzz(fuzz::Arguments),
    /// Kill the mesh at random moments while events come in, and compare what came out
    Soak(soak::Arguments),
    /// Write the image that `buf breaking` compares with; part of making a release
    Baseline(baseline::Arguments),
    /// Write the definitions of the custom resources to deploy/kubernetes/crds.yaml
    Crd,
    /// Print who may do what on a Kubernetes API
    Rbac(rbac::Arguments),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Tools(arguments) => tools::run(&arguments),
        Task::Test(arguments) => test::run(&arguments),
        Task::Bench(arguments) => bench::run(&arguments),
        Task::Fuzz(arguments) => fuzz::run(&arguments),
        Task::Soak(arguments) => soak::run(&arguments),
        Task::Baseline(arguments) => baseline::run(&arguments),
        Task::Crd => crd::run(),
        Task::Rbac(arguments) => rbac::run(&arguments),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
