//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::commands::{
    certificates::{EdgeCertsArgs, MeshCertsArgs},
    cluster::ClusterArgs,
    completions::CompletionsArgs,
    config::ConfigArgs,
    demo::DemoArgs,
    doctor::DoctorArgs,
    init::InitArgs,
    manifests::ManifestsArgs,
    outcomes::OutcomesArgs,
    releases::ReleasesArgs,
    send::SendArgs,
    serve::ServeArgs,
};
use crate::config::StoreKind;

/// Tells a delivery platform what really happened to a release on a cluster that it may not touch.
#[derive(Debug, Parser)]
#[command(name = "transponder", version, max_term_width = 110, propagate_version = true)]
pub struct Cli {
    /// Where the configuration comes from.
    #[command(flatten)]
    pub globals: Globals,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Configuration")]
pub struct Globals {
    /// Configuration file (TOML).
    #[arg(long, global = true, value_name = "FILE", env = "TRANSPONDER_CONFIG")]
    pub config: Option<PathBuf>,
    /// Overrides one value of the configuration, as in --set edge.listen=127.0.0.1:8443; may be repeated.
    #[arg(long, global = true, value_name = "KEY=VALUE", value_parser = key_value)]
    pub set: Vec<(String, String)>,
    /// Where state is kept: the value of store.kind.
    #[arg(long, global = true, value_name = "KIND")]
    pub store: Option<StoreKind>,
    /// What is logged to stderr, as in info or info,transponder_edge=debug.
    #[arg(long, global = true, value_name = "FILTER")]
    pub log: Option<String>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the whole mesh in this process.
    All(ServeArgs),
    /// Run the edge: takes outcomes in over HTTPS, stores, settles and delivers them.
    Edge(ServeArgs),
    /// Run the forwarder: posts events to the broker.
    Forwarder(ServeArgs),
    /// Run the DORA recorder: keeps the DORA metrics.
    DoraRecorder(ServeArgs),
    /// Run release tracking: keeps a record of each release.
    ReleaseTracking(ServeArgs),
    /// Run the outcome span: sends one span per outcome by OTLP.
    OutcomeSpan(ServeArgs),
    /// Play a release's whole life on a throw-away mesh and show what every service did with it.
    Demo(DemoArgs),
    /// Make an installation in a directory: configuration, certificates, registry, a Task's token.
    Init(InitArgs),
    /// Add, list, rotate and remove clusters of the registry directory.
    Cluster(ClusterArgs),
    /// Send one event as a hook would, and watch its receipt fill up.
    Send(SendArgs),
    /// List, show and replay what the edge took in.
    Outcomes(OutcomesArgs),
    /// List the releases that release tracking knows.
    Releases(ReleasesArgs),
    /// Check everything: what is wrong, where, and how to mend it.
    Doctor(DoctorArgs),
    /// Show the effective configuration and where each value comes from.
    Config(ConfigArgs),
    /// Make the identities of the mesh: an authority and a certificate for each service.
    MeshCerts(MeshCertsArgs),
    /// Make the certificate of the edge, and the authority that hooks trust.
    EdgeCerts(EdgeCertsArgs),
    /// Print what a cluster needs before Transponder can stand on its Kubernetes API.
    Manifests(ManifestsArgs),
    /// Print a shell's completions.
    Completions(CompletionsArgs),
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("is not KEY=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_setting_has_a_key_and_a_value_that_may_hold_more_equals_signs() {
        assert_eq!(key_value("a.b=c=d"), Ok(("a.b".into(), "c=d".into())));
        assert!(key_value("a.b").is_err() && key_value("=x").is_err());
    }
}
