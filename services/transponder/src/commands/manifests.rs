//! `manifests`: what a cluster needs before Transponder can stand on its Kubernetes API.

use std::process::ExitCode;

use anyhow::Context as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::{cli::Globals, config, output::print};

/// The namespace that the permissions are written for, unless another one is asked for or configured.
const NAMESPACE: &str = "platform-system";

/// Arguments of `manifests`.
#[derive(Debug, clap::Args)]
pub struct ManifestsArgs {
    /// Which ones.
    #[command(subcommand)]
    pub which: Which,
}

/// The manifests.
#[derive(Debug, clap::Subcommand)]
pub enum Which {
    /// The definitions of the custom resources.
    Crds,
    /// The ServiceAccounts, and what each may do: to be applied in the namespace of Transponder.
    Rbac {
        /// That namespace, which the binding of the one role of the whole cluster names; kubernetes.namespace or
        /// platform-system otherwise.
        #[arg(long)]
        namespace: Option<String>,
    },
    /// What the DoraRecorder may do with the Applications of this cluster's own Argo CD: to be applied in their
    /// namespace, where `dora.local_cluster` is set.
    Applications {
        /// The namespace of Transponder, in which the ServiceAccount is; kubernetes.namespace or platform-system otherwise.
        #[arg(long)]
        namespace: Option<String>,
    },
}

/// Prints manifests, to be piped into `kubectl apply -f -`.
///
/// # Errors
/// When they cannot be written as YAML, or the configuration cannot be read that may name the namespace.
pub fn run(globals: &Globals, args: &ManifestsArgs) -> anyhow::Result<ExitCode> {
    let of = |namespace: &Option<String>| -> anyhow::Result<String> {
        let named = match namespace {
            Some(namespace) => Some(namespace.clone()),
            None => config::load(globals)?.0.kubernetes.namespace,
        };
        Ok(named.unwrap_or_else(|| NAMESPACE.to_owned()))
    };
    let text = match &args.which {
        Which::Crds => crds()?,
        Which::Rbac { namespace } => rbac(&of(namespace)?),
        Which::Applications { namespace } => APPLICATIONS.replace(NAMESPACE, &of(namespace)?),
    };
    print(&text);
    Ok(ExitCode::SUCCESS)
}

/// What each service may do, as the files in `deploy/kubernetes/rbac` say. Without the Role that names the clusters' Secrets
/// (`edge-registry.yaml`): that belongs to whoever registers them, and to apply it anew would cut off all but its example.
const RBAC: &[&str] = &[
    include_str!("../../../../deploy/kubernetes/rbac/edge.yaml"),
    include_str!("../../../../deploy/kubernetes/rbac/forwarder.yaml"),
    include_str!("../../../../deploy/kubernetes/rbac/dora-recorder.yaml"),
    include_str!("../../../../deploy/kubernetes/rbac/release-tracking.yaml"),
    include_str!("../../../../deploy/kubernetes/rbac/outcome-span.yaml"),
    include_str!("../../../../deploy/kubernetes/rbac/token-review.yaml"),
];

/// The ServiceAccounts and what each may do in a namespace, as one stream of YAML documents.
#[must_use]
pub fn rbac(namespace: &str) -> String {
    RBAC.join("---\n").replace(NAMESPACE, namespace)
}

/// The definitions of all custom resources.
#[must_use]
pub fn definitions() -> [CustomResourceDefinition; 3] {
    [transponder_edge::crd(), transponder_dora_recorder::crd(), transponder_release_tracking::crd()]
}
/// Apart from the others: it is for another namespace, and not needed everywhere.
const APPLICATIONS: &str = include_str!("../../../../deploy/kubernetes/rbac/dora-recorder-applications.yaml");

/// All definitions, as one stream of YAML documents.
///
/// # Errors
/// When one cannot be written as YAML.
pub fn crds() -> anyhow::Result<String> {
    let documents = definitions()
        .iter()
        .map(|crd| serde_saphyr::to_string(crd).context("a definition cannot be written"))
        .collect::<anyhow::Result<Vec<_>>>()?;
    Ok(documents.join("---\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_definitions_is_what_is_printed() {
        let file = include_str!("../../../../deploy/kubernetes/crds.yaml");
        assert!(file == crds().unwrap(), "deploy/kubernetes/crds.yaml differs: run `cargo xtask crd`");
    }
}
