//! The registry of a Kubernetes API, read with the rights of whoever runs the doctor.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use transponder_core::ClusterName;

use super::{super::finding::Findings, AREA, of_entry, of_token, rotate, shared};
use crate::registry::{
    Entry, PREVIOUS, TOKEN,
    kubernetes::{KubernetesRegistry, ROLE},
};

/// How a first cluster comes into it.
const ADD: &str = "list the clusters in the chart's value 'clusters', or: transponder cluster add NAME --url URL --store kubernetes \
                   --apply";

/// Checks all clusters; answers the hosts by which their hooks reach the edge, whose certificate this is.
pub(in super::super) async fn check(
    registry: &KubernetesRegistry,
    certificate: &Path,
    findings: &mut Findings,
) -> BTreeSet<String> {
    let (place, mut hosts, mut tokens) = (registry.place(), BTreeSet::new(), BTreeMap::new());
    let entries = match registry.entries().await {
        Ok(entries) => entries,
        Err(error) => {
            findings.wrong(AREA, &format!("{error:#}"), &place, ADD);
            return hosts;
        }
    };
    if entries.is_empty() {
        findings.wrong(AREA, "there is no cluster: every report is answered 503", &place, ADD);
    }
    let granted = granted(registry, findings).await;
    for (name, text) in entries {
        let at = format!("{place}, key {name}");
        let Ok(cluster) = ClusterName::new(&name) else {
            findings.wrong(AREA, &format!("'{name}' is no name of a cluster"), &at, "rename the key");
            continue;
        };
        let entry: Entry = match serde_json::from_str(&text) {
            Ok(entry) => entry,
            Err(error) => {
                let what = format!("{cluster}: {error}; its reports are answered 503");
                findings.wrong(AREA, &what, &at, "correct the JSON");
                continue;
            }
        };
        let before = findings.all().len();
        hosts.extend(of_entry(&cluster, &entry, &at, certificate, findings));
        let secret = &entry.relay_secret_name;
        if granted.as_ref().is_some_and(|granted| !granted.contains(secret)) {
            let what =
                format!("{cluster}: the edge may not read Secret {secret}; its reports are answered 503");
            let add = format!("transponder cluster add {cluster} --url {}", entry.outcome_relay_url);
            let mend = format!(
                "name {secret} in Role {ROLE}, and bind the edge to it, by the chart, or: {add} --store kubernetes \
                 --apply"
            );
            findings.wrong(AREA, &what, format!("Role {ROLE}"), &mend);
        }
        if let Some(digest) = token(registry, &cluster, secret, findings).await {
            tokens.entry(digest).or_insert_with(Vec::new).push(name);
        }
        if findings.all().len() == before {
            findings.fine(AREA, format!("{cluster}: entry, URL, token and permission are in order"), at);
        }
    }
    shared(tokens, place, findings);
    hosts
}

/// The Secrets that the edge may read, if that can be told.
async fn granted(registry: &KubernetesRegistry, findings: &mut Findings) -> Option<BTreeSet<String>> {
    let at = format!("Role {ROLE} in namespace {}", registry.namespace());
    match registry.granted().await {
        Ok(granted) => Some(granted),
        Err(error) => {
            let mend = "nothing, or run the doctor with the right to read Roles and RoleBindings";
            findings.doubtful(
                AREA,
                &format!("whether the edge may read it cannot be told: {error:#}"),
                at,
                mend,
            );
            None
        }
    }
}

async fn token(
    registry: &KubernetesRegistry,
    cluster: &ClusterName,
    secret: &str,
    findings: &mut Findings,
) -> Option<[u8; 32]> {
    let at = format!("Secret {secret} in namespace {}", registry.namespace());
    let data = match registry.tokens(secret).await {
        Ok(data) => data,
        Err(error) => {
            let mend = "nothing, or run the doctor with the right to read the clusters' Secrets";
            findings.doubtful(AREA, &format!("{cluster}: its token cannot be checked: {error:#}"), at, mend);
            return None;
        }
    };
    let rotate = format!("{} --store kubernetes", rotate(cluster));
    let Some(current) = data.as_ref().and_then(|data| data.get(TOKEN)) else {
        let what = match data {
            None => format!("{cluster}: there is no Secret {secret}"),
            Some(_) => format!("{cluster}: Secret {secret} has no key {TOKEN}"),
        };
        findings.wrong(AREA, &what, at, &format!("see to its ExternalSecret, or: {rotate}"));
        return None;
    };
    let rotating = data.as_ref().is_some_and(|data| data.contains_key(PREVIOUS));
    of_token(cluster, &current.0, rotating, at, &rotate, findings)
}
