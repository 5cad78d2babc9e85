//! Events as the hook sends them, to be changed at will.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// An event in the making.
#[derive(Debug, Clone)]
pub struct TestEvent {
    /// The cluster that the event names.
    pub cluster: String,
    /// The app namespace.
    pub app_namespace: String,
    /// The app.
    pub app: String,
    /// The environment.
    pub env: String,
    /// The chain id; empty for none.
    pub chain_id: String,
    /// `Syncing`, `Succeeded` or `Failed`.
    pub phase: &'static str,
    /// What sets one sync's events apart from another's.
    pub attempt: String,
    /// When it finished.
    pub finished_at: String,
    /// When the flow started; empty for unknown.
    pub flow_start_time: String,
}

impl TestEvent {
    /// An event of `kind-prod` for the app `shop` in `prod`, finished now.
    #[must_use]
    pub fn new(phase: &'static str, chain_id: &str) -> Self {
        Self {
            cluster: "kind-prod".into(),
            app_namespace: "app-shop-cicd".into(),
            app: "shop".into(),
            env: "prod".into(),
            chain_id: chain_id.into(),
            phase,
            attempt: format!("{chain_id}-{phase}"),
            finished_at: jiff::Timestamp::now().to_string(),
            flow_start_time: String::new(),
        }
    }

    /// For another cluster.
    #[must_use]
    pub fn cluster(mut self, cluster: &str) -> Self {
        self.cluster = cluster.into();
        self
    }

    /// For another app, and its namespace.
    #[must_use]
    pub fn app(mut self, app: &str) -> Self {
        (self.app, self.app_namespace) = (app.into(), format!("app-{app}-cicd"));
        self
    }

    /// With another finish.
    #[must_use]
    pub fn finished(mut self, time: impl ToString) -> Self {
        self.finished_at = time.to_string();
        self
    }

    /// With the start of its flow.
    #[must_use]
    pub fn flow_start(mut self, time: impl ToString) -> Self {
        self.flow_start_time = time.to_string();
        self
    }

    /// `context.source`.
    #[must_use]
    pub fn source(&self) -> String {
        format!("/platform-cicd/{}/{}-{}-{}-outcome", self.app_namespace, self.cluster, self.app, self.env)
    }

    /// `context.id`.
    #[must_use]
    pub fn id(&self) -> String {
        let digest = Sha256::digest(format!("{}:{}:{}", self.source(), self.kind(), self.attempt));
        hex::encode(digest)[..20].to_owned()
    }

    /// `context.type`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self.phase {
            "Syncing" => "dev.cdevents.environment.deploying.0.1.0",
            _ => "dev.cdevents.environment.deployed.0.1.0",
        }
    }

    /// The event key, as the edge computes it.
    ///
    /// # Panics
    ///
    /// When the cluster is no name.
    #[must_use]
    pub fn key(&self) -> String {
        let cluster = transponder_core::ClusterName::new(&self.cluster).expect("a cluster's name");
        transponder_core::EventKey::new(&cluster, &self.source(), &self.id()).to_string()
    }

    /// As JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let outcome = match self.phase {
            "Syncing" => "in_progress",
            "Succeeded" => "success",
            _ => "failure",
        };
        json!({
            "context": {"version": "0.4.1", "id": self.id(), "source": self.source(), "type": self.kind(),
                "timestamp": self.finished_at, "chainId": self.chain_id},
            "subject": {"id": self.source(), "source": self.source(), "type": "environment", "content": {
                "appNamespace": self.app_namespace, "appName": self.app, "env": self.env, "cluster": self.cluster,
                "phase": self.phase, "outcome": outcome, "status": self.phase, "revision": "", "gitUrl": "",
                "gitRevision": "", "flowStartTime": self.flow_start_time, "finishedAt": self.finished_at,
                "prUrl": "", "prCreatedAt": "", "configJson": "{}"}},
            "customData": {"platform": {"traceparent": "", "flow_start_time": self.flow_start_time, "config_json": "{}"}},
            "customDataContentType": "application/json"
        })
    }

    /// As it is sent.
    #[must_use]
    pub fn body(&self) -> String {
        self.json().to_string()
    }
}
