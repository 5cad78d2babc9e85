//! The operator's commands on a Kubernetes API, with the rights of an operator and no more.

use std::{collections::BTreeSet, path::Path};

use serde_json::{Value, json};
use transponder_tests::{
    Answer, Behaviour, Broker, Fleet, LONG, NAMESPACE, Ran, eventually, kubernetes::ApiServer,
};

use crate::{alone, drive::HOUR, fleet};

/// What the document on security says that an operator needs.
const ROLE: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: { name: operator, namespace: platform-system }
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: { name: operator, namespace: platform-system }
rules:
  - { apiGroups: [transponder.dev], resources: [releaseoutcomes], verbs: [get, list, patch] }
  - { apiGroups: [transponder.dev], resources: [releases], verbs: [list] }
  - { apiGroups: [''], resources: [configmaps], resourceNames: [cluster-registry], verbs: [get] }
  - { apiGroups: [''], resources: [secrets], resourceNames: [cluster-kind-prod-relay-token], verbs: [get] }
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: { name: operator, namespace: platform-system }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: Role, name: operator }
subjects: [{ kind: ServiceAccount, name: operator }]
";

async fn operate(fleet: &Fleet, kubeconfig: &Path, arguments: &[&str]) -> Ran {
    let kubeconfig = format!("kubernetes.kubeconfig={}", kubeconfig.display());
    let namespace = format!("kubernetes.namespace={NAMESPACE}");
    let store = ["--store", "kubernetes", "--set", &kubeconfig, "--set", &namespace];
    fleet.mesh.operate(store.iter().chain(arguments)).await
}

/// Where hooks reach the edge, as the chart would register it.
async fn register(server: &ApiServer, fleet: &Fleet) {
    let ca = std::fs::read_to_string(fleet.mesh.path("edge/edge-ca.crt")).unwrap();
    let entry = json!({
        "relaySecretName": "cluster-kind-prod-relay-token",
        "outcomeRelayURL": fleet.mesh.url("/outcome/kind-prod"), "relayCA": ca,
    });
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "cluster-registry", "namespace": NAMESPACE },
        "data": { "kind-prod": entry.to_string() },
    });
    server.apply(&map.to_string()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outcomes_are_listed_shown_and_replayed_and_releases_listed_by_the_operators_own_rights() {
    let _alone = alone().await;
    let broker = Broker::start().await;
    let mut fleet = fleet(&broker).await;
    fleet.start_all(1, 1).await;
    fleet.server.apply(ROLE).await;
    register(&fleet.server, &fleet).await;
    let token = fleet.server.service_account_token(NAMESPACE, "operator", None, HOUR).await;
    let kubeconfig = fleet.server.kubeconfig_for(&token);
    let ask = async |arguments: &[&str]| {
        operate(&fleet, &kubeconfig, &[arguments, &["--output", "json"]].concat()).await.success().json()
    };
    let tell = async |arguments: &[&str]| operate(&fleet, &kubeconfig, arguments).await;

    assert_eq!(ask(&["outcomes", "list"]).await, json!({ "outcomes": [] }));
    assert!(
        tell(&["releases", "list"])
            .await
            .success()
            .text()
            .contains("no releases in namespace platform-system")
    );

    // URL and token are those of the registry.
    broker.always(Behaviour::Answer(Answer::status(400)));
    let send = ["send", "--cluster", "kind-prod", "--app-namespace", "app-shop-cicd", "--app", "shop"];
    let more = ["--env", "prod", "--chain-id", "c-1", "--attempt", "1", "--wait", "30s", "--output", "json"];
    let sent = operate(&fleet, &kubeconfig, &[&send[..], &more].concat()).await.json();
    assert_eq!(sent["status"], 202, "{sent}");
    let key = sent["key"].as_str().unwrap();

    let dead = eventually("the broker's part is given up", LONG, || async {
        let listed = ask(&["outcomes", "list", "--state", "dead", "--cluster", "kind-prod"]).await;
        if listed["outcomes"][0]["key"] == key { Ok(listed) } else { Err(listed.to_string()) }
    })
    .await;
    let outcome = &dead["outcomes"][0];
    assert_eq!((&outcome["app"], &outcome["phase"]), (&json!("shop"), &json!("Succeeded")), "{dead}");
    let shown = ask(&["outcomes", "show", key]).await;
    assert_eq!(shown["targets"]["broker"]["state"], "dead", "{shown}");
    assert!(shown["targets"]["broker"]["error"].as_str().is_some_and(|said| !said.is_empty()), "{shown}");
    let text = tell(&["outcomes", "list"]).await.success().text();
    assert!(text.starts_with("RECEIVED") && text.contains("broker dead") && text.contains(key), "{text}");
    let missing = tell(&["outcomes", "show", &"0".repeat(40)]).await;
    assert_eq!(missing.code, Some(1));
    assert!(missing.stderr.contains("there is no event with this key"), "{}", missing.stderr);

    // A replay is followed by the edge that delivers.
    broker.always(Behaviour::Accept);
    assert_eq!(ask(&["outcomes", "replay", key]).await, json!({ "replayed": ["broker"] }));
    let delivered = async || {
        eventually("the broker has it", LONG, || async {
            let shown = ask(&["outcomes", "show", key]).await;
            if shown["targets"]["broker"]["state"] == "delivered" { Ok(()) } else { Err(shown.to_string()) }
        })
        .await;
    };
    delivered().await;
    let nothing = tell(&["outcomes", "replay", key]).await;
    assert!(nothing.stderr.contains("nothing to replay"), "{}", nothing.stderr);
    assert_eq!(ask(&["outcomes", "replay", "--all-dead"]).await, json!({ "replayed": 0 }));

    let releases = ask(&["releases", "list", "--state", "succeeded"]).await;
    assert_eq!(releases["releases"][0]["chainId"], "c-1", "{releases}");
    assert_eq!(ask(&["releases", "clusters"]).await["clusters"][0]["cluster"], "kind-prod");
    let text = tell(&["releases", "list"]).await.success().text();
    assert!(text.starts_with("STATE") && text.contains("c-1"), "{text}");

    // Nothing else was asked for.
    let user = format!("system:serviceaccount:{NAMESPACE}:operator");
    let asked: Vec<_> = fleet.server.audit().into_iter().filter(|event| event.user == user).collect();
    assert!(!asked.is_empty() && asked.iter().all(|event| event.code != 403), "{asked:#?}");
    // And without the right it is said so.
    let token = fleet.server.service_account_token(NAMESPACE, "transponder-forwarder", None, HOUR).await;
    let refused = operate(&fleet, &fleet.server.kubeconfig_for(&token), &["outcomes", "list"]).await;
    assert!(refused.stderr.contains("cannot list resource \"releaseoutcomes\""), "{}", refused.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_names_missing_definitions_and_rights_and_asks_for_no_data_directory() {
    let _alone = alone().await;
    let broker = Broker::start().await;
    let fleet = fleet(&broker).await;
    let admin = fleet.server.admin_kubeconfig();
    let doctor = async |kubeconfig: &Path| {
        let ran = operate(&fleet, kubeconfig, &["doctor", "--output", "json"]).await.json();
        ran["findings"].as_array().unwrap().clone()
    };
    let of = |findings: &[Value], area: &str| -> Vec<String> {
        let of_area = findings.iter().filter(|finding| finding["area"] == area);
        of_area.map(|found| format!("{} {}", found["level"], found["what"]).replace('"', "")).collect()
    };

    let findings = doctor(&admin).await;
    let mut expected = vec!["fine the definitions of the custom resources are there".to_owned()];
    let accounts: BTreeSet<_> = crate::drive::SERVICES.into_iter().collect();
    expected.extend(accounts.iter().map(|service| format!("fine transponder-{service} has its rights")));
    assert_eq!(of(&findings, "kubernetes"), expected);
    let areas: BTreeSet<_> = findings.iter().map(|finding| finding["area"].as_str().unwrap()).collect();
    assert!(!areas.contains("data") && !areas.contains("owner"), "{areas:?}");
    assert_eq!(of(&findings, "running"), ["fine there are no dead outcomes"]);

    // A verb, a binding, a definition.
    let rules = r#"[{"op":"remove","path":"/rules/0/verbs/0"}]"#;
    for change in [
        &["patch", "role", "transponder-edge", "-n", NAMESPACE, "--type=json", "-p", rules][..],
        &["delete", "rolebinding", "transponder-release-tracking", "-n", NAMESPACE],
        &["delete", "crd", "dorastreams.transponder.dev"],
    ] {
        fleet.server.kubectl(change).await.success();
    }
    eventually("the doctor names all three", LONG, || async {
        let found = of(&doctor(&admin).await, "kubernetes").join("\n");
        let named = [
            "wrong there is no definition of dorastreams",
            "wrong transponder-edge may not create releaseoutcomes\n",
            "wrong transponder-release-tracking may not create leases, get leases transponder-release-tracking, ",
        ];
        if named.iter().all(|said| found.contains(said)) { Ok(()) } else { Err(found) }
    })
    .await;

    // Who may not ask is told so once.
    fleet.server.apply(ROLE).await;
    let token = fleet.server.service_account_token(NAMESPACE, "operator", None, HOUR).await;
    let found = of(&doctor(&fleet.server.kubeconfig_for(&token)).await, "kubernetes");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[1].starts_with("doubtful whether the accounts have their rights"), "{found:?}");
}
