use transponder_core::Timestamp;

use super::*;
use crate::state::{Outcome, Verdict};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn state(app: &str) -> StreamState {
    let stream = Stream {
        app_namespace: AppNamespace::new("app-shop-cicd").unwrap(),
        app: AppName::new(app).unwrap(),
        env: EnvName::new("prod").unwrap(),
        cluster: ClusterName::new("kind-prod").unwrap(),
    };
    StreamState::new(stream, Maker::Platform, Hold { since: at(0).into(), length: Duration::from_secs(90) })
}

fn verdict(release: u8, outcome: Outcome, finished: i64) -> Verdict {
    let finished_at = at(finished);
    Verdict {
        release: ReleaseKey::from_bytes([release; 20]),
        outcome,
        finished_at,
        first_finished_at: finished_at,
        flow_start: Some(at(-4_000)),
        received_at: finished_at,
    }
}

/// Applies verdicts one by one as the ledger does.
async fn record(store: &SqliteStore, state: &mut StreamState, verdicts: &[Verdict]) {
    let mut read = store.find(&state.stream).await.unwrap().map(|stored| stored.version);
    for verdict in verdicts {
        let Some(change) = state.apply(verdict).change else { continue };
        let update = Update { read, next: Arc::new(state.clone()), change };
        let Saved::As(version) = store.save(update).await.unwrap() else { panic!("stale") };
        read = Some(version);
    }
}

#[tokio::test]
async fn streams_survive_a_reopening_with_all_they_know() {
    let directory = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (state("one"), state("two"));
    {
        let store = SqliteStore::open(directory.path()).unwrap();
        let story = [
            verdict(1, Outcome::Failed, 10),
            verdict(2, Outcome::Succeeded, 60),
            verdict(2, Outcome::Failed, 70),
            verdict(3, Outcome::Failed, 80),
        ];
        record(&store, &mut one, &story).await;
        let many: Vec<_> = (0..=255).map(|n| verdict(n, Outcome::Succeeded, i64::from(n))).collect();
        record(&store, &mut two, &many).await;
        let one_more = Verdict { release: ReleaseKey::from_bytes(*b"just one release moo"), ..many[255] };
        record(&store, &mut two, &[one_more]).await;
    }
    let store = SqliteStore::open(directory.path()).unwrap();
    let mut loaded = store.load().await.unwrap().streams;
    loaded.sort_by_key(|stored| stored.state.stream.clone());
    let sorted = |state: &StreamState| {
        let mut known = state.window.known().to_vec();
        known.sort_by_key(|known| known.key);
        StreamState { window: Window::new(known, state.window.forgotten_until()), ..state.clone() }
    };
    assert_eq!(loaded.iter().map(|s| sorted(&s.state)).collect::<Vec<_>>(), [sorted(&one), sorted(&two)]);
    let found = store.find(&one.stream).await.unwrap().unwrap();
    assert_eq!((found.version, sorted(&found.state)), (4, sorted(&one)));
    assert_eq!(two.window.known().len(), 256);
}

#[tokio::test]
async fn of_two_writers_that_read_the_same_version_one_must_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path()).unwrap();
    let mut state = state("one");
    let change = state.apply(&verdict(1, Outcome::Failed, 10)).change.unwrap();
    let update = Update { read: None, next: Arc::new(state.clone()), change };
    assert_eq!(store.save(update.clone()).await, Ok(Saved::As(1)));
    assert_eq!(store.save(update.clone()).await, Ok(Saved::Stale));
    assert_eq!(store.save(Update { read: Some(1), ..update.clone() }).await, Ok(Saved::As(2)));
    assert_eq!(store.save(Update { read: Some(1), ..update }).await, Ok(Saved::Stale));
    assert_eq!(store.find(&state.stream).await.unwrap().unwrap().version, 2);
}

#[tokio::test]
async fn a_stream_of_the_first_schema_was_made_by_the_platform() {
    let directory = tempfile::tempdir().unwrap();
    let first = Schema { migrations: &SCHEMA.migrations[..1] };
    let connection = Database::open(directory.path(), FILE, first).unwrap().connect_writer().unwrap();
    let sql = "INSERT INTO stream VALUES (1, ?1, 'app-shop-cicd', 'one', 'prod', 'kind-prod', 1, 5, 0, '{}', NULL, NULL, NULL)";
    connection.execute(sql, [state("one").stream.key().as_bytes()]).unwrap();
    drop(connection);
    let store = SqliteStore::open(directory.path()).unwrap();
    assert_eq!(store.load().await.unwrap().streams[0].state.maker, Maker::Platform);
    let mut two = StreamState { maker: Maker::App, ..state("two") };
    record(&store, &mut two, &[verdict(1, Outcome::Failed, 10)]).await;
    assert_eq!(store.find(&two.stream).await.unwrap().unwrap().state.maker, Maker::App);
}
