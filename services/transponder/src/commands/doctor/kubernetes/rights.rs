//! What the manifests grant, right by right.

use std::fmt;

use anyhow::{Context as _, Result};
use serde_json::Value;

/// One verb on one resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Right {
    pub(super) account: String,
    /// Whether it is for the namespace; else for the whole cluster.
    pub(super) namespaced: bool,
    pub(super) group: String,
    pub(super) resource: String,
    pub(super) subresource: Option<String>,
    pub(super) name: Option<String>,
    pub(super) verb: String,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        self.subresource.iter().try_for_each(|below| write!(f, "/{below}"))?;
        self.name.iter().try_for_each(|name| write!(f, " {name}"))
    }
}

/// All rights, those of an account together. Secrets are left out: whose there are is in the registry, with which they are
/// checked.
pub(super) fn of_manifests(text: &str) -> Result<Vec<Right>> {
    let manifests: Vec<Value> = serde_saphyr::from_multiple(text).context("the manifests cannot be read")?;
    let mut rights = Vec::new();
    for binding in &manifests {
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        let (role, namespaced) = (&binding["roleRef"], binding["kind"] == "RoleBinding");
        let is_role =
            |other: &&Value| other["kind"] == role["kind"] && other["metadata"]["name"] == role["name"];
        let rules = manifests.iter().find(is_role).map(|role| &role["rules"]);
        let rules: Vec<_> = rules.and_then(Value::as_array).into_iter().flatten().collect();
        for account in subjects.filter_map(|subject| subject["name"].as_str()) {
            rights.extend(rules.iter().flat_map(|rule| of_rule(account, namespaced, rule)));
        }
    }
    rights.retain(|right| right.resource != "secrets");
    rights.sort();
    rights.dedup();
    Ok(rights)
}

fn of_rule(account: &str, namespaced: bool, rule: &Value) -> Vec<Right> {
    let mut names: Vec<_> = texts(&rule["resourceNames"]).map(Some).collect();
    if names.is_empty() {
        names.push(None);
    }
    let mut rights = Vec::new();
    for (group, resource) in texts(&rule["apiGroups"])
        .flat_map(|group| texts(&rule["resources"]).map(move |resource| (group, resource)))
    {
        let (resource, below) =
            resource.split_once('/').map_or((resource, None), |(resource, below)| (resource, Some(below)));
        for name in &names {
            rights.extend(texts(&rule["verbs"]).map(|verb| Right {
                account: account.to_owned(),
                namespaced,
                group: group.to_owned(),
                resource: resource.to_owned(),
                subresource: below.map(str::to_owned),
                name: name.map(str::to_owned),
                verb: verb.to_owned(),
            }));
        }
    }
    rights
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::manifests;

    #[test]
    fn the_manifests_grant_what_services_ask_for() {
        let rights = of_manifests(&manifests::rbac("team")).unwrap();
        let said: Vec<_> = rights.iter().map(|right| format!("{} {right}", right.account)).collect();
        for right in [
            "transponder-edge patch releaseoutcomes/status",
            "transponder-edge update leases transponder-edge",
            "transponder-edge watch configmaps cluster-registry",
            "transponder-dora-recorder get configmaps dora-metrics-state",
            "transponder-outcome-span create tokenreviews",
        ] {
            assert!(said.contains(&right.to_owned()), "{right}: {said:#?}");
        }
        assert!(!said.iter().any(|right| right.contains("secrets")), "{said:#?}");
        let accounts: Vec<_> = rights.chunk_by(|one, next| one.account == next.account).collect();
        assert_eq!(accounts.len(), 5);
    }
}
