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

use super::{
    Cluster, Entry, Finding, Picture, Registry,
    check::{self, Findings, Tokens},
};
use crate::budget::Budgets;

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
        match self.read() {
            Ok((picture, findings)) => {
                registry.replace(picture);
                findings
            }
            Err(problem) => {
                if registry.is_empty() {
                    registry.replace(Picture::none(problem.clone()));
                }
                vec![Finding::of("", problem, true)]
            }
        }
    }

    fn read(&self) -> Result<(Picture, Vec<Finding>), String> {
        let entries = self.path.join("cluster-registry");
        let at = |error: io::Error| format!("{}: {error}", entries.display());
        let (mut clusters, mut findings) = (HashMap::new(), Findings::default());
        for file in fs::read_dir(&entries).map_err(at)? {
            let file = file.map_err(at)?;
            let name = file.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') {
                continue;
            }
            match ClusterName::new(&name) {
                Err(error) => findings.name(&name, &error),
                Ok(name) => {
                    let cluster = self.cluster(&name, &file.path(), &mut findings);
                    if let Err(problem) = &cluster {
                        findings.broken(&name, problem);
                    }
                    clusters.insert(name, cluster);
                }
            }
        }
        if clusters.is_empty() {
            findings.whole(format!("{} holds no cluster: nobody can report", entries.display()));
        }
        Ok((Picture::of(clusters), findings.into_vec()))
    }

    fn cluster(
        &self,
        name: &ClusterName,
        file: &Path,
        findings: &mut Findings,
    ) -> Result<Arc<Cluster>, String> {
        let entry = read_entry(file)?;
        let tokens = read_tokens(&self.path.join("secrets").join(&entry.relay_secret_name));
        findings.tokens(name, &tokens);
        Cluster::new(name.clone(), &entry, tokens.digests, self.budgets.of(name)).map(Arc::new)
    }
}

fn read_entry(path: &Path) -> Result<Entry, String> {
    let at = |problem: String| format!("{}: {problem}", path.display());
    check::entry(&fs::read(path).map_err(|e| at(e.to_string()))?).map_err(at)
}

fn read_tokens(secret: &Path) -> Tokens {
    let at = |key: &str| secret.join(key).display().to_string();
    Tokens::read(at, |key| match fs::read(secret.join(key)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", at(key))),
    })
}
