//! The Role that names the Secrets which the edge may read.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};

use super::ROLE;

/// Who reads them.
const EDGE: &str = "transponder-edge";
const RBAC: &str = "rbac.authorization.k8s.io";

/// The Secrets that a Role names.
pub(super) fn named(role: Role) -> BTreeSet<String> {
    let rules = role.rules.unwrap_or_default();
    rules.into_iter().filter(names_secrets).filter_map(|rule| rule.resource_names).flatten().collect()
}

/// Lets a Role name a Secret.
pub(super) fn grant(role: &mut Role, secret: &str) {
    let rules = role.rules.get_or_insert_default();
    match rules.iter_mut().find(|rule| names_secrets(rule)).and_then(|rule| rule.resource_names.as_mut()) {
        Some(names) if names.iter().any(|name| name == secret) => {}
        Some(names) => names.push(secret.to_owned()),
        None => rules.push(PolicyRule {
            api_groups: Some(vec![String::new()]),
            resources: Some(vec!["secrets".to_owned()]),
            resource_names: Some(vec![secret.to_owned()]),
            verbs: vec!["get".to_owned()],
            ..PolicyRule::default()
        }),
    }
}

/// Lets a Role name a Secret no more.
pub(super) fn revoke(role: &mut Role, secret: &str) {
    let rules = role.rules.get_or_insert_default();
    for rule in rules.iter_mut().filter(|rule| names_secrets(rule)) {
        rule.resource_names.get_or_insert_default().retain(|name| name != secret);
    }
    // A rule whose last name is gone must go, too: without names it would let every Secret be read.
    rules.retain(|rule| rule.resource_names.as_ref().is_none_or(|names| !names.is_empty()));
}

/// Whether the edge has what the Role grants.
pub(super) fn binds(binding: &RoleBinding) -> bool {
    let mut subjects = binding.subjects.iter().flatten();
    subjects.any(|subject| subject.kind == "ServiceAccount" && subject.name == EDGE)
}

/// Gives the edge what the Role grants.
pub(super) fn bind(binding: &mut RoleBinding) {
    binding.role_ref = RoleRef { api_group: Some(RBAC.into()), kind: "Role".into(), name: ROLE.into() };
    if !binds(binding) {
        let edge = Subject { kind: "ServiceAccount".into(), name: EDGE.into(), ..Subject::default() };
        binding.subjects.get_or_insert_default().push(edge);
    }
}

/// Whether a rule lets Secrets of certain names be read. One without names lets all be read, and is not ours.
fn names_secrets(rule: &PolicyRule) -> bool {
    rule.resources.as_deref() == Some(&["secrets".to_owned()])
        && rule.resource_names.as_ref().is_some_and(|names| !names.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(role: &Role) -> Vec<Vec<String>> {
        role.rules.iter().flatten().map(|rule| rule.resource_names.clone().unwrap_or_default()).collect()
    }

    #[test]
    fn the_role_names_each_secret_once_and_never_all_of_them() {
        let mut role = Role::default();
        for secret in ["a", "b", "a"] {
            grant(&mut role, secret);
        }
        assert_eq!(names(&role), [["a", "b"]]);
        assert_eq!(named(role.clone()), ["a", "b"].map(str::to_owned).into());
        revoke(&mut role, "a");
        assert_eq!(names(&role), [["b"]]);
        revoke(&mut role, "b");
        assert!(names(&role).is_empty());
        grant(&mut role, "c");
        assert_eq!(names(&role), [["c"]]);
    }

    #[test]
    fn the_edge_is_bound_once_beside_others() {
        let mut binding = RoleBinding::default();
        let other = Subject { kind: "ServiceAccount".into(), name: "other".into(), ..Subject::default() };
        binding.subjects = Some(vec![other]);
        assert!(!binds(&binding));
        for _ in 0..2 {
            bind(&mut binding);
        }
        assert!(binds(&binding));
        assert_eq!(binding.subjects.unwrap().len(), 2);
    }
}
