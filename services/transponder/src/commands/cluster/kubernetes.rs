//! `cluster …` where the registry lies in a Kubernetes API.

use anyhow::Context as _;
use serde_json::json;
use transponder_core::ClusterName;

use super::{AddArgs, ClusterCommand, Listed, RotateArgs, done, manifests, removed, show_list, show_rotated};
use crate::{
    commands::handout::Handout,
    output::{DOUBTFUL, Output, STRONG, paint, print, print_json},
    registry::{
        Entry, TokenState,
        kubernetes::{Added, KubernetesRegistry, ROLE},
    },
    secret::random_token,
};

/// Runs the command with the rights of whoever runs it.
pub(super) async fn run(
    registry: &KubernetesRegistry,
    command: ClusterCommand,
    output: Output,
) -> anyhow::Result<()> {
    match command {
        ClusterCommand::Add(args) => add(registry, &args, output).await,
        ClusterCommand::List => list(registry, output).await,
        ClusterCommand::Rotate(RotateArgs { cluster, finish: false }) => {
            let (entry, token) = registry.rotate(&cluster).await?;
            let place = registry.place_of(&entry.relay_secret_name);
            show_rotated(&cluster, &entry, &token, &place, " --store kubernetes", output)
        }
        ClusterCommand::Rotate(RotateArgs { cluster, finish: true }) => {
            registry.finish_rotation(&cluster).await?;
            done(output, &cluster, "finished", "the previous token is out of force");
            Ok(())
        }
        ClusterCommand::Remove { cluster } => {
            let left = registry.remove(&cluster).await?;
            removed(output, &cluster, left);
            Ok(())
        }
    }
}

async fn add(registry: &KubernetesRegistry, args: &AddArgs, output: Output) -> anyhow::Result<()> {
    let (cluster, entry) = (&args.cluster, super::entry(args)?);
    let warnings = super::doubts(args);
    if args.apply {
        let token = match registry.add(cluster, &entry).await? {
            Added::New(token) => token,
            Added::Permitted => {
                let meaning = "the edge may read its Secret again; entry and token are as they were";
                done(output, cluster, "permitted", meaning);
                return Ok(());
            }
        };
        let handout = Handout { cluster, entry: &entry, token: &token, missing_authority: None, warnings };
        return handout.show(output, "added to", &registry.place());
    }
    let token = random_token()?;
    let (value, dev, upper) =
        (manifests::chart_value(cluster, &entry), manifests::dev(cluster, &entry), manifests::upper(&entry));
    if output == Output::Json {
        print_json(&json!({
            "cluster": cluster,
            "token": token,
            "chartValue": value,
            "devManifest": dev,
            "upperManifest": upper,
            "role": ROLE,
            "roleSecretName": entry.relay_secret_name,
            "warnings": warnings,
        }));
        return Ok(());
    }
    print(&printed(registry.namespace(), cluster, &entry, &token, [&value, &dev, &upper]));
    for warning in warnings {
        print(&format!("\n{}\n", paint(DOUBTFUL, &warning)));
    }
    Ok(())
}

fn printed(
    namespace: &str,
    cluster: &ClusterName,
    entry: &Entry,
    token: &str,
    [value, dev, upper]: [&str; 3],
) -> String {
    let indented = |text: &str| text.lines().map(|line| format!("  {line}\n")).collect::<String>();
    format!(
        "Nothing is changed yet: this is what cluster {cluster} needs. With --apply it is made at once, without \
         ExternalSecrets.\n\n\
         {one} The token, shown {once}. Put it into the secret store here as relay-token-{cluster}, and into that of \
         {cluster} as platform-outcome-relay-token:\n\n  {token}\n\n\
         {two} In the values of the chart, which adds {secret} to the Role {ROLE} as well:\n\n{value}\n\
         {three} Here, where the chart does not make it (kubectl apply -n {namespace} -f -):\n\n{dev}\n\
         {four} On {cluster}, in each namespace whose syncs report (kubectl apply -n NAMESPACE -f -):\n\n{upper}\n\
         In the environment of its hook Jobs:\n\n  RELAY_URL={url}\n  CLUSTER={cluster}\n",
        one = paint(STRONG, "1."),
        two = paint(STRONG, "2."),
        three = paint(STRONG, "3."),
        four = paint(STRONG, "4."),
        once = paint(STRONG, "this once"),
        secret = entry.relay_secret_name,
        value = indented(value),
        dev = indented(dev),
        upper = indented(upper),
        url = entry.outcome_relay_url,
    )
}

async fn list(registry: &KubernetesRegistry, output: Output) -> anyhow::Result<()> {
    let mut all = Vec::new();
    for (name, text) in registry.entries().await? {
        let entry = ClusterName::new(&name)
            .with_context(|| format!("{name} is no name of a cluster"))
            .and_then(|_| serde_json::from_str::<Entry>(&text).context("its entry cannot be read"));
        let token = match &entry {
            Ok(entry) => registry.token_state(&entry.relay_secret_name).await?,
            Err(_) => TokenState::Missing,
        };
        all.push(Listed { name, entry, token });
    }
    show_list(all, &registry.place(), " --store kubernetes --apply", output)
}
