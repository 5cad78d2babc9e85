//! Looks at all replicas over and over, as Prometheus does, and reports to them, as the edge does.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, task::JoinHandle};
use transponder_proto::v1::{Disposition, Phase};
use transponder_tests::eventually;

use crate::ground::{Caller, Recorder, Shown};

/// How many scrapes a holder is looked at before anything happens to it.
const AWHILE: usize = 15;

/// Scrapes without a pause, one replica after the other.
pub(crate) struct Watcher {
    /// Who showed something last.
    last: watch::Receiver<Option<usize>>,
    stop: Arc<AtomicBool>,
    task: JoinHandle<usize>,
}

impl Watcher {
    pub(crate) fn of(recorders: &[Recorder]) -> Self {
        let scrapes: Vec<_> = recorders.iter().map(Recorder::scrape).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let (told, last) = watch::channel(None);
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let (mut highest, mut seen) = (BTreeMap::<String, f64>::new(), 0);
            while !stopped.load(Ordering::SeqCst) {
                for (number, scrape) in scrapes.iter().enumerate() {
                    let Some(Shown(samples)) = scrape.shown().await else { continue };
                    seen += 1;
                    told.send_replace(Some(number));
                    for (series, value) in samples {
                        let before = highest.insert(series.clone(), value).unwrap_or(0.0);
                        assert!(value >= before, "replica {number}: {series} fell from {before} to {value}");
                    }
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            seen
        });
        Self { last, stop, task }
    }

    /// Waits until one other than this shows the totals, and has done so for a while. Answers which one.
    pub(crate) async fn until_other_than(&mut self, than: usize, wait: Duration) -> usize {
        let found = eventually("another replica shows the totals", wait, || {
            let last = self.last.borrow().filter(|last| *last != than);
            async move { last.ok_or_else(|| "it still does, or nobody".to_owned()) }
        })
        .await;
        for _ in 0..AWHILE {
            self.last.changed().await.expect("no sample fell");
        }
        found
    }

    /// The number of scrapes in which something was shown.
    pub(crate) async fn stop(self) -> usize {
        self.stop.store(true, Ordering::SeqCst);
        self.task.await.expect("no sample fell")
    }
}

/// Tells releases of one stream all the time, each until one of the replicas takes it, and then to another one, too.
pub(crate) struct Reports {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<i64>>,
}

impl Reports {
    pub(crate) fn start(callers: &[Caller]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let number = Arc::new(AtomicI64::new(0));
        let tell = |_| tokio::spawn(tell(callers.to_vec(), stop.clone(), number.clone()));
        let tasks = (0..2).map(tell).collect();
        Self { stop, tasks }
    }

    /// How many there were.
    pub(crate) async fn stop(self) -> i64 {
        self.stop.store(true, Ordering::SeqCst);
        let mut told = 0;
        for task in self.tasks {
            told += task.await.expect("each release is new once");
        }
        told
    }
}

async fn tell(callers: Vec<Caller>, stop: Arc<AtomicBool>, number: Arc<AtomicI64>) -> i64 {
    let mut told = 0;
    while !stop.load(Ordering::SeqCst) {
        let release = number.fetch_add(1, Ordering::SeqCst);
        let name = format!("release-{release}");
        let mut refused = false;
        let mut turn = callers.iter().cycle().skip(release.unsigned_abs() as usize % callers.len());
        let mut next = async || {
            let mut caller = turn.next().expect("a cycle has no end").clone();
            let record = caller.record("shop", &name, Phase::Succeeded, release);
            tokio::time::timeout(Duration::from_secs(2), record).await.ok().and_then(Result::ok)
        };
        // Who does not answer may have counted it nevertheless.
        let disposition = loop {
            match next().await {
                Some(disposition) => break disposition,
                None => refused = true,
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert!(disposition == Disposition::New || refused, "{name}: {disposition:?}");
        told += 1;
        if let Some(again) = next().await {
            assert_eq!(again, Disposition::Repeated, "{name}");
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    told
}
