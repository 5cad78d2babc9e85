//! `outcomes list|show|replay`: what the edge took in, and how far it has come.

use std::process::ExitCode;

use anyhow::anyhow;
use clap::Subcommand;
use http::Method;
use serde_json::Value;
use transponder_core::{ClusterName, EventKey, Target, TargetState};
use url::form_urlencoded::Serializer;

use crate::{
    cli::Globals,
    config,
    desk::Desk,
    output::{FAINT, GOOD, Output, STRONG, cell, one_line, paint, print, print_json, table},
    receipt,
};

/// Arguments of `outcomes`.
#[derive(Debug, clap::Args)]
pub struct OutcomesArgs {
    /// How to show the result.
    #[arg(long, global = true, value_enum, default_value_t)]
    pub output: Output,
    /// What to do.
    #[command(subcommand)]
    pub command: OutcomesCommand,
}

/// What can be done with outcomes.
#[derive(Debug, Subcommand)]
pub enum OutcomesCommand {
    /// List what came in, newest first.
    List {
        /// Only what has a target in this state: stored, waiting, delivered, replaced, retrying or dead.
        #[arg(long, value_parser = state)]
        state: Option<TargetState>,
        /// Only what came from this cluster.
        #[arg(long)]
        cluster: Option<ClusterName>,
        /// At most so many, 1 to 10000.
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
    },
    /// Show everything about one.
    Show {
        /// Its key: 40 hex digits.
        #[arg(value_parser = key)]
        key: EventKey,
    },
    /// Take up again what was given up.
    Replay {
        /// Its key: 40 hex digits.
        #[arg(value_parser = key, required_unless_present = "all_dead")]
        key: Option<EventKey>,
        /// Every outcome that has a dead target.
        #[arg(long, conflicts_with = "key")]
        all_dead: bool,
        /// Only this target: broker, tracking, dora or span. All dead ones otherwise.
        #[arg(long, value_parser = target)]
        target: Option<Target>,
    },
}

fn state(text: &str) -> Result<TargetState, String> {
    TargetState::parse(text)
        .ok_or_else(|| "is none of stored, waiting, delivered, replaced, retrying, dead".to_owned())
}

fn target(text: &str) -> Result<Target, String> {
    Target::parse(text).ok_or_else(|| "is none of broker, tracking, dora and span".to_owned())
}

fn key(text: &str) -> Result<EventKey, String> {
    text.parse().map_err(|error: transponder_core::key::KeyError| error.to_string())
}

/// Asks the running edge, or the Kubernetes API that it stands on.
///
/// # Errors
/// When no edge runs on the configured data directory, the API server does not answer, or either refuses.
pub async fn run(globals: &Globals, args: OutcomesArgs) -> anyhow::Result<ExitCode> {
    let (config, _) = config::load(globals)?;
    let desk = Desk::of_edge(&config).await?;
    let ask = async |method, path: &str| desk.ask(method, path).await;
    let (value, text) = match &args.command {
        OutcomesCommand::List { state, cluster, limit } => {
            let query = query(&[
                ("state", state.map(|state| state.to_string())),
                ("cluster", cluster.as_ref().map(ToString::to_string)),
                ("limit", Some(limit.to_string())),
            ]);
            let value = ask(Method::GET, &format!("/outcomes?{query}")).await?;
            let text = list(&value, *limit, &desk.place());
            (value, text)
        }
        OutcomesCommand::Show { key } => {
            let value = ask(Method::GET, &format!("/outcomes/{key}")).await?;
            let text = show(&value);
            (value, text)
        }
        OutcomesCommand::Replay { key: Some(key), target, .. } => {
            let query = query(&[("target", target.map(|target| target.to_string()))]);
            let value = ask(Method::POST, &format!("/outcomes/{key}/replay?{query}")).await?;
            let text = replayed(&value, *target, desk.replayed())?;
            (value, text)
        }
        OutcomesCommand::Replay { key: None, target, .. } => {
            let query = query(&[("target", target.map(|target| target.to_string()))]);
            let value = ask(Method::POST, &format!("/outcomes/replay?{query}")).await?;
            let (number, done) = (cell(&value["replayed"]), desk.replayed());
            let text = format!("{} {number} outcomes {done}\n", paint(GOOD, "✓"));
            (value, text)
        }
    };
    match args.output {
        Output::Text => print(&text),
        Output::Json => print_json(&value),
    }
    Ok(ExitCode::SUCCESS)
}

/// A query of the values that are there.
pub(crate) fn query(pairs: &[(&str, Option<String>)]) -> String {
    let given = pairs.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    Serializer::new(String::new()).extend_pairs(given).finish()
}

fn list(value: &Value, limit: u32, place: &str) -> String {
    let rows = value["outcomes"].as_array().into_iter().flatten().map(|outcome| {
        let what = if outcome["phase"].is_null() { &outcome["type"] } else { &outcome["phase"] };
        let mut row: Vec<String> =
            ["receivedAt", "cluster", "app", "env"].map(|key| cell(&outcome[key])).into();
        row.push(cell(what));
        row.push(states(outcome));
        row.push(cell(&outcome["key"]));
        row
    });
    let rows: Vec<_> = rows.collect();
    let cut = rows.len() >= limit as usize;
    let headings = ["received", "cluster", "app", "env", "phase", "targets", "key"];
    let mut text = table(&headings, rows, &format!("no outcomes{place}"));
    if cut {
        text.push_str(&paint(FAINT, &format!("{limit} shown; there may be more: --limit\n")));
    }
    text
}

/// All states in a few words: the targets that are not done stand out by their names.
fn states(outcome: &Value) -> String {
    let targets = receipt::targets(outcome);
    let open: Vec<String> = targets
        .iter()
        .filter(|(_, state)| !state.is_final())
        .map(|(target, state)| format!("{target} {state}"))
        .collect();
    if open.is_empty() { "all done".to_owned() } else { open.join(", ") }
}

fn show(value: &Value) -> String {
    let Some(fields) = value.as_object() else { return format!("{value:#}\n") };
    let mut text = String::new();
    for (name, field) in fields.iter().filter(|(name, field)| *name != "targets" && !field.is_null()) {
        let shown = match (field.as_object(), field.as_array()) {
            (Some(fields), _) => details(fields),
            (_, Some(values)) => values.iter().map(cell).collect::<Vec<_>>().join(", "),
            _ => cell(field),
        };
        text.push_str(&format!("{}  {}\n", paint(STRONG, &format!("{name:<16}")), one_line(&shown)));
    }
    let rows = value["targets"].as_object().into_iter().flatten().map(|(target, status)| {
        vec![target.clone(), cell(&status["state"]), status.as_object().map(details).unwrap_or_default()]
    });
    text.push('\n');
    text.push_str(&table(&["target", "state", "more"], rows.collect(), "no targets"));
    text
}

/// What is known beside the state, on one line.
fn details(fields: &serde_json::Map<String, Value>) -> String {
    let known = fields.iter().filter(|(name, field)| *name != "state" && !field.is_null() && *field != "");
    let told = known.map(|(name, field)| match field.as_object() {
        Some(fields) => format!("{name} ({})", details(fields)),
        None => format!("{name} {}", cell(field)),
    });
    told.collect::<Vec<_>>().join(", ")
}

fn replayed(value: &Value, target: Option<Target>, done: &str) -> anyhow::Result<String> {
    let targets: Vec<String> = value["replayed"].as_array().into_iter().flatten().map(cell).collect();
    if targets.is_empty() {
        return Err(match target {
            None => anyhow!("nothing to replay: no target of this outcome is dead"),
            Some(target) => anyhow!("nothing to replay: {target} of this outcome is not dead"),
        });
    }
    Ok(format!("{} {done}: {}\n", paint(GOOD, "✓"), targets.join(", ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_listing_names_only_the_targets_that_are_not_done() {
        let value = json!({ "outcomes": [
            { "key": "k1", "cluster": "c", "app": "shop", "env": "prod", "phase": "Failed", "receivedAt": "t",
              "targets": { "broker": { "state": "delivered" }, "dora": { "state": "waiting" } } },
            { "key": "k2", "cluster": "c", "type": "dev.cdevents.x", "receivedAt": "t",
              "targets": { "broker": { "state": "delivered" } } },
        ]});
        let text = anstream::adapter::strip_str(&list(&value, 2, "")).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("Failed") && lines[1].contains("dora waiting"), "{text}");
        assert!(lines[2].contains("dev.cdevents.x") && lines[2].contains("all done"), "{text}");
        assert!(lines[3].starts_with("2 shown"), "{text}");
        let none = list(&json!({ "outcomes": [] }), 3, " in namespace team");
        assert!(none.contains("no outcomes in namespace team"), "{none}");
        assert!(!list(&value, 3, "").contains("shown"), "{text}");
    }

    #[test]
    fn a_replay_of_nothing_is_an_error() {
        let none = json!({ "replayed": [] });
        assert!(replayed(&none, None, "").unwrap_err().to_string().contains("no target"));
        assert!(
            replayed(&none, Some(Target::Dora), "").unwrap_err().to_string().contains("dora of this outcome")
        );
        let done = replayed(&json!({ "replayed": ["span"] }), None, "taken up again").unwrap();
        assert!(done.contains("taken up again: span"), "{done}");
    }

    #[test]
    fn a_query_holds_what_is_given_and_nothing_else() {
        assert_eq!(query(&[("a", Some("x y".into())), ("b", None), ("c", Some("1".into()))]), "a=x+y&c=1");
    }
}
