//! One module per command: its arguments, what it does, what it shows.

pub mod certificates;
pub mod cluster;
pub mod completions;
pub mod config;
pub mod demo;
pub mod doctor;
mod handout;
pub mod init;
pub mod manifests;
pub mod outcomes;
pub mod releases;
pub mod send;
pub mod serve;

use std::process::ExitCode;

use anyhow::Context as _;
use transponder_core::ServiceName;

use crate::{
    cli::{Cli, Command},
    mesh::Selection,
};

/// Runs a command.
///
/// # Errors
/// What kept it from its work: what was being done, and where.
pub fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let globals = cli.globals;
    let serve = |args, selection| block_on(serve::run(&globals, args, selection));
    match cli.command {
        Command::All(args) => serve(args, Selection::All),
        Command::Edge(args) => serve(args, Selection::One(ServiceName::Edge)),
        Command::Forwarder(args) => serve(args, Selection::One(ServiceName::Forwarder)),
        Command::DoraRecorder(args) => serve(args, Selection::One(ServiceName::DoraRecorder)),
        Command::ReleaseTracking(args) => serve(args, Selection::One(ServiceName::ReleaseTracking)),
        Command::OutcomeSpan(args) => serve(args, Selection::One(ServiceName::OutcomeSpan)),
        Command::Demo(args) => block_on(demo::run(&globals, args)),
        Command::Init(args) => init::run(&args),
        Command::Cluster(args) => block_on(cluster::run(&globals, args)),
        Command::Send(args) => block_on(send::run(&globals, args)),
        Command::Outcomes(args) => block_on(outcomes::run(&globals, args)),
        Command::Releases(args) => block_on(releases::run(&globals, args)),
        Command::Doctor(args) => block_on(doctor::run(&globals, args)),
        Command::Config(args) => config::run(&globals, &args),
        Command::Manifests(args) => manifests::run(&globals, &args),
        Command::MeshCerts(args) => certificates::mesh(&globals, args),
        Command::EdgeCerts(args) => certificates::edge(args),
        Command::Completions(args) => {
            completions::run(&args);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn block_on<F: Future<Output = anyhow::Result<ExitCode>>>(future: F) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the async runtime cannot be started")?;
    let result = runtime.block_on(future);
    // A blocking call that hangs must not keep the process from ending.
    runtime.shutdown_background();
    result
}
