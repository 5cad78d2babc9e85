//! The ledger on a store that others write, too.

use transponder_core::{ReleaseKey, Timestamp};
use transponder_runtime::{Context, SystemClock};
use transponder_store::Health;

use super::*;
use crate::{state::Outcome, store::Answer};

/// A shelf that somebody else may rearrange.
#[derive(Default)]
struct Shelf(Mutex<Option<Stored>>);

impl Shelf {
    fn holds(&self) -> Option<Stored> {
        self.0.lock().unwrap().clone()
    }

    fn put(&self, stored: Option<Stored>) {
        *self.0.lock().unwrap() = stored;
    }
}

impl StreamStore for Shelf {
    fn load(&self) -> Answer<'_, Everything> {
        Box::pin(async {
            Ok(Everything { streams: self.holds().into_iter().collect(), imports: Vec::new() })
        })
    }

    fn find<'a>(&'a self, _: &'a Stream) -> Answer<'a, Option<Stored>> {
        Box::pin(async { Ok(self.holds()) })
    }

    fn save(&self, update: Update) -> Answer<'_, Saved> {
        Box::pin(async move {
            let mut held = self.0.lock().unwrap();
            if held.as_ref().map(|held| held.version) != update.read {
                return Ok(Saved::Stale);
            }
            let version = update.read.unwrap_or(100) + 1;
            *held = Some(Stored { version, state: update.next, sealed: None });
            Ok(Saved::As(version))
        })
    }

    fn shorten_holds(&self, _: Duration) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn probe(&self) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn health(&self) -> watch::Receiver<Health> {
        watch::channel(Health { generation: 0, problem: None }).1
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

fn shop() -> Stream {
    let name = "shop";
    Stream {
        app_namespace: name.parse().unwrap(),
        app: name.parse().unwrap(),
        env: name.parse().unwrap(),
        cluster: name.parse().unwrap(),
    }
}

async fn record(ledger: &Arc<Ledger>, release: u8) -> Result<Disposition, RecordError> {
    let at = Timestamp::from_second(1_700_000_000 + i64::from(release)).unwrap();
    let verdict = Verdict {
        release: ReleaseKey::from_bytes([release; 20]),
        outcome: Outcome::Succeeded,
        finished_at: at,
        first_finished_at: at,
        flow_start: None,
        received_at: at,
    };
    ledger.record(shop(), Maker::Platform, verdict).await
}

fn ledger(shelf: &Arc<Shelf>, zero_hold: Duration) -> Arc<Ledger> {
    let config = Config { zero_hold, ..Config::default() };
    let (clock, metrics) = (Arc::new(SystemClock::new()), Metrics::register(&Context::new()));
    Ledger::new(shelf.clone(), None, &config, clock, metrics, Showing::replica())
}

fn shown(ledger: &Ledger) -> u64 {
    ledger.view().shown()[0].totals.succeeded
}

#[tokio::test]
async fn nothing_is_counted_before_it_is_known_what_was() {
    let shelf = Arc::new(Shelf::default());
    let ledger = ledger(&shelf, Duration::ZERO);
    assert_eq!(record(&ledger, 1).await, Err(RecordError::Loading));
    assert_eq!(shelf.holds(), None);
    ledger.known();
    assert_eq!(record(&ledger, 1).await, Ok(Disposition::New));
}

#[tokio::test]
async fn a_store_that_was_set_back_is_gone_on_from_by_its_list_and_by_the_next_write() {
    for listed in [true, false] {
        let shelf = Arc::new(Shelf::default());
        let ledger = ledger(&shelf, Duration::ZERO);
        ledger.known();
        record(&ledger, 1).await.unwrap();
        let backup = shelf.holds();
        record(&ledger, 2).await.unwrap();
        shelf.put(backup);
        if listed {
            ledger.know_all(shelf.load().await.unwrap()).await;
            assert_eq!(shown(&ledger), 1);
        }
        assert_eq!(record(&ledger, 3).await, Ok(Disposition::New));
        assert_eq!((shown(&ledger), shelf.holds().unwrap().state.totals.succeeded), (2, 2));
    }
}

#[tokio::test]
async fn a_list_that_was_read_before_a_write_takes_nothing_back() {
    let shelf = Arc::new(Shelf::default());
    let ledger = ledger(&shelf, Duration::ZERO);
    ledger.known();
    let none = shelf.load().await.unwrap();
    record(&ledger, 1).await.unwrap();
    let one = shelf.load().await.unwrap();
    record(&ledger, 2).await.unwrap();
    for early in [one, none] {
        ledger.know_all(early).await;
        assert_eq!(shown(&ledger), 2);
    }
    assert_eq!(record(&ledger, 2).await, Ok(Disposition::Repeated));
    assert_eq!(record(&ledger, 3).await, Ok(Disposition::New));
    assert_eq!(shelf.holds().unwrap().state.totals.succeeded, 3);
}

#[tokio::test]
async fn a_hold_that_has_passed_is_over_when_that_is_stored_and_only_while_it_may_be() {
    let shelf = Arc::new(Shelf::default());
    let ledger = ledger(&shelf, Duration::from_nanos(1));
    ledger.known();
    record(&ledger, 1).await.unwrap();
    ledger.end_holds(|| false).await;
    assert_eq!(shown(&ledger), 0);
    ledger.end_holds(|| true).await;
    assert_eq!((shown(&ledger), shelf.holds().unwrap().state.hold.length), (1, Duration::ZERO));
}
