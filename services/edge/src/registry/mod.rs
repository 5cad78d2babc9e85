//! The cluster registry: who may report, with which token, and what.
//!
//! One immutable picture at a time, replaced as a whole; a broken entry concerns its cluster alone. On Kubernetes a
//! cluster's Secret is read when it reports, before the picture is looked at.

mod check;
mod decoy;
mod directory;
mod kubernetes;
mod report;

use std::{collections::HashMap, sync::Arc};

use arc_swap::ArcSwap;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::sync::watch;
use transponder_core::{AppNamespace, ClusterName};

pub use check::Finding;
pub(crate) use directory::Directory;
pub(crate) use kubernetes::Kubernetes;
pub(crate) use report::Report;

use crate::budget::Budget;

/// The types that a cluster may send when its entry does not say.
const DEFAULT_TYPES: [&str; 2] =
    ["dev.cdevents.environment.deployed.0.1.0", "dev.cdevents.environment.deploying.0.1.0"];

/// A cluster's entry, as it stands under its name in the registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    /// Secret that holds `token` and, during a rotation, `token-previous`.
    pub relay_secret_name: String,
    /// What the cluster's hooks call.
    #[serde(rename = "outcomeRelayURL")]
    pub outcome_relay_url: String,
    /// Address under which the cluster finds the host of the URL, if DNS does not tell.
    #[serde(rename = "relayHostAliasIP", default, skip_serializing_if = "Option::is_none")]
    pub relay_host_alias_ip: Option<String>,
    /// CA certificate of the edge, in PEM, for the upper cluster.
    #[serde(rename = "relayCA", default, skip_serializing_if = "Option::is_none")]
    pub relay_ca: Option<String>,
    /// Globs of the event types that it may send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_types: Option<Vec<String>>,
    /// Globs of the app namespaces that it may report for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_namespaces: Option<Vec<String>>,
}

impl Entry {
    /// Checks what is more than JSON: the globs, and the name of the Secret.
    ///
    /// # Errors
    /// Names the key and what is wrong with its value.
    pub fn check(&self) -> Result<(), String> {
        let secret = &self.relay_secret_name;
        if secret.is_empty() || secret.starts_with('.') || secret.contains('/') {
            return Err("relaySecretName is not the name of a Secret".into());
        }
        for (key, patterns) in
            [("forwardTypes", &self.forward_types), ("appNamespaces", &self.app_namespaces)]
        {
            globs(key, patterns.as_deref().unwrap_or_default())?;
        }
        Ok(())
    }
}

/// SHA-256 of a relay token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// Digests a token.
    #[must_use]
    pub fn of(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }

    fn matches(&self, other: &Self) -> subtle::Choice {
        self.0.ct_eq(&other.0)
    }
}

/// A registered cluster.
#[derive(Clone)]
pub struct Cluster {
    /// Its name.
    pub name: ClusterName,
    types: GlobSet,
    app_namespaces: Option<GlobSet>,
    /// Its current token and, during a rotation, the previous one; or why there is none.
    tokens: Result<[TokenDigest; 2], String>,
    /// What it may spend. Kept when the registry is replaced.
    pub(crate) budget: Arc<Budget>,
}

impl Cluster {
    fn new(
        name: ClusterName,
        entry: &Entry,
        tokens: Result<[TokenDigest; 2], String>,
        budget: Arc<Budget>,
    ) -> Result<Self, String> {
        let types = match &entry.forward_types {
            Some(types) => globs("forwardTypes", types)?,
            None => globs("forwardTypes", &DEFAULT_TYPES)?,
        };
        let app_namespaces =
            entry.app_namespaces.as_ref().map(|all| globs("appNamespaces", all)).transpose()?;
        Ok(Self { name, types, app_namespaces, tokens, budget })
    }

    /// The same with other tokens.
    fn with_tokens(&self, tokens: Result<[TokenDigest; 2], String>) -> Self {
        Self { tokens, ..self.clone() }
    }

    /// Whether the cluster may send events of this type.
    #[must_use]
    pub fn may_send(&self, kind: &str) -> bool {
        self.types.is_match(kind)
    }

    /// Whether the cluster may report for this app namespace.
    #[must_use]
    pub fn may_report_for(&self, namespace: &AppNamespace) -> bool {
        self.app_namespaces.as_ref().is_none_or(|globs| globs.is_match(namespace.as_str()))
    }
}

fn globs<S: AsRef<str>>(key: &str, patterns: &[S]) -> Result<GlobSet, String> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let glob = GlobBuilder::new(pattern.as_ref()).build().map_err(|e| format!("{key}: {e}"))?;
        set.add(glob);
    }
    set.build().map_err(|e| format!("{key}: {e}"))
}

/// Why a token is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It is not this cluster's token, or there is no such cluster: one answer for both.
    Denied,
    /// We cannot tell; never answered as a wrong token.
    Unavailable(String),
}

/// All clusters, at one moment.
#[derive(Default)]
pub struct Picture {
    clusters: HashMap<ClusterName, Result<Arc<Cluster>, String>>,
    /// Why there is no registry at all, if so.
    problem: Option<String>,
}

impl Picture {
    /// There is no registry.
    fn none(problem: String) -> Self {
        Self { clusters: HashMap::new(), problem: Some(problem) }
    }

    /// What is known of these clusters. Without any, it is likelier that something is amiss than that all were removed:
    /// nobody is refused then.
    fn of(clusters: HashMap<ClusterName, Result<Arc<Cluster>, String>>) -> Self {
        let problem = clusters.is_empty().then(|| "the cluster registry is empty".to_owned());
        Self { clusters, problem }
    }
}

/// The registry. Reading it takes no lock.
pub struct Registry {
    picture: ArcSwap<Picture>,
    /// Why it may be out of date, if so. Who is known in it stays known; but nobody is refused for what may have changed.
    doubt: watch::Sender<Option<String>>,
}

impl Registry {
    /// A registry that has not been read yet.
    #[must_use]
    pub fn new() -> Self {
        let picture = Picture::none("the registry has not been read yet".into());
        Self { picture: ArcSwap::from_pointee(picture), doubt: watch::Sender::new(None) }
    }

    /// Why there is no registry, if there is none.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        self.picture.load().problem.clone()
    }

    /// Number of clusters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.picture.load().clusters.len()
    }

    /// Whether there is no cluster.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn replace(&self, picture: Picture) {
        self.picture.store(Arc::new(picture));
    }

    /// It may be out of date from now on.
    fn doubt(&self, why: String) {
        self.doubt.send_if_modified(|doubt| doubt.replace(why).is_none());
    }

    /// It is up to date again.
    fn trust(&self) {
        self.doubt.send_if_modified(|doubt| doubt.take().is_some());
    }

    /// The cluster of this name, if the token is its token. Does the same work whether the cluster exists or not.
    ///
    /// # Errors
    /// Denied, or unavailable when it is we who cannot tell.
    pub fn authenticate(&self, name: &str, token: &[u8]) -> Result<Arc<Cluster>, Refusal> {
        let nobody = [TokenDigest([0; 32]); 2];
        let digest = TokenDigest::of(token);
        let picture = self.picture.load();
        if let Some(problem) = &picture.problem {
            return Err(Refusal::Unavailable(problem.clone()));
        }
        // Whatever has changed or was not read yet, none is no token.
        if token.is_empty() {
            return Err(Refusal::Denied);
        }
        let entry = ClusterName::new(name).ok().and_then(|name| picture.clusters.get(&name));
        let tokens = match entry {
            Some(Err(problem)) => return Err(Refusal::Unavailable(problem.clone())),
            Some(Ok(cluster)) => match &cluster.tokens {
                Ok(tokens) => tokens,
                Err(problem) => return Err(Refusal::Unavailable(problem.clone())),
            },
            None => &nobody,
        };
        let known = tokens[0].matches(&digest) | tokens[1].matches(&digest);
        match entry {
            Some(Ok(cluster)) if bool::from(known) => Ok(cluster.clone()),
            _ => Err(self.doubt.borrow().clone().map_or(Refusal::Denied, Refusal::Unavailable)),
        }
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}
