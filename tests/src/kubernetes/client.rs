//! What a test asks of the API server.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use super::{
    ApiServer, AuditEvent, audit,
    kubeconfig::{self, Credential},
};
use crate::{Ran, Run};

impl ApiServer {
    /// Runs kubectl as a member of `system:masters`, who may do everything.
    pub async fn kubectl(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Ran {
        self.kubectl_as(&self.admin_kubeconfig(), arguments).await
    }

    /// Runs kubectl as whoever a kubeconfig says.
    pub async fn kubectl_as(
        &self,
        kubeconfig: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Ran {
        self.run(kubeconfig).args(arguments).run().await
    }

    /// Applies manifests, YAML or JSON, as the administrator.
    ///
    /// # Panics
    ///
    /// When they are refused.
    pub async fn apply(&self, manifests: &str) {
        self.run(&self.admin_kubeconfig()).args(["apply", "-f", "-"]).stdin(manifests).run().await.success();
    }

    /// The same with manifests that name no namespace.
    ///
    /// # Panics
    ///
    /// When they are refused.
    pub async fn apply_in(&self, namespace: &str, manifests: &str) {
        let apply = self.run(&self.admin_kubeconfig()).args(["apply", "-n", namespace, "-f", "-"]);
        apply.stdin(manifests).run().await.success();
    }

    /// Applies a definition of the product's, and waits until the resource is served.
    ///
    /// # Panics
    ///
    /// When it is refused.
    pub async fn define(&self, definition: &CustomResourceDefinition) {
        self.apply(&serde_json::to_string(definition).expect("a definition")).await;
        let name = format!("crd/{}", definition.metadata.name.as_deref().expect("a name"));
        let wait = ["wait", "--for=condition=Established", &name, "--timeout=20s"];
        self.kubectl(wait).await.success();
    }

    /// Creates one object as the administrator, and answers what came of it; the verdict of a review, for instance.
    ///
    /// # Panics
    ///
    /// When it is refused.
    pub async fn create(&self, manifest: &str) -> Value {
        let create = self.run(&self.admin_kubeconfig()).args(["create", "-f", "-", "-o", "json"]);
        create.stdin(manifest).run().await.success().json()
    }

    /// A token of a ServiceAccount as the kubelet gets it for a pod, for an audience, or for the API server itself. It
    /// is valid for so long, and the API server gives none for less than ten minutes.
    ///
    /// # Panics
    ///
    /// When there is no such ServiceAccount, or the time is too short.
    pub async fn service_account_token(
        &self,
        namespace: &str,
        name: &str,
        audience: Option<&str>,
        validity: Duration,
    ) -> String {
        let validity = format!("--duration={}s", validity.as_secs());
        let create =
            self.run(&self.admin_kubeconfig()).args(["create", "token", name, "-n", namespace, &validity]);
        let create = create.args(audience.map(|audience| format!("--audience={audience}")));
        create.run().await.success().text().trim().to_owned()
    }

    /// A kubeconfig of the bearer of a token.
    #[must_use]
    pub fn kubeconfig_for(&self, token: &str) -> PathBuf {
        let file = tempfile::Builder::new().suffix(".kubeconfig").tempfile_in(self.folder());
        let (_, path) = file.and_then(|file| Ok(file.keep()?)).expect("make a file for a kubeconfig");
        kubeconfig::write(&path, &self.url(), &self.pki, &Credential::Token(token));
        path
    }

    /// The kubeconfig of a member of `system:masters`.
    #[must_use]
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.pki.path("admin.kubeconfig")
    }

    /// All requests so far by the API server's audit log, in order. A request is there shortly after its answer.
    #[must_use]
    pub fn audit(&self) -> Vec<AuditEvent> {
        audit::read(&self.pki.path(audit::FILE))
    }

    fn run(&self, kubeconfig: &Path) -> Run {
        // kubectl keeps what it discovered in the home folder.
        Run::tool("kubectl")
            .env("HOME", self.folder())
            .args([OsStr::new("--kubeconfig"), kubeconfig.as_os_str()])
    }
}
