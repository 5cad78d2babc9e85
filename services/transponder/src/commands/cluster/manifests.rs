//! What a cluster needs on Kubernetes, as text for a chart and for `kubectl apply`. Names are those of the platform.

use transponder_core::ClusterName;
use url::Url;

use crate::registry::Entry;

/// The Secret that hooks read, on the upper cluster.
const UPPER: &str = "platform-outcome-relay-token";

/// The item of the chart's value `clusters`.
pub(super) fn chart_value(cluster: &ClusterName, entry: &Entry) -> String {
    let mut text = format!(
        "clusters:\n  - name: {cluster}\n    relaySecretName: {}\n    outcomeRelayURL: {}\n",
        entry.relay_secret_name,
        quoted(&entry.outcome_relay_url)
    );
    if let Some(ip) = &entry.relay_host_alias_ip {
        text.push_str(&format!("    relayHostAliasIP: {}\n", quoted(ip)));
    }
    for (key, globs) in [("forwardTypes", &entry.forward_types), ("appNamespaces", &entry.app_namespaces)] {
        if let Some(globs) = globs {
            let globs: Vec<_> = globs.iter().map(|glob| quoted(glob)).collect();
            text.push_str(&format!("    {key}: [{}]\n", globs.join(", ")));
        }
    }
    if let Some(ca) = &entry.relay_ca {
        text.push_str(&format!("    relayCA: |\n{}", indented(ca, 6)));
    }
    text
}

/// The ExternalSecret of the edge's own cluster: the token that it compares with.
pub(super) fn dev(cluster: &ClusterName, entry: &Entry) -> String {
    let name = &entry.relay_secret_name;
    external_secret(name, &format!("relay-token-{cluster}"), "")
}

/// The ExternalSecret of the upper cluster, for each namespace whose syncs report: the token that hooks send, and where to.
pub(super) fn upper(entry: &Entry) -> String {
    let origin = Url::parse(&entry.outcome_relay_url).map(|url| url.origin().ascii_serialization());
    let mut template = String::from("    template:\n      data:\n        token: '{{ .token }}'\n");
    if let Ok(origin) = origin {
        template.push_str(&format!("        relay-origin: {}\n", quoted(&origin)));
    }
    if let Some(ca) = &entry.relay_ca {
        template.push_str(&format!("        ca.crt: |\n{}", indented(ca, 10)));
    }
    external_secret(UPPER, UPPER, &template)
}

fn external_secret(name: &str, remote: &str, template: &str) -> String {
    format!(
        "apiVersion: external-secrets.io/v1\nkind: ExternalSecret\nmetadata:\n  name: {name}\nspec:\n  \
         refreshInterval: 1h\n  secretStoreRef:\n    kind: ClusterSecretStore\n    name: platform-secret-store\n  \
         target:\n    name: {name}\n    creationPolicy: Owner\n{template}  data:\n    - secretKey: token\n      \
         remoteRef:\n        key: {remote}\n"
    )
}

/// JSON's strings are YAML's, too.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn indented(text: &str, by: usize) -> String {
    text.trim_end().lines().map(|line| format!("{}{line}\n", " ".repeat(by))).collect()
}
