//! What is known of ConfigMap and Secrets. No I/O.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use tokio::sync::watch;
use transponder_core::ClusterName;
use transponder_kubernetes::ApiError;

use super::{
    super::{
        Cluster, Entry, Finding, Picture,
        check::{self, Findings, Tokens},
    },
    CONFIG_MAP, FRESH,
};
use crate::budget::Budgets;

/// Whether a cluster's tokens are known well enough.
pub(super) enum Look {
    /// They are, or there is nothing to read.
    Known,
    /// There is no such cluster.
    Unknown,
    /// Its Secret is being read.
    Wait(Reading),
    /// Its Secret has to be read, by whoever is told so. It is when `end` goes.
    Read { secret: String, reading: Reading, end: watch::Sender<()> },
}

/// A reading of a Secret. It has ended when nobody holds the other side any more.
#[derive(Clone)]
pub(super) struct Reading {
    pub(super) since: Instant,
    pub(super) ended: watch::Receiver<()>,
}

impl Reading {
    fn runs(&self) -> bool {
        self.ended.has_changed().is_ok()
    }
}

/// One cluster.
struct Known {
    entry: Result<Entry, String>,
    cluster: Result<Arc<Cluster>, String>,
    /// As they were read last; none before the first time.
    tokens: Option<Tokens>,
    /// The last reading of its Secret, whatever came of it.
    reading: Option<Reading>,
}

/// All of it.
pub(super) struct State {
    budgets: Budgets,
    namespace: String,
    clusters: BTreeMap<ClusterName, Known>,
    /// Keys that are no names of clusters, and why not.
    misnamed: Vec<(String, String)>,
    /// Why there is no registry.
    problem: Option<String>,
    /// How often the ConfigMap was read.
    version: u64,
}

impl State {
    pub(super) fn new(budgets: Budgets, namespace: &str) -> Self {
        Self {
            budgets,
            namespace: namespace.to_owned(),
            clusters: BTreeMap::new(),
            misnamed: Vec::new(),
            problem: Some(format!("the ConfigMap {CONFIG_MAP} has not been read yet")),
            version: 0,
        }
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Whether the cluster's Secret has to be read before a report is judged.
    pub(super) fn look(&mut self, name: &ClusterName) -> Look {
        let Some(known) = self.clusters.get_mut(name) else { return Look::Unknown };
        let Ok(entry) = &known.entry else { return Look::Known };
        match &known.reading {
            Some(reading) if reading.runs() => return Look::Wait(reading.clone()),
            Some(reading) if reading.since.elapsed() < FRESH => return Look::Known,
            _ => {}
        }
        let (end, ended) = watch::channel(());
        let reading = Reading { since: Instant::now(), ended };
        known.reading = Some(reading.clone());
        Look::Read { secret: entry.relay_secret_name.clone(), reading, end }
    }

    /// Takes over what a cluster's Secret holds, if it is still that of the cluster; answers whether that is news.
    pub(super) fn learn(&mut self, name: &ClusterName, secret: &str, tokens: Tokens) -> bool {
        let Some(known) = self.clusters.get_mut(name) else { return false };
        let current = known.entry.as_ref().is_ok_and(|entry| entry.relay_secret_name == secret);
        if !current || known.tokens.as_ref() == Some(&tokens) {
            return false;
        }
        if let Ok(cluster) = &mut known.cluster {
            *cluster = Arc::new(cluster.with_tokens(tokens.digests.clone()));
        }
        known.tokens = Some(tokens);
        true
    }

    /// Takes over what stands in the ConfigMap, or that there is none.
    pub(super) fn take(&mut self, map: Option<BTreeMap<String, String>>) {
        self.version += 1;
        self.problem = map.is_none().then(|| {
            format!(
                "there is no ConfigMap {CONFIG_MAP} in namespace {}: list the clusters in the chart's value \
                 'clusters', or: transponder cluster add NAME --url URL --store kubernetes --apply",
                self.namespace
            )
        });
        let mut before = std::mem::take(&mut self.clusters);
        self.misnamed.clear();
        for (name, text) in map.unwrap_or_default() {
            match ClusterName::new(&name) {
                Err(error) => self.misnamed.push((name, error.to_string())),
                Ok(name) => {
                    let entry = check::entry(text.as_bytes())
                        .map_err(|problem| format!("ConfigMap {CONFIG_MAP}: {name}: {problem}"));
                    let known = self.known(&name, entry, before.remove(&name));
                    self.clusters.insert(name, known);
                }
            }
        }
    }

    /// A cluster by its entry. What is known of its Secret stays known while it names the same one.
    fn known(&self, name: &ClusterName, entry: Result<Entry, String>, before: Option<Known>) -> Known {
        let before = match before {
            Some(before) if before.entry == entry => return before,
            before => before,
        };
        let secret = |entry: &Result<Entry, String>| entry.as_ref().ok().map(|e| e.relay_secret_name.clone());
        let before = before.filter(|before| secret(&before.entry) == secret(&entry));
        let (tokens, reading) = before.map_or((None, None), |before| (before.tokens, before.reading));
        let cluster = entry.clone().and_then(|entry| {
            let unread = || Err(format!("Secret {} has not been read yet", entry.relay_secret_name));
            let digests = tokens.as_ref().map_or_else(unread, |tokens| tokens.digests.clone());
            Cluster::new(name.clone(), &entry, digests, self.budgets.of(name)).map(Arc::new)
        });
        Known { entry, cluster, tokens, reading }
    }

    /// Takes note of why the ConfigMap cannot be read; answers whether that is news. Once it was, the last good one stays.
    pub(super) fn cannot(&mut self, error: &ApiError) -> bool {
        if self.version > 0 {
            return false;
        }
        let problem = format!("the ConfigMap {CONFIG_MAP} cannot be read: {error}");
        self.problem.replace(problem.clone()) != Some(problem)
    }

    pub(super) fn picture(&self) -> Picture {
        match &self.problem {
            Some(problem) => Picture::none(problem.clone()),
            None => Picture::of(
                self.clusters.iter().map(|(name, known)| (name.clone(), known.cluster.clone())).collect(),
            ),
        }
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings = Findings::default();
        for (name, problem) in &self.misnamed {
            findings.name(name, problem);
        }
        for (name, known) in &self.clusters {
            if let Err(problem) = &known.cluster {
                findings.broken(name, problem);
            }
            if let Some(tokens) = &known.tokens {
                findings.tokens(name, tokens);
            }
        }
        match &self.problem {
            Some(problem) => findings.whole(problem.clone()),
            None if self.clusters.is_empty() => findings.whole(format!(
                "the ConfigMap {CONFIG_MAP} in namespace {} holds no cluster: nobody can report",
                self.namespace
            )),
            None => {}
        }
        findings.into_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{BudgetConfig, HttpConfig},
        registry::{Refusal, Registry},
    };

    fn state(entries: &[(&str, &str)]) -> State {
        let budgets = Budgets::new(&BudgetConfig::default(), &HttpConfig::default());
        let mut state = State::new(budgets, "team");
        state.take(Some(map(entries)));
        state
    }

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        let entry =
            |secret| format!(r#"{{"relaySecretName":"{secret}","outcomeRelayURL":"https://r.example"}}"#);
        entries.iter().map(|(name, secret)| ((*name).to_owned(), entry(secret))).collect()
    }

    fn tokens(token: &str) -> Tokens {
        Tokens::read(str::to_owned, |key| Ok((key == "token").then(|| token.as_bytes().to_vec())))
    }

    fn name(text: &str) -> ClusterName {
        text.parse().unwrap()
    }

    #[test]
    fn without_a_token_a_cluster_that_was_not_read_yet_is_like_one_that_there_is_not() {
        let registry = Registry::new();
        registry.replace(state(&[("a", "s")]).picture());
        for cluster in ["a", "nobody"] {
            assert!(matches!(registry.authenticate(cluster, b""), Err(Refusal::Denied)), "{cluster}");
        }
        // Whose token is not known yet may be right.
        assert!(matches!(registry.authenticate("a", b"some-token"), Err(Refusal::Unavailable(_))));
    }

    #[test]
    fn a_secret_is_read_once_at_a_time_and_not_again_while_it_is_fresh() {
        let mut state = state(&[("a", "s"), ("b", "s")]);
        let Look::Read { secret, end, .. } = state.look(&name("a")) else { panic!("nothing is to be read") };
        assert_eq!(secret, "s");
        assert!(matches!(state.look(&name("a")), Look::Wait(_)));
        assert!(matches!(state.look(&name("b")), Look::Read { .. }), "each cluster by itself");
        assert!(matches!(state.look(&name("c")), Look::Unknown));
        drop(end);
        assert!(matches!(state.look(&name("a")), Look::Known));
        let reading = state.clusters.get_mut(&name("a")).unwrap().reading.as_mut().unwrap();
        reading.since = reading.since.checked_sub(FRESH).unwrap();
        assert!(matches!(state.look(&name("a")), Look::Read { .. }));
    }

    #[test]
    fn what_was_read_of_a_secret_that_is_no_longer_the_clusters_is_dropped() {
        let mut state = state(&[("a", "old")]);
        assert!(state.learn(&name("a"), "old", tokens("0123456789abcdef")));
        assert!(!state.learn(&name("a"), "old", tokens("0123456789abcdef")), "no news");
        state.take(Some(map(&[("a", "new")])));
        assert!(state.clusters[&name("a")].tokens.is_none());
        assert!(!state.learn(&name("a"), "old", tokens("fedcba9876543210")));
        assert!(!state.learn(&name("b"), "old", tokens("fedcba9876543210")));
    }

    #[test]
    fn a_change_of_an_entry_leaves_tokens_and_budget_as_they_are() {
        let mut state = state(&[("a", "s")]);
        state.learn(&name("a"), "s", tokens("0123456789abcdef"));
        let cluster =
            |state: &State| state.clusters[&name("a")].cluster.clone().unwrap_or_else(|e| panic!("{e}"));
        let before = cluster(&state);
        let mut changed = map(&[("a", "s")]);
        let narrower = r#""relaySecretName":"s","appNamespaces":["app-x"]"#;
        changed.insert("a".into(), changed["a"].replace(r#""relaySecretName":"s""#, narrower));
        state.take(Some(changed));
        let after = cluster(&state);
        assert!(before.may_report_for(&"app-y".parse().unwrap()));
        assert!(!after.may_report_for(&"app-y".parse().unwrap()));
        assert!(Arc::ptr_eq(&before.budget, &after.budget) && after.tokens.is_ok());
    }

    #[test]
    fn a_broken_entry_or_name_concerns_itself_alone() {
        let mut entries = map(&[("a", "s")]);
        entries.insert("b".into(), "{".into());
        entries.insert("C_".into(), "{}".into());
        let mut state = state(&[]);
        assert!(state.picture().problem.is_some(), "an empty registry is none");
        state.take(Some(entries));
        let found: Vec<_> = state.findings().into_iter().map(|finding| finding.cluster).collect();
        assert_eq!(found, ["C_", "b"]);
        assert!(state.picture().problem.is_none() && state.picture().clusters[&name("a")].is_ok());
        state.take(None);
        assert!(state.picture().problem.unwrap().contains("the chart's value 'clusters'"));
    }
}
