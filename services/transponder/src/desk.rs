//! Whom an operator's command asks: the running service by its socket, or the Kubernetes API by the operator's own rights.

use std::{path::PathBuf, sync::Arc};

use http::Method;
use serde_json::Value;
use transponder_kubernetes::Access;
use transponder_runtime::operator::{self, Operator, OperatorError};

use crate::config::{Config, StoreKind};

/// Who answers an operator.
pub enum Desk {
    /// The service of this data directory.
    Socket(PathBuf),
    /// This process, from what the API server says.
    Here {
        /// Who answers.
        operator: Arc<dyn Operator>,
        /// The namespace that is looked at.
        namespace: String,
    },
}

impl Desk {
    /// Who answers for the edge.
    ///
    /// # Errors
    /// When there is no way to the API server.
    pub async fn of_edge(config: &Config) -> anyhow::Result<Self> {
        Ok(match config.store.kind {
            StoreKind::Embedded => Self::Socket(config.edge.data_directory.clone()),
            StoreKind::Kubernetes => {
                let access = Access::find(&config.kubernetes).await?;
                Self::here(&access, transponder_edge::kubernetes_operator(&access))
            }
        })
    }

    /// Who answers for release tracking.
    ///
    /// # Errors
    /// When there is no way to the API server, or it does not let the releases be read.
    pub async fn of_release_tracking(config: &Config) -> anyhow::Result<Self> {
        Ok(match config.store.kind {
            StoreKind::Embedded => Self::Socket(config.release_tracking.data_directory.clone()),
            StoreKind::Kubernetes => {
                let access = Access::find(&config.kubernetes).await?;
                Self::here(&access, transponder_release_tracking::kubernetes_operator(&access).await?)
            }
        })
    }

    fn here(access: &Access, operator: impl Operator + 'static) -> Self {
        Self::Here { operator: Arc::new(operator), namespace: access.namespace().to_owned() }
    }

    /// Where it was looked, as the end of a sentence that says that nothing was found.
    #[must_use]
    pub fn place(&self) -> String {
        match self {
            Self::Socket(_) => String::new(),
            Self::Here { namespace, .. } => format!(" in namespace {namespace}"),
        }
    }

    /// What is done with what is to be replayed: the edge does it at once, or when it hears of the annotation.
    #[must_use]
    pub fn replayed(&self) -> &'static str {
        match self {
            Self::Socket(_) => "taken up again",
            Self::Here { .. } => "asked to be taken up again",
        }
    }

    /// Asks; `target` is path and query.
    ///
    /// # Errors
    /// When nobody answers, or refuses.
    pub async fn ask(&self, method: Method, target: &str) -> Result<Value, OperatorError> {
        match self {
            Self::Socket(directory) => operator::ask(directory, method, target).await,
            Self::Here { operator, .. } => operator::ask_here(operator.as_ref(), method, target).await,
        }
    }
}
