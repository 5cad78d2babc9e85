use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;
use transponder_core::{AppName, AppNamespace, ClusterName, EnvName, ReleaseKey, Timestamp};
use transponder_runtime::Context;
use transponder_store::Health;

use super::*;
use crate::{
    error::Budget,
    state::{Outcome, Totals},
    store::{Answer, Everything, SqliteStore},
};

/// Two clocks that stand where they are put.
#[derive(Clone)]
struct Hands(Arc<Mutex<(Timestamp, Duration)>>);

impl Hands {
    fn at(second: i64) -> Self {
        Self(Arc::new(Mutex::new((at(second), Duration::from_secs(5)))))
    }

    fn pass(&self, wall: i64, monotonic: u64) {
        let mut hands = self.0.lock().unwrap();
        hands.0 = hands.0.checked_add(jiff::SignedDuration::from_secs(wall)).unwrap();
        hands.1 += Duration::from_secs(monotonic);
    }
}

impl Clock for Hands {
    fn wall(&self) -> Timestamp {
        self.0.lock().unwrap().0
    }

    fn monotonic(&self) -> Duration {
        self.0.lock().unwrap().1
    }
}

/// The real store, whose answer to a write that arrived can be lost, as a failed sync loses it.
struct Forgetful {
    store: SqliteStore,
    loses: AtomicBool,
    health: watch::Sender<Health>,
}

impl Forgetful {
    fn open(directory: &std::path::Path) -> Arc<Self> {
        let store = SqliteStore::open(directory).unwrap();
        let health = watch::Sender::new(Health { generation: 0, problem: None });
        Arc::new(Self { store, loses: AtomicBool::new(false), health })
    }
}

impl StreamStore for Forgetful {
    fn load(&self) -> Answer<'_, Everything> {
        self.store.load()
    }

    fn find<'a>(&'a self, stream: &'a Stream) -> Answer<'a, Option<Stored>> {
        self.store.find(stream)
    }

    fn save(&self, update: Update) -> Answer<'_, Saved> {
        Box::pin(async move {
            let saved = self.store.save(update).await?;
            if self.loses.load(Ordering::SeqCst) {
                return Err(StoreError::Unavailable { action: "write", problem: "disk I/O error".into() });
            }
            Ok(saved)
        })
    }

    fn shorten_holds(&self, longest: Duration) -> Answer<'_, ()> {
        self.store.shorten_holds(longest)
    }

    fn probe(&self) -> Answer<'_, ()> {
        self.store.probe()
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    fn close(&self) -> Answer<'_, ()> {
        self.store.close()
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn stream(namespace: &str, app: &str, cluster: &str) -> Stream {
    Stream {
        app_namespace: AppNamespace::new(namespace).unwrap(),
        app: AppName::new(app).unwrap(),
        env: EnvName::new("prod").unwrap(),
        cluster: ClusterName::new(cluster).unwrap(),
    }
}

fn shop() -> Stream {
    stream("app-shop-cicd", "shop", "kind-prod")
}

fn verdict(release: u8, outcome: Outcome, finished: i64) -> Verdict {
    let finished_at = at(finished);
    Verdict {
        release: ReleaseKey::from_bytes([release; 20]),
        outcome,
        finished_at,
        first_finished_at: finished_at,
        flow_start: Some(at(finished - 60)),
        received_at: finished_at,
    }
}

async fn open(directory: &std::path::Path, config: &Config, clock: &Hands) -> Arc<Ledger> {
    ledger(Arc::new(SqliteStore::open(directory).unwrap()), config, clock).await
}

async fn ledger(store: Arc<dyn StreamStore>, config: &Config, clock: &Hands) -> Arc<Ledger> {
    let metrics = Metrics::register(&Context::new());
    Ledger::load(store, config, Arc::new(clock.clone()), metrics).await.unwrap()
}

fn shown(ledger: &Ledger) -> Totals {
    let shown = ledger.view().shown();
    assert_eq!(shown.len(), 1);
    shown[0].totals
}

#[tokio::test]
async fn a_new_stream_stands_at_zero_for_the_hold_and_keeps_its_remainder_over_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (config, clock) = (Config::default(), Hands::at(0));
    {
        let ledger = open(directory.path(), &config, &clock).await;
        ledger.record(shop(), Maker::Platform, verdict(1, Outcome::Succeeded, 0)).await.unwrap();
        assert_eq!(shown(&ledger), Totals::default());
        clock.pass(60, 60);
        assert_eq!(shown(&ledger).succeeded, 0);
    }
    let ledger = open(directory.path(), &config, &clock).await;
    clock.pass(0, 29);
    assert_eq!(shown(&ledger).succeeded, 0);
    clock.pass(0, 1);
    assert_eq!(shown(&ledger).succeeded, 1);
}

#[tokio::test]
async fn what_was_shown_is_not_taken_back_by_a_wall_clock_that_jumps_or_a_longer_hold() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Hands::at(0);
    {
        let ledger = open(directory.path(), &Config::default(), &clock).await;
        ledger.record(shop(), Maker::Platform, verdict(1, Outcome::Succeeded, 0)).await.unwrap();
        clock.pass(90, 90);
        assert_eq!(shown(&ledger).succeeded, 1);
        clock.pass(-86_400, 0);
        assert_eq!(shown(&ledger).succeeded, 1);
        clock.pass(86_400, 0);
    }
    let longer = Config { zero_hold: Duration::from_secs(3_600), ..Config::default() };
    assert_eq!(shown(&*open(directory.path(), &longer, &clock).await).succeeded, 1);
}

#[tokio::test]
async fn a_hold_that_was_configured_too_long_ends_with_a_shorter_one_and_does_not_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Hands::at(0);
    let hold = |seconds| Config { zero_hold: Duration::from_secs(seconds), ..Config::default() };
    let years = hold(90_000 * 3_600);
    {
        let ledger = open(directory.path(), &years, &clock).await;
        ledger.record(shop(), Maker::Platform, verdict(1, Outcome::Succeeded, 0)).await.unwrap();
        clock.pass(60, 60);
        assert_eq!(shown(&ledger).succeeded, 0);
    }
    {
        let ledger = open(directory.path(), &hold(90), &clock).await;
        assert_eq!(shown(&ledger).succeeded, 0, "the shorter one runs from the first verdict, too");
        clock.pass(30, 30);
        assert_eq!(shown(&ledger).succeeded, 1);
        ledger.record(shop(), Maker::Platform, verdict(2, Outcome::Succeeded, 5)).await.unwrap();
    }
    assert_eq!(shown(&*open(directory.path(), &years, &clock).await).succeeded, 2);
}

#[tokio::test]
async fn a_write_whose_end_is_unknown_is_not_counted_twice() {
    let directory = tempfile::tempdir().unwrap();
    let store = Forgetful::open(directory.path());
    store.loses.store(true, Ordering::SeqCst);
    let config = Config { zero_hold: Duration::ZERO, ..Config::default() };
    let ledger = ledger(store.clone(), &config, &Hands::at(0)).await;
    let first = verdict(1, Outcome::Succeeded, 0);
    assert!(matches!(ledger.record(shop(), Maker::Platform, first).await, Err(RecordError::Store(_))));
    assert!(ledger.view().shown().is_empty(), "what was not acknowledged is not shown");
    store.loses.store(false, Ordering::SeqCst);
    assert_eq!(ledger.record(shop(), Maker::Platform, first).await, Ok(Disposition::Repeated));
    assert_eq!(shown(&ledger).succeeded, 1);

    store.loses.store(true, Ordering::SeqCst);
    assert!(ledger.record(shop(), Maker::Platform, verdict(2, Outcome::Failed, 5)).await.is_err());
    assert_eq!(shown(&ledger).failed, 0);
    ledger.refresh().await.unwrap();
    assert_eq!(shown(&ledger).failed, 1);
}

#[tokio::test]
async fn budgets_refuse_new_streams_and_never_one_that_exists() {
    let directory = tempfile::tempdir().unwrap();
    let budgets = Budgets { streams: 4, streams_per_cluster: 3, streams_per_app_namespace: 2 };
    let (config, clock) = (Config { budgets, ..Config::default() }, Hands::at(0));
    let ledger = open(directory.path(), &config, &clock).await;
    let record = |namespace, app, cluster, release| {
        let (ledger, stream) = (ledger.clone(), stream(namespace, app, cluster));
        async move { ledger.record(stream, Maker::Platform, verdict(release, Outcome::Failed, 0)).await }
    };
    let full = |budget, limit| Err(RecordError::Full { budget, limit });
    assert_eq!(record("app-a-cicd", "one", "c1", 1).await, Ok(Disposition::New));
    assert_eq!(record("app-a-cicd", "two", "c1", 1).await, Ok(Disposition::New));
    assert_eq!(record("app-a-cicd", "three", "c1", 1).await, full(Budget::AppNamespace, 2));
    assert_eq!(record("app-b-cicd", "one", "c1", 1).await, Ok(Disposition::New));
    assert_eq!(record("app-c-cicd", "one", "c1", 1).await, full(Budget::Cluster, 3));
    assert_eq!(record("app-c-cicd", "one", "c2", 1).await, Ok(Disposition::New));
    assert_eq!(record("app-d-cicd", "one", "c3", 1).await, full(Budget::All, 4));
    assert_eq!(record("app-a-cicd", "one", "c1", 2).await, Ok(Disposition::New));
    drop(ledger);
    let smaller = Config { budgets: Budgets { streams: 1, ..budgets }, ..config };
    assert_eq!(open(directory.path(), &smaller, &clock).await.view().shown().len(), 4);
}

#[tokio::test]
async fn no_cluster_and_no_task_takes_the_room_of_another_cluster_or_app_namespace() {
    let directory = tempfile::tempdir().unwrap();
    let budgets = Budgets { streams: 100, streams_per_cluster: 3, streams_per_app_namespace: 2 };
    let (config, clock) = (Config { budgets, ..Config::default() }, Hands::at(0));
    let full = |budget, limit| Err(RecordError::Full { budget, limit });
    let new = || Ok(Disposition::New);
    let (a, b) = ("app-a-cicd", "app-b-cicd");
    let ledger = open(directory.path(), &config, &clock).await;
    for (maker, namespace, app, cluster, expected) in [
        (Maker::Platform, a, "one", "c1", new()),
        (Maker::Platform, a, "two", "c1", new()),
        (Maker::Platform, a, "three", "c1", full(Budget::AppNamespace, 2)),
        (Maker::Platform, a, "one", "c2", new()),
        (Maker::App, a, "four", "c2", new()),
        (Maker::App, a, "five", "c3", new()),
        (Maker::App, a, "six", "c4", full(Budget::AppTasks, 2)),
        (Maker::App, b, "one", "c2", new()),
        (Maker::App, b, "two", "c2", new()),
        (Maker::Platform, a, "two", "c2", new()),
        (Maker::Platform, b, "three", "c2", new()),
        (Maker::Platform, b, "four", "c2", full(Budget::Cluster, 3)),
    ] {
        let recorded = ledger.record(stream(namespace, app, cluster), maker, verdict(1, Outcome::Failed, 0));
        assert_eq!(recorded.await, expected, "{namespace}/{app} on {cluster} by {maker:?}");
    }
    drop(ledger);
    let ledger = open(directory.path(), &config, &clock).await;
    for (maker, cluster, expected) in [
        (Maker::App, "c4", full(Budget::AppTasks, 2)),
        (Maker::Platform, "c2", full(Budget::AppNamespace, 2)),
        (Maker::Platform, "c4", new()),
    ] {
        let recorded = ledger.record(stream(a, "seven", cluster), maker, verdict(1, Outcome::Failed, 0));
        assert_eq!(recorded.await, expected, "after a restart, on {cluster} by {maker:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_interleaving_of_streams_gives_the_same_totals_and_repetition_none_more() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config { zero_hold: Duration::ZERO, ..Config::default() };
    let ledger = open(directory.path(), &config, &Hands::at(0)).await;
    let tasks: Vec<_> = (0..40)
        .map(|number| {
            let (ledger, stream) = (ledger.clone(), stream("app-a-cicd", &format!("app-{number}"), "c1"));
            tokio::spawn(async move {
                for release in 0..20 {
                    let outcome = if release % 3 == 0 { Outcome::Failed } else { Outcome::Succeeded };
                    let verdict = verdict(release, outcome, 100 * i64::from(release));
                    let (first, second) = tokio::join!(
                        ledger.record(stream.clone(), Maker::Platform, verdict),
                        ledger.record(stream.clone(), Maker::Platform, verdict)
                    );
                    let counted = [first.unwrap(), second.unwrap()];
                    assert!(counted.contains(&Disposition::New) && counted.contains(&Disposition::Repeated));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let shown = ledger.view().shown();
    assert_eq!(shown.len(), 40);
    for view::Shown { totals, .. } in shown {
        assert_eq!((totals.succeeded, totals.failed), (13, 7));
        assert_eq!((totals.restore.count(), totals.restore.sum), (7, Duration::from_secs(700)));
    }
}

#[tokio::test]
async fn memory_follows_the_disk_once_the_store_was_opened_anew() {
    let directory = tempfile::tempdir().unwrap();
    let store = Forgetful::open(directory.path());
    let config = Config { zero_hold: Duration::ZERO, ..Config::default() };
    let ledger = ledger(store.clone(), &config, &Hands::at(0)).await;
    let context = Context::new();
    let part = context.readiness.part("dora-recorder");
    let watching = tokio::spawn(crate::health::watch(ledger.clone(), part, context.shutdown.clone()));
    store.loses.store(true, Ordering::SeqCst);
    assert!(ledger.record(shop(), Maker::Platform, verdict(1, Outcome::Failed, 0)).await.is_err());
    assert!(ledger.view().shown().is_empty());
    store.health.send_modify(|health| health.generation += 1);
    let following = async {
        while ledger.view().shown().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), following).await.unwrap();
    assert_eq!(shown(&ledger).failed, 1);
    context.shutdown.begin();
    watching.await.unwrap();
}

#[tokio::test]
async fn what_was_read_before_a_later_commit_does_not_take_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config { zero_hold: Duration::ZERO, ..Config::default() };
    let ledger = open(directory.path(), &config, &Hands::at(0)).await;
    ledger.record(shop(), Maker::Platform, verdict(1, Outcome::Failed, 0)).await.unwrap();
    let read = ledger.store().find(&shop()).await.unwrap().unwrap();
    ledger.record(shop(), Maker::Platform, verdict(2, Outcome::Failed, 5)).await.unwrap();
    let slot = ledger.book().place(&shop(), Maker::Platform);
    ledger.take_over(&slot, read);
    assert_eq!(shown(&ledger).failed, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verdicts_of_one_stream_wait_for_each_other_and_none_is_turned_away() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config { zero_hold: Duration::ZERO, ..Config::default() };
    let ledger = open(directory.path(), &config, &Hands::at(0)).await;
    let record = |release| {
        let ledger = ledger.clone();
        tokio::spawn(async move {
            ledger.record(shop(), Maker::Platform, verdict(release, Outcome::Failed, 0)).await
        })
    };
    let tasks: Vec<_> = (0..100).map(record).collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), Ok(Disposition::New));
    }
    assert_eq!(shown(&ledger).failed, 100);
}
