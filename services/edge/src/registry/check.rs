//! What is wrong with a registry, wherever it lies: entries, tokens, and what is to be said of them.

use std::collections::HashMap;

use transponder_core::ClusterName;

use super::{Entry, TokenDigest};

/// Shortest token that is not worth a remark.
const GOOD_TOKEN: usize = 16;

/// Something about the registry that an operator should know.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// The cluster; empty for the registry as a whole.
    pub cluster: String,
    /// What is wrong, and where.
    pub problem: String,
    /// Whether the cluster cannot report because of it.
    pub fatal: bool,
}

impl Finding {
    /// Of one cluster.
    pub(super) fn of(cluster: impl ToString, problem: impl Into<String>, fatal: bool) -> Self {
        Self { cluster: cluster.to_string(), problem: problem.into(), fatal }
    }
}

/// Reads an entry.
pub(super) fn entry(json: &[u8]) -> Result<Entry, String> {
    let entry: Entry = serde_json::from_slice(json).map_err(|e| e.to_string())?;
    entry.check()?;
    Ok(entry)
}

/// The tokens of one Secret.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Tokens {
    /// Digests of the current and the previous one, which is the same as the current where there is none; or why there
    /// is none.
    pub(super) digests: Result<[TokenDigest; 2], String>,
    /// What works and deserves a look.
    remarks: Vec<String>,
}

impl Tokens {
    /// Reads them. `read` has what stands under a key, and `at` says where that is.
    pub(super) fn read(
        at: impl Fn(&str) -> String,
        mut read: impl FnMut(&str) -> Result<Option<Vec<u8>>, String>,
    ) -> Self {
        let mut remarks = Vec::new();
        let mut token = |key: &str, remarks: &mut Vec<String>| match read(key)? {
            None => Ok(None),
            Some(bytes) => digest(&at(key), &bytes, remarks).map(Some),
        };
        let current = match token("token", &mut remarks) {
            Ok(Some(current)) => current,
            Ok(None) => return Self::none(format!("{} is missing", at("token"))),
            Err(problem) => return Self::none(problem),
        };
        // A broken previous token does not take the current one away.
        let previous = token("token-previous", &mut remarks).unwrap_or_else(|problem| {
            remarks.push(problem);
            None
        });
        Self { digests: Ok([current, previous.unwrap_or(current)]), remarks }
    }

    /// There is none.
    pub(super) fn none(problem: String) -> Self {
        Self { digests: Err(problem), remarks: Vec::new() }
    }
}

fn digest(at: &str, bytes: &[u8], remarks: &mut Vec<String>) -> Result<TokenDigest, String> {
    let token = bytes.trim_ascii();
    if token.is_empty() {
        return Err(format!("{at} is empty"));
    }
    if token.iter().any(u8::is_ascii_control) {
        return Err(format!("{at} has control characters inside"));
    }
    if token.len() < GOOD_TOKEN {
        remarks.push(format!("{at} has fewer than {GOOD_TOKEN} bytes: it can be guessed"));
    }
    Ok(TokenDigest::of(token))
}

/// Collects what is to be said of all clusters.
#[derive(Default)]
pub(super) struct Findings {
    all: Vec<Finding>,
    owners: HashMap<TokenDigest, ClusterName>,
}

impl Findings {
    /// A name that is none.
    pub(super) fn name(&mut self, name: &str, problem: &dyn std::fmt::Display) {
        self.all.push(Finding::of(name, format!("the name {problem}"), true));
    }

    /// The registry as a whole.
    pub(super) fn whole(&mut self, problem: impl Into<String>) {
        self.all.push(Finding::of("", problem, true));
    }

    /// A cluster that cannot report.
    pub(super) fn broken(&mut self, name: &ClusterName, problem: &str) {
        let finding = Finding::of(name, problem, true);
        if !self.all.contains(&finding) {
            self.all.push(finding);
        }
    }

    /// A cluster's tokens.
    pub(super) fn tokens(&mut self, name: &ClusterName, tokens: &Tokens) {
        match &tokens.digests {
            Err(problem) => self.broken(name, problem),
            Ok([current, _]) => {
                if let Some(other) = self.owners.insert(*current, name.clone()) {
                    let problem = format!("shares its token with {other}: either can report as the other");
                    self.all.push(Finding::of(name, problem, false));
                }
            }
        }
        self.all.extend(tokens.remarks.iter().map(|remark| Finding::of(name, remark, false)));
    }

    /// All that was found.
    pub(super) fn into_vec(self) -> Vec<Finding> {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(current: Option<&str>, previous: Option<&str>) -> Tokens {
        Tokens::read(
            |key| format!("Secret s: {key}"),
            |key| Ok(if key == "token" { current } else { previous }.map(|text| text.as_bytes().to_vec())),
        )
    }

    #[test]
    fn a_token_is_trimmed_and_what_fits_no_header_is_none() {
        let good = "0123456789abcdef";
        let digests = |tokens: Tokens| tokens.digests.map(|d| d.map(|d| d.0));
        let of = |text: &str| TokenDigest::of(text.as_bytes()).0;
        assert_eq!(digests(read(Some(&format!(" {good}\n")), None)), Ok([of(good); 2]));
        assert_eq!(
            digests(read(Some(good), Some("fedcba9876543210"))),
            Ok([of(good), of("fedcba9876543210")])
        );
        for (current, problem) in [
            (None, "Secret s: token is missing"),
            (Some(" \n"), "Secret s: token is empty"),
            (Some("abcdefgh\nijklmnop"), "Secret s: token has control characters inside"),
        ] {
            assert_eq!(digests(read(current, Some(good))), Err(problem.to_owned()));
        }
    }

    #[test]
    fn a_broken_previous_token_leaves_the_current_one_in_force() {
        let tokens = read(Some("0123456789abcdef"), Some("\n"));
        assert!(tokens.digests.is_ok());
        assert_eq!(tokens.remarks, ["Secret s: token-previous is empty"]);
    }

    #[test]
    fn short_and_shared_tokens_are_remarked_upon() {
        let mut findings = Findings::default();
        for name in ["a", "b"] {
            findings.tokens(&name.parse().unwrap(), &read(Some("short"), None));
        }
        let said: Vec<_> = findings.into_vec().into_iter().map(|f| (f.cluster, f.problem, f.fatal)).collect();
        let short = "Secret s: token has fewer than 16 bytes: it can be guessed";
        let shared = "shares its token with a: either can report as the other";
        let expected = [("a", short), ("b", shared), ("b", short)];
        assert_eq!(said, expected.map(|(cluster, problem)| (cluster.into(), problem.into(), false)));
    }
}
