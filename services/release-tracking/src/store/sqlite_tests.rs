//! The embedded store on a real file.

use transponder_core::{Maker, Phase};

use super::*;
use crate::{
    budget::Owner,
    change::Unknown,
    record::{PullRequest, fixture::*},
    store::Error,
};

const ROOMY: Budgets = Budgets { app_namespace: 1 << 40, cluster: 1 << 40, store: 1 << 40 };

fn open(directory: &Path) -> SqliteStore {
    SqliteStore::open(directory, ROOMY).unwrap()
}

fn change(chain_id: &str, what: What, now: i64) -> Change {
    let unknown = Unknown::Create(Maker::Platform);
    Change { release: release(chain_id), git_revision: String::new(), what, unknown, now: at(now) }
}

fn merged(chain_id: &str, second: i64) -> Change {
    let told = PullRequest {
        url: format!("https://git.example/{chain_id}"),
        merged_at: Some(at(second)),
        ..PullRequest::default()
    };
    change(chain_id, What::Put(told), second)
}

fn seen(chain_id: &str, phase: Phase, second: i64) -> Change {
    change(chain_id, What::Observed(observed(1, phase, second, second)), second)
}

async fn state(store: &SqliteStore, chain_id: &str) -> State {
    store.get(release(chain_id).key()).await.unwrap().unwrap().state()
}

async fn tally(store: &SqliteStore) -> Vec<(State, u64)> {
    let mut tally = store.tally().await.unwrap();
    tally.retain(|(_, count)| *count > 0);
    tally.sort_unstable();
    tally
}

#[tokio::test]
async fn everything_is_there_after_the_file_was_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    store.change(merged("a", 1)).await.unwrap();
    store.change(seen("a", Phase::Syncing, 2)).await.unwrap();
    store.change(merged("b", 3)).await.unwrap();
    let (a, counted) = (store.get(release("a").key()).await.unwrap(), tally(&store).await);
    let reports = store.reports().await.unwrap();
    drop(store);

    let store = open(directory.path());
    assert_eq!(store.get(release("a").key()).await.unwrap(), a);
    assert_eq!(tally(&store).await, counted);
    assert_eq!(counted, [(State::Merged, 1), (State::Progressing, 1)]);
    assert_eq!(store.reports().await.unwrap(), reports);
    assert_eq!(reports[0].at, at(2));
    let wanted = Wanted { pr_url: Some("https://git.example/b".into()), ..Wanted::default() };
    assert_eq!(store.find(wanted, 2).await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_first_observation_of_a_release_supersedes_what_its_stream_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    store.change(merged("old", 1)).await.unwrap();
    store.change(merged("later", 50)).await.unwrap();
    let mut elsewhere = merged("elsewhere", 1);
    elsewhere.release.stream.env = transponder_core::EnvName::new("staging").unwrap();
    store.change(elsewhere.clone()).await.unwrap();

    let mut first = seen("new", Phase::Syncing, 20);
    first.now = at(60);
    let changed = store.change(first.clone()).await.unwrap();
    assert_eq!(changed.moves.len(), 2);
    assert_eq!(state(&store, "old").await, State::Superseded);
    assert_eq!(state(&store, "later").await, State::Merged, "it was merged after the observation");
    let other = store.get(elsewhere.release.key()).await.unwrap().unwrap();
    assert_eq!(other.state(), State::Merged, "another stream");

    assert!(store.change(first).await.unwrap().moves.is_empty(), "the same again does nothing");
    store.change(merged("next", 61)).await.unwrap();
    store.change(seen("new", Phase::Succeeded, 70)).await.unwrap();
    assert_eq!(state(&store, "next").await, State::Merged, "only a first observation supersedes");
    store.change(seen("old", Phase::Failed, 80)).await.unwrap();
    assert_eq!(state(&store, "old").await, State::Failed);
}

#[tokio::test]
async fn a_page_follows_a_page_without_a_gap_even_where_times_are_equal() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    for n in 0..25 {
        store.change(merged(&format!("c-{n}"), n / 10)).await.unwrap();
    }
    store.change(seen("c-3", Phase::Syncing, 50)).await.unwrap();
    for filter in [
        Filter::default(),
        Filter { app_namespace: Some(release("x").stream.app_namespace), states: vec![] },
        Filter { app_namespace: None, states: vec![State::Merged, State::Superseded, State::Progressing] },
    ] {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = store.list(filter.clone(), after, 4).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some(Cursor::after(last));
            all.extend(page);
        }
        let places: Vec<_> = all.iter().map(Cursor::after).collect();
        assert_eq!(all.len(), 25);
        assert_eq!(all[0].updated_at, at(50));
        assert!(places.is_sorted_by(|a, b| a > b), "last changed first");
    }
    let none = Filter { app_namespace: None, states: vec![State::Closed] };
    assert!(store.list(none, None, 4).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_page_that_begins_at_any_time_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    store.change(merged("a", 1)).await.unwrap();
    for (updated_at, expected) in [(Timestamp::MIN, 0), (Timestamp::UNIX_EPOCH, 0), (Timestamp::MAX, 1)] {
        // A page's token is no secret, so anybody may write one with this in it.
        let cursor = Cursor { updated_at, key: release("x").key() };
        let token = crate::page::encode(&cursor, &Filter::default());
        let after = crate::page::decode(&token, &Filter::default()).unwrap();
        assert_eq!(store.list(Filter::default(), Some(after), 5).await.unwrap().len(), expected);
    }
}

#[tokio::test]
async fn a_record_goes_when_its_lifetime_is_over_and_is_counted_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    store.change(change("open", What::Put(PullRequest::default()), 1)).await.unwrap();
    store.change(seen("done", Phase::Failed, 1)).await.unwrap();
    store.change(seen("young", Phase::Failed, 100)).await.unwrap();
    assert_eq!(store.expire(Lifetime::Ended, at(50), 500).await.unwrap(), 1);
    assert!(store.get(release("done").key()).await.unwrap().is_none());
    assert_eq!(tally(&store).await, [(State::Expected, 1), (State::Failed, 1)]);
    assert_eq!(store.expire(Lifetime::Open, at(50), 500).await.unwrap(), 1);
    assert_eq!(store.delete(release("young").key()).await.unwrap(), Some(State::Failed));
    assert_eq!(store.delete(release("young").key()).await.unwrap(), None);
    assert_eq!(tally(&store).await, []);
}

#[tokio::test]
async fn a_spent_budget_refuses_new_records_alone_and_names_itself() {
    let directory = tempfile::tempdir().unwrap();
    let budgets = Budgets { app_namespace: 2, ..ROOMY };
    let store = SqliteStore::open(directory.path(), budgets).unwrap();
    for chain_id in ["a", "b"] {
        store.change(merged(chain_id, 1)).await.unwrap();
    }
    let refused = store.change(seen("c", Phase::Failed, 2)).await.unwrap_err();
    let Error::Spent(spent) = refused else { panic!("{refused}") };
    let stream = release("c").stream;
    assert_eq!((spent.owner, spent.limit), (Owner::AppNamespace(stream.app_namespace, stream.cluster), 2));
    assert_eq!(store.reports().await.unwrap().len(), 1, "the cluster has reported all the same");
    store.change(seen("a", Phase::Failed, 3)).await.unwrap();
    let mut other = merged("c", 1);
    other.release.stream.app_namespace = transponder_core::AppNamespace::new("app-b-cicd").unwrap();
    store.change(other).await.unwrap();
    store.delete(release("b").key()).await.unwrap();
    store.change(merged("c", 1)).await.unwrap();
}

fn by(maker: Maker, app_namespace: &str, cluster: &str, chain_id: &str) -> Change {
    let mut change = merged(chain_id, 1);
    change.unknown = Unknown::Create(maker);
    change.release.stream.app_namespace = app_namespace.parse().unwrap();
    change.release.stream.cluster = cluster.parse().unwrap();
    change
}

#[tokio::test]
async fn no_cluster_and_no_task_takes_the_room_of_another_cluster_or_app_namespace() {
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        let budgets = Budgets { app_namespace: 2, cluster: 3, store: 100 };
        SqliteStore::open(directory.path(), budgets).unwrap()
    };
    let (a, b) = ("app-a-cicd", "app-b-cicd");
    let of_cluster = |cluster: &str| Some(Owner::AppNamespace(a.parse().unwrap(), cluster.parse().unwrap()));
    let of_tasks = || Some(Owner::AppTasks(a.parse().unwrap()));
    let store = open();
    for (maker, namespace, cluster, chain_id, refused) in [
        (Maker::Platform, a, "c1", "1", None),
        (Maker::Platform, a, "c1", "2", None),
        (Maker::Platform, a, "c1", "3", of_cluster("c1")),
        (Maker::Platform, a, "c2", "1", None),
        (Maker::App, a, "c2", "4", None),
        (Maker::App, a, "c3", "5", None),
        (Maker::App, a, "c4", "6", of_tasks()),
        (Maker::App, b, "c2", "7", None),
        (Maker::App, b, "c2", "8", None),
        (Maker::Platform, a, "c2", "2", None),
        (Maker::Platform, b, "c2", "9", None),
        (Maker::Platform, b, "c2", "10", Some(Owner::Cluster("c2".parse().unwrap()))),
    ] {
        let changed = store.change(by(maker, namespace, cluster, chain_id)).await;
        let spent = changed.err().map(|error| match error {
            Error::Spent(spent) => spent.owner,
            other => panic!("{other}"),
        });
        assert_eq!(spent, refused, "{chain_id} of {namespace} on {cluster} by {maker:?}");
    }
    drop(store);
    let store = open();
    assert!(store.change(by(Maker::App, a, "c4", "6")).await.is_err(), "also after a restart");
    for (maker, cluster, gone, new) in [(Maker::App, "c3", "5", "6"), (Maker::Platform, "c1", "1", "3")] {
        assert!(store.change(by(maker, a, cluster, new)).await.is_err());
        store.delete(by(maker, a, cluster, gone).release.key()).await.unwrap();
        store.change(by(maker, a, cluster, new)).await.unwrap();
    }
}

#[tokio::test]
async fn records_of_the_first_schema_count_as_the_platforms() {
    let directory = tempfile::tempdir().unwrap();
    let first = Schema { migrations: &SCHEMA.migrations[..1] };
    let old = Database::open(directory.path(), "tracking.db", first).unwrap().connect_writer().unwrap();
    for number in 0..2 {
        let sql = "INSERT INTO record VALUES (?1, x'00', 'app-a-cicd', 'shop', 'prod', 'c1', '', '', '', '', 'merged', 1, NULL, NULL, '{}')";
        old.execute(sql, [number]).unwrap();
    }
    drop(old);
    let budgets = Budgets { app_namespace: 2, cluster: 3, store: 100 };
    let store = SqliteStore::open(directory.path(), budgets).unwrap();
    assert!(store.change(by(Maker::Platform, "app-a-cicd", "c1", "1")).await.is_err());
    store.change(by(Maker::App, "app-a-cicd", "c1", "1")).await.unwrap();
    store.change(by(Maker::Platform, "app-b-cicd", "c1", "2")).await.unwrap();
    assert!(store.change(by(Maker::Platform, "app-b-cicd", "c1", "3")).await.is_err());
}

#[tokio::test]
async fn a_read_that_fails_is_an_error_and_one_bad_record_hides_no_silence() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    store.change(merged("bad", 1)).await.unwrap();
    store.change(merged("good", 2)).await.unwrap();
    let raw = Connection::open(directory.path().join("tracking.db")).unwrap();
    let bad = release("bad").key();
    raw.execute("UPDATE record SET document = '{' WHERE key = ?1", [bad.as_bytes()]).unwrap();
    assert!(matches!(store.get(bad).await, Err(Error::Unreadable(_))));
    assert!(matches!(store.change(merged("bad", 9)).await, Err(Error::Unreadable(_))));
    assert_eq!(store.silent(at(100), 10).await.unwrap(), [release("good")]);
    raw.execute_batch("ALTER TABLE record RENAME TO gone").unwrap();
    let key = release("good").key();
    assert!(matches!(store.get(key).await, Err(Error::Unavailable(_))));
    raw.execute_batch("ALTER TABLE gone RENAME TO record").unwrap();
    assert!(store.get(key).await.unwrap().is_some(), "and works again by itself");
}

#[tokio::test]
async fn a_last_report_never_runs_back_except_from_the_future() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let cluster = release("x").stream.cluster;
    let report = |second| Report { cluster: cluster.clone(), at: at(second) };
    for (told, now, kept) in [(10, 20, 10), (5, 21, 10), (90, 100, 90), (22, 30, 22), (40, 31, 31)] {
        store.reported(report(told), at(now)).await.unwrap();
        assert_eq!(store.reports().await.unwrap(), [report(kept)]);
    }
    assert_eq!(store.forget_reports(at(31)).await.unwrap(), 0);
    assert_eq!(store.forget_reports(at(32)).await.unwrap(), 1);
}

#[tokio::test]
async fn each_look_up_uses_an_index() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let plan = |sql: String| {
        let connection = store.database.connect_reader().unwrap();
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        // Values that are missing are NULL, which is as good for a plan.
        let lines = statement.query_map([], |row| row.get::<_, String>(3)).unwrap();
        lines.map(Result::unwrap).collect::<Vec<_>>().join("; ")
    };
    let namespace = release("x").stream.app_namespace;
    for id in
        [ReleaseId::ChainId("x".into()), ReleaseId::GitRevision("x".into()), ReleaseId::EventId("x".into())]
    {
        let wanted = Wanted { id: Some(id), app_namespace: Some(namespace.clone()), ..Wanted::default() };
        let (terms, values) = condition(&wanted);
        let terms = terms.replace("?1", &format!("'{}'", values[0])).replace("?2", "'n'");
        let plan = plan(format!("SELECT document FROM record WHERE {terms}"));
        assert!(plan.starts_with("SEARCH record USING INDEX record_"), "{plan}");
    }
    for (sql, index) in [
        (
            "SELECT document FROM record WHERE stream = x'00' AND state IN ('merged', 'progressing', 'unreported') AND sign_at < 5 AND key <> x'01' ORDER BY sign_at LIMIT 3",
            "record_awaiting",
        ),
        ("SELECT document FROM record WHERE quiet_since <= 5 ORDER BY quiet_since LIMIT 5", "record_quiet"),
        (
            "SELECT updated_at, key, document FROM record WHERE state = 'merged' AND (updated_at, key) < (5, x'00') ORDER BY updated_at DESC, key DESC LIMIT 5",
            "record_state",
        ),
        (
            "SELECT updated_at, key, document FROM record WHERE state = 'merged' AND (updated_at, key) < (5, x'00') AND app_namespace = 'a' ORDER BY updated_at DESC, key DESC LIMIT 5",
            "record_app_namespace",
        ),
        (
            "SELECT key FROM record WHERE state = 'merged' AND updated_at < 5 ORDER BY updated_at LIMIT 5",
            "record_state",
        ),
    ] {
        let plan = plan(sql.to_owned());
        assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{sql}: {plan}");
    }
}
