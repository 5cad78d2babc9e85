//! A replica whose copy of the records has stood still: what it does with it harms nobody.

use std::sync::Arc;

use tokio::task::JoinHandle;
use transponder_core::{EventKey, Maker, Phase, Release, ReleaseId, Stream, Timestamp};
use transponder_kubernetes::{Access, KubernetesConfig};
use transponder_release_tracking::{
    budget::Budgets,
    change::{Change, Unknown, What},
    record::{Observation, PullRequest},
    state::{Lifetime, State},
    store::{Changed, Store as _, Wanted, kubernetes::KubernetesStore},
};
use transponder_runtime::Context;
use transponder_tests::{SHORT, eventually};

use crate::ground::{Ground, shared};

const ROOM: Budgets = Budgets { app_namespace: 100, cluster: 100, store: 100 };

/// A store that follows what happens until it is frozen.
struct Replica {
    store: Arc<KubernetesStore>,
    context: Context,
    running: JoinHandle<()>,
}

impl Replica {
    async fn start(ground: &Ground) -> Self {
        let config = KubernetesConfig {
            kubeconfig: Some(ground.kubeconfig.clone()),
            namespace: Some(ground.namespace.to_owned()),
            ..KubernetesConfig::default()
        };
        let access = Access::find(&config).await.unwrap();
        let store = Arc::new(KubernetesStore::new(&access, ROOM));
        let context = Context::new();
        let running = tokio::spawn(store.clone().run(context.shutdown.clone()));
        eventually("the records are listed", SHORT, || async {
            store.tally().await.map(drop).map_err(|error| error.to_string())
        })
        .await;
        Self { store, context, running }
    }

    async fn freeze(self) -> Arc<KubernetesStore> {
        self.context.shutdown.begin();
        self.running.await.unwrap();
        self.store
    }
}

fn release(chain_id: &str) -> Release {
    let stream = Stream {
        app_namespace: "app-shop-cicd".parse().unwrap(),
        app: "shop".parse().unwrap(),
        env: chain_id.parse().unwrap(),
        cluster: "kind-prod".parse().unwrap(),
    };
    Release { stream, id: ReleaseId::ChainId(chain_id.to_owned()) }
}

fn now() -> Timestamp {
    Timestamp::now()
}

async fn change(store: &KubernetesStore, chain_id: &str, what: What) -> Changed {
    let unknown = match what {
        What::Silent(_) => Unknown::Leave,
        What::Put(_) | What::Observed(_) => Unknown::Create(Maker::Platform),
    };
    let change =
        Change { release: release(chain_id), git_revision: String::new(), what, unknown, now: now() };
    store.change(change).await.unwrap()
}

fn merged(chain_id: &str) -> What {
    let url = format!("https://git.example/{chain_id}");
    What::Put(PullRequest {
        url,
        merged_at: Some("2026-09-14T10:00:00Z".parse().unwrap()),
        ..Default::default()
    })
}

fn seen(event: u8, phase: Phase) -> What {
    let event = Some(EventKey::from_bytes([event; 20]));
    What::Observed(Observation { event, phase, finished_at: now(), received_at: now() })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_stands_still_loses_no_write_and_deletes_nothing_that_lives() {
    let server = shared().await;
    let ground = Ground::new(&server, "stale").await;
    let live = Replica::start(&ground).await;
    for chain_id in ["a", "b", "c"] {
        change(&live.store, chain_id, merged(chain_id)).await;
    }
    let frozen = Replica::start(&ground).await.freeze().await;
    let count = async || ground.objects(&server).await.len();

    // What was observed meanwhile is not old, not silent, and loses no observation.
    change(&live.store, "a", seen(1, Phase::Succeeded)).await;
    assert_eq!(frozen.get(release("a").key()).await.unwrap().unwrap().state(), State::Merged);
    let old = now() + jiff::SignedDuration::from_hours(1);
    change(&live.store, "b", seen(1, Phase::Failed)).await;
    let silent = frozen.silent(now(), 10).await.unwrap();
    assert!(silent.contains(&release("b")), "{silent:?}");
    assert_eq!(change(&frozen, "b", What::Silent(now())).await.moves, []);
    change(&live.store, "c", seen(1, Phase::Syncing)).await;
    assert_eq!(frozen.expire(Lifetime::Open, old, 10).await.unwrap(), 0);
    assert_eq!(count().await, 3);
    let again = change(&frozen, "a", seen(2, Phase::Succeeded)).await.record.unwrap();
    assert_eq!(again.observations, 2);
    // The edge's answer is as new as the last write of anybody, though it wrote nothing.
    let same = seen(3, Phase::Failed);
    change(&live.store, "c", same.clone()).await;
    let told = change(&frozen, "c", same).await;
    assert_eq!((told.record.unwrap().observations, told.moves), (2, vec![]));

    // What is told of a record that is gone makes it anew, though the copy has it all.
    assert_eq!(live.store.delete(release("a").key()).await.unwrap(), Some(State::Succeeded));
    let put = change(&frozen, "a", merged("a")).await.record.unwrap();
    assert_eq!((put.state(), put.observations, count().await), (State::Merged, 0, 3));

    // What it never heard of is found all the same.
    change(&live.store, "d", merged("d")).await;
    assert!(frozen.get(release("d").key()).await.unwrap().is_some());
    change(&live.store, "e", merged("e")).await;
    let wanted = Wanted { pr_url: Some("https://git.example/e".into()), ..Wanted::default() };
    assert_eq!(frozen.find(wanted, 2).await.unwrap().len(), 1);
    assert!(frozen.get(release("f").key()).await.unwrap().is_none());
    live.freeze().await;
    ground.asked(&server);
}

#[tokio::test(flavor = "multi_thread")]
async fn rooms_are_kept_and_what_is_there_needs_none() {
    let server = shared().await;
    let ground = Ground::new(&server, "rooms").await;
    let live = Replica::start(&ground).await;
    for number in 0..ROOM.store {
        change(&live.store, &format!("c-{number}"), merged("x")).await;
    }
    let frozen = Replica::start(&ground).await.freeze().await;
    let more = Change {
        release: release("more"),
        git_revision: String::new(),
        what: seen(1, Phase::Failed),
        unknown: Unknown::Create(Maker::Platform),
        now: now(),
    };
    let spent = live.store.change(more.clone()).await.unwrap_err();
    assert!(spent.to_string().contains("100 records"), "{spent}");
    live.store.delete(release("c-7").key()).await.unwrap();
    live.store.change(more.clone()).await.unwrap();
    // The other one counts it as one too many, until it looks.
    let again = frozen.change(more).await.unwrap().record.unwrap();
    assert_eq!(again.observations, 1);
    live.freeze().await;
}
