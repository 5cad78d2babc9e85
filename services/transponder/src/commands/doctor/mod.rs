//! `doctor`: what is wrong, where, and how to mend it.
//!
//! Reads and asks; changes nothing.

mod certificates;
mod finding;
mod kubernetes;
mod owners;
mod reach;
mod registry;
mod running;
mod settings;
mod storage;
mod trust;

use std::{collections::BTreeSet, process::ExitCode};

use serde_json::json;
use transponder_kubernetes::Access;
use transponder_outcome_span::Settings;

use crate::{
    cli::Globals,
    config::{self, Config, StoreKind},
    output::{BAD, DOUBTFUL, FAINT, GOOD, Output, one_line, paint, print, print_json},
    registry::kubernetes::KubernetesRegistry,
};
use finding::{Findings, Level};

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    /// Check files only, not whether the services run and can be reached.
    #[arg(long)]
    pub offline: bool,
    /// How to show the result.
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

/// Checks everything. Ends with 1 when something is wrong.
///
/// # Errors
/// None of what it checks is one: all is in the findings.
pub async fn run(globals: &Globals, args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let mut findings = Findings::default();
    let file = globals.config.as_ref().map_or("defaults and variables".into(), |f| f.display().to_string());
    match config::load(globals) {
        Ok((config, _)) => {
            if globals.config.is_none() {
                let mend = "name the installation's transponder.toml by --config or TRANSPONDER_CONFIG";
                findings.doubtful("configuration", "no file is named: the defaults are used", &file, mend);
            }
            settings::check(&config, Settings::from_env(), &file, &mut findings);
            settings::misspelt(variables(), &mut findings);
            examine(&config, &args, &mut findings).await;
        }
        Err(error) => {
            let mend = "make the file readable, or correct the key or value; 'transponder config --reference' lists them \
                        all";
            findings.wrong("configuration", &error.0, &file, mend);
            settings::misspelt(variables(), &mut findings);
        }
    }
    match args.output {
        Output::Text => print(&text(&findings)),
        Output::Json => print_json(&json!({
            "ok": findings.worst() != Level::Wrong,
            "findings": findings.all(),
        })),
    }
    Ok(if findings.worst() == Level::Wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The names of the process's variables, as far as they can be ours.
fn variables() -> impl Iterator<Item = String> {
    std::env::vars_os().filter_map(|(name, _)| name.into_string().ok())
}

async fn examine(config: &Config, args: &DoctorArgs, findings: &mut Findings) {
    let access = access(config, args, findings).await;
    let hosts = registry(config, access.as_ref(), findings).await;
    certificates::edge(config, &hosts, findings);
    certificates::mesh(config, findings);
    match (config.store.kind, &access) {
        (StoreKind::Embedded, _) => storage::data_directories(config, findings),
        (StoreKind::Kubernetes, Some(access)) => kubernetes::check(access, findings).await,
        (StoreKind::Kubernetes, None) => {}
    }
    storage::callers(config, findings);
    storage::broker_token(config, findings);
    if config.store.kind == StoreKind::Embedded {
        owners::check(config, findings);
    }
    if !args.offline {
        reach::check(config, findings).await;
        running::check(config, findings).await;
    }
}

/// The way to the API server, where everything stands on one and it may be asked.
async fn access(config: &Config, args: &DoctorArgs, findings: &mut Findings) -> Option<Access> {
    if config.store.kind == StoreKind::Embedded || args.offline {
        return None;
    }
    let found = Access::find(&config.kubernetes).await;
    let mend = "correct the section, or name a kubeconfig that can be read";
    found.inspect_err(|error| findings.wrong("kubernetes", &error.to_string(), "[kubernetes]", mend)).ok()
}

/// Checks the registry where it lies; answers the hosts by which hooks reach the edge.
async fn registry(config: &Config, access: Option<&Access>, findings: &mut Findings) -> BTreeSet<String> {
    let certificate = &config.edge.certificate;
    match (config.store.kind, access) {
        (StoreKind::Embedded, _) => registry::check(&config.edge.registry, certificate, findings),
        (StoreKind::Kubernetes, Some(access)) => {
            let registry = KubernetesRegistry::new(access.clone());
            registry::kubernetes::check(&registry, certificate, findings).await
        }
        // It is no file.
        (StoreKind::Kubernetes, None) => BTreeSet::new(),
    }
}

fn text(findings: &Findings) -> String {
    let mut text = String::new();
    for finding in findings.all() {
        let (style, mark) = match finding.level {
            Level::Fine => (GOOD, "✓"),
            Level::Doubtful => (DOUBTFUL, "!"),
            Level::Wrong => (BAD, "✗"),
        };
        let area = format!("{:<13}", finding.area);
        text.push_str(&format!("{} {area}  {}\n", paint(style, mark), one_line(&finding.what)));
        if finding.level == Level::Fine {
            continue;
        }
        text.push_str(&format!("  {:<13}  {} {}\n", "", paint(FAINT, "where"), one_line(&finding.at)));
        text.push_str(&format!("  {:<13}  {} {}\n", "", paint(FAINT, "mend "), finding.mend));
    }
    let count = |level| findings.all().iter().filter(|finding| finding.level == level).count();
    let (fine, doubtful, wrong) = (count(Level::Fine), count(Level::Doubtful), count(Level::Wrong));
    let style = if wrong > 0 { BAD } else { GOOD };
    let sum = format!("{fine} fine, {doubtful} to look at, {wrong} wrong");
    text.push_str(&format!("\n{}\n", paint(style, &sum)));
    text
}
