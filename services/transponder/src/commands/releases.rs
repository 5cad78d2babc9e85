//! `releases list`: what release tracking knows.

use std::process::ExitCode;

use clap::Subcommand;
use http::Method;
use serde_json::Value;
use transponder_core::AppNamespace;

use super::outcomes::query;
use crate::{
    cli::Globals,
    config,
    desk::Desk,
    output::{Output, cell, print, print_json, table},
};

/// Arguments of `releases`.
#[derive(Debug, clap::Args)]
pub struct ReleasesArgs {
    /// How to show the result.
    #[arg(long, global = true, value_enum, default_value_t)]
    pub output: Output,
    /// What to do.
    #[command(subcommand)]
    pub command: ReleasesCommand,
}

/// What can be done with releases.
#[derive(Debug, Subcommand)]
pub enum ReleasesCommand {
    /// List releases, last changed first.
    List {
        /// Only those in this state.
        #[arg(long, value_parser = STATES)]
        state: Option<String>,
        /// Only those of this app namespace.
        #[arg(long)]
        app_namespace: Option<AppNamespace>,
        /// At most so many.
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// List the clusters with the time of each one's last report.
    Clusters,
}

const STATES: [&str; 8] =
    ["expected", "merged", "progressing", "succeeded", "failed", "unreported", "superseded", "closed"];

/// Asks the running release tracking, or the Kubernetes API that it stands on.
///
/// # Errors
/// When none runs on the configured data directory, the API server does not answer, or either refuses.
pub async fn run(globals: &Globals, args: ReleasesArgs) -> anyhow::Result<ExitCode> {
    let (config, _) = config::load(globals)?;
    let path = match &args.command {
        ReleasesCommand::List { state, app_namespace, limit } => {
            let query = query(&[
                ("state", state.clone()),
                ("app_namespace", app_namespace.as_ref().map(ToString::to_string)),
                ("limit", Some(limit.to_string())),
            ]);
            format!("/releases?{query}")
        }
        ReleasesCommand::Clusters => "/clusters".to_owned(),
    };
    let desk = Desk::of_release_tracking(&config).await?;
    let value = desk.ask(Method::GET, &path).await?;
    match (args.output, &args.command) {
        (Output::Json, _) => print_json(&value),
        (Output::Text, ReleasesCommand::List { .. }) => print(&list(&value, &desk.place())),
        (Output::Text, ReleasesCommand::Clusters) => print(&clusters(&value, &desk.place())),
    }
    Ok(ExitCode::SUCCESS)
}

fn list(value: &Value, place: &str) -> String {
    let rows = value["releases"].as_array().into_iter().flatten().map(|release| {
        let id = ["chainId", "gitRevision", "eventId"].iter().map(|key| &release[key]).find(|id| *id != "");
        let of = |key: &str| cell(&release[key]);
        vec![
            of("state"),
            of("appNamespace"),
            of("app"),
            of("env"),
            of("cluster"),
            cell(id.unwrap_or(&Value::Null)),
            of("prUrl"),
            of("updatedAt"),
        ]
    });
    table(
        &["state", "app namespace", "app", "env", "cluster", "release", "pull request", "changed"],
        rows.collect(),
        &format!("no releases{place}"),
    )
}

fn clusters(value: &Value, place: &str) -> String {
    let rows = value["clusters"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|cluster| ["cluster", "lastReportAt"].map(|key| cell(&cluster[key])).into());
    table(&["cluster", "last report"], rows.collect(), &format!("no cluster has reported yet{place}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_release_is_named_by_what_sets_it_apart() {
        let value = json!({ "releases": [
            { "state": "merged", "chainId": "c-1", "gitRevision": "abc", "eventId": "" },
            { "state": "failed", "chainId": "", "gitRevision": "def", "eventId": "" },
            { "state": "failed", "chainId": "", "gitRevision": "", "eventId": "e-1" },
        ] });
        let text = list(&value, "");
        let lines: Vec<&str> = text.lines().collect();
        for (line, id) in lines[1..].iter().zip(["c-1", "def", "e-1"]) {
            assert!(line.contains(id), "{text}");
        }
    }
}
