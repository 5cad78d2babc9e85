//! What a replica needs of the API server: what is missing or older than the program is named, and its coming noticed.

use serde_json::{Value, json};
use transponder_tests::{
    Broker, Fleet, LONG, Mesh, NAMESPACE, Run, TestEvent, alone, eventually, kubernetes::ApiServer, product,
};

/// The services that keep something.
const KEEPERS: [&str; 3] = ["edge", "dora-recorder", "release-tracking"];

async fn bare() -> Fleet {
    let mesh = Mesh::new(&Broker::start().await).await;
    Fleet::bare(mesh, ApiServer::start().await).await
}

/// Waits until a replica is not ready for a reason that says all of this.
async fn says(fleet: &Fleet, service: &'static str, named: &[&str]) {
    let why = eventually(&format!("{service} says what is wrong"), LONG, || async {
        match fleet.readiness(service, 0).await {
            Err(why) if named.iter().all(|name| why.contains(name)) => Ok(why),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    println!("{service}: {why}");
}

/// The product's definitions, each without one field of its status, as if by an older version.
async fn older_definitions(fleet: &Fleet) -> String {
    let manifests = Run::program(product("transponder")).args(["manifests", "crds"]).run().await.success();
    let file = fleet.server.folder().join("crds.yaml");
    std::fs::write(&file, manifests.text()).unwrap();
    let file = file.display().to_string();
    let printed =
        fleet.server.kubectl(["create", "--dry-run=client", "-o", "json", "-f", &file]).await.success();
    let all = printed.text();
    let all = serde_json::Deserializer::from_str(&all).into_iter::<Value>();
    let items: Vec<Value> = all
        .map(|definition| {
            let mut definition = definition.unwrap();
            let field = match definition["spec"]["names"]["plural"].as_str().unwrap() {
                "releaseoutcomes" => "replayed",
                "dorastreams" => "inherited",
                "releases" => "mergeKnownAt",
                other => panic!("{other}"),
            };
            let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
            let fields = definition.pointer_mut(schema).and_then(Value::as_object_mut).unwrap();
            fields.remove(field).unwrap_or_else(|| panic!("no {field}: {fields:?}"));
            definition
        })
        .collect();
    assert_eq!(items.len(), KEEPERS.len());
    json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_definition_is_named_by_each_service_before_it_writes() {
    let _alone = alone().await;
    let mut fleet = bare().await;
    let older = older_definitions(&fleet).await;
    fleet.server.apply(&older).await;
    fleet.server.kubectl(["wait", "--for=condition=Established", "crd", "--all"]).await.success();
    KEEPERS.into_iter().for_each(|service| fleet.launch(service, 0));
    for (service, field) in KEEPERS.into_iter().zip(["replayed", "inherited", "mergeKnownAt"]) {
        says(&fleet, service, &["older than this program", "transponder manifests crds", field]).await;
    }
    fleet.define().await;
    for service in KEEPERS {
        fleet.wait_ready(service, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_stand_for_election_is_not_ready() {
    let _alone = alone().await;
    let mut fleet = bare().await;
    fleet.define().await;
    let mut taken = Vec::new();
    for service in KEEPERS {
        let name = format!("transponder-{service}");
        let role = fleet.server.kubectl(["get", "role", &name, "-n", NAMESPACE, "-o", "json"]).await;
        let role = role.success().json();
        let whole = rules(&role, role["rules"].as_array().unwrap().clone());
        let mut without = role["rules"].as_array().unwrap().clone();
        without.retain(|rule| rule["resources"] != json!(["leases"]));
        fleet.server.apply(&rules(&role, without)).await;
        taken.push(whole);
        fleet.launch(service, 0);
    }
    for service in KEEPERS {
        says(&fleet, service, &["lease", "transponder manifests rbac"]).await;
    }
    for whole in taken {
        fleet.server.apply(&whole).await;
    }
    for service in KEEPERS {
        fleet.wait_ready(service, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_named_and_its_coming_is_noticed() {
    let _alone = alone().await;
    let mut fleet = bare().await;
    fleet.launch("edge", 0);
    says(&fleet, "edge", &["transponder manifests crds"]).await;
    fleet.define().await;
    fleet.wait_ready("edge", 0).await;

    // A permission that is taken away, and comes back.
    let role = fleet.server.kubectl(["get", "role", "transponder-edge", "-n", NAMESPACE, "-o", "json"]).await;
    let role = role.success().json();
    fleet.server.kubectl(["delete", "role", "transponder-edge", "-n", NAMESPACE]).await.success();
    let (status, _) = fleet.mesh.post("kind-prod", TestEvent::new("Failed", "refused").body()).await.unwrap();
    assert_eq!(status, 503);
    let why = fleet.readiness("edge", 0).await.unwrap_err();
    assert!(why.contains("transponder manifests rbac"), "{why}");
    fleet.server.apply(&rules(&role, role["rules"].as_array().unwrap().clone())).await;
    fleet.wait_ready("edge", 0).await;
    assert!(fleet.process("edge", 0).ended().is_none());
}

/// A Role with other rules.
fn rules(role: &Value, rules: Vec<Value>) -> String {
    let metadata = json!({ "name": role["metadata"]["name"], "namespace": NAMESPACE });
    json!({ "apiVersion": role["apiVersion"], "kind": "Role", "metadata": metadata, "rules": rules })
        .to_string()
}
