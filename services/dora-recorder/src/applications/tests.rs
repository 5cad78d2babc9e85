//! Any history of an Application, seen in any way: what is counted.

use std::{collections::BTreeSet, time::Duration};

use proptest::prelude::*;
use serde_json::{Value, json};
use transponder_core::{Maker, ReleaseKey, Timestamp};

use super::{annotations, object::Application, seen::Seen};
use crate::state::{Awaited, Expected, Hold, Instant, Outcome, StreamState};
use transponder_core::{ClusterName, Stream};
use transponder_kubernetes::watch::News;

fn time(second: i64) -> String {
    Timestamp::from_second(1_800_000_000 + second).unwrap().to_string()
}

fn at(second: i64) -> Instant {
    Instant::from(Timestamp::from_second(1_800_000_000 + second).unwrap())
}

fn cluster() -> ClusterName {
    "dev".parse().unwrap()
}

fn read(object: Value) -> Application {
    serde_json::from_value(object).unwrap()
}

/// What happens.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Somebody or self-heal starts an operation.
    Start,
    /// It ends.
    End(Outcome),
    /// Argo CD looks at the Application.
    Reconcile,
    /// A release becomes pending.
    Expect,
    /// The watch tells how the Application is, perhaps again.
    Watch,
    /// What is due is counted.
    Count,
    /// Somebody else takes over and knows the store alone.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Start),
        3 => prop_oneof![Just(Step::End(Outcome::Succeeded)), Just(Step::End(Outcome::Failed))],
        3 => Just(Step::Reconcile),
        2 => Just(Step::Expect),
        4 => Just(Step::Watch),
        3 => Just(Step::Count),
        1 => Just(Step::Restart),
    ]
}

/// An Application of a simulated Argo CD, and a recorder.
struct World {
    second: i64,
    started: Option<i64>,
    ended: Option<(Outcome, i64)>,
    reconciled: i64,
    annotated: Option<(Option<i64>, u32)>,
    /// Baselines after which something is pending, and the release that is.
    pending: Vec<(Option<i64>, u32)>,
    releases: u32,
    seen: Seen,
    stored: StreamState,
    counted: u64,
}

impl World {
    fn new() -> Self {
        let stream = Stream {
            app_namespace: "app-shop-cicd".parse().unwrap(),
            app: "shop".parse().unwrap(),
            env: "test".parse().unwrap(),
            cluster: cluster(),
        };
        let hold = Hold { since: at(0), length: Duration::ZERO };
        Self {
            second: 0,
            started: None,
            ended: None,
            reconciled: 0,
            annotated: None,
            pending: Vec::new(),
            releases: 0,
            seen: Seen::default(),
            stored: StreamState::new(stream, Maker::App, hold),
            counted: 0,
        }
    }

    fn application(&self) -> Application {
        let mut object = json!({
            "metadata": { "name": "shop-test", "uid": "uid-1", "annotations": {} },
            "status": { "reconciledAt": time(self.reconciled) },
        });
        if let Some((baseline, _)) = self.annotated {
            object["metadata"]["annotations"] = json!({
                "hangar.io/dora-pending": "true",
                "hangar.io/dora-app": "shop",
                "hangar.io/dora-app-namespace": "app-shop-cicd",
                "hangar.io/dora-baseline-started-at": baseline.map(time).unwrap_or_default(),
            });
        }
        if let Some(started) = self.started {
            object["status"]["operationState"] = json!({ "phase": "Running", "startedAt": time(started) });
        }
        if let Some((outcome, finished)) = self.ended {
            let phase = if outcome == Outcome::Succeeded { "Succeeded" } else { "Error" };
            object["status"]["operationState"]["phase"] = phase.into();
            object["status"]["operationState"]["finishedAt"] = time(finished).into();
        }
        read(object)
    }

    fn step(&mut self, step: Step, by_annotation: bool) {
        self.second += 1;
        match step {
            // One at a time.
            Step::Start if self.started.is_none() || self.ended.is_some() => {
                (self.started, self.ended) = (Some(self.second), None);
            }
            Step::End(outcome) if self.started.is_some() && self.ended.is_none() => {
                self.ended = Some((outcome, self.second));
            }
            Step::Reconcile => self.reconciled = self.second,
            Step::Expect => self.expect(by_annotation),
            Step::Watch => {
                let news = News::Changed(self.application());
                self.seen.learn(news, "hangar.io", &cluster());
            }
            Step::Count => self.count(),
            Step::Restart => {
                self.seen = Seen::default();
                let news = News::All(vec![self.application()]);
                self.seen.learn(news, "hangar.io", &cluster());
            }
            Step::Start | Step::End(_) => {}
        }
    }

    fn expect(&mut self, by_annotation: bool) {
        self.releases += 1;
        // The later one of those that await the same sync.
        self.pending.retain(|(baseline, _)| *baseline != self.started);
        self.pending.push((self.started, self.releases));
        if by_annotation {
            self.annotated = Some((self.started, self.releases));
            return;
        }
        let application = self.application();
        let mut key = [0; 20];
        key[..4].copy_from_slice(&self.releases.to_be_bytes());
        let awaited = Awaited {
            application: "uid-1".to_owned(),
            baseline: application.started_at().unwrap(),
            release: ReleaseKey::from_bytes(key),
            flow_start: None,
        };
        let (expected, _) = self.stored.expect(awaited, application.ended(), false);
        assert_eq!(expected, Expected::After(self.started.map(at)));
    }

    fn count(&mut self) {
        let stored = &mut self.stored;
        let awaits = !stored.syncs.awaited.is_empty();
        for (uid, known) in self.seen.pending(|_| awaits) {
            let annotated = known.annotated.as_ref().map(|(_, awaited)| awaited);
            while let Some(due) = stored.due(&uid, &known.ended, annotated) {
                stored.settle(&due, Timestamp::from_second(1_900_000_000).unwrap());
                self.counted += 1;
            }
        }
        self.seen.forget_gone();
    }

    /// Everything comes to be known.
    fn finish(&mut self) {
        for step in
            [Step::Reconcile, Step::Watch, Step::Count, Step::Restart, Step::Count, Step::Watch, Step::Count]
        {
            self.step(step, false);
        }
    }

    /// Those of the pending releases whose sync has ended.
    fn ended(&self) -> impl Iterator<Item = &(Option<i64>, u32)> {
        let last = self.started.filter(|_| self.ended.is_some());
        self.pending
            .iter()
            .filter(move |(baseline, _)| last.is_some_and(|last| baseline.is_none_or(|from| last > from)))
    }
}

proptest! {
    #[test]
    fn every_release_that_is_expected_is_counted_once_however_it_is_seen(
        steps in proptest::collection::vec(step(), 0..60),
    ) {
        let mut world = World::new();
        for step in steps {
            world.step(step, false);
        }
        world.finish();
        let totals = world.stored.totals;
        prop_assert_eq!(totals.succeeded + totals.failed, world.counted);
        prop_assert_eq!((totals.conflicts, totals.late), (0, 0));
        // What was seen to end before the last operation began is counted, too, and leaves nothing.
        let left: BTreeSet<_> = world.stored.syncs.awaited.iter().map(|awaited| awaited.release).collect();
        prop_assert_eq!(left.len() as u64 + world.counted, world.pending.len() as u64 );
        let ended = world.ended().count();
        prop_assert!(world.counted >= ended as u64);
        for awaited in &world.stored.syncs.awaited {
            let last = world.started.filter(|_| world.ended.is_some()).map(at);
            prop_assert!(last.is_none_or(|last| Some(last) <= awaited.baseline));
        }
    }

    #[test]
    fn an_annotation_is_counted_once_however_it_is_seen(
        steps in proptest::collection::vec(step(), 0..60),
    ) {
        let mut world = World::new();
        for step in steps {
            world.step(step, true);
        }
        world.finish();
        let totals = world.stored.totals;
        prop_assert_eq!(totals.succeeded + totals.failed, world.counted);
        prop_assert_eq!((totals.conflicts, totals.late), (0, 0));
        prop_assert!(world.counted <= world.pending.len() as u64);
        // The last one is on the Application, and nobody clears it.
        let last = world.annotated.map(|(_, release)| release);
        let ended = world.ended().any(|(_, release)| Some(*release) == last);
        prop_assert!(!ended || world.counted > 0);
        let before = world.counted;
        for step in [Step::Watch, Step::Count, Step::Restart, Step::Count] {
            world.step(step, true);
        }
        prop_assert_eq!(world.counted, before);
    }

    #[test]
    fn no_application_is_too_odd_to_be_read(
        path in proptest::sample::select(vec![
            "/metadata", "/metadata/uid", "/metadata/annotations", "/metadata/labels", "/status",
            "/status/operationState", "/status/operationState/phase", "/status/operationState/startedAt",
            "/status/operationState/finishedAt", "/status/reconciledAt",
        ]),
        wrong in proptest::sample::select(vec![
            json!(null), json!(-1), json!(""), json!("yesterday"), json!([]), json!({}), json!({ "a": [1] }),
        ]),
    ) {
        let mut object = json!({
            "metadata": { "uid": "u", "annotations": { "hangar.io/dora-pending": "true" }, "labels": {} },
            "status": {
                "operationState": { "phase": "Failed", "startedAt": time(1), "finishedAt": time(2) },
                "reconciledAt": time(3),
            },
        });
        *object.pointer_mut(path).unwrap() = wrong;
        let application = read(object);
        let _ = (application.sync(), application.started_at(), application.ended());
        let mut seen = Seen::default();
        seen.learn(News::All(vec![application]), "hangar.io", &cluster());
    }
}

#[test]
fn an_operation_is_judged_once_argo_cd_has_reconciled_it() {
    let object = |phase: &str, reconciled: i64| {
        read(json!({
            "metadata": { "uid": "u" },
            "status": {
                "operationState": { "phase": phase, "startedAt": time(1), "finishedAt": time(5) },
                "reconciledAt": time(reconciled),
            },
        }))
    };
    assert_eq!(object("Succeeded", 4).sync(), Ok(None));
    for (phase, outcome) in
        [("Succeeded", Outcome::Succeeded), ("Failed", Outcome::Failed), ("Error", Outcome::Failed)]
    {
        let sync = object(phase, 5).sync().unwrap().unwrap();
        assert_eq!((sync.outcome, sync.started_at, sync.finished_at), (outcome, at(1), at(5)));
    }
    for phase in ["Running", "Terminating", "", "Somehow"] {
        assert_eq!((object(phase, 9).sync(), object(phase, 9).ended()), (Ok(None), None));
    }
    let odd =
        read(json!({ "status": { "operationState": { "phase": "Failed", "startedAt": "yesterday" } } }));
    assert!(odd.started_at().unwrap_err().starts_with("startedAt: 'yesterday' is no RFC 3339 time"));
    assert_eq!(read(json!({})).started_at(), Ok(None));
}

#[test]
fn what_is_wrong_with_an_annotation_is_named() {
    let annotated = |changes: &[(&str, Option<&str>)]| {
        let mut annotations = json!({
            "hangar.io/dora-pending": "true",
            "hangar.io/dora-app": "shop",
            "hangar.io/dora-app-namespace": "app-shop-cicd",
            "hangar.io/dora-baseline-started-at": "",
            "hangar.io/dora-flow-start-time": time(0),
        });
        for (name, value) in changes {
            annotations[format!("hangar.io/dora-{name}")] = (*value).into();
        }
        let application =
            read(json!({ "metadata": { "name": "shop-pre-prod", "uid": "u", "annotations": annotations } }));
        annotations::read(&application, "hangar.io", &cluster())
    };
    let (stream, awaited) = annotated(&[]).unwrap().unwrap();
    assert_eq!((stream.env.as_str(), stream.cluster.as_str()), ("pre-prod", "dev"));
    assert_eq!((awaited.baseline, awaited.flow_start), (None, Some(at(0))));
    let (other, after) =
        annotated(&[("env", Some("test")), ("baseline-started-at", Some(&time(7)))]).unwrap().unwrap();
    assert_eq!((other.env.as_str(), after.baseline), ("test", Some(at(7))));
    assert_ne!(after.release, awaited.release);
    assert_eq!(annotated(&[("pending", Some("false"))]), Ok(None));
    assert_eq!(annotated(&[("pending", None)]), Ok(None));
    for (name, value, expected) in [
        ("app", None, "annotation hangar.io/dora-app is missing"),
        ("app", Some("Shop"), "annotation hangar.io/dora-app: must be"),
        ("app", Some("pay"), "annotation hangar.io/dora-env: is missing, and the name is not pay-<env>"),
        ("app-namespace", Some("a b"), "annotation hangar.io/dora-app-namespace: must be"),
        ("baseline-started-at", None, "annotation hangar.io/dora-baseline-started-at is missing"),
        ("baseline-started-at", Some("now"), "annotation hangar.io/dora-baseline-started-at: 'now' is no"),
    ] {
        let problem = annotated(&[(name, value)]).unwrap_err();
        assert!(problem.starts_with(expected), "{problem}");
    }
}
