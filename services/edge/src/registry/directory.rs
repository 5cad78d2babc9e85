//! The registry off Kubernetes: a directory of the same shape as the ConfigMap and the Secrets.
//!
//! `cluster-registry/<cluster>` holds the entry as JSON, `secrets/<relaySecretName>/token` the token, and
//! `token-previous` beside it the one before, during a rotation. Names that begin with a dot are ignored.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use transponder_core::ClusterName;

use super::{Cluster, Entry, Picture, Registry, TokenDigest};
use crate::budget::Budgets;

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

/// One cluster as it lies on disk.
pub struct Read {
    /// The cluster.
    pub name: ClusterName,
    /// Its entry, or why it cannot be read.
    pub entry: Result<Entry, String>,
    /// Digests of its current and previous token, or why there is none.
    tokens: Result<[TokenDigest; 2], String>,
}

/// The directory.
#[derive(Debug, Clone)]
pub(crate) struct Directory {
    path: PathBuf,
    budgets: Budgets,
}

impl Directory {
    /// A registry that lies in this directory.
    #[must_use]
    pub(crate) fn new(path: &Path, budgets: Budgets) -> Self {
        Self { path: path.to_owned(), budgets }
    }

    /// The directory.
    #[must_use]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads all of it into the registry. A directory that cannot be read leaves the last good picture, unless there
    /// was none; an entry or token that cannot be read concerns its cluster alone.
    pub(crate) fn load_into(&self, registry: &Registry) -> Vec<Finding> {
        let (clusters, mut findings) = match read(&self.path) {
            Ok(read) => read,
            Err(problem) => {
                if registry.is_empty() {
                    registry.replace(Picture { clusters: HashMap::new(), problem: Some(problem.clone()) });
                }
                return vec![Finding { cluster: String::new(), problem, fatal: true }];
            }
        };
        let problem = clusters.is_empty().then(|| "the cluster registry is empty".to_owned());
        let mut known = HashMap::with_capacity(clusters.len());
        for Read { name, entry, tokens } in clusters {
            let budget = registry.budget(&name).unwrap_or_else(|| self.budgets.of(&name));
            let cluster =
                entry.and_then(|entry| Cluster::new(name.clone(), &entry, tokens, budget)).map(Arc::new);
            if let Err(problem) = &cluster {
                let finding = Finding { cluster: name.to_string(), problem: problem.clone(), fatal: true };
                if !findings.contains(&finding) {
                    findings.push(finding);
                }
            }
            known.insert(name, cluster);
        }
        registry.replace(Picture { clusters: known, problem });
        findings
    }
}

/// Reads a registry directory, with what is to be said about it.
///
/// # Errors
/// When there is no such directory or it cannot be listed.
pub fn read(path: &Path) -> Result<(Vec<Read>, Vec<Finding>), String> {
    let entries = path.join("cluster-registry");
    let listed = fs::read_dir(&entries).map_err(|e| format!("{}: {e}", entries.display()))?;
    let (mut clusters, mut findings) = (Vec::new(), Vec::new());
    let mut owners: HashMap<TokenDigest, ClusterName> = HashMap::new();
    for file in listed {
        let file = file.map_err(|e| format!("{}: {e}", entries.display()))?;
        let name = file.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        let name = match ClusterName::new(&name) {
            Ok(name) => name,
            Err(error) => {
                findings.push(Finding { cluster: name, problem: format!("the name {error}"), fatal: true });
                continue;
            }
        };
        let entry = read_entry(&file.path());
        let (tokens, remarks) = match &entry {
            Ok(entry) => read_tokens(&path.join("secrets").join(&entry.relay_secret_name)),
            Err(problem) => (Err(problem.clone()), Vec::new()),
        };
        let mut say =
            |problem: String, fatal| findings.push(Finding { cluster: name.to_string(), problem, fatal });
        match &tokens {
            Err(problem) => say(problem.clone(), true),
            Ok(digests) => {
                if let Some(other) = owners.insert(digests[0], name.clone()) {
                    say(format!("shares its token with {other}: either can report as the other"), false);
                }
            }
        }
        remarks.into_iter().for_each(|remark| say(remark, false));
        clusters.push(Read { name, entry, tokens });
    }
    if clusters.is_empty() {
        let problem = format!("{} holds no cluster: nobody can report", entries.display());
        findings.push(Finding { cluster: String::new(), problem, fatal: true });
    }
    Ok((clusters, findings))
}

fn read_entry(path: &Path) -> Result<Entry, String> {
    let at = |problem: String| format!("{}: {problem}", path.display());
    let text = fs::read(path).map_err(|e| at(e.to_string()))?;
    let entry: Entry = serde_json::from_slice(&text).map_err(|e| at(e.to_string()))?;
    entry.check().map_err(at)?;
    Ok(entry)
}

/// The digests of a Secret's tokens, the previous one the same as the current where there is none; and remarks.
fn read_tokens(secret: &Path) -> (Result<[TokenDigest; 2], String>, Vec<String>) {
    let mut remarks = Vec::new();
    let token = |key: &str, remarks: &mut Vec<String>| -> Result<Option<TokenDigest>, String> {
        let path = secret.join(key);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let token = bytes.trim_ascii();
        if token.is_empty() {
            return Err(format!("{} is empty", path.display()));
        }
        if token.iter().any(u8::is_ascii_control) {
            return Err(format!("{} has control characters inside", path.display()));
        }
        if token.len() < GOOD_TOKEN {
            remarks.push(format!("{} has fewer than {GOOD_TOKEN} bytes: it can be guessed", path.display()));
        }
        Ok(Some(TokenDigest::of(token)))
    };
    let current = match token("token", &mut remarks) {
        Ok(Some(current)) => current,
        Ok(None) => return (Err(format!("{} is missing", secret.join("token").display())), remarks),
        Err(problem) => return (Err(problem), remarks),
    };
    // A broken previous token does not take the current one away.
    let previous = token("token-previous", &mut remarks).unwrap_or_else(|problem| {
        remarks.push(problem);
        None
    });
    let tokens = Ok([current, previous.unwrap_or(current)]);
    (tokens, remarks)
}
