//! What each ServiceAccount may do: what the document on security says, no more and no less than its service needs.

#[path = "kubernetes_rights/drive.rs"]
mod drive;
#[path = "kubernetes_rights/operator.rs"]
mod operator;
#[path = "kubernetes_rights/table.rs"]
mod table;

use serde_json::{Value, json};
use transponder_tests::{
    Broker, Fleet, LONG, Mesh, NAMESPACE, alone, eventually,
    kubernetes::{ApiServer, AuditEvent},
};

use drive::Driver;
use table::{Right, granted, held};

async fn fleet(broker: &Broker) -> Fleet {
    let mut mesh = Mesh::new(broker).await;
    mesh.set("edge.retention.sweep", "1s");
    let fleet = Fleet::new(mesh, ApiServer::start().await).await;
    fleet.server.apply(drive::TASK).await;
    fleet
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_may_do_what_the_document_says_and_nothing_else() {
    let _alone = alone().await;
    let broker = Broker::start().await;
    let fleet = fleet(&broker).await;
    let everybody = held(&fleet.server, NAMESPACE, "nobody").await;
    for service in drive::SERVICES {
        let account = format!("transponder-{service}");
        let mut held_here = held(&fleet.server, NAMESPACE, &account).await;
        held_here.retain(|right| !everybody.contains(right));
        let mut wanted = granted(&account, true);
        // Granted in Argo CD's namespace, and only where releases of this cluster are counted.
        wanted.retain(|right| right.resource != "applications.argoproj.io");
        assert_eq!(held_here, wanted, "{account}");
        let mut elsewhere = held(&fleet.server, "default", &account).await;
        elsewhere.retain(|right| !everybody.contains(right));
        assert_eq!(elsewhere, granted(&account, false), "{account}");

        for Right { resource, verb, name } in &held_here {
            let said = format!("{account} may {verb} {resource} {name}");
            assert!(
                !format!("{resource}{verb}").contains('*') && !resource.contains("argoproj.io"),
                "{said}"
            );
            let reads = ["get", "list", "watch"].contains(&verb.as_str());
            let registry = ["configmaps", "secrets"].contains(&resource.as_str());
            assert!(!registry || (reads && name != "any"), "{said}");
            assert!(resource != "secrets" || verb == "get", "{said}");
        }
    }
}

/// Takes one verb of one rule away at a time, and looks whether the service is refused something.
#[tokio::test(flavor = "multi_thread")]
async fn without_any_of_its_rights_a_service_is_refused_something() {
    let _alone = alone().await;
    let broker = Broker::start().await;
    let mut fleet = fleet(&broker).await;
    fleet.start_all(1, 1).await;
    let mut driver = Driver::new(fleet).await;
    for (service, roles) in [
        ("edge", &["role/transponder-edge", "role/transponder-edge-registry"][..]),
        ("dora-recorder", &["role/transponder-dora-recorder", REVIEW]),
        ("release-tracking", &["role/transponder-release-tracking", REVIEW]),
        ("forwarder", &[REVIEW]),
        ("outcome-span", &[REVIEW]),
    ] {
        for role in roles {
            without_each(&mut driver, service, role).await;
        }
        driver.restart(service).await;
        driver.settle(service).await;
    }
    // With all of them nothing is.
    let before = driver.fleet.server.audit().len();
    for service in drive::SERVICES {
        driver.restart(service).await;
        driver.settle(service).await;
        driver.round(service, "", "").await;
    }
    let refused: Vec<_> = driver.fleet.server.audit().split_off(before);
    let refused: Vec<_> = refused.iter().filter(|event| ours(event) && event.code == 403).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

const REVIEW: &str = "clusterrole/transponder-token-review";

async fn without_each(driver: &mut Driver, service: &'static str, role: &str) {
    let get = ["get", role, "-n", NAMESPACE, "-o", "json"];
    let whole = driver.fleet.server.kubectl(get).await.success().json();
    let rules = whole["rules"].as_array().unwrap().clone();
    for (number, rule) in rules.iter().enumerate() {
        for verb in rule["verbs"].as_array().unwrap() {
            let (verb, resource) = (verb.as_str().unwrap(), rule["resources"][0].as_str().unwrap());
            driver.fleet.server.apply(&without(&whole, number, verb)).await;
            let before = driver.fleet.server.audit().len();
            driver.restart(service).await;
            let said =
                format!("{service} is refused to {verb} {resource}, as rule {number} of {role} lets it");
            let refused = eventually(&said, LONG, || async {
                driver.round(service, verb, resource).await;
                let asked = driver.fleet.server.audit().split_off(before);
                let mut refused = asked.iter().filter(|event| event.code == 403 && of(event, service));
                let found = refused.find(|event| event.verb == verb && whole_resource(event) == resource);
                found.cloned().ok_or_else(|| format!("{} requests", asked.len()))
            });
            println!("{:?}", refused.await);
        }
    }
    driver.fleet.server.apply(&bare(&whole, rules).to_string()).await;
}

/// The role without a verb in one rule, and without the rule when that was its only one.
fn without(role: &Value, number: usize, verb: &str) -> String {
    let mut rules = role["rules"].as_array().unwrap().clone();
    let verbs = rules[number]["verbs"].as_array_mut().unwrap();
    verbs.retain(|one| one != verb);
    if verbs.is_empty() {
        rules.remove(number);
    }
    bare(role, rules).to_string()
}

fn bare(role: &Value, rules: Vec<Value>) -> Value {
    let metadata = json!({ "name": role["metadata"]["name"], "namespace": role["metadata"]["namespace"] });
    json!({ "apiVersion": role["apiVersion"], "kind": role["kind"], "metadata": metadata, "rules": rules })
}

fn whole_resource(event: &AuditEvent) -> String {
    let (resource, below) = (&event.resource, &event.subresource);
    if below.is_empty() { resource.clone() } else { format!("{resource}/{below}") }
}

fn ours(event: &AuditEvent) -> bool {
    drive::SERVICES.iter().any(|service| of(event, service))
}

fn of(event: &AuditEvent, service: &str) -> bool {
    event.user == format!("system:serviceaccount:{NAMESPACE}:transponder-{service}")
}
