//! The product on a Kubernetes API: several replicas of each service, each with the rights of its ServiceAccount.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    Balancer, LONG, Mesh, Process, Run, eventually, http,
    kubernetes::ApiServer,
    mesh::{START, client},
    ports, product,
};

/// The namespace of everything.
pub const NAMESPACE: &str = "platform-system";

/// The services, each with the key of its listener and those by which it is found.
const SERVICES: [(&str, &str, &[&str]); 5] = [
    ("edge", "edge.listen", &[]),
    ("forwarder", "forwarder.listen", &["edge.peers.forwarder"]),
    ("dora-recorder", "dora.listen", &["edge.peers.dora_recorder"]),
    (
        "release-tracking",
        "release_tracking.listen",
        &["edge.peers.release_tracking", "outcome_span.release_tracking"],
    ),
    ("outcome-span", "outcome_span.listen", &["edge.peers.outcome_span"]),
];

/// A replica that was started.
struct Replica {
    process: Process,
    address: SocketAddr,
    admin: SocketAddr,
}

/// Replicas on one API server, each service behind an address of its own.
pub struct Fleet {
    /// Dropped, and so ended, before what they use.
    replicas: BTreeMap<(&'static str, usize), Replica>,
    balancers: BTreeMap<&'static str, Balancer>,
    kubeconfigs: BTreeMap<&'static str, PathBuf>,
    /// The installation: certificates and configuration of all replicas. Its edge is whichever answers.
    pub mesh: Mesh,
    /// The API server.
    pub server: ApiServer,
}

impl Fleet {
    /// Makes the namespace, the definitions and the accounts as the product's own manifests have them.
    ///
    /// # Panics
    ///
    /// When they are refused.
    pub async fn new(mesh: Mesh, server: ApiServer) -> Self {
        let fleet = Self::bare(mesh, server).await;
        fleet.define().await;
        fleet
    }

    /// The same without the definitions of the custom resources.
    pub async fn bare(mut mesh: Mesh, server: ApiServer) -> Self {
        prepare(&server).await;
        register(&server, &mesh, &["kind-prod"]).await;
        let mut kubeconfigs = BTreeMap::new();
        let mut balancers = BTreeMap::new();
        for (service, _, keys) in SERVICES {
            let account = format!("transponder-{service}");
            let token =
                server.service_account_token(NAMESPACE, &account, None, Duration::from_hours(2)).await;
            kubeconfigs.insert(service, server.kubeconfig_for(&token));
            let balancer = Balancer::start().await;
            keys.iter().for_each(|key| mesh.set(key, &balancer.address().to_string()));
            mesh.located(service, &Value::from(balancer.address().to_string()));
            balancers.insert(service, balancer);
        }
        mesh.set("store.kind", "kubernetes");
        mesh.set("kubernetes.namespace", NAMESPACE);
        Self { mesh, replicas: BTreeMap::new(), balancers, kubeconfigs, server }
    }

    /// Applies the definitions of the custom resources.
    pub async fn define(&self) {
        define(&self.server).await;
    }

    /// Registers further clusters, as their chart would.
    pub async fn register(&mut self, clusters: &[String]) {
        for cluster in clusters {
            self.mesh.add_cluster(cluster).await;
        }
        let mut all = vec!["kind-prod"];
        all.extend(clusters.iter().map(String::as_str));
        register(&self.server, &self.mesh, &all).await;
    }

    /// A hand that posts in the name of registered clusters, to whichever edge answers.
    ///
    /// # Panics
    ///
    /// When one is not registered.
    #[must_use]
    pub fn poster(&self, clusters: &[String]) -> Poster {
        let token = |cluster: &String| (cluster.clone(), self.mesh.token(cluster).to_owned());
        Poster {
            client: client(self.mesh.client_tls()),
            url: self.mesh.url("/outcome/"),
            tokens: clusters.iter().map(token).collect(),
        }
    }

    /// Lets the replicas of a service that are started from now on reach the API server by way of another address.
    ///
    /// # Panics
    ///
    /// When it was reached by another way before.
    pub fn by_way_of(&self, service: &'static str, address: SocketAddr) {
        let file = &self.kubeconfigs[service];
        let (direct, detour) = (self.server.url(), format!("https://{address}"));
        let config = std::fs::read_to_string(file).expect("read a kubeconfig");
        assert!(config.contains(&direct), "{direct} is not in {}", file.display());
        std::fs::write(file, config.replace(&direct, &detour)).expect("write a kubeconfig");
    }

    /// Starts so many replicas of each and waits until they are ready.
    pub async fn start_all(&mut self, edges: usize, others: usize) {
        for (service, ..) in SERVICES {
            for number in 0..if service == "edge" { edges } else { others } {
                self.launch(service, number);
            }
        }
        let all: Vec<_> = self.replicas.keys().copied().collect();
        for (service, number) in all {
            self.wait_ready(service, number).await;
        }
    }

    /// Starts a replica, at the address that it had before, and waits until it is ready.
    pub async fn start(&mut self, service: &'static str, number: usize) {
        self.launch(service, number);
        self.wait_ready(service, number).await;
    }

    /// Starts a replica and waits for nothing.
    ///
    /// # Panics
    ///
    /// When there is no such service.
    pub fn launch(&mut self, service: &'static str, number: usize) {
        let (_, listen, _) = SERVICES.iter().find(|(name, ..)| *name == service).expect("a service");
        let known = self.replicas.remove(&(service, number)).map(|replica| (replica.address, replica.admin));
        let free = || SocketAddr::from(([127, 0, 0, 1], ports::free()));
        let (address, admin) = known.unwrap_or_else(|| (free(), free()));
        let own = [
            (*listen, address.to_string()),
            ("admin.listen", admin.to_string()),
            ("kubernetes.kubeconfig", self.kubeconfigs[service].display().to_string()),
        ];
        let ready = self.mesh.path(&format!("{service}-{number}.json"));
        let command = self.mesh.command_with(service, &ready, &own);
        let process = Process::start(&format!("{service} {number}"), command);
        self.replicas.insert((service, number), Replica { process, address, admin });
    }

    /// Waits until a replica is ready, and lets its share of new connections go to it.
    pub async fn wait_ready(&mut self, service: &'static str, number: usize) {
        let replica = self.replicas.get_mut(&(service, number)).expect("a replica that was started");
        let url = format!("http://{}/readyz", replica.admin);
        replica
            .process
            .ready(START, || async {
                let answer = http(["-s", "--max-time", "5", &url]).await?;
                if answer.status == 200 { Ok(()) } else { Err(answer.body_text()) }
            })
            .await;
        self.balancers[service].add(replica.address);
        if service == "edge" {
            self.mesh.located("admin", &Value::from(replica.admin.to_string()));
        }
    }

    /// Lets new connections go to a replica that may never become ready.
    pub fn open(&self, service: &'static str, number: usize) {
        self.balancers[service].add(self.address(service, number));
    }

    /// Whether a replica was ever started.
    #[must_use]
    pub fn has(&self, service: &'static str, number: usize) -> bool {
        self.replicas.contains_key(&(service, number))
    }

    /// What a replica says of whether it is ready.
    pub async fn readiness(&self, service: &'static str, number: usize) -> Result<(), String> {
        let url = format!("http://{}/readyz", self.replica(service, number).admin);
        let answer = http(["-s", "--max-time", "5", &url]).await?;
        if answer.status == 200 { Ok(()) } else { Err(answer.body_text()) }
    }

    /// The process of a replica.
    ///
    /// # Panics
    ///
    /// When it was never started.
    pub fn process(&mut self, service: &'static str, number: usize) -> &mut Process {
        &mut self.replicas.get_mut(&(service, number)).expect("a replica that was started").process
    }

    fn replica(&self, service: &'static str, number: usize) -> &Replica {
        self.replicas.get(&(service, number)).expect("a replica that was started")
    }

    /// Where a replica itself listens.
    #[must_use]
    pub fn address(&self, service: &'static str, number: usize) -> SocketAddr {
        self.replica(service, number).address
    }

    /// Where a replica's metrics are.
    #[must_use]
    pub fn admin(&self, service: &'static str, number: usize) -> SocketAddr {
        self.replica(service, number).admin
    }

    /// Kills a replica as `kill -9` does.
    pub fn kill(&mut self, service: &'static str, number: usize) {
        self.balancers[service].remove(self.address(service, number));
        self.process(service, number).kill();
    }

    /// Stops a replica where it is; new connections go to others, as they do soon on Kubernetes.
    pub fn freeze(&mut self, service: &'static str, number: usize) {
        self.balancers[service].remove(self.address(service, number));
        self.process(service, number).signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn thaw(&mut self, service: &'static str, number: usize) {
        self.process(service, number).signal(Signal::CONT);
        self.balancers[service].add(self.address(service, number));
    }

    /// Restarts a replica as a rolling update does: no new connections, SIGTERM, the next one.
    ///
    /// # Panics
    ///
    /// When it does not end as it should.
    pub async fn roll(&mut self, service: &'static str, number: usize) {
        self.balancers[service].remove(self.address(service, number));
        let status = self.process(service, number).terminate(Duration::from_secs(25)).await;
        assert!(status.success(), "{service} {number}: {status}");
        self.start(service, number).await;
    }

    /// The replica that holds the Lease of its service, once there is one.
    pub async fn leader(&self, service: &'static str) -> usize {
        eventually(&format!("a replica of {service} holds the Lease"), LONG, || async {
            let lease = format!("transponder-{service}");
            let path = "jsonpath={.spec.holderIdentity}";
            let ran = self.server.kubectl(["get", "lease", &lease, "-n", NAMESPACE, "-o", path]).await;
            let holder = ran.text();
            let holder = holder.trim();
            let mut ours = self.replicas.iter().filter(|((name, _), _)| *name == service);
            let leads = |replica: &Replica| !holder.is_empty() && replica.process.said(holder) > 0;
            let found = ours.find(|(_, replica)| leads(replica));
            found.map(|((_, number), _)| *number).ok_or_else(|| format!("'{holder}': {}", ran.stderr))
        })
        .await
    }

    /// Waits until another replica holds the Lease. Answers which, and how long that took.
    pub async fn next_leader(&self, service: &'static str, last: usize) -> (usize, Duration) {
        let begun = Instant::now();
        let next = eventually(&format!("another replica of {service} takes over"), LONG, || async {
            let leader = self.leader(service).await;
            if leader == last { Err(format!("{last} still holds the Lease")) } else { Ok(leader) }
        })
        .await;
        (next, begun.elapsed())
    }

    /// The sum of samples over the live replicas of a service.
    pub async fn metric(&mut self, service: &'static str, name: &str, labels: &[&str]) -> f64 {
        let mut sum = 0.0;
        let numbers: Vec<_> =
            self.replicas.keys().filter(|(known, _)| *known == service).map(|(_, n)| *n).collect();
        for number in numbers {
            if self.process(service, number).ended().is_some() {
                continue;
            }
            let admin = Value::from(self.admin(service, number).to_string());
            self.mesh.located("asked", &admin);
            sum += self.mesh.metric_of("asked", name, labels).await;
        }
        sum
    }
}

/// Posts without holding on to the fleet.
pub struct Poster {
    client: reqwest::Client,
    url: String,
    tokens: BTreeMap<String, String>,
}

impl Poster {
    /// Posts an event. Answers the status.
    ///
    /// # Errors
    ///
    /// When there was no answer: nothing is known of the event then.
    pub async fn post(&self, cluster: &str, body: String) -> Result<u16, String> {
        let request = self
            .client
            .post(format!("{}{cluster}", self.url))
            .bearer_auth(&self.tokens[cluster])
            .header("content-type", "application/cloudevents+json")
            .body(body);
        let answer = request.send().await.map_err(|error| format!("{error:?}"))?;
        Ok(answer.status().as_u16())
    }
}

/// Makes the namespace and the accounts.
pub(crate) async fn prepare(server: &ApiServer) {
    server.kubectl(["create", "namespace", NAMESPACE]).await.success();
    apply(server, "rbac").await;
}

/// Applies the definitions and waits until they are served.
pub(crate) async fn define(server: &ApiServer) {
    apply(server, "crds").await;
    server.kubectl(["wait", "--for=condition=Established", "crd", "--all"]).await.success();
}

/// Registers these clusters and no others, as their chart would.
async fn register(server: &ApiServer, mesh: &Mesh, clusters: &[&str]) {
    server.apply(&registry(mesh, clusters)).await;
}

/// Applies what the product prints.
async fn apply(server: &ApiServer, which: &str) {
    let manifests = Run::program(product("transponder")).args(["manifests", which]).run().await.success();
    server.apply_in(NAMESPACE, &manifests.text()).await;
}

/// Clusters as their chart would register them.
fn registry(mesh: &Mesh, clusters: &[&str]) -> String {
    let entry = |cluster: &&str| {
        let entry = json!({
            "relaySecretName": secret_name(cluster),
            "outcomeRelayURL": format!("https://relay.example/outcome/{cluster}"),
        });
        ((*cluster).to_owned(), Value::from(entry.to_string()))
    };
    let entries: serde_json::Map<_, _> = clusters.iter().map(entry).collect();
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "cluster-registry", "namespace": NAMESPACE },
        "data": entries,
    });
    let secret = |cluster: &&str| {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": secret_name(cluster), "namespace": NAMESPACE },
            "stringData": { "token": mesh.token(cluster) },
        })
    };
    let role = json!({ "name": "transponder-edge-registry", "namespace": NAMESPACE });
    let names: Vec<_> = clusters.iter().map(|cluster| secret_name(cluster)).collect();
    let granted = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": role,
        "rules": [{ "apiGroups": [""], "resources": ["secrets"], "resourceNames": names, "verbs": ["get"] }],
    });
    let bound = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": role,
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "transponder-edge-registry",
        },
        "subjects": [{ "kind": "ServiceAccount", "name": "transponder-edge" }],
    });
    let mut items = vec![map, granted, bound];
    items.extend(clusters.iter().map(secret));
    json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string()
}

fn secret_name(cluster: &str) -> String {
    format!("cluster-{cluster}-relay-token")
}
