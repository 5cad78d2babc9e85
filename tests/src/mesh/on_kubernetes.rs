//! A mesh that keeps everything in an API server instead of its directory.

use std::time::Duration;

use serde_json::json;

use super::Mesh;
use crate::{NAMESPACE, fleet, kubernetes::ApiServer};

/// The ServiceAccount of a process that runs all services.
const ACCOUNT: &str = "transponder-all";

impl Mesh {
    /// Whether it keeps everything in an API server.
    #[must_use]
    pub fn on_kubernetes(&self) -> bool {
        self.server.is_some()
    }

    /// Lets it keep everything in an API server of its own, as one process with the rights of all services together.
    pub(super) async fn stand_on_kubernetes(&mut self) {
        let server = ApiServer::start().await;
        fleet::prepare(&server).await;
        fleet::define(&server).await;
        server.apply(&whole_account()).await;
        let token = server.service_account_token(NAMESPACE, ACCOUNT, None, Duration::from_hours(2)).await;
        self.set("store.kind", "kubernetes");
        self.set("kubernetes.namespace", NAMESPACE);
        self.set("kubernetes.kubeconfig", &server.kubeconfig_for(&token).display().to_string());
        self.server = Some(server);
    }
}

/// That account, bound to the role of each service.
fn whole_account() -> String {
    let subject = json!([{ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE }]);
    let bound = |kind: &str, role: &str, role_kind: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
            "metadata": { "name": format!("all-{role}"), "namespace": NAMESPACE },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role },
            "subjects": subject,
        })
    };
    let mut items: Vec<_> = ["edge", "edge-registry", "dora-recorder", "release-tracking"]
        .iter()
        .map(|service| bound("RoleBinding", &format!("transponder-{service}"), "Role"))
        .collect();
    let mut review = bound("ClusterRoleBinding", "transponder-token-review", "ClusterRole");
    review["metadata"] = json!({ "name": "all-transponder-token-review" });
    items.push(review);
    items.push(json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": ACCOUNT, "namespace": NAMESPACE },
    }));
    json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string()
}
