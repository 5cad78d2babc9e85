use proptest::{collection::vec, option, prelude::*};
use serde_json::{Value, json};

use std::time::Duration;

use transponder_core::{Maker, ReleaseKey, Stream, StreamKey};

use super::{super::text::read_time, *};
use crate::state::{Awaited, Counted, Discarded, Histogram, Hold, Instant, Known, Syncs, Totals, Window};

const NANOS: std::ops::RangeInclusive<i64> = 1..=i64::MAX;

fn instant() -> impl Strategy<Value = Instant> {
    NANOS.prop_map(|nanos| Instant::from_nanos(nanos).unwrap())
}

fn label() -> impl Strategy<Value = String> {
    "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
}

fn stream() -> impl Strategy<Value = Stream> {
    [label(), label(), label(), label()].prop_map(|[namespace, app, env, cluster]| Stream {
        app_namespace: namespace.parse().unwrap(),
        app: app.parse().unwrap(),
        env: env.parse().unwrap(),
        cluster: cluster.parse().unwrap(),
    })
}

fn known() -> impl Strategy<Value = Known> {
    (any::<[u8; 20]>(), instant(), option::of(instant()), any::<[bool; 3]>()).prop_map(
        |(key, finished_at, succeeded_at, [failed, conflict, same])| Known {
            key: ReleaseKey::from_bytes(key),
            finished_at,
            succeeded_at: succeeded_at.map(|at| if same { finished_at } else { at }),
            failed,
            conflict,
        },
    )
}

fn counted() -> impl Strategy<Value = u64> {
    0..=i64::MAX.unsigned_abs()
}

fn length_of() -> impl Strategy<Value = Duration> {
    (counted(), 0..1_000_000_000_u32).prop_map(|(seconds, nanos)| Duration::new(seconds, nanos))
}

fn discarded() -> impl Strategy<Value = Discarded> {
    (counted(), counted()).prop_map(|(negative, implausible)| Discarded { negative, implausible })
}

fn all_totals() -> impl Strategy<Value = Totals> {
    let counts = (counted(), counted(), counted(), counted());
    let lead = (length_of(), proptest::array::uniform4(counted()), counted());
    let restore = (length_of(), proptest::array::uniform6(counted()), counted());
    (counts, lead, restore, discarded(), discarded()).prop_map(
        |((succeeded, failed, conflicts, late), lead, restore, lead_time_discarded, restore_discarded)| {
            Totals {
                succeeded,
                failed,
                conflicts,
                late,
                lead_time: Histogram { sum: lead.0, buckets: lead.1, above: lead.2 },
                restore: Histogram { sum: restore.0, buckets: restore.1, above: restore.2 },
                lead_time_discarded,
                restore_discarded,
            }
        },
    )
}

fn syncs() -> impl Strategy<Value = Syncs> {
    let awaited = (0..9_u8, option::of(instant()), any::<[u8; 20]>(), option::of(instant()));
    let awaited = awaited.prop_map(|(uid, baseline, release, flow_start)| Awaited {
        application: format!("uid-{uid}"),
        baseline,
        release: ReleaseKey::from_bytes(release),
        flow_start,
    });
    let counted = (0..9_u8, instant())
        .prop_map(|(uid, started_at)| Counted { application: format!("uid-{uid}"), started_at });
    (vec(awaited, 0..4), vec(counted, 0..4)).prop_map(|(awaited, counted)| Syncs { awaited, counted })
}

prop_compose! {
    fn any_state()(
        stream in stream(),
        by_app in any::<bool>(),
        hold in (instant(), length_of()),
        totals in all_totals(),
        window in (vec(known(), 0..20), option::of(instant())),
        failing_since in option::of(instant()),
        succeeded_until in option::of(instant()),
        inherited in option::of(instant()),
        syncs in syncs(),
    ) -> StreamState {
        StreamState {
            stream,
            maker: if by_app { Maker::App } else { Maker::Platform },
            hold: Hold { since: hold.0, length: hold.1 },
            totals,
            window: Window::new(window.0, window.1),
            failing_since,
            succeeded_until,
            inherited,
            syncs,
        }
    }
}

prop_compose! {
    fn any_import()(
        stream in stream(),
        deployments in counted(),
        totals in all_totals(),
        failing_since in option::of(instant()),
        claimed_by in option::of(any::<[u8; 20]>()),
    ) -> Imported {
        let claimed_by = claimed_by.map(StreamKey::from_bytes);
        let Stream { app_namespace, app, .. } = stream;
        Imported { app_namespace, app, deployments, totals, failing_since, claimed_by }
    }
}

/// The object of a state as the API server answers it.
fn written(state: &StreamState) -> Value {
    stored(&convert::stream_object(state))
}

fn stored(object: &DoraStream) -> Value {
    let mut object = serde_json::to_value(object).unwrap();
    object["metadata"]["resourceVersion"] = json!("17");
    object
}

fn read(object: Value) -> Result<Stored, Problem> {
    match serde_json::from_value::<Object>(object).unwrap().item()? {
        Item::Stream(stored) => Ok(stored),
        Item::Import(_) => panic!("a stream is no import"),
    }
}

fn example() -> StreamState {
    let stream = Stream {
        app_namespace: "app-shop-cicd".parse().unwrap(),
        app: "shop".parse().unwrap(),
        env: "prod".parse().unwrap(),
        cluster: "kind-prod".parse().unwrap(),
    };
    let at = |text: &str| read_time(text).unwrap();
    let known = Known {
        key: ReleaseKey::from_bytes([0xab; 20]),
        finished_at: at("2026-09-14T10:00:00.5Z"),
        succeeded_at: Some(at("2026-09-14T09:00:00Z")),
        failed: true,
        conflict: true,
    };
    let hold = Hold { since: at("2026-09-14T10:00:01Z"), length: Duration::from_secs(90) };
    let window = Window::new(vec![known], None);
    StreamState { window, ..StreamState::new(stream, Maker::App, hold) }
}

proptest! {
    #[test]
    fn a_state_survives_being_an_object_exactly(state in any_state()) {
        let stored = read(written(&state)).unwrap();
        prop_assert_eq!(stored, Stored { version: 17, state: Arc::new(state), sealed: None });
    }

    #[test]
    fn what_was_imported_survives_being_an_object_exactly(import in any_import(), at in instant()) {
        let object = stored(&convert::import_object(&import, at));
        let item = serde_json::from_value::<Object>(object).unwrap().item().unwrap();
        prop_assert_eq!(item, Item::Import(StoredImport { version: 17, import: Arc::new(import) }));
    }

    #[test]
    fn no_object_that_somebody_else_wrote_is_more_than_a_problem(
        state in any_state(),
        path in prop::sample::select(vec![
            "/spec", "/spec/app", "/spec/maker", "/status", "/status/schema", "/status/hold", "/status/totals",
            "/status/totals/leadTime/buckets", "/status/totals/restore/sum", "/status/releases",
            "/status/firstVerdictAt", "/status/totals/failed", "/metadata/resourceVersion", "/metadata/name",
        ]),
        wrong in prop::sample::select(vec![
            json!(null), json!(-1), json!(""), json!("x"), json!([]), json!([""]), json!({}), json!([-1, 2, 3, 4]),
            json!(["abc x"]), json!("PT-1S"), json!("1969-12-31T23:59:59Z"),
        ]),
    ) {
        let mut object = written(&state);
        *object.pointer_mut(path).unwrap() = wrong;
        if let Ok(object) = serde_json::from_value::<Object>(object) {
            let _ = object.item();
        }
    }
}

#[test]
fn the_form_of_an_object_never_changes() {
    let object = written(&example());
    assert_eq!(object["metadata"]["name"], example().stream.key().to_string());
    let spec = json!({
        "appNamespace": "app-shop-cicd", "app": "shop", "env": "prod", "cluster": "kind-prod", "maker": "app",
    });
    assert_eq!(object["spec"], spec);
    let nothing = |buckets: usize| json!({ "sum": "PT0S", "buckets": vec![0; buckets], "above": 0, "negative": 0, "implausible": 0 });
    let status = json!({
        "schema": 1,
        "firstVerdictAt": "2026-09-14T10:00:01Z",
        "hold": "PT1M30S",
        "totals": {
            "deployments": 0, "succeeded": 0, "failed": 0, "conflicts": 0, "late": 0,
            "leadTime": nothing(4), "restore": nothing(6),
        },
        "releases": [
            "abababababababababababababababababababab 2026-09-14T10:00:00.5Z failed succeeded=2026-09-14T09:00:00Z conflict"
        ],
    });
    assert_eq!(object["status"], status);
}

#[test]
fn what_a_newer_version_wrote_is_read_and_marked() {
    let mut object = written(&example());
    object["status"]["schema"] = json!(2);
    object["status"]["more"] = json!({ "of": "it" });
    let stored = read(object).unwrap();
    assert_eq!(*stored.state, example());
    let sealed = stored.sealed.unwrap().to_string();
    let expected = "DoraStream e5359a6ca91889704182760cd0890b3ff13e7d24 has schema 2, this version writes 1";
    assert!(sealed.starts_with(expected), "{sealed}");
}

#[test]
fn what_is_wrong_is_named() {
    for (path, wrong, expected) in [
        ("/spec/app", json!("Shop"), "spec.app: must be a DNS label"),
        (
            "/status/totals/leadTime/buckets",
            json!([1]),
            "status.totals.leadTime: 1 buckets where there are 4",
        ),
        ("/status/releases", json!(["zz 2026-09-14T10:00:00Z"]), "status.releases: 'zz"),
        ("/status/totals/late", json!(-3), "status.totals.late: -3 is below 0"),
        ("/metadata/name", json!("other"), "its name is not the key of its stream"),
        ("/metadata/resourceVersion", json!("a1"), "its resourceVersion 'a1' is no number"),
    ] {
        let mut object = written(&example());
        *object.pointer_mut(path).unwrap() = wrong;
        let problem = read(object).unwrap_err();
        assert!(problem.starts_with(expected), "{problem}");
    }
}
