//! The table in the document, and what the API server says of an account, as the same rights.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use transponder_tests::{Run, kubernetes::ApiServer};

const DOCUMENT: &str = include_str!("../../../docs/security-on-kubernetes.md");

/// One verb on one resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Right {
    /// With its group behind it, such as `leases.coordination.k8s.io`.
    pub(crate) resource: String,
    pub(crate) verb: String,
    /// The object, or `any`.
    pub(crate) name: String,
}

/// What the document says: all of it, or what holds in every namespace.
pub(crate) fn granted(account: &str, here: bool) -> BTreeSet<Right> {
    let plain = |cell: &str| cell.trim().replace('`', "");
    let mut rights = BTreeSet::new();
    for line in DOCUMENT.lines().filter(|line| line.starts_with(&format!("| `{account}` | "))) {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(plain).collect();
        let [_, scope, resource, names, verbs] = cells.as_slice() else { continue };
        if !here && scope != "cluster" {
            continue;
        }
        for name in names.split(", ") {
            rights.extend(verbs.split(", ").map(|verb| Right {
                resource: resource.clone(),
                verb: verb.to_owned(),
                name: name.to_owned(),
            }));
        }
    }
    rights
}

/// What `kubectl auth can-i --list` says, asked as the account itself.
pub(crate) async fn held(server: &ApiServer, namespace: &str, account: &str) -> BTreeSet<Right> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": { "namespace": namespace },
    });
    let account = format!("--as=system:serviceaccount:platform-system:{account}");
    let admin = server.admin_kubeconfig().display().to_string();
    let review = Run::tool("kubectl")
        .env("HOME", server.folder())
        .args(["--kubeconfig", &admin, &account])
        // To look at definitions first is none of its rights.
        .args(["create", "--validate=false", "-f", "-", "-o", "json"])
        .stdin(review.to_string());
    let answer = review.run().await.success().json();
    assert_eq!(answer["status"]["incomplete"], false, "{answer}");
    let mut rights = BTreeSet::new();
    for rule in answer["status"]["resourceRules"].as_array().into_iter().flatten() {
        for (group, resource) in pairs(&rule["apiGroups"], &rule["resources"]) {
            let resource = if group.is_empty() { resource } else { format!("{resource}.{group}") };
            let all = json!(["any"]);
            let names = if rule["resourceNames"].is_null() { &all } else { &rule["resourceNames"] };
            let each = |(verb, name)| Right { resource: resource.clone(), verb, name };
            rights.extend(pairs(&rule["verbs"], names).map(each));
        }
    }
    rights
}

fn pairs(ones: &Value, others: &Value) -> impl Iterator<Item = (String, String)> {
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(|text| Some(text.as_str()?.to_owned())).collect()
    };
    let others = texts(others);
    texts(ones)
        .into_iter()
        .flat_map(move |one| others.clone().into_iter().map(move |other| (one.clone(), other)))
}
