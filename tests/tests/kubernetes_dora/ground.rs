//! An API server, a namespace with the rights that a recorder has in it, and recorders that stand on it.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use serde_json::Value;
use tokio::sync::Mutex;
use tonic::{Code, Status, transport::Channel};
use transponder_proto::v1::{self, Disposition, dora_recorder_client::DoraRecorderClient};
use transponder_tests::{Broker, Mesh, Replica, SHORT, eventually, http, kubernetes::ApiServer};

pub(crate) const RBAC: &str = include_str!("../../../deploy/kubernetes/rbac/dora-recorder.yaml");
pub(crate) const ACCOUNT: &str = "transponder-dora-recorder";

/// The API server of the tests that run at the same time and do it no harm. It ends with the last of them.
pub(crate) async fn shared() -> Arc<ApiServer> {
    static SHARED: Mutex<Weak<ApiServer>> = Mutex::const_new(Weak::new());
    let mut shared = SHARED.lock().await;
    if let Some(server) = shared.upgrade() {
        return server;
    }
    let server = Arc::new(ApiServer::start().await);
    server.define(&transponder_dora_recorder::crd()).await;
    *shared = Arc::downgrade(&server);
    server
}

/// An installation in a namespace of its own.
pub(crate) struct Ground {
    pub(crate) mesh: Mesh,
    pub(crate) namespace: &'static str,
    _broker: Broker,
}

impl Ground {
    /// Makes the namespace, and in it the account with its Role.
    pub(crate) async fn new(server: &ApiServer, namespace: &'static str) -> Self {
        let ground = Self::without_rights(server, namespace).await;
        ground.give_rights(server).await;
        ground
    }

    /// Makes the namespace, and in it the account, which may do nothing.
    pub(crate) async fn without_rights(server: &ApiServer, namespace: &'static str) -> Self {
        server
            .apply(&format!(
                "{{ apiVersion: v1, kind: Namespace, metadata: {{ name: {namespace} }} }}\n---\n\
                 {{ apiVersion: v1, kind: ServiceAccount, metadata: {{ name: {ACCOUNT}, namespace: {namespace} }} }}"
            ))
            .await;
        let token = server.service_account_token(namespace, ACCOUNT, None, Duration::from_secs(3_600)).await;
        let broker = Broker::start().await;
        let mut mesh = Mesh::new(&broker).await;
        mesh.set("store.kind", "kubernetes");
        mesh.set("kubernetes.kubeconfig", &server.kubeconfig_for(&token).display().to_string());
        mesh.set("kubernetes.namespace", namespace);
        // Nothing of it is used.
        mesh.set("dora.data_directory", "/proc/nowhere");
        Self { mesh, namespace, _broker: broker }
    }

    pub(crate) async fn give_rights(&self, server: &ApiServer) {
        server.apply_in(self.namespace, RBAC).await;
    }

    /// Takes the Lease from one that was killed, so that nobody waits for it to expire.
    pub(crate) async fn release_lease(&self, server: &ApiServer) {
        server.kubectl(["delete", "lease", ACCOUNT, "-n", self.namespace]).await.success();
    }

    pub(crate) async fn start(&self, name: &str) -> Recorder {
        self.start_with(name, &[]).await
    }

    pub(crate) async fn start_with(&self, name: &str, environment: &[(&'static str, String)]) -> Recorder {
        let replica = Replica::start_with(&self.mesh, "dora-recorder", name, environment).await;
        let client = DoraRecorderClient::new(replica.channel(&self.mesh, "edge"));
        Recorder { replica, client }
    }

    /// The object of the only stream.
    pub(crate) async fn object(&self, server: &ApiServer) -> Value {
        let list = ["get", "dorastreams", "-n", self.namespace, "-o", "json"];
        let list = server.kubectl(list).await.success().json();
        let items = list["items"].as_array().expect("a list").clone();
        let [only] = items.as_slice() else { panic!("not one stream: {list}") };
        only.clone()
    }

    /// What the recorders asked of the API server: never what they were refused, and nothing that is none of theirs.
    pub(crate) fn assert_modest(&self, server: &ApiServer) {
        let user = format!("system:serviceaccount:{}:{ACCOUNT}", self.namespace);
        let events: Vec<_> = server.audit().into_iter().filter(|event| event.user == user).collect();
        assert!(!events.is_empty());
        for event in events {
            assert_ne!(event.code, 403, "{event:?}");
            assert_eq!(event.namespace, self.namespace, "{event:?}");
            let lease = event.uri.contains(ACCOUNT) || event.name == ACCOUNT || event.verb == "create";
            match (&*event.group, &*event.resource) {
                ("transponder.dev", "dorastreams") => assert_ne!(event.verb, "delete", "{event:?}"),
                ("coordination.k8s.io", "leases") => assert!(lease, "{event:?}"),
                ("", "configmaps") => assert!(event.name.starts_with("dora-"), "{event:?}"),
                _ => panic!("{event:?}"),
            }
        }
    }
}

/// A replica of the recorder, and the edge as its caller.
pub(crate) struct Recorder {
    pub(crate) replica: Replica,
    client: DoraRecorderClient<Channel>,
}

impl Recorder {
    pub(crate) fn caller(&self) -> Caller {
        Caller(self.client.clone())
    }

    pub(crate) async fn record(
        &self,
        app: &str,
        release: &str,
        phase: v1::Phase,
        second: i64,
    ) -> Disposition {
        self.caller()
            .record(app, release, phase, second)
            .await
            .unwrap_or_else(|status| panic!("{release}: {status}"))
    }

    /// Waits until it has ended.
    pub(crate) async fn ends(&mut self, wait: Duration) {
        eventually("it ends", wait, || {
            let ended = self.replica.process().ended();
            async move { ended.ok_or_else(|| "it runs".to_owned()) }
        })
        .await;
    }

    /// Waits until it shows the totals, and answers them.
    pub(crate) async fn shows(&self, wait: Duration) -> Shown {
        eventually("it shows the totals", wait, || async {
            self.shown().await.ok_or_else(|| "nothing".into())
        })
        .await
    }

    /// The totals that it shows; `None` when it shows none, or does not answer.
    pub(crate) async fn shown(&self) -> Option<Shown> {
        self.scrape().shown().await
    }

    pub(crate) fn scrape(&self) -> Scrape {
        Scrape(self.replica.address("admin"))
    }
}

/// Where a replica is looked at.
pub(crate) struct Scrape(SocketAddr);

impl Scrape {
    pub(crate) async fn shown(&self) -> Option<Shown> {
        let metrics =
            http(["-s", "--max-time", "1", &format!("http://{}/metrics", self.0)]).await.ok()?.body_text();
        let lines = metrics.lines().filter(|line| line.starts_with("dora_"));
        let values = lines.filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            Some((series.to_owned(), value.parse::<f64>().ok()?))
        });
        let shown: BTreeMap<_, _> = values.collect();
        (!shown.is_empty()).then_some(Shown(shown))
    }
}

/// The edge.
#[derive(Clone)]
pub(crate) struct Caller(DoraRecorderClient<Channel>);

impl Caller {
    pub(crate) async fn record(
        &mut self,
        app: &str,
        release: &str,
        phase: v1::Phase,
        second: i64,
    ) -> Result<Disposition, Status> {
        self.send(outcome("prod", app, release, phase, second)).await
    }

    /// Says that a release succeeded in this environment.
    pub(crate) async fn record_in(
        &mut self,
        env: &str,
        app: &str,
        release: &str,
        second: i64,
    ) -> Result<Disposition, Status> {
        self.send(outcome(env, app, release, v1::Phase::Succeeded, second)).await
    }

    async fn send(&mut self, request: v1::RecordOutcomeRequest) -> Result<Disposition, Status> {
        let answer = tokio::time::timeout(Duration::from_secs(15), self.0.record_outcome(request)).await;
        let late = |_| Status::deadline_exceeded("no answer within 15 s");
        Ok(answer.map_err(late).and_then(|answer| answer)?.into_inner().disposition())
    }

    /// Says it until it is taken, as the edge does.
    pub(crate) async fn insist(
        &mut self,
        app: &str,
        release: &str,
        phase: v1::Phase,
        second: i64,
    ) -> Disposition {
        eventually("the verdict is taken", Duration::from_secs(60), || {
            let (mut caller, app, release) = (self.clone(), app.to_owned(), release.to_owned());
            async move {
                let answer = caller.record(&app, &release, phase, second).await;
                answer.map_err(|status| {
                    assert_eq!(status.code(), Code::Unavailable, "{status}");
                    status.to_string()
                })
            }
        })
        .await
    }
}

/// All samples of `dora_*`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shown(pub(crate) BTreeMap<String, f64>);

impl Shown {
    pub(crate) fn sum(&self, metric: &str, labels: &[&str]) -> f64 {
        let fits = |series: &str| {
            series.starts_with(&format!("{metric}{{")) && labels.iter().all(|label| series.contains(label))
        };
        self.0.iter().filter(|(series, _)| fits(series)).map(|(_, value)| value).sum()
    }

    pub(crate) fn deployments(&self) -> f64 {
        self.sum("dora_deployments_total", &[])
    }
}

/// Waits until a replica shows this many deployments.
pub(crate) async fn until_shown(recorder: &Recorder, deployments: f64) {
    eventually("the deployments are shown", SHORT, || async {
        let shown = recorder.shown().await.ok_or_else(|| "nothing is shown".to_owned())?;
        if shown.deployments() == deployments { Ok(()) } else { Err(format!("{}", shown.deployments())) }
    })
    .await;
}

fn outcome(env: &str, app: &str, release: &str, phase: v1::Phase, second: i64) -> v1::RecordOutcomeRequest {
    let time = |second| Some(prost_types::Timestamp { seconds: 1_700_000_000 + second, nanos: 123_456_789 });
    v1::RecordOutcomeRequest {
        release: Some(v1::Release {
            app_namespace: format!("app-{app}-cicd"),
            app_name: app.into(),
            env: env.into(),
            cluster: "kind-prod".into(),
            chain_id: release.into(),
            ..Default::default()
        }),
        phase: phase.into(),
        finished_at: time(second),
        flow_start_time: time(0),
        received_at: time(second + 1),
        first_finished_at: None,
    }
}
