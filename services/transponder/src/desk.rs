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
    Here(Arc<dyn Operator>),
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
                Self::Here(Arc::new(transponder_edge::kubernetes_operator(&access)))
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
                Self::Here(Arc::new(transponder_release_tracking::kubernetes_operator(&access).await?))
            }
        })
    }

    /// Asks; `target` is path and query.
    ///
    /// # Errors
    /// When nobody answers, or refuses.
    pub async fn ask(&self, method: Method, target: &str) -> Result<Value, OperatorError> {
        match self {
            Self::Socket(directory) => operator::ask(directory, method, target).await,
            Self::Here(operator) => operator::ask_here(operator.as_ref(), method, target).await,
        }
    }
}
