//! Services with their accounts and Roles, on a control plane.

use std::{fs, path::Path, time::Duration};

use transponder_tests::{Apart, Broker, Mesh, kubernetes::ApiServer};

pub(crate) const HOUR: Duration = Duration::from_secs(60 * 60);
/// Where the services run.
pub(crate) const NAMESPACE: &str = "team";

/// Applies a file of `deploy/kubernetes/rbac`, in the services' namespace.
pub(crate) async fn apply(server: &ApiServer, file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes/rbac").join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    here(server, &text.replace("platform-system", NAMESPACE)).await;
}

/// The definitions, and the account of the edge with what it needs for its outbox.
pub(crate) async fn edge(server: &ApiServer) {
    apply(server, "../crds.yaml").await;
    apply(server, "edge.yaml").await;
}

/// Applies manifests that name no namespace, in the services' namespace.
pub(crate) async fn here(server: &ApiServer, manifests: &str) {
    server.apply(&format!("{{ apiVersion: v1, kind: Namespace, metadata: {{ name: {NAMESPACE} }} }}")).await;
    server.apply_in(NAMESPACE, manifests).await;
}

/// An installation that stands on the control plane, as the bearer of an account's token. Nothing runs yet.
pub(crate) async fn part(server: &ApiServer, account: &str, settings: &[(&str, &str)]) -> Apart {
    let token = server.service_account_token(NAMESPACE, account, None, HOUR).await;
    let kubeconfig = server.kubeconfig_for(&token);
    // Nothing is forwarded here.
    let broker = Broker::start().await;
    let mut mesh = Mesh::new(&broker).await;
    mesh.set("store.kind", "kubernetes");
    mesh.set("kubernetes.kubeconfig", kubeconfig.to_str().unwrap());
    mesh.set("kubernetes.namespace", NAMESPACE);
    for (key, value) in settings {
        mesh.set(key, value);
    }
    Apart::new(mesh)
}
