//! Roles and bindings as rows: one for each resource that an account may do something with.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

/// All documents of a manifest.
pub(super) fn read(text: &str) -> Result<Vec<Value>> {
    serde_saphyr::from_multiple(text).context("no YAML")
}

/// The table of what all bindings grant. An account that no binding names has a row, too.
pub(super) fn table(manifests: &[Value]) -> Result<String> {
    let of_kind = |kind: &'static str| manifests.iter().filter(move |manifest| manifest["kind"] == kind);
    let mut rows = Vec::new();
    let mut bound = BTreeSet::new();
    for (kind, scope) in [("RoleBinding", "namespace"), ("ClusterRoleBinding", "cluster")] {
        for binding in of_kind(kind) {
            let (role_kind, role_name) =
                (text(&binding["roleRef"]["kind"])?, text(&binding["roleRef"]["name"])?);
            let role = manifests
                .iter()
                .find(|manifest| manifest["kind"] == role_kind && manifest["metadata"]["name"] == role_name);
            let role = role.with_context(|| format!("there is no {role_kind} {role_name}"))?;
            for subject in list(&binding["subjects"])? {
                ensure!(subject["kind"] == "ServiceAccount", "{role_name} is bound to {subject}");
                let account = text(&subject["name"])?;
                bound.insert(account.to_owned());
                for rule in list(&role["rules"])? {
                    rows.extend(of_rule(account, scope, rule)?);
                }
            }
        }
    }
    for account in of_kind("ServiceAccount") {
        let name = text(&account["metadata"]["name"])?;
        if !bound.contains(name) {
            rows.push([&code(name), "", "nothing", "", ""].map(str::to_owned));
        }
    }
    rows.sort();
    let mut table =
        "| ServiceAccount | where | resource | names | verbs |\n|---|---|---|---|---|\n".to_owned();
    for [account, scope, resource, names, verbs] in rows {
        let row = format!("| {account} | {scope} | {resource} | {names} | {verbs} |\n");
        table.push_str(&row.replace("|  ", "| "));
    }
    Ok(table)
}

fn of_rule(account: &str, scope: &str, rule: &Value) -> Result<Vec<[String; 5]>> {
    for (key, _) in rule.as_object().context("a rule is no mapping")? {
        if !["apiGroups", "resources", "resourceNames", "verbs"].contains(&key.as_str()) {
            bail!("a rule of {account} has {key}, which the table cannot show");
        }
    }
    let names = match rule.get("resourceNames") {
        Some(names) => texts(names)?.iter().map(|name| code(name)).collect::<Vec<_>>().join(", "),
        None => "any".to_owned(),
    };
    let mut verbs = texts(&rule["verbs"])?;
    verbs.sort_unstable();
    let mut rows = Vec::new();
    for group in texts(&rule["apiGroups"])? {
        for resource in texts(&rule["resources"])? {
            let resource = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
            rows.push([code(account), scope.to_owned(), code(&resource), names.clone(), verbs.join(", ")]);
        }
    }
    Ok(rows)
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn list(value: &Value) -> Result<&Vec<Value>> {
    value.as_array().with_context(|| format!("{value} is no list"))
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().with_context(|| format!("{value} is no text"))
}

fn texts(value: &Value) -> Result<Vec<&str>> {
    list(value)?.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLE: &str = "kind: ServiceAccount
metadata: { name: a }
---
kind: ServiceAccount
metadata: { name: b }
---
kind: Role
metadata: { name: r }
rules:
  - apiGroups: [g]
    resources: [ones, ones/status]
    verbs: [list, get]
  - apiGroups: ['']
    resources: [secrets]
    resourceNames: [one, two]
    verbs: [get]
---
kind: RoleBinding
metadata: { name: r }
roleRef: { kind: Role, name: r }
subjects: [{ kind: ServiceAccount, name: a }]
";

    #[test]
    fn each_resource_of_each_rule_is_a_row_of_whom_it_is_bound_to() {
        let table = table(&read(ROLE).unwrap()).unwrap();
        let rows: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| `a` | namespace | `ones.g` | any | get, list |",
                "| `a` | namespace | `ones/status.g` | any | get, list |",
                "| `a` | namespace | `secrets` | `one`, `two` | get |",
                "| `b` | | nothing | | |",
            ]
        );
    }

    #[test]
    fn what_the_table_cannot_show_is_an_error() {
        for (from, to) in [
            ("resourceNames: [one, two]", "nonResourceURLs: [/]"),
            ("kind: ServiceAccount, name: a", "kind: Group, name: a"),
            ("roleRef: { kind: Role, name: r }", "roleRef: { kind: Role, name: other }"),
        ] {
            assert!(table(&read(&ROLE.replace(from, to)).unwrap()).is_err(), "{to}");
        }
    }
}
