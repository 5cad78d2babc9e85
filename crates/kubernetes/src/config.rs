//! How the API server is reached.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use transponder_runtime::config::{BadValue, duration};

/// Shortest request timeout that a busy API server keeps.
const SHORTEST: Duration = Duration::from_millis(500);
/// Longest that leaves a Lease holder time to notice.
const LONGEST: Duration = Duration::from_secs(10);

/// The way to the API server. By default that of the pod, or of the user's own kubeconfig outside of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KubernetesConfig {
    /// A kubeconfig file. None: the pod's ServiceAccount, or `KUBECONFIG` and `~/.kube/config` outside of a pod.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. None: its current one.
    pub context: Option<String>,
    /// Namespace of everything that is kept. None: the pod's, or the context's.
    pub namespace: Option<String>,
    /// Longest wait for an answer.
    #[serde(with = "duration")]
    pub request_timeout: Duration,
}

impl Default for KubernetesConfig {
    fn default() -> Self {
        Self { kubeconfig: None, context: None, namespace: None, request_timeout: Duration::from_secs(5) }
    }
}

impl KubernetesConfig {
    /// Checks what is more than a type.
    ///
    /// # Errors
    /// Names the key and what fits.
    pub fn check(&self) -> Result<(), BadValue> {
        if (SHORTEST..=LONGEST).contains(&self.request_timeout) {
            return Ok(());
        }
        let shown = format!("{:#}", jiff::SignedDuration::try_from(self.request_timeout).unwrap_or_default());
        Err(BadValue::new("kubernetes.request_timeout", shown, "must be between 500ms and 10s"))
    }
}
