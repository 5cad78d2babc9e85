//! `cluster add|list|rotate|remove`: the registry directory, or the registry of a Kubernetes API.

mod kubernetes;
mod manifests;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, ensure};
use clap::Subcommand;
use serde_json::json;
use transponder_core::ClusterName;
use transponder_kubernetes::Access;
use url::Url;

use crate::{
    certificates::own_authority,
    cli::Globals,
    commands::handout::Handout,
    config::{self, StoreKind},
    files::read,
    output::{GOOD, Output, paint, print, print_json, table},
    registry::{Entry, Registry, TokenState, kubernetes::KubernetesRegistry},
    relay::relay_url,
};

/// Arguments of `cluster`.
#[derive(Debug, clap::Args)]
pub struct ClusterArgs {
    /// The registry directory; edge.registry of the configuration otherwise.
    #[arg(long, global = true, value_name = "DIR")]
    pub registry: Option<PathBuf>,
    /// How to show the result.
    #[arg(long, global = true, value_enum, default_value_t)]
    pub output: Output,
    /// What to do.
    #[command(subcommand)]
    pub command: ClusterCommand,
}

/// What can be done with clusters.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Add a cluster; prints its token, once, and what to put on it.
    Add(AddArgs),
    /// List the clusters.
    List,
    /// Give a cluster a new token; the one before works until --finish.
    Rotate(RotateArgs),
    /// Remove a cluster; its hooks are answered 401 from then on, or 503 if it was the last.
    Remove {
        /// The cluster.
        cluster: ClusterName,
    },
}

/// Arguments of `cluster add`.
#[derive(Debug, clap::Args)]
pub struct AddArgs {
    /// The cluster's registered name.
    pub cluster: ClusterName,
    /// Where the cluster's hooks reach the edge, as in `https://relay.dev.example:30880`.
    #[arg(long, value_name = "URL")]
    pub url: Url,
    /// Certificate authority of the edge, as PEM; the cluster's system roots otherwise.
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Address of the URL's host, where the cluster's DNS does not know it.
    #[arg(long, value_name = "IP")]
    pub host_alias_ip: Option<std::net::IpAddr>,
    /// Globs of the event types that it may send; the two of the hook otherwise.
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    pub forward_types: Option<Vec<String>>,
    /// Globs of the app namespaces that it may report for; all otherwise.
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    pub app_namespaces: Option<Vec<String>>,
    /// With --store kubernetes: make entry, Secret and permission there, instead of printing what a chart needs.
    #[arg(long)]
    pub apply: bool,
}

/// Arguments of `cluster rotate`.
#[derive(Debug, clap::Args)]
pub struct RotateArgs {
    /// The cluster.
    pub cluster: ClusterName,
    /// Take the previous token out of force: every hook has the new one.
    #[arg(long)]
    pub finish: bool,
}

/// Runs the command.
///
/// # Errors
/// When the registry cannot be read or written, or does not hold the cluster.
pub async fn run(globals: &Globals, args: ClusterArgs) -> anyhow::Result<ExitCode> {
    let root = match args.registry {
        Some(root) => {
            let directory = globals.store != Some(StoreKind::Kubernetes);
            ensure!(directory, "--registry names a directory, and with --store kubernetes there is none");
            root
        }
        None => {
            let config = config::load(globals)?.0;
            if config.store.kind == StoreKind::Kubernetes {
                let registry = KubernetesRegistry::new(Access::find(&config.kubernetes).await?);
                kubernetes::run(&registry, args.command, args.output).await?;
                return Ok(ExitCode::SUCCESS);
            }
            config.edge.registry
        }
    };
    let registry = Registry::new(&root);
    match args.command {
        ClusterCommand::Add(add_args) => {
            // A registry that is named by --registry needs no configuration.
            let edge = config::load(globals).ok().map(|(config, _)| config.edge);
            let authority = edge.and_then(|edge| own_authority(&edge.certificate));
            add(&registry, &add_args, authority.as_deref(), args.output)?;
        }
        ClusterCommand::List => list(&registry, args.output)?,
        ClusterCommand::Rotate(RotateArgs { cluster, finish: false }) => {
            rotate(&registry, &cluster, args.output)?;
        }
        ClusterCommand::Rotate(RotateArgs { cluster, finish: true }) => {
            registry.finish_rotation(&cluster)?;
            done(args.output, &cluster, "finished", "the previous token is out of force");
        }
        ClusterCommand::Remove { cluster } => {
            let left = registry.remove(&cluster)?;
            removed(args.output, &cluster, left);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn done(output: Output, cluster: &ClusterName, what: &str, meaning: &str) {
    match output {
        Output::Text => print(&format!("{} cluster {cluster} {what}: {meaning}\n", paint(GOOD, "✓"))),
        Output::Json => print_json(&json!({ "cluster": cluster, "result": what })),
    }
}

fn removed(output: Output, cluster: &ClusterName, left: usize) {
    let meaning = match left {
        0 => "no cluster is left, and an empty registry is not ready: its hooks are answered 503 from now on",
        _ => "its hooks are answered 401 from now on",
    };
    done(output, cluster, "removed", meaning);
}

fn add(registry: &Registry, args: &AddArgs, authority: Option<&Path>, output: Output) -> anyhow::Result<()> {
    ensure!(!args.apply, "--apply belongs to --store kubernetes: a directory is always written");
    let (cluster, entry) = (&args.cluster, entry(args)?);
    let token = registry.add(cluster, &entry)?;
    let missing_authority = authority.filter(|_| entry.relay_ca.is_none() && args.url.scheme() == "https");
    let warnings = doubts(args);
    let handout = Handout { cluster, entry: &entry, token: &token, missing_authority, warnings };
    handout.show(output, "added to", &registry.root().display().to_string())
}

/// The entry that is asked for.
fn entry(args: &AddArgs) -> anyhow::Result<Entry> {
    let cluster = &args.cluster;
    let relay_ca = args.ca.as_deref().map(read).transpose()?;
    if let (Some(path), Some(pem)) = (&args.ca, &relay_ca) {
        ensure!(pem.contains("-----BEGIN CERTIFICATE-----"), "{} is no PEM certificate", path.display());
    }
    Ok(Entry {
        relay_secret_name: format!("cluster-{cluster}-relay-token"),
        outcome_relay_url: relay_url(&args.url, cluster)?,
        relay_host_alias_ip: args.host_alias_ip.map(|ip| ip.to_string()),
        relay_ca,
        forward_types: args.forward_types.clone(),
        app_namespaces: args.app_namespaces.clone(),
    })
}

/// What is likely not meant, though something between hooks and edge may make it right.
fn doubts(args: &AddArgs) -> Vec<String> {
    let mut doubts = Vec::new();
    if args.url.scheme() == "http" {
        doubts.push("The URL is plain http: whoever is on the way reads the token, and the edge itself speaks https alone.".into());
    }
    let path = args.url.path().trim_end_matches('/');
    if !path.is_empty() && !path.starts_with("/outcome/") {
        doubts.push(format!(
            "The edge knows /outcome/{} alone: something in between must take {path} away.",
            args.cluster
        ));
    }
    let globs = |globs: &Option<Vec<String>>| globs.iter().flatten().cloned().collect::<Vec<_>>();
    for glob in globs(&args.forward_types).iter().filter(|glob| glob.starts_with("dev.tekton.")) {
        doubts.push(format!("Events of type {glob} are never accepted: they are the broker's own."));
    }
    for glob in globs(&args.app_namespaces).iter().filter(|glob| glob.contains(char::is_uppercase)) {
        doubts.push(format!("App namespaces are in lower case: {glob} fits none."));
    }
    doubts
}

fn rotate(registry: &Registry, cluster: &ClusterName, output: Output) -> anyhow::Result<()> {
    let token = registry.rotate(cluster)?;
    let entry = registry.entry(cluster)?;
    show_rotated(cluster, &entry, &token, &registry.root().display().to_string(), "", output)
}

fn show_rotated(
    cluster: &ClusterName,
    entry: &Entry,
    token: &str,
    place: &str,
    store: &str,
    output: Output,
) -> anyhow::Result<()> {
    let handout = Handout { cluster, entry, token, missing_authority: None, warnings: Vec::new() };
    handout.show(output, "has a new token in", place)?;
    if output == Output::Text {
        print(&format!(
            "\nThe token before works until every namespace has the new one. Then:\n\n  \
             transponder cluster rotate {cluster}{store} --finish\n"
        ));
    }
    Ok(())
}

/// One cluster of a list.
struct Listed {
    name: String,
    entry: anyhow::Result<Entry>,
    token: TokenState,
}

fn list(registry: &Registry, output: Output) -> anyhow::Result<()> {
    let all = registry.names()?.into_iter().map(|name| {
        let entry = ClusterName::new(&name)
            .with_context(|| format!("{name} is no name of a cluster"))
            .and_then(|cluster| registry.entry(&cluster));
        let token =
            entry.as_ref().map_or(TokenState::Missing, |e| registry.token_state(&e.relay_secret_name));
        Listed { name, entry, token }
    });
    show_list(all.collect(), &registry.root().display().to_string(), "", output)
}

fn show_list(all: Vec<Listed>, place: &str, more: &str, output: Output) -> anyhow::Result<()> {
    let (mut rows, mut documents) = (Vec::new(), Vec::new());
    for Listed { name, entry, token } in all {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                let error = format!("{error:#}");
                documents.push(json!({ "cluster": name, "error": error }));
                rows.push(vec![name, error]);
                continue;
            }
        };
        let globs =
            |globs: &Option<Vec<String>>, all: &str| globs.as_ref().map_or(all.to_owned(), |g| g.join(" "));
        rows.push(vec![
            name.clone(),
            entry.outcome_relay_url.clone(),
            describe(token).to_owned(),
            globs(&entry.forward_types, "the hook's"),
            globs(&entry.app_namespaces, "all"),
        ]);
        let mut document = serde_json::to_value(&entry)?;
        document["cluster"] = json!(name);
        document["token"] = json!(token);
        documents.push(document);
    }
    match output {
        Output::Json => print_json(&json!({ "clusters": documents })),
        Output::Text => print(&table(
            &["cluster", "url", "token", "types", "app namespaces"],
            rows,
            &format!("no clusters in {place}: 'transponder cluster add NAME --url URL{more}' adds one"),
        )),
    }
    Ok(())
}

fn describe(token: TokenState) -> &'static str {
    match token {
        TokenState::Present => "one",
        TokenState::Rotating => "two: rotating",
        TokenState::Missing => "missing",
    }
}
