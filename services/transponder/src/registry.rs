//! The operator's hand on the registry directory: one file per cluster, one directory per Secret.
//!
//! The edge reads the same files and applies a change within seconds. A Secret is written before the entry that names
//! it and removed after it, so the edge never sees an entry without one.

pub mod kubernetes;

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow, bail, ensure};
use serde::Serialize;
use transponder_core::ClusterName;
pub use transponder_edge::registry::Entry;

use crate::{
    files::{make_directory, read, write_private},
    secret::random_token,
};

/// Directory of the entries, in the registry.
const ENTRIES: &str = "cluster-registry";
/// Directory of the Secrets, in the registry.
const SECRETS: &str = "secrets";
/// The token in force.
pub(crate) const TOKEN: &str = "token";
/// The token before, during a rotation.
pub(crate) const PREVIOUS: &str = "token-previous";

/// A registry directory.
#[derive(Debug, Clone)]
pub struct Registry {
    root: PathBuf,
}

/// What lies in a cluster's Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenState {
    /// One token.
    Present,
    /// Two tokens: a rotation is under way.
    Rotating,
    /// No token: the cluster is refused.
    Missing,
}

impl Registry {
    /// The registry in a directory, which need not exist yet.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Where it lies.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The file of a cluster.
    #[must_use]
    pub fn entry_path(&self, cluster: &ClusterName) -> PathBuf {
        self.root.join(ENTRIES).join(cluster.as_str())
    }

    /// The file of a Secret's token.
    #[must_use]
    pub fn token_path(&self, secret: &str) -> PathBuf {
        self.root.join(SECRETS).join(secret).join(TOKEN)
    }

    /// The file of a Secret's previous token.
    #[must_use]
    pub fn previous_token_path(&self, secret: &str) -> PathBuf {
        self.root.join(SECRETS).join(secret).join(PREVIOUS)
    }

    /// The names of all entries, readable or not, sorted.
    ///
    /// # Errors
    /// When the directory is there and cannot be listed.
    pub fn names(&self) -> anyhow::Result<Vec<String>> {
        let directory = self.root.join(ENTRIES);
        let failed = || format!("listing {}", directory.display());
        let listing = match fs::read_dir(&directory) {
            // None yet in a registry that is there is none; without a registry nothing is known.
            Err(error) if error.kind() == ErrorKind::NotFound && self.root.is_dir() => return Ok(Vec::new()),
            other => other.with_context(failed)?,
        };
        let mut names = Vec::new();
        for file in listing {
            let name = file.with_context(failed)?.file_name().to_string_lossy().into_owned();
            if !name.starts_with('.') {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// The entry of a cluster.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn entry(&self, cluster: &ClusterName) -> anyhow::Result<Entry> {
        let path = self.entry_path(cluster);
        ensure!(path.exists(), "there is no cluster {cluster} in the registry {}", self.root.display());
        serde_json::from_str(&read(&path)?).with_context(|| path.display().to_string())
    }

    /// The token of a Secret.
    ///
    /// # Errors
    /// When there is none.
    pub fn token(&self, secret: &str) -> anyhow::Result<String> {
        check_secret(secret)?;
        Ok(read(&self.token_path(secret))?.trim().to_owned())
    }

    /// What lies in a Secret.
    #[must_use]
    pub fn token_state(&self, secret: &str) -> TokenState {
        match (self.token_path(secret).exists(), self.previous_token_path(secret).exists()) {
            (false, _) => TokenState::Missing,
            (true, false) => TokenState::Present,
            (true, true) => TokenState::Rotating,
        }
    }

    /// Adds a cluster and answers its new token.
    ///
    /// # Errors
    /// When it is there already, or a file cannot be written.
    pub fn add(&self, cluster: &ClusterName, entry: &Entry) -> anyhow::Result<String> {
        let path = self.entry_path(cluster);
        ensure!(
            !path.exists(),
            "cluster {cluster} is in the registry already: {}; 'cluster rotate' gives it a new token",
            path.display()
        );
        check_secret(&entry.relay_secret_name)?;
        let token = random_token()?;
        make_directory(&self.root.join(SECRETS).join(&entry.relay_secret_name))?;
        make_directory(&self.root.join(ENTRIES))?;
        write_private(&self.token_path(&entry.relay_secret_name), token.as_bytes())?;
        write_private(&path, &serde_json::to_vec_pretty(entry)?)?;
        Ok(token)
    }

    /// Replaces what the registry says of a cluster; its token stays.
    ///
    /// # Errors
    /// When there is no such cluster, or the file cannot be written.
    pub fn update(&self, cluster: &ClusterName, entry: &Entry) -> anyhow::Result<()> {
        self.entry(cluster)?;
        check_secret(&entry.relay_secret_name)?;
        write_private(&self.entry_path(cluster), &serde_json::to_vec_pretty(entry)?)
    }

    /// Gives a cluster a new token; the one before works until [`Registry::finish_rotation`].
    ///
    /// # Errors
    /// When there is no such cluster, or a rotation is under way.
    pub fn rotate(&self, cluster: &ClusterName) -> anyhow::Result<String> {
        let secret = self.entry(cluster)?.relay_secret_name;
        let previous = self.previous_token_path(&secret);
        if previous.exists() {
            bail!(
                "a rotation of {cluster} is under way ({} exists); end it with 'cluster rotate {cluster} --finish'",
                previous.display()
            );
        }
        let old = self.token(&secret);
        let token = random_token()?;
        match old {
            Ok(old) => write_private(&previous, old.as_bytes())?,
            // Nothing to keep: the cluster was refused so far.
            Err(_) => make_directory(&self.root.join(SECRETS).join(&secret))?,
        }
        write_private(&self.token_path(&secret), token.as_bytes())?;
        Ok(token)
    }

    /// Takes the previous token out of force.
    ///
    /// # Errors
    /// When there is none.
    pub fn finish_rotation(&self, cluster: &ClusterName) -> anyhow::Result<()> {
        let previous = self.previous_token_path(&self.entry(cluster)?.relay_secret_name);
        fs::remove_file(&previous).map_err(|error| match error.kind() {
            ErrorKind::NotFound => anyhow!("no rotation of {cluster} is under way"),
            _ => anyhow!("removing {}: {error}", previous.display()),
        })
    }

    /// Removes a cluster and its Secret, unless another cluster names the same one. Answers how many clusters are left.
    ///
    /// # Errors
    /// When there is no such cluster, or a file cannot be removed.
    pub fn remove(&self, cluster: &ClusterName) -> anyhow::Result<usize> {
        let path = self.entry_path(cluster);
        ensure!(path.exists(), "there is no cluster {cluster} in the registry {}", self.root.display());
        // An entry that cannot be read does not name its Secret; what 'cluster add' made has this name.
        let secret = self.entry(cluster).map(|entry| entry.relay_secret_name);
        let secret = secret.unwrap_or_else(|_| format!("cluster-{cluster}-relay-token"));
        fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        let left = self.names()?;
        let shared = left.iter().any(|other| {
            let other = ClusterName::new(other).ok().and_then(|name| self.entry(&name).ok());
            other.is_some_and(|entry| entry.relay_secret_name == secret)
        });
        let directory = self.root.join(SECRETS).join(&secret);
        if !shared && check_secret(&secret).is_ok() && directory.exists() {
            fs::remove_dir_all(&directory).with_context(|| format!("removing {}", directory.display()))?;
        }
        Ok(left.len())
    }
}

/// A Secret's name becomes a path: it must be one of Kubernetes' own (RFC 1123 subdomain), which no `..` is.
fn check_secret(name: &str) -> anyhow::Result<()> {
    let label = |part: &str| ClusterName::new(part).is_ok();
    ensure!(name.split('.').all(label), "'{name}' is no name of a Secret");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

    use super::*;

    fn entry(cluster: &str) -> Entry {
        Entry {
            relay_secret_name: format!("cluster-{cluster}-relay-token"),
            outcome_relay_url: format!("https://relay.example/outcome/{cluster}"),
            relay_host_alias_ip: None,
            relay_ca: None,
            forward_types: None,
            app_namespaces: None,
        }
    }

    fn name(text: &str) -> ClusterName {
        ClusterName::new(text).unwrap()
    }

    #[test]
    fn a_cluster_is_added_with_a_private_token_of_256_bits() {
        let root = tempfile::tempdir().unwrap();
        let registry = Registry::new(root.path());
        let token = registry.add(&name("kind-prod"), &entry("kind-prod")).unwrap();
        assert_eq!(URL_SAFE_NO_PAD.decode(&token).unwrap().len(), 32);
        let path = root.path().join("secrets/cluster-kind-prod-relay-token/token");
        assert_eq!(read(&path).unwrap(), token);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let again = registry.add(&name("kind-prod"), &entry("kind-prod")).unwrap_err();
        assert!(again.to_string().contains("is in the registry already"), "{again}");
        assert_eq!(registry.token("cluster-kind-prod-relay-token").unwrap(), token);
    }

    #[test]
    fn a_rotation_keeps_the_previous_token_until_it_is_finished() {
        let root = tempfile::tempdir().unwrap();
        let registry = Registry::new(root.path());
        let old = registry.add(&name("c"), &entry("c")).unwrap();
        let secret = "cluster-c-relay-token";
        assert!(registry.finish_rotation(&name("c")).is_err());
        let new = registry.rotate(&name("c")).unwrap();
        assert_ne!(old, new);
        assert_eq!(read(&registry.previous_token_path(secret)).unwrap(), old);
        assert_eq!(registry.token_state(secret), TokenState::Rotating);
        let twice = registry.rotate(&name("c")).unwrap_err();
        assert!(twice.to_string().contains("--finish"), "{twice}");
        registry.finish_rotation(&name("c")).unwrap();
        assert_eq!(registry.token_state(secret), TokenState::Present);
        assert_eq!(registry.token(secret).unwrap(), new);
    }

    #[test]
    fn a_removed_cluster_takes_its_secret_along_but_not_a_shared_one() {
        let root = tempfile::tempdir().unwrap();
        let registry = Registry::new(root.path());
        registry.add(&name("a"), &entry("a")).unwrap();
        registry.add(&name("b"), &entry("a")).unwrap();
        assert_eq!(registry.remove(&name("a")).unwrap(), 1);
        assert!(registry.token("cluster-a-relay-token").is_ok());
        assert_eq!(registry.remove(&name("b")).unwrap(), 0);
        assert!(registry.token("cluster-a-relay-token").is_err());
        assert!(registry.remove(&name("b")).is_err());
        assert_eq!(registry.names().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn the_name_of_a_secret_cannot_lead_out_of_the_registry() {
        let root = tempfile::tempdir().unwrap();
        let registry = Registry::new(root.path());
        for bad in ["../x", "", "a/b", ".hidden", "a..b"] {
            let entry = Entry { relay_secret_name: bad.into(), ..entry("c") };
            assert!(registry.add(&name("c"), &entry).is_err(), "{bad}");
        }
    }
}
