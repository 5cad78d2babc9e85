//! `all` and the subcommand of each service.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use transponder_runtime::{Context, telemetry, trace::Tracer};

use crate::{
    cli::Globals,
    config,
    mesh::{Mesh, Selection, wait_until_ready},
};

/// How long a start may take before the parts that are not ready are named in the log.
const PATIENCE: Duration = Duration::from_secs(10);

/// Arguments of `all` and of each service.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// Write the addresses that were bound to this file, as JSON, once every listener accepts. Whether all is well is
    /// told by /readyz of the admin listener.
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
}

/// Runs services until SIGTERM or SIGINT.
///
/// # Errors
/// When the configuration cannot be used, a part cannot be built, or one ends of itself.
pub async fn run(globals: &Globals, args: ServeArgs, selection: Selection) -> anyhow::Result<ExitCode> {
    let (config, _) = config::load(globals)?;
    telemetry::init(&config.log.filter, config.log.format).map_err(|problem| anyhow!(problem))?;
    if let Some(path) = &args.ready_file {
        // One of an earlier run would be taken for ours.
        forget(path)?;
    }
    let mut context = Context::new();
    context.tracer = Tracer::start(&config.traces, &context.metrics)?;
    context.shutdown.on_signals()?;
    let otlp = transponder_outcome_span::Settings::from_env()?;
    let mesh = Mesh::build(config, selection, otlp, &context).await?;
    if let Some(path) = &args.ready_file {
        mesh.addresses().write(path)?;
    }
    let starting = context.clone();
    tokio::spawn(async move {
        match starting.shutdown.or(wait_until_ready(&starting, PATIENCE)).await {
            Some(Ok(())) => tracing::info!("ready"),
            Some(Err(error)) => tracing::warn!(error = error.to_string(), "still starting"),
            None => {}
        }
    });
    let ended = mesh.run().await;
    tokio::task::block_in_place(|| context.tracer.stop());
    ended?;
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

fn forget(path: &Path) -> anyhow::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}
