//! An API server, a namespace with the rights that release-tracking has in it, and replicas that stand on it.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Weak},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;
use tokio::sync::Mutex;
use tonic::{
    Code, Request, Status,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};
use transponder_proto::v1::{self, Phase, ReleaseState, release_tracking_client::ReleaseTrackingClient};
use transponder_tests::{Broker, Mesh, Replica, SHORT, eventually, kubernetes::ApiServer};

const RBAC: &str = include_str!("../../../deploy/kubernetes/rbac/release-tracking.yaml");
const ACCOUNT: &str = "transponder-release-tracking";

/// The API server of the tests that run at the same time and do it no harm. It ends with the last of them.
pub(crate) async fn shared() -> Arc<ApiServer> {
    static SHARED: Mutex<Weak<ApiServer>> = Mutex::const_new(Weak::new());
    let mut shared = SHARED.lock().await;
    if let Some(server) = shared.upgrade() {
        return server;
    }
    let server = Arc::new(ApiServer::start().await);
    server.define(&transponder_release_tracking::crd()).await;
    *shared = Arc::downgrade(&server);
    server
}

/// An installation in a namespace of its own.
pub(crate) struct Ground {
    pub(crate) mesh: Mesh,
    pub(crate) namespace: &'static str,
    /// That of the account.
    pub(crate) kubeconfig: PathBuf,
    _broker: Broker,
}

impl Ground {
    /// Makes the namespace, and in it the account with its Role.
    pub(crate) async fn new(server: &ApiServer, namespace: &'static str) -> Self {
        let space = format!("{{ apiVersion: v1, kind: Namespace, metadata: {{ name: {namespace} }} }}");
        server.apply(&space).await;
        server.apply_in(namespace, RBAC).await;
        let token = server.service_account_token(namespace, ACCOUNT, None, Duration::from_secs(3_600)).await;
        let kubeconfig = server.kubeconfig_for(&token);
        let broker = Broker::start().await;
        let mut mesh = Mesh::new(&broker).await;
        mesh.set("store.kind", "kubernetes");
        mesh.set("kubernetes.kubeconfig", &kubeconfig.display().to_string());
        mesh.set("kubernetes.namespace", namespace);
        mesh.set("release_tracking.sweep_interval", "100ms");
        // Nothing of it is used.
        mesh.set("release_tracking.data_directory", "/proc/nowhere");
        Self { mesh, namespace, kubeconfig, _broker: broker }
    }

    /// Starts a replica and waits until it is ready.
    pub(crate) async fn start(&self, name: &str) -> Tracking {
        let mut tracking = self.launch(name, &[]).await;
        tracking.replica.ready().await;
        tracking
    }

    /// Starts one with variables of the environment of its own. It may not be ready yet.
    pub(crate) async fn launch(&self, name: &str, environment: &[(&'static str, String)]) -> Tracking {
        let replica = Replica::start_with(&self.mesh, "release-tracking", name, environment).await;
        let edge = ReleaseTrackingClient::new(replica.channel(&self.mesh, "edge"));
        let ca = std::fs::read(self.mesh.path("mesh/ca.crt")).expect("the CA of the mesh");
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)).domain_name("localhost");
        let address = format!("https://{}", replica.address("release-tracking"));
        let channel = Endpoint::from_shared(address).and_then(|e| e.tls_config(tls)).expect("TLS settings");
        let task = ReleaseTrackingClient::new(channel.connect_lazy());
        Tracking { replica, edge, task: Task(task, self.mesh.task_token()) }
    }

    /// All objects.
    pub(crate) async fn objects(&self, server: &ApiServer) -> Vec<Value> {
        let list = server.kubectl(["get", "releases", "-n", self.namespace, "-o", "json"]).await.success();
        list.json()["items"].as_array().expect("a list").clone()
    }

    /// Who holds the Lease.
    pub(crate) async fn holder(&self, server: &ApiServer) -> String {
        let path = "jsonpath={.spec.holderIdentity}";
        let get = ["get", "lease", ACCOUNT, "-n", self.namespace, "-o", path];
        server.kubectl(get).await.text().trim().to_owned()
    }

    /// What the replicas asked of the API server, as `verb resource`: never what they were refused, and nothing that is
    /// none of theirs.
    pub(crate) fn asked(&self, server: &ApiServer) -> BTreeSet<String> {
        let user = format!("system:serviceaccount:{}:{ACCOUNT}", self.namespace);
        let events = server.audit().into_iter().filter(|event| event.user == user);
        let asked = events.map(|event| {
            assert_ne!(event.code, 403, "{event:?}");
            assert_eq!(event.namespace, self.namespace, "{event:?}");
            match (&*event.group, &*event.resource) {
                ("transponder.dev", "releases") => {}
                ("coordination.k8s.io", "leases") => {
                    let ours = event.uri.contains(ACCOUNT) || event.verb == "create";
                    assert!(ours, "{event:?}");
                }
                _ => panic!("{event:?}"),
            }
            format!("{} {}", event.verb, event.resource)
        });
        asked.collect()
    }
}

/// A replica with those who call it.
pub(crate) struct Tracking {
    pub(crate) replica: Replica,
    pub(crate) edge: ReleaseTrackingClient<Channel>,
    pub(crate) task: Task,
}

impl Tracking {
    /// One observation, as the edge tells of it, received now.
    pub(crate) async fn observe(
        &self,
        release: v1::Release,
        phase: Phase,
        finished: i64,
    ) -> v1::ReleaseRecord {
        let seen = self.try_observe(observation(release, phase, finished)).await;
        seen.unwrap_or_else(|status| panic!("{status}")).record.expect("a record")
    }

    pub(crate) async fn try_observe(
        &self,
        request: v1::ObserveRequest,
    ) -> Result<v1::ObserveResponse, Status> {
        Ok(self.edge.clone().observe(request).await?.into_inner())
    }

    /// Tells of a merged pull request.
    pub(crate) async fn merged(&self, release: v1::Release, merged: i64) -> v1::ReleaseRecord {
        let put = v1::PutRequest {
            pr_url: url(&release.chain_id),
            pr_created_at: time(-1_000),
            merged_at: time(merged),
            release: Some(release),
            ..Default::default()
        };
        self.task.put(put).await.unwrap_or_else(|status| panic!("{status}"))
    }

    pub(crate) async fn state(&self, release: &v1::Release) -> ReleaseState {
        let found = self.task.resolve(release.clone()).await.unwrap_or_else(|status| panic!("{status}"));
        found.record.unwrap_or_else(|| panic!("{}", found.reason)).state()
    }

    pub(crate) async fn until_state(&self, release: &v1::Release, wanted: ReleaseState, wait: Duration) {
        eventually(&format!("{} is {wanted:?}", release.chain_id), wait, || async {
            match self.state(release).await {
                state if state == wanted => Ok(()),
                state => Err(format!("it is {state:?}")),
            }
        })
        .await;
    }

    /// Lines of its metrics that begin so.
    pub(crate) async fn metric(&self, begin: &str) -> Vec<String> {
        let text = self.replica.metrics().await.unwrap_or_default();
        text.lines().filter(|line| line.starts_with(begin)).map(str::to_owned).collect()
    }
}

/// A Task of the shop.
#[derive(Clone)]
pub(crate) struct Task(ReleaseTrackingClient<Channel>, String);

impl Task {
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let bearer = format!("Bearer {}", self.1).parse().expect("a token");
        request.metadata_mut().insert("authorization", bearer);
        request
    }

    pub(crate) async fn put(&self, put: v1::PutRequest) -> Result<v1::ReleaseRecord, Status> {
        let answer = self.0.clone().put(self.request(put)).await?;
        Ok(answer.into_inner().record.expect("a record"))
    }

    pub(crate) async fn resolve(&self, release: v1::Release) -> Result<v1::ResolveResponse, Status> {
        let request = v1::ResolveRequest { release: Some(release), ..Default::default() };
        Ok(self.0.clone().resolve(self.request(request)).await?.into_inner())
    }

    pub(crate) async fn list(&self) -> Result<Vec<v1::ReleaseRecord>, Status> {
        let answer = self.0.clone().list(self.request(v1::ListRequest::default())).await?;
        Ok(answer.into_inner().records)
    }

    pub(crate) async fn delete(&self, release: v1::Release) -> Result<bool, Status> {
        let request = v1::DeleteRequest { release: Some(release) };
        Ok(self.0.clone().delete(self.request(request)).await?.into_inner().found)
    }
}

/// Says it until it is taken, as the edge does.
pub(crate) async fn insist<T, F>(what: &str, wait: Duration, mut call: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, Status>>,
{
    eventually(what, wait, || {
        let call = call();
        async move {
            call.await.map_err(|status| {
                assert_eq!(status.code(), Code::Unavailable, "{status}");
                status.to_string()
            })
        }
    })
    .await
}

/// Waits until a replica says so of why it is not ready.
pub(crate) async fn until_not_ready(tracking: &Tracking, words: &[&str]) {
    eventually(&format!("it is not ready: {words:?}"), SHORT, || async {
        match tracking.replica.readiness().await {
            Err(reason) if words.iter().all(|word| reason.contains(word)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

pub(crate) fn observation(release: v1::Release, phase: Phase, finished: i64) -> v1::ObserveRequest {
    v1::ObserveRequest {
        event_key: format!("{:040x}", phase as u8),
        release: Some(release),
        phase: phase.into(),
        finished_at: time(finished),
        received_at: time(0),
    }
}

/// The time so many seconds from now.
pub(crate) fn time(seconds: i64) -> Option<prost_types::Timestamp> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    Some(prost_types::Timestamp { seconds: now.as_secs() as i64 + seconds, nanos: now.subsec_nanos() as i32 })
}

/// A release of the shop in production.
pub(crate) fn release(chain_id: &str) -> v1::Release {
    v1::Release {
        app_namespace: "app-shop-cicd".into(),
        app_name: "shop".into(),
        env: "prod".into(),
        cluster: "kind-prod".into(),
        chain_id: chain_id.into(),
        ..Default::default()
    }
}

/// The pull request of a release.
pub(crate) fn url(chain_id: &str) -> String {
    format!("https://git.example/pulls?id={chain_id},1")
}
