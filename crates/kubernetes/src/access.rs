//! The one client of a process, with its namespace and its patience.

use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Client, Config, Resource,
    api::{PatchParams, PostParams, ValidationDirective},
    config::{KubeConfigOptions, Kubeconfig},
};
use tower::{Layer as _, retry::RetryLayer, service_fn};

use crate::{ApiError, KubernetesConfig, busy::Busy};

/// Who the API server notes as the writer of a field.
const MANAGER: &str = "transponder";

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(3);

/// A way to the API server. Clones share its connections.
#[derive(Clone)]
pub struct Access {
    client: Client,
    namespace: String,
    timeout: Duration,
}

/// Why there is no way to the API server.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A kubeconfig that was asked for.
    #[error("kubeconfig {file}: {problem}")]
    Kubeconfig {
        /// The file.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Neither a pod nor a user.
    #[error("no way to a Kubernetes API: {0}; run in a pod, or set kubernetes.kubeconfig")]
    Nowhere(String),
    /// What was found cannot be used.
    #[error("the way to the Kubernetes API cannot be used: {0}")]
    Unusable(String),
}

impl Access {
    /// Finds the way. Nothing is asked of the API server yet: it may be away.
    ///
    /// # Errors
    /// When there is none, or its files cannot be read.
    pub async fn find(config: &KubernetesConfig) -> Result<Self, AccessError> {
        let mut found = locate(config).await?;
        found.connect_timeout = Some(CONNECT);
        // Never by a proxy that the environment names for other purposes.
        found.proxy_url = None;
        let namespace = config.namespace.clone().unwrap_or_else(|| found.default_namespace.clone());
        found.default_retry = false;
        let client = Client::try_from(found).map_err(|e| AccessError::Unusable(e.to_string()))?;
        let once = service_fn(move |request| {
            let client = client.clone();
            async move { client.send(request).await }
        });
        let client = Client::new(RetryLayer::new(Busy::default()).layer(once), namespace.clone());
        Ok(Self { client, namespace, timeout: config.request_timeout })
    }

    /// The namespace of everything that is kept.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The client, for what is not kept in the namespace. Whatever is asked of it must go through [`call`](Self::call).
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The objects of one kind in the namespace.
    #[must_use]
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// How long an answer is waited for.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.timeout
    }

    /// Waits for an answer, but not longer than an answer may take.
    ///
    /// # Errors
    /// What the API server says, or that it says nothing.
    pub async fn call<T>(
        &self,
        action: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, ApiError> {
        match tokio::time::timeout(self.timeout, request).await {
            Ok(answer) => answer.map_err(|error| ApiError::of(action, &error)),
            Err(_) => Err(ApiError::timeout(action, self.timeout)),
        }
    }
}

/// How an object is made.
#[must_use]
pub fn creation() -> PostParams {
    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
}

/// How an object is changed. A field that the definition does not know is refused: it would be dropped without a word.
#[must_use]
pub fn change() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::default()
    }
}

async fn locate(config: &KubernetesConfig) -> Result<Config, AccessError> {
    let options = KubeConfigOptions { context: config.context.clone(), ..KubeConfigOptions::default() };
    if let Some(path) = &config.kubeconfig {
        let wrong = |problem: String| AccessError::Kubeconfig { file: path.display().to_string(), problem };
        let read = Kubeconfig::read_from(path).map_err(|e| wrong(e.to_string()))?;
        return Config::from_custom_kubeconfig(read, &options).await.map_err(|e| wrong(e.to_string()));
    }
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        return Config::incluster().map_err(|e| AccessError::Nowhere(e.to_string()));
    }
    Config::from_kubeconfig(&options).await.map_err(|e| AccessError::Nowhere(e.to_string()))
}
