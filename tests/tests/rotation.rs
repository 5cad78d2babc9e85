//! Certificates, authorities, tokens and the registry replaced under 50 requests a second: no failed request.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};
use transponder_tests::{Broker, LONG, Load, Mesh, Run, SHORT, TestEvent, Wire, alone, eventually, product};

const PER_SECOND: u32 = 50;
/// Enough requests for a second of load before and after each change.
const SECOND: usize = PER_SECOND as usize;

async fn mesh(broker: &Broker, clusters: &[&str]) -> Mesh {
    let mut mesh = Mesh::new(broker).await;
    mesh.set("edge.budget.rate", "1000");
    mesh.set("edge.budget.burst", "1000");
    for cluster in clusters {
        mesh.add_cluster(cluster).await;
    }
    mesh
}

/// Runs a command of the product that writes into the installation.
async fn transponder(arguments: &[&str]) {
    Run::program(product("transponder")).args(arguments).run().await.success();
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of a test")
}

async fn wait_for_metric(mesh: &Mesh, name: &str, label: &str, holds: impl Fn(f64) -> bool) {
    eventually(&format!("{name} {label}"), LONG, || async {
        let value = mesh.metric(name, &[label]).await;
        if holds(value) { Ok(()) } else { Err(value.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_edge_certificate_is_replaced_without_a_failed_request_and_a_mismatched_pair_is_not() {
    let _alone = alone().await;
    let broker = Broker::start().await;
    let mut mesh = mesh(&broker, &[]).await;
    mesh.run().await;
    let load = Load::start(&mesh, "kind-prod", PER_SECOND);
    load.more(SECOND).await;
    let first = Wire::connect(&mesh).await.unwrap().certificate();

    let other = tempfile::tempdir().unwrap();
    transponder(&["edge-certs", "--directory", text(other.path())]).await;
    let (key, good) = (mesh.path("edge/edge.key"), fs::read(mesh.path("edge/edge.key")).unwrap());
    fs::write(&key, fs::read(other.path().join("edge.key")).unwrap()).unwrap();
    let failures = "transponder_certificate_reload_failures_total";
    wait_for_metric(&mesh, failures, "certificate=\"edge\"", |failures| failures >= 1.0).await;
    load.more(SECOND).await;
    assert_eq!(Wire::connect(&mesh).await.unwrap().certificate(), first, "the last good one stays");
    fs::write(&key, good).unwrap();
    fs::write(mesh.path("edge/edge.crt"), "no certificate at all").unwrap();
    load.more(SECOND).await;
    assert_eq!(Wire::connect(&mesh).await.unwrap().certificate(), first, "the last good one stays");

    transponder(&["edge-certs", "--directory", text(&mesh.path("edge")), "--days", "400"]).await;
    eventually("the new certificate is shown", SHORT, || async {
        let shown = Wire::connect(&mesh).await?.certificate();
        if shown == first { Err("still the first".to_owned()) } else { Ok(()) }
    })
    .await;
    load.more(SECOND).await;
    let report = load.stop().await;
    report.assert_flawless();
    report.assert_delivered(&mesh, &broker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_authority_of_the_mesh_is_replaced_without_a_failed_request() {
    let _alone = alone().await;
    let broker = Broker::start().await;
    let mut mesh = mesh(&broker, &[]).await;
    mesh.run().await;
    let old = tempfile::tempdir().unwrap();
    for file in ["edge.crt", "edge.key"] {
        fs::copy(mesh.path("mesh").join(file), old.path().join(file)).unwrap();
    }
    let load = Load::start(&mesh, "kind-prod", PER_SECOND);
    load.more(SECOND).await;
    assert!(identity_works(&mesh, old.path(), "forwarder").await.is_ok());

    let expiry = "transponder_certificate_expiry_timestamp_seconds";
    let before = mesh.metric(expiry, &["mesh/"]).await;
    let directory = mesh.path("mesh");
    let new_authority = ["mesh-certs", "--new-authority", "--days", "400", "--directory", text(&directory)];
    transponder(&new_authority).await;
    let longer = 5.0 * 34.0 * 86_400.0;
    wait_for_metric(&mesh, expiry, "mesh/", |after| after > before + longer).await;
    load.more(SECOND).await;
    for part in ["forwarder", "dora-recorder", "release-tracking", "outcome-span"] {
        identity_works(&mesh, &directory, part).await.unwrap();
    }
    assert!(identity_works(&mesh, old.path(), "forwarder").await.is_ok(), "both authorities are trusted");

    fs::remove_file(directory.join("ca-previous.crt")).unwrap();
    eventually("an identity of the old authority is refused", LONG, || async {
        match identity_works(&mesh, old.path(), "forwarder").await {
            Ok(()) => Err("it is taken".to_owned()),
            Err(_) => Ok(()),
        }
    })
    .await;
    load.more(SECOND).await;
    let report = load.stop().await;
    report.assert_flawless();
    report.assert_delivered(&mesh, &broker).await;

    // Every connection was made under the old authority and kept. A start makes all of them anew.
    assert!(mesh.stop().await.success());
    mesh.run().await;
    let event = TestEvent::new("Succeeded", "after");
    assert_eq!(mesh.post("kind-prod", event.body()).await.unwrap().0, 202);
    let receipt = mesh.wait_final("kind-prod", &event.key()).await;
    assert_eq!(receipt["targets"]["span"]["state"], "delivered", "{receipt}");
}

/// Whether a part lets the edge's identity in that lies in `directory`: what it answers to a call does not matter then.
async fn identity_works(mesh: &Mesh, directory: &Path, part: &str) -> Result<(), String> {
    let (certificate, key) = (directory.join("edge.crt"), directory.join("edge.key"));
    let (ca, address) = (mesh.path("mesh/ca.crt"), mesh.address(part).to_string());
    // Trusts the new authority alone, so the server must have changed over as well once there is one.
    let arguments = [
        "-max-time",
        "10",
        "-cacert",
        text(&ca),
        "-cert",
        text(&certificate),
        "-key",
        text(&key),
        &address,
        "list",
    ];
    let ran = transponder_tests::grpcurl(arguments).await;
    if ran.code == Some(0) && ran.text().contains("transponder.v1.") { Ok(()) } else { Err(ran.stderr) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_token_is_rotated_without_a_failed_request() {
    let _alone = alone().await;
    let broker = Broker::start().await;
    let mut mesh = mesh(&broker, &[]).await;
    mesh.run().await;
    let load = Load::start(&mesh, "kind-prod", PER_SECOND);
    let mut tokens = vec![mesh.token("kind-prod").to_owned()];
    for _ in 0..2 {
        load.more(SECOND).await;
        let rotated = mesh.operate(["cluster", "rotate", "kind-prod", "--output", "json"]).await.success();
        let token = rotated.json()["token"].as_str().unwrap().to_owned();
        load.more(SECOND).await;
        eventually("the new token works", SHORT, || status_with(&mesh, &token, 404)).await;
        load.use_token(&token);
        load.more(2 * SECOND).await;
        mesh.operate(["cluster", "rotate", "kind-prod", "--finish"]).await.success();
        eventually("the token before does not", SHORT, || status_with(&mesh, &tokens[0], 401)).await;
        tokens.insert(0, token);
    }
    load.more(SECOND).await;
    let report = load.stop().await;
    report.assert_flawless();
    report.assert_delivered(&mesh, &broker).await;
}

/// Asks for a receipt that does not exist, so that nothing but the token decides.
async fn status_with(mesh: &Mesh, token: &str, expected: u16) -> Result<(), String> {
    let url = mesh.url(&format!("/outcome/kind-prod/{}", "0".repeat(40)));
    let (bearer, ca) = (format!("Authorization: Bearer {token}"), mesh.path("edge/edge-ca.crt"));
    let answer = transponder_tests::http(["--cacert", text(&ca), "-H", &bearer, &url]).await?;
    if answer.status == expected { Ok(()) } else { Err(answer.status.to_string()) }
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_entries_change_come_and_go_without_a_failed_request_of_others() {
    let _alone = alone().await;
    let broker = Broker::start().await;
    let mut mesh = mesh(&broker, &["kind-other"]).await;
    mesh.run().await;
    let load = Load::start(&mesh, "kind-prod", PER_SECOND);
    load.more(SECOND).await;

    let entry = mesh.path("registry/cluster-registry/kind-prod");
    let mut json: Value = serde_json::from_slice(&fs::read(&entry).unwrap()).unwrap();
    json["appNamespaces"] = json!(["app-shop-*"]);
    replace(&entry, &json.to_string());
    let other = TestEvent::new("Succeeded", "x").app("blog");
    eventually("the new entry is in force", SHORT, || status_of(&mesh, "kind-prod", &other, 403)).await;
    load.more(SECOND).await;

    let broken = mesh.path("registry/cluster-registry/kind-other");
    let (good, event) =
        (fs::read_to_string(&broken).unwrap(), TestEvent::new("Failed", "o").cluster("kind-other"));
    replace(&broken, "{\"relaySecretName\": ");
    eventually("a broken entry is our trouble", SHORT, || status_of(&mesh, "kind-other", &event, 503)).await;
    load.more(SECOND).await;
    replace(&broken, &good);
    eventually("a mended entry is taken", SHORT, || status_of(&mesh, "kind-other", &event, 202)).await;

    mesh.add_cluster("kind-new").await;
    let event = TestEvent::new("Failed", "n").cluster("kind-new");
    eventually("a new cluster may report", SHORT, || status_of(&mesh, "kind-new", &event, 202)).await;
    load.more(SECOND).await;
    mesh.operate(["cluster", "remove", "kind-new"]).await.success();
    eventually("a removed cluster may not", SHORT, || status_of(&mesh, "kind-new", &event, 401)).await;
    load.more(SECOND).await;
    let report = load.stop().await;
    report.assert_flawless();
    report.assert_delivered(&mesh, &broker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_is_swapped_by_links_is_followed_without_a_failed_request() {
    let _alone = alone().await;
    let broker = Broker::start().await;
    let mut mesh = mesh(&broker, &["kind-late"]).await;
    // As Kubernetes mounts a ConfigMap: the files are links through `..data`, which is swapped as a whole.
    let entries = mesh.path("registry/cluster-registry");
    let late = fs::read(entries.join("kind-late")).unwrap();
    mount(&entries, &["kind-prod"]);
    fs::remove_file(entries.join("kind-late")).unwrap();
    mount(&mesh.path("registry/secrets/cluster-kind-prod-relay-token"), &["token"]);
    mesh.run().await;
    let load = Load::start(&mesh, "kind-prod", PER_SECOND);
    load.more(SECOND).await;
    let event = TestEvent::new("Failed", "l").cluster("kind-late");
    assert_eq!(mesh.post("kind-late", event.body()).await.unwrap().0, 401);

    swap_data(&entries, |next| fs::write(next.join("kind-late"), &late).unwrap());
    symlink("..data/kind-late", entries.join("kind-late")).unwrap();
    eventually("the new mount is in force", SHORT, || status_of(&mesh, "kind-late", &event, 202)).await;
    load.more(SECOND).await;
    for _ in 0..5 {
        swap_data(&entries, |_| ());
        swap_data(&mesh.path("registry/secrets/cluster-kind-prod-relay-token"), |_| ());
        load.more(SECOND / 2).await;
    }

    // The whole directory, as a deployment by links does.
    let (registry, old) = (mesh.path("registry"), mesh.path("registry-1"));
    copy(&registry, &mesh.path("registry-2"));
    fs::remove_file(mesh.path("registry-2/cluster-registry/kind-late")).unwrap();
    let report = load.stop().await;
    report.assert_flawless();
    report.assert_delivered(&mesh, &broker).await;
    assert!(mesh.stop().await.success());
    fs::rename(&registry, &old).unwrap();
    symlink("registry-1", &registry).unwrap();
    mesh.run().await;
    let load = Load::start(&mesh, "kind-prod", PER_SECOND);
    load.more(SECOND).await;
    let next = mesh.path("next");
    symlink("registry-2", &next).unwrap();
    fs::rename(&next, &registry).unwrap();
    eventually("the new directory is in force", SHORT, || status_of(&mesh, "kind-late", &event, 401)).await;
    load.more(SECOND).await;
    let report = load.stop().await;
    report.assert_flawless();
    report.assert_delivered(&mesh, &broker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_is_gone_or_empty_is_never_a_401() {
    let _alone = alone().await;
    let broker = Broker::start().await;
    let mut mesh = mesh(&broker, &["kind-other"]).await;
    mesh.run().await;
    let (entries, aside) = (mesh.path("registry/cluster-registry"), mesh.path("aside"));
    fs::rename(&entries, &aside).unwrap();
    wait_for_metric(&mesh, "transponder_registry_findings", "", |findings| findings >= 1.0).await;
    let event = TestEvent::new("Succeeded", "gone");
    assert_eq!(mesh.post("kind-prod", event.body()).await.unwrap().0, 202, "the last good state goes on");

    fs::create_dir(&entries).unwrap();
    let event = TestEvent::new("Succeeded", "empty");
    eventually("an empty registry is our trouble", SHORT, || status_of(&mesh, "kind-prod", &event, 503))
        .await;
    let answer = mesh.curl("kind-prod", &event.body(), &[]).await.unwrap();
    assert!(answer.header("retry-after").is_some(), "{:?}", answer.headers);
    let ready = transponder_tests::http([format!("http://{}/readyz", mesh.address("admin"))]).await.unwrap();
    assert_eq!(ready.status, 503);
    assert!(
        ready.body_text().contains("edge registry: the cluster registry is empty"),
        "{}",
        ready.body_text()
    );

    fs::remove_dir(&entries).unwrap();
    fs::rename(&aside, &entries).unwrap();
    eventually("the registry is back", SHORT, || status_of(&mesh, "kind-prod", &event, 202)).await;

    let token = mesh.path("registry/secrets/cluster-kind-other-relay-token/token");
    let good = fs::read_to_string(&token).unwrap();
    let other = TestEvent::new("Succeeded", "o").cluster("kind-other");
    for empty in ["", " \n"] {
        replace(&token, empty);
        eventually("an empty token is our trouble", SHORT, || status_of(&mesh, "kind-other", &other, 503))
            .await;
    }
    let event = TestEvent::new("Succeeded", "alone");
    assert_eq!(
        mesh.post("kind-prod", event.body()).await.unwrap().0,
        202,
        "another cluster's token is its own"
    );
    fs::remove_file(&token).unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(mesh.post("kind-other", other.body()).await.unwrap().0, 503);
    replace(&token, &good);
    eventually("the token is back", SHORT, || status_of(&mesh, "kind-other", &other, 202)).await;
}

/// Posts an event and expects this status; an event that is known already counts as taken.
async fn status_of(mesh: &Mesh, cluster: &str, event: &TestEvent, expected: u16) -> Result<(), String> {
    let (status, answer) = mesh.post(cluster, event.body()).await?;
    let repeated = expected == 202 && status == 200;
    if status == expected || repeated { Ok(()) } else { Err(format!("{status}: {answer}")) }
}

/// Replaces a file as a whole.
fn replace(path: &Path, content: &str) {
    let next = path.with_file_name(".next");
    fs::write(&next, content).unwrap();
    fs::rename(next, path).unwrap();
}

/// Makes a directory look as Kubernetes mounts it.
fn mount(directory: &Path, files: &[&str]) {
    let first = directory.join("..first");
    fs::create_dir(&first).unwrap();
    symlink("..first", directory.join("..data")).unwrap();
    for file in files {
        fs::rename(directory.join(file), first.join(file)).unwrap();
        symlink(Path::new("..data").join(file), directory.join(file)).unwrap();
    }
}

/// Swaps `..data` for a copy that was changed.
fn swap_data(directory: &Path, change: impl FnOnce(&Path)) {
    let data = directory.join("..data");
    let current = fs::canonicalize(&data).unwrap();
    let next = directory.join(format!("..{:08x}", fastrand::u32(..)));
    copy(&current, &next);
    change(&next);
    let link = directory.join("..data_tmp");
    symlink(next.file_name().map(PathBuf::from).unwrap(), &link).unwrap();
    fs::rename(&link, &data).unwrap();
    fs::remove_dir_all(current).unwrap();
}

/// Copies a directory; links stay links.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (source, target) = (entry.as_ref().unwrap().path(), to.join(entry.as_ref().unwrap().file_name()));
        let kind = entry.unwrap().file_type().unwrap();
        if kind.is_symlink() {
            symlink(fs::read_link(&source).unwrap(), target).unwrap();
        } else if kind.is_dir() {
            copy(&source, &target);
        } else {
            fs::copy(source, target).unwrap();
        }
    }
}
