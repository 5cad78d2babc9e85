//! The ground for everything that stands on Kubernetes: the control plane of the harness is a real one, and fails as one.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use transponder_tests::{
    LONG, SHORT, alone, eventually,
    kubernetes::{ApiServer, AuditEvent, Durability, Settings},
};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// A namespace with two ConfigMaps, and a ServiceAccount that may get one of them.
const GROUND: &str = "
apiVersion: v1
kind: Namespace
metadata: { name: team }
---
apiVersion: v1
kind: ServiceAccount
metadata: { name: reader, namespace: team }
---
apiVersion: v1
kind: ConfigMap
metadata: { name: mine, namespace: team }
data: { for: reader }
---
apiVersion: v1
kind: ConfigMap
metadata: { name: other, namespace: team }
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: { name: reader, namespace: team }
rules: [{ apiGroups: [''], resources: [configmaps], resourceNames: [mine], verbs: [get] }]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: { name: reader, namespace: team }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader }
subjects: [{ kind: ServiceAccount, name: reader, namespace: team }]
";
const MINE: &str = "/api/v1/namespaces/team/configmaps/mine";

#[tokio::test(flavor = "multi_thread")]
async fn it_is_up_in_seconds_and_leaves_nothing_behind() {
    let _alone = alone().await;
    let started = Instant::now();
    let mut server = ApiServer::start().await;
    let took = started.elapsed();
    println!("started in {took:.1?}");
    assert!(took < LONG, "{took:?}");
    let version = server.kubectl(["version", "-o", "json"]).await.success().json();
    assert_eq!(version["serverVersion"]["gitVersion"], "v1.36.0", "{version}");
    let mut controllers = server.controller_manager().await;
    let pids = [server.process().pid(), server.etcd_process().pid(), controllers.process().pid()];
    let folder = server.folder().to_owned();
    drop((server, controllers));
    assert!(!folder.exists(), "{}", folder.display());
    for pid in pids {
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert!(!command.contains(folder.to_str().unwrap()), "{pid} still runs: {command}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_account_gets_what_its_role_names_and_nothing_else() {
    let _alone = alone().await;
    let server = ApiServer::start().await;
    server.apply(GROUND).await;
    let token = server.service_account_token("team", "reader", None, HOUR).await;
    let reader = server.kubeconfig_for(&token);
    let get = async |name: &str| {
        server.kubectl_as(&reader, ["get", "configmap", name, "-n", "team", "-o", "json"]).await
    };
    assert_eq!(get("mine").await.success().json()["data"]["for"], "reader");
    let refused = get("other").await;
    assert!(refused.stderr.contains("Forbidden"), "{refused:?}");
    let listed = server.kubectl_as(&reader, ["get", "configmaps", "-n", "team"]).await;
    assert!(listed.stderr.contains("Forbidden"), "{listed:?}");
    let expected = [("get", "mine", 200), ("get", "other", 403), ("list", "", 403)];
    eventually("the audit log has the requests", SHORT, || {
        let audit = server.audit();
        let seen = audit.iter().filter(|event| by_the_reader(event));
        let seen: Vec<_> = seen.map(|event| (&*event.verb, &*event.name, event.code)).collect();
        let same = if seen == expected { Ok(()) } else { Err(format!("{seen:?}")) };
        async { same }
    })
    .await;
}

fn by_the_reader(event: &AuditEvent) -> bool {
    let AuditEvent { user, namespace, resource, .. } = event;
    (&**user, &**namespace, &**resource) == ("system:serviceaccount:team:reader", "team", "configmaps")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_passes_a_review_for_its_audience_and_for_no_other() {
    let _alone = alone().await;
    let server = ApiServer::start().await;
    server.apply(GROUND).await;
    let token = server.service_account_token("team", "reader", Some("transponder"), HOUR).await;
    let status = review(&server, &token, "transponder").await;
    assert_eq!(status["authenticated"], true, "{status}");
    assert_eq!(status["user"]["username"], "system:serviceaccount:team:reader", "{status}");
    assert_eq!(status["audiences"], json!(["transponder"]), "{status}");
    let status = review(&server, &token, "somebody-else").await;
    assert_ne!(status["authenticated"], true, "{status}");
    // It is no credential at the API server itself.
    let ran = server.kubectl_as(&server.kubeconfig_for(&token), ["get", "--raw", MINE]).await;
    assert!(ran.stderr.contains("Unauthorized"), "{ran:?}");
}

async fn review(server: &ApiServer, token: &str, audience: &str) -> Value {
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": { "token": token, "audiences": [audience] },
    });
    server.create(&review.to_string()).await["status"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_api_server_comes_back_with_its_objects_and_knows_its_tokens() {
    let _alone = alone().await;
    let mut server = ApiServer::start().await;
    server.apply(GROUND).await;
    let token = server.service_account_token("team", "reader", None, HOUR).await;
    let (reader, url) = (server.kubeconfig_for(&token), server.url());
    server.kill_apiserver();
    let ran = server.kubectl_as(&reader, ["get", "--raw", MINE]).await;
    assert!(ran.stderr.contains("refused"), "{ran:?}");
    server.start_apiserver().await;
    assert_eq!(server.url(), url);
    let object = server.kubectl_as(&reader, ["get", "--raw", MINE]).await.success().json();
    assert_eq!(object["data"]["for"], "reader");
    // A stopped one answers nobody, and goes on where it was.
    server.process().signal(Signal::STOP);
    let ran = server.kubectl_as(&reader, ["get", "--raw", MINE, "--request-timeout=1s"]).await;
    assert_ne!(ran.code, Some(0), "{ran:?}");
    server.process().signal(Signal::CONT);
    eventually("it answers again", SHORT, || answered(&server)).await;
}

async fn answered(server: &ApiServer) -> Result<(), String> {
    let ran = server.kubectl(["get", "--raw", MINE]).await;
    if ran.code == Some(0) { Ok(()) } else { Err(ran.stderr) }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_etcd_requests_fail_in_bounded_time_and_work_when_it_is_back() {
    let _alone = alone().await;
    // By itself an API server lets a read wait for a minute.
    let arguments = vec!["--request-timeout=5s".to_owned()];
    let mut server = ApiServer::with(Settings { durability: Durability::PowerLoss, arguments }).await;
    server.apply(GROUND).await;
    server.kill_etcd();
    let started = Instant::now();
    let ran = server.kubectl(["get", "--raw", MINE]).await;
    let took = started.elapsed();
    println!("without etcd a request failed in {took:.1?}: {}", ran.stderr.trim());
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert!(took < LONG, "{took:?}");
    server.start_etcd().await;
    let started = Instant::now();
    eventually("requests work", LONG, || answered(&server)).await;
    server.ready().await;
    println!("ready {:.1?} after etcd", started.elapsed());
    server.apply("{ apiVersion: v1, kind: ConfigMap, metadata: { name: new, namespace: team } }").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controllers_fill_a_namespace_and_take_it_away() {
    let _alone = alone().await;
    let server = ApiServer::start().await;
    let _controllers = server.controller_manager().await;
    server.apply(GROUND).await;
    eventually("the namespace has its default ServiceAccount", LONG, || async {
        let ran = server.kubectl(["get", "serviceaccount", "default", "-n", "team"]).await;
        if ran.code == Some(0) { Ok(()) } else { Err(ran.stderr) }
    })
    .await;
    // kubectl waits until it is gone.
    server.kubectl(["delete", "namespace", "team", "--timeout=60s"]).await.success();
}
