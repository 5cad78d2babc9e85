//! The operator's commands on the registry of a Kubernetes API.

use std::path::Path;

use serde_json::{Value, json};
use transponder_tests::{Ran, Run, alone, kubernetes::ApiServer, product};

use crate::{
    ground::{self, NAMESPACE, part},
    registry::{DENIED, KNOWN, TROUBLE, ready, soon},
};

/// Runs a command as the administrator.
async fn operate(kubeconfig: &Path, arguments: &[&str]) -> Ran {
    let kubeconfig = format!("kubernetes.kubeconfig={}", kubeconfig.display());
    let namespace = format!("kubernetes.namespace={NAMESPACE}");
    let store = ["--store", "kubernetes", "--set", &kubeconfig, "--set", &namespace];
    Run::program(product("transponder")).args(store.iter().chain(arguments)).run().await
}

async fn cluster(kubeconfig: &Path, arguments: &[&str]) -> Ran {
    operate(kubeconfig, &[&["cluster"], arguments].concat()).await
}

/// What the doctor says of the registry, with how bad it is.
async fn doctor(kubeconfig: &Path) -> Vec<String> {
    let found = operate(kubeconfig, &["doctor", "--output", "json"]).await.json();
    let all = found["findings"].as_array().unwrap().iter().filter(|finding| finding["area"] == "registry");
    all.map(|finding| format!("{} {}", finding["level"], finding["what"]).replace('"', "")).collect()
}

fn fine(cluster: &str) -> String {
    format!("fine {cluster}: entry, URL, token and permission are in order")
}

fn unread(cluster: &str) -> String {
    format!(
        "wrong {cluster}: the edge may not read Secret cluster-{cluster}-relay-token; its reports are answered 503"
    )
}

async fn object(server: &ApiServer, kind: &str, name: &str) -> Value {
    server.kubectl(["get", kind, name, "-n", NAMESPACE, "-o", "json"]).await.success().json()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_added_rotated_and_removed_by_the_operator() {
    let _alone = alone().await;
    let server = ApiServer::start().await;
    ground::edge(&server).await;
    let mut apart = part(&server, "transponder-edge", &[]).await;
    let admin = server.admin_kubeconfig();
    let url = ["--url", "https://relay.example:30880", "--app-namespaces", "app-*"];

    // Without --apply everything is printed and nothing is made.
    let add =
        ["add", "kind-prod"].iter().chain(&url).chain(&["--output", "json"]).copied().collect::<Vec<_>>();
    let printed = cluster(&admin, &add).await.success().json();
    for (key, text) in [
        ("chartValue", "outcomeRelayURL: \"https://relay.example:30880/outcome/kind-prod\""),
        ("devManifest", "key: relay-token-kind-prod"),
        ("upperManifest", "relay-origin: \"https://relay.example:30880\""),
    ] {
        assert!(printed[key].as_str().unwrap().contains(text), "{key}: {printed}");
    }
    // What is set behind a command takes the place of all that is set before it.
    let way = format!("kubernetes.kubeconfig={}", admin.display());
    let nowhere = [&add[..], &["--apply", "--set", "kubernetes.namespace=nowhere", "--set", &way]].concat();
    let nowhere = cluster(&admin, &nowhere).await.stderr;
    assert!(nowhere.contains("namespace nowhere does not exist"), "{nowhere}");
    assert_eq!(printed["roleSecretName"], "cluster-kind-prod-relay-token");
    let maps =
        server.kubectl(["get", "configmap,role,secret", "-n", NAMESPACE, "-o", "name"]).await.success();
    assert!(!maps.text().contains("cluster-registry") && !maps.text().contains("relay-token"), "{maps:?}");
    assert!(cluster(&admin, &["list"]).await.stderr.contains("there is no ConfigMap cluster-registry"));
    assert_eq!(doctor(&admin).await, ["wrong there is no ConfigMap cluster-registry in namespace team"]);

    // With it, entry, Secret and permission are there at once, and the edge may read no more than that.
    let apply = add.iter().chain(&["--apply"]).copied().collect::<Vec<_>>();
    let old = cluster(&admin, &apply).await.success().json()["token"].as_str().unwrap().to_owned();
    assert!(
        cluster(&admin, &apply)
            .await
            .stderr
            .contains("is in ConfigMap cluster-registry in namespace team already")
    );
    apart.launch("edge").await;
    ready(&apart).await;
    soon(&apart, "kind-prod", &old, KNOWN).await;
    let stage = ["add", "kind-stage", "--url", "https://relay.example:30880", "--apply", "--output", "json"];
    let other = cluster(&admin, &stage).await.success().json()["token"].as_str().unwrap().to_owned();
    soon(&apart, "kind-stage", &other, KNOWN).await;
    let role = object(&server, "role", "transponder-edge-registry").await;
    let names = json!(["cluster-kind-prod-relay-token", "cluster-kind-stage-relay-token"]);
    assert_eq!(role["rules"][0]["resourceNames"], names, "{role}");

    assert_eq!(doctor(&admin).await, ["kind-prod", "kind-stage"].map(fine));

    // The product's own manifests take no permission away, and one that is gone comes back by either command.
    let manifests = operate(&admin, &["manifests", "rbac"]).await.success().text();
    assert!(manifests.contains(&format!("name: transponder-token-review-{NAMESPACE}")), "{manifests}");
    server.apply_in(NAMESPACE, &manifests).await;
    assert_eq!(doctor(&admin).await, ["kind-prod", "kind-stage"].map(fine));
    let delete = ["delete", "role", "transponder-edge-registry", "-n", NAMESPACE];
    server.kubectl(delete).await.success();
    soon(&apart, "kind-prod", "wrong", TROUBLE).await;
    assert_eq!(doctor(&admin).await, ["kind-prod", "kind-stage"].map(unread));
    let mended = cluster(&admin, &apply).await.success().json();
    assert_eq!(mended, json!({ "cluster": "kind-prod", "result": "permitted" }));
    soon(&apart, "kind-prod", "wrong", DENIED).await;
    soon(&apart, "kind-prod", &old, KNOWN).await;
    assert_eq!(doctor(&admin).await, [fine("kind-prod"), unread("kind-stage")]);
    cluster(&admin, &stage).await.success();
    let delete = ["delete", "rolebinding", "transponder-edge-registry", "-n", NAMESPACE];
    server.kubectl(delete).await.success();
    assert_eq!(doctor(&admin).await, ["kind-prod", "kind-stage"].map(unread));

    // A rotation has two tokens until it is finished.
    let rotated = cluster(&admin, &["rotate", "kind-prod", "--output", "json"]).await.success().json();
    let new = rotated["token"].as_str().unwrap();
    soon(&apart, "kind-prod", new, KNOWN).await;
    soon(&apart, "kind-prod", &old, KNOWN).await;
    assert!(cluster(&admin, &["rotate", "kind-prod"]).await.stderr.contains("--finish"));
    let listed = cluster(&admin, &["list", "--output", "json"]).await.success().json();
    assert_eq!(listed["clusters"][0]["token"], "rotating", "{listed}");
    assert_eq!(listed["clusters"][1]["cluster"], "kind-stage", "{listed}");
    cluster(&admin, &["rotate", "kind-prod", "--finish"]).await.success();
    soon(&apart, "kind-prod", &old, DENIED).await;

    // Who keeps a Secret is not worked against.
    let patch = json!({ "metadata": { "ownerReferences": [{
        "apiVersion": "external-secrets.io/v1", "kind": "ExternalSecret", "name": "kind-stage", "uid": "1",
    }] } });
    let name = "cluster-kind-stage-relay-token";
    let owned = ["patch", "secret", name, "-n", NAMESPACE, "--type=merge", "-p", &patch.to_string()];
    server.kubectl(owned).await.success();
    let refused = cluster(&admin, &["rotate", "kind-stage"]).await;
    assert!(refused.stderr.contains("is kept by ExternalSecret kind-stage"), "{refused:?}");

    // The doctor names what is broken.
    let empty = ["patch", "secret", name, "-n", NAMESPACE, "--type=merge", "-p", r#"{"data":{"token":""}}"#];
    server.kubectl(empty).await.success();
    let names = r#"[{"op":"remove","path":"/rules/0/resourceNames/0"}]"#;
    let forbid = ["patch", "role", "transponder-edge-registry", "-n", NAMESPACE, "--type=json", "-p", names];
    server.kubectl(forbid).await.success();
    let wrong = [unread("kind-prod"), "wrong kind-stage: the token is empty".to_owned()];
    assert_eq!(doctor(&admin).await, wrong);

    // What is removed is gone, its permission first of all; what somebody else keeps stays.
    for (gone, status) in [("kind-prod", "401"), ("kind-stage", "503")] {
        let said = cluster(&admin, &["remove", gone]).await.success().text();
        assert!(said.contains(&format!("are answered {status}")), "{said}");
    }
    let role = object(&server, "role", "transponder-edge-registry").await;
    assert!(role["rules"].as_array().is_none_or(Vec::is_empty), "{role}");
    let secrets = server.kubectl(["get", "secrets", "-n", NAMESPACE, "-o", "name"]).await.success().text();
    assert_eq!(secrets.trim(), format!("secret/{name}"));
    assert!(cluster(&admin, &["remove", "kind-prod"]).await.stderr.contains("there is no cluster kind-prod"));
}
