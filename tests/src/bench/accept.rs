//! Durable accepts of an edge, against what the same API server stores of the same objects for a bare client.

use serde_json::{Value, json};
use transponder_tests::{
    NAMESPACE,
    kubernetes::{ApiServer, Durability, Settings},
    usage::cpu_seconds,
};

use crate::{
    ROUNDS,
    fleet::Bench,
    median, raw, value,
    wrk::{Press, Pressed},
};

/// Requests at a time.
const CONNECTIONS: usize = 64;
const SECONDS: u64 = 4;
const APPS: usize = 120;
/// Where the bare client creates: nobody watches there.
const BARE: &str = "bench-bare";

pub(crate) async fn measure() {
    // Every write is synced, as on a real cluster.
    let settings = Settings { durability: Durability::PowerLoss, ..Settings::default() };
    let mut bench = Bench::new(ApiServer::with(settings).await, 10).await;
    hold(&bench).await;
    bench.fleet.start("edge", 0).await;
    let edge = bench.press(bench.fleet.address("edge", 0).to_string(), APPS);
    let bare = bare(&bench, &edge).await;
    let (mut accepts, mut creates) = (Vec::new(), Vec::new());
    // The first round opens connections and fills caches.
    for round in 0..=ROUNDS {
        for (press, all) in [(&edge, &mut accepts), (&bare, &mut creates)] {
            hold(&bench).await;
            let one = round_of(&mut bench, press).await;
            if round > 0 {
                all.push(one);
            }
        }
    }
    let of = |all: &[Round], number: fn(&Round) -> f64| all.iter().map(number).collect::<Vec<_>>();
    for (what, all) in [("accepts", &accepts), ("bare creates", &creates)] {
        raw(&format!("{what} a second"), &of(all, |round| round.pressed.rate));
        raw(&format!("{what}: p50 in ms"), &of(all, |round| round.pressed.p50));
        raw(&format!("{what}: p99 in ms"), &of(all, |round| round.pressed.p99));
        raw(&format!("{what}: CPU of the API server for each in µs"), &of(all, |round| round.server));
        raw(&format!("{what}: CPU of etcd for each in µs"), &of(all, |round| round.etcd));
        raw(&format!("{what}: CPU of the edge for each in µs"), &of(all, |round| round.edge));
    }
    let ratio = |number: fn(&Round) -> f64| median(&of(&accepts, number)) / median(&of(&creates, number));
    value("k8s_accept_over_create", ratio(|round| round.pressed.rate));
    value("k8s_accept_p99_over_create_p99", ratio(|round| round.pressed.p99));
}

struct Round {
    pressed: Pressed,
    /// Microseconds of CPU for each.
    server: f64,
    etcd: f64,
    edge: f64,
}

async fn round_of(bench: &mut Bench, press: &Press) -> Round {
    let before = cpu(bench);
    let pressed = press.run(bench.fleet.server.folder(), CONNECTIONS, SECONDS).await;
    let after = cpu(bench);
    let each = |at: usize| (after[at] - before[at]) / pressed.requests * 1e6;
    Round { pressed, server: each(0), etcd: each(1), edge: each(2) }
}

fn cpu(bench: &mut Bench) -> [f64; 3] {
    let server = bench.fleet.server.process().pid();
    let etcd = bench.fleet.server.etcd_process().pid();
    let edge = bench.fleet.process("edge", 0).pid();
    [server, etcd, edge].map(cpu_seconds)
}

/// Holds the Lease of the edges in the name of another replica, for the next minute: the edge accepts, as all but one do,
/// and delivers nothing.
async fn hold(bench: &Bench) {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "transponder-edge", "namespace": NAMESPACE },
        "spec": { "holderIdentity": "another", "leaseDurationSeconds": 60, "acquireTime": now, "renewTime": now },
    });
    bench.fleet.server.apply(&lease.to_string()).await;
}

/// A client that creates what the edge does, in the same name, and does nothing else.
async fn bare(bench: &Bench, edge: &Press) -> Press {
    let server = &bench.fleet.server;
    server.kubectl(["create", "namespace", BARE]).await.success();
    let create = ["create", "role", "bare", "-n", BARE, "--verb=create"];
    let what = "--resource=releaseoutcomes.transponder.dev";
    server.kubectl(create.iter().chain(&[what])).await.success();
    let account = format!("--serviceaccount={NAMESPACE}:transponder-edge");
    let bind = ["create", "rolebinding", "bare", "-n", BARE, "--role=bare", &account];
    server.kubectl(bind).await.success();
    let day = std::time::Duration::from_hours(2);
    let token = server.service_account_token(NAMESPACE, "transponder-edge", None, day).await;
    Press {
        to: server.url().replace("https://", ""),
        targets: vec![[
            bench.clusters[0].clone(),
            format!("/apis/transponder.dev/v1/namespaces/{BARE}/releaseoutcomes?fieldManager=transponder"),
            token,
        ]],
        content_type: "application/json",
        body: stored(bench, edge).await,
        apps: edge.apps,
    }
}

/// The object that the edge makes of an event, with what differs from one to the next left to fill in.
async fn stored(bench: &Bench, edge: &Press) -> String {
    const ID: &str = "0123456789abcdef0123";
    let cluster = &bench.clusters[0];
    let event = edge.body.replace("@ID@", ID).replace("@CLUSTER@", cluster).replace("@APP@", "app-00000");
    let (status, answer) = bench.fleet.mesh.post(cluster, event).await.expect("an answer");
    assert_eq!(status, 202, "{answer}");
    let list =
        bench.fleet.server.kubectl(["get", "ro", "-n", NAMESPACE, "-o", "json"]).await.success().json();
    let object: &Value = &list["items"][0];
    let created = json!({
        "apiVersion": object["apiVersion"],
        "kind": object["kind"],
        "metadata": { "name": "@NAME@", "labels": object["metadata"]["labels"] },
        "spec": object["spec"],
    });
    created.to_string().replace(ID, "@ID@")
}
