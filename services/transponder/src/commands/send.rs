//! `send`: one event as a hook would send it, and how its receipt fills up.

use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use transponder_core::{
    AppName, AppNamespace, ClusterName, EnvName, Phase, Stream, Target, TargetState, Timestamp,
};
use transponder_hook::{
    event::{self, Built, Fields},
    post::Meaning,
};
use transponder_kubernetes::Access;
use url::Url;

use crate::{
    cli::Globals,
    config::{self, StoreKind},
    files::read,
    output::{BAD, DOUBTFUL, FAINT, GOOD, Output, one_line, paint, print, print_json},
    receipt,
    registry::{Entry, Registry, kubernetes::KubernetesRegistry},
    relay::{Relay, relay_url},
};

/// Pause between two looks at the receipt.
const PAUSE: Duration = Duration::from_millis(50);

/// Arguments of `send`.
#[derive(Debug, clap::Args)]
pub struct SendArgs {
    /// The cluster to speak for. Its URL, token and CA come from the registry.
    #[arg(long)]
    pub cluster: ClusterName,
    /// CI namespace of the app.
    #[arg(long)]
    pub app_namespace: AppNamespace,
    /// The app.
    #[arg(long)]
    pub app: AppName,
    /// The environment.
    #[arg(long)]
    pub env: EnvName,
    /// Syncing, Succeeded or Failed.
    #[arg(long, default_value = "Succeeded", value_parser = phase)]
    pub phase: Phase,
    /// Correlator of the flow.
    #[arg(long, value_name = "ID", default_value = "")]
    pub chain_id: String,
    /// Revision of the app's repository.
    #[arg(long, value_name = "REVISION", default_value = "")]
    pub git_revision: String,
    /// When the flow began (RFC 3339, such as 2026-09-14T10:00:00Z).
    #[arg(long, value_name = "TIME", default_value = "", value_parser = time)]
    pub flow_start_time: String,
    /// Names the run: the same name again is the same event.
    #[arg(long, value_name = "NAME")]
    pub attempt: Option<String>,
    /// Another address than the registry's; `/outcome/<cluster>` is added where it is missing.
    #[arg(long, value_name = "URL")]
    pub url: Option<Url>,
    /// Another token than the registry's.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Another certificate authority than the registry's.
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// How long the receipt is watched.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = transponder_runtime::config::duration::parse)]
    pub wait: Duration,
    /// How to show the result.
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

fn phase(text: &str) -> Result<Phase, String> {
    Phase::parse(text).ok_or_else(|| "is none of Syncing, Succeeded and Failed".to_owned())
}

/// A time as hooks send it: the text itself, which the edge would not refuse but count as unknown.
fn time(text: &str) -> Result<String, String> {
    match transponder_core::time::parse_rfc3339(text) {
        _ if text.is_empty() => Ok(String::new()),
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Sends the event. Ends with success when it was taken and no target has given it up.
///
/// # Errors
/// When the edge cannot be reached or refuses the event.
pub async fn run(globals: &Globals, args: SendArgs) -> anyhow::Result<ExitCode> {
    let relay = relay(globals, &args).await?;
    let built = build(&args)?;
    let answer = relay.post(built.body).await?;
    let taken: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    if answer.meaning() != Meaning::Delivered {
        if args.output == Output::Json {
            print_json(&json!({ "status": answer.status, "problem": taken }));
            return Ok(ExitCode::FAILURE);
        }
        bail!("the edge {}", one_line(&relay.summary(&answer)));
    }
    let mut watch = Watch { output: args.output, started: Instant::now(), seen: Vec::new() };
    let said = if answer.status == 200 { "stored before" } else { "stored" };
    watch.say(&format!("{} {} {said}  key {}", paint(GOOD, "✓"), answer.status, built.key));
    let receipt = watch.until_complete(&relay, &built.key.to_string(), args.wait).await?;
    if args.output == Output::Json {
        print_json(&json!({ "status": answer.status, "key": built.key, "receipt": receipt }));
    }
    let dead = receipt::targets(&receipt).iter().any(|(_, state)| *state == TargetState::Dead);
    Ok(if dead { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn relay(globals: &Globals, args: &SendArgs) -> anyhow::Result<Relay> {
    let ca = args.ca.as_deref().map(read).transpose()?;
    let url = match &args.url {
        Some(url) => Some(Url::parse(&relay_url(url, &args.cluster)?)?),
        None => None,
    };
    if let (Some(url), Some(token)) = (&url, &args.token_file) {
        return Relay::new(url.clone(), &read(token)?, ca.as_deref());
    }
    let (config, _) = config::load(globals)?;
    let registry = match config.store.kind {
        StoreKind::Embedded => Source::Directory(Registry::new(&config.edge.registry)),
        StoreKind::Kubernetes => {
            Source::Api(KubernetesRegistry::new(Access::find(&config.kubernetes).await?))
        }
    };
    let entry = registry.entry(&args.cluster).await?;
    let url = match url {
        Some(url) => url,
        None => Url::parse(&entry.outcome_relay_url)
            .with_context(|| format!("outcomeRelayURL of {}", args.cluster))?,
    };
    let token = match &args.token_file {
        Some(path) => read(path)?,
        None => registry.token(&entry.relay_secret_name).await?,
    };
    Relay::new(url, &token, ca.as_deref().or(entry.relay_ca.as_deref()))
}

/// Where the registry is.
enum Source {
    Directory(Registry),
    Api(KubernetesRegistry),
}

impl Source {
    async fn entry(&self, cluster: &ClusterName) -> anyhow::Result<Entry> {
        match self {
            Self::Directory(registry) => registry.entry(cluster),
            Self::Api(registry) => registry.entry(cluster).await,
        }
    }

    async fn token(&self, secret: &str) -> anyhow::Result<String> {
        match self {
            Self::Directory(registry) => registry.token(secret),
            Self::Api(registry) => registry.token(secret).await,
        }
    }
}

fn build(args: &SendArgs) -> anyhow::Result<Built> {
    let fields = Fields {
        stream: Stream {
            app_namespace: args.app_namespace.clone(),
            app: args.app.clone(),
            env: args.env.clone(),
            cluster: args.cluster.clone(),
        },
        phase: args.phase,
        finished_at: Timestamp::now(),
        chain_id: args.chain_id.clone(),
        gitops_revision: String::new(),
        git_url: String::new(),
        git_revision: args.git_revision.clone(),
        flow_start_time: args.flow_start_time.clone(),
        config_json: "{}".into(),
    };
    let attempt = event::attempt(None, args.attempt.as_deref(), args.phase, fields.finished_at);
    Ok(event::build(&fields, &attempt)?)
}

/// Shows what changes in a receipt.
struct Watch {
    output: Output,
    started: Instant,
    seen: Vec<(Target, TargetState)>,
}

impl Watch {
    fn say(&self, line: &str) {
        if self.output == Output::Text {
            print(&format!("{line}\n"));
        }
    }

    async fn until_complete(&mut self, relay: &Relay, key: &str, wait: Duration) -> anyhow::Result<Value> {
        loop {
            let receipt = relay.receipt(key).await?;
            let now = receipt::targets(&receipt);
            for (target, state) in now.iter().filter(|entry| !self.seen.contains(entry)) {
                self.show(*target, *state, &receipt["targets"][target.as_str()]["code"]);
            }
            self.seen = now;
            if receipt::is_complete(&receipt) {
                return Ok(receipt);
            }
            if self.started.elapsed() >= wait {
                self.say(&paint(
                    FAINT,
                    &format!("  not all targets are final yet; 'transponder outcomes show {key}' tells more"),
                ));
                return Ok(receipt);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn show(&self, target: Target, state: TargetState, code: &Value) {
        let (style, mark) = match state {
            TargetState::Delivered | TargetState::Replaced => (GOOD, "✓"),
            TargetState::Stored | TargetState::Waiting => (FAINT, "·"),
            TargetState::Retrying => (DOUBTFUL, "!"),
            TargetState::Dead => (BAD, "✗"),
        };
        let code = code.as_str().map(|code| format!("  {code}")).unwrap_or_default();
        let after = paint(FAINT, &format!("{:.2} s", self.started.elapsed().as_secs_f64()));
        self.say(&format!(
            "{} {:<9} {:<10} {after}{code}",
            paint(style, mark),
            target.as_str(),
            state.as_str()
        ));
    }
}
