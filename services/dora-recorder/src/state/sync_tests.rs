use std::time::Duration;

use transponder_core::{Maker, Stream};

use super::*;
use crate::state::{Disposition, Hold};

fn at(second: i64) -> Instant {
    Instant::from_nanos((1_800_000_000 + second) * 1_000_000_000).unwrap()
}

fn state() -> StreamState {
    let stream = Stream {
        app_namespace: "app-shop-cicd".parse().unwrap(),
        app: "shop".parse().unwrap(),
        env: "test".parse().unwrap(),
        cluster: "dev".parse().unwrap(),
    };
    StreamState::new(stream, Maker::App, Hold { since: at(0), length: Duration::ZERO })
}

fn awaited(release: u8, baseline: Option<i64>) -> Awaited {
    Awaited {
        application: "uid-1".to_owned(),
        baseline: baseline.map(at),
        release: ReleaseKey::from_bytes([release; 20]),
        flow_start: Some(at(0)),
    }
}

fn sync(started: i64, outcome: Outcome) -> Sync {
    Sync { started_at: at(started), finished_at: at(started + 5), outcome }
}

/// Counts all that is due.
fn settle(state: &mut StreamState, ended: &[Sync], annotated: Option<&Awaited>) -> Vec<Disposition> {
    let mut counted = Vec::new();
    while let Some(due) = state.due("uid-1", ended, annotated) {
        counted.push(state.settle(&due, at(10_000).into()).disposition);
    }
    counted
}

#[test]
fn the_first_operation_that_started_strictly_after_the_baseline_is_counted_once() {
    let mut state = state();
    assert_eq!(
        state.expect(awaited(1, Some(100)), Some(at(100)), false),
        (Expected::After(Some(at(100))), true)
    );
    for healed in [50, 100] {
        assert_eq!(settle(&mut state, &[sync(healed, Outcome::Succeeded)], None), []);
    }
    let ended = [sync(100, Outcome::Failed), sync(200, Outcome::Succeeded), sync(300, Outcome::Failed)];
    assert_eq!(settle(&mut state, &ended, None), [Disposition::New]);
    assert_eq!(settle(&mut state, &ended, None), []);
    assert_eq!((state.totals.succeeded, state.totals.failed), (1, 0));
    assert_eq!(state.succeeded_until, Some(at(205)));
    assert_eq!(state.totals.lead_time.sum, Duration::from_secs(205));
    // Another Application is none of its business.
    assert_eq!(state.expect(awaited(2, Some(300)), Some(at(300)), false).0, Expected::After(Some(at(300))));
    assert_eq!(state.due("uid-2", &[sync(400, Outcome::Failed)], None), None);
}

#[test]
fn a_release_keeps_its_first_baseline_until_the_sync_after_it_has_ended() {
    let mut state = state();
    state.expect(awaited(1, None), None, false);
    // Its sync runs.
    assert_eq!(state.expect(awaited(1, Some(100)), None, false), (Expected::After(None), false));
    // It has failed, and is tried again before that was counted.
    let (expected, changed) = state.expect(awaited(1, Some(100)), Some(at(100)), false);
    assert_eq!((expected, changed), (Expected::After(Some(at(100))), true));
    assert_eq!(settle(&mut state, &[sync(100, Outcome::Failed)], None), [Disposition::New]);
    assert_eq!(settle(&mut state, &[sync(200, Outcome::Succeeded)], None), [Disposition::New]);
    assert_eq!((state.totals.succeeded, state.totals.failed), (1, 1));
}

#[test]
fn of_two_releases_that_await_the_same_sync_the_later_one_is_counted() {
    let mut state = state();
    state.expect(awaited(1, Some(100)), Some(at(100)), false);
    state.expect(awaited(2, Some(100)), Some(at(100)), false);
    assert_eq!(settle(&mut state, &[sync(200, Outcome::Succeeded)], None), [Disposition::New]);
    assert_eq!(state.window.known()[0].key, awaited(2, None).release);
}

#[test]
fn an_application_that_was_read_before_its_sync_was_counted_is_read_again() {
    let mut state = state();
    state.expect(awaited(1, Some(100)), None, false);
    settle(&mut state, &[sync(200, Outcome::Succeeded)], None);
    assert_eq!(state.expect(awaited(2, Some(100)), None, false), (Expected::Outdated, false));
    // Its operations run backwards: they are awaited all the same.
    assert_eq!(state.expect(awaited(2, Some(100)), None, true), (Expected::After(Some(at(100))), true));
    assert_eq!(settle(&mut state, &[sync(150, Outcome::Succeeded)], None), [Disposition::New]);
}

#[test]
fn an_annotation_that_nobody_clears_is_counted_once_whatever_is_expected_beside_it() {
    let mut state = state();
    let annotated = awaited(9, Some(100));
    assert_eq!(settle(&mut state, &[sync(200, Outcome::Failed)], Some(&annotated)), [Disposition::New]);
    for (release, second) in (0..40).zip((300..).step_by(100)) {
        state.expect(awaited(release, Some(second)), Some(at(second)), false);
        let ended = [sync(second, Outcome::Succeeded), sync(second + 50, Outcome::Succeeded)];
        assert_eq!(settle(&mut state, &ended, Some(&annotated)), [Disposition::New]);
    }
    assert_eq!((state.totals.succeeded, state.totals.failed), (40, 1));
    assert_eq!(state.syncs.counted.len(), 1);
}

#[test]
fn a_release_that_became_pending_in_both_ways_is_counted_by_the_name_that_was_given() {
    let mut state = state();
    state.expect(awaited(1, Some(100)), None, false);
    let counted = settle(&mut state, &[sync(200, Outcome::Succeeded)], Some(&awaited(9, Some(100))));
    assert_eq!(counted, [Disposition::New]);
    assert_eq!(state.window.known()[0].key, awaited(1, None).release);
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut state = state();
    for number in 0..100 {
        let awaited = Awaited { application: format!("uid-{number}"), ..awaited(number, None) };
        state.expect(awaited, None, false);
        assert_eq!(state.syncs.awaited.len(), 1);
        let due = state.due(&format!("uid-{number}"), &[sync(10, Outcome::Succeeded)], None).unwrap();
        state.settle(&due, at(20).into());
    }
    assert_eq!((state.syncs.counted.len(), state.syncs.awaited.len()), (REMEMBERED, 0));
}
