//! The operator's commands on a Kubernetes API, with the rights of an operator and no more.

use std::path::Path;

use serde_json::json;
use transponder_tests::{Answer, Behaviour, Broker, Fleet, LONG, NAMESPACE, Ran, TestEvent, eventually};

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

#[tokio::test(flavor = "multi_thread")]
async fn outcomes_are_listed_shown_and_replayed_and_releases_listed_by_the_operators_own_rights() {
    let _alone = alone().await;
    let broker = Broker::start().await;
    let mut fleet = fleet(&broker).await;
    fleet.start_all(1, 1).await;
    fleet.server.apply(ROLE).await;
    let token = fleet.server.service_account_token(NAMESPACE, "operator", None, HOUR).await;
    let kubeconfig = fleet.server.kubeconfig_for(&token);
    let ask = async |arguments: &[&str]| {
        operate(&fleet, &kubeconfig, &[arguments, &["--output", "json"]].concat()).await.success().json()
    };
    let tell = async |arguments: &[&str]| operate(&fleet, &kubeconfig, arguments).await;

    assert_eq!(ask(&["outcomes", "list"]).await, json!({ "outcomes": [] }));
    assert!(tell(&["releases", "list"]).await.success().text().contains("no releases"));

    broker.always(Behaviour::Answer(Answer::status(400)));
    let event = TestEvent::new("Succeeded", "c-1");
    fleet.mesh.accept(&event).await;
    let key = &*event.key();

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
