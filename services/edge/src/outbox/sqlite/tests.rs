use bytes::Bytes;
use jiff::SignedDuration;
use transponder_core::{Event, Phase, Target, TargetState, settle::Verdict};

use super::*;
use crate::outbox::{Detail, Place, TargetStatus};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn event(id: &str, chain: &str, phase: Phase, second: i64) -> NewEvent {
    let body = format!(
        r#"{{"context":{{"id":"{id}","source":"/s","type":"{}","chainId":"{chain}"}},"subject":{{"content":{{
        "appNamespace":"app-a-cicd","appName":"a","env":"prod","cluster":"c","phase":"{phase}",
        "finishedAt":"{}"}}}}}}"#,
        phase.event_type(),
        at(second),
    );
    let parsed = Event::parse(body.as_bytes()).unwrap();
    let cluster = "c".parse().unwrap();
    let waiting = TargetState::Waiting;
    let mut targets = vec![(Target::Broker, TargetState::Stored), (Target::Tracking, TargetState::Stored)];
    if phase.is_terminal() {
        targets.extend([(Target::Dora, waiting), (Target::Span, waiting)]);
    }
    NewEvent {
        place: parsed.report.as_ref().map(|report| Place::from(&report.release)),
        key: parsed.key(&cluster),
        cluster,
        source: parsed.source,
        id: parsed.id,
        kind: parsed.kind,
        content_type: "application/json".into(),
        digest: [u8::try_from(second.rem_euclid(200)).unwrap(); 32],
        body: Bytes::from(body),
        received_at: at(second),
        report: parsed.report,
        targets,
    }
}

fn verdict(event: &NewEvent, first: i64) -> Verdict {
    Verdict {
        event: event.key,
        phase: event.phase().unwrap(),
        finished_at: event.received_at,
        first_finished_at: at(first),
        received_at: event.received_at,
    }
}

fn hand_over(event: &NewEvent, first: i64, up_to: i64) -> HandOver {
    HandOver { release: event.place.unwrap().release, verdict: verdict(event, first), up_to }
}

async fn finish(outbox: &SqliteOutbox, sequence: Sequence, state: TargetState, second: i64) {
    let change = |target| StatusChange {
        sequence,
        target,
        status: TargetStatus::new(state, at(second)),
        tracked: Vec::new(),
    };
    outbox.record(Target::ALL.map(change).to_vec()).await.unwrap();
}

#[tokio::test]
async fn an_event_is_new_once_then_known_and_its_key_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let outbox = SqliteOutbox::open(directory.path()).unwrap();
    let first = event("a", "c-1", Phase::Failed, 1);
    let Accepted::New { sequence, observation: Some(_) } = outbox.accept(first.clone()).await.unwrap() else {
        panic!("it is new")
    };
    let again = outbox.accept(first.clone()).await.unwrap();
    assert_eq!(again, Accepted::Known { sequence, observation: None, identical: true });
    let later = outbox.accept(event("a", "c-1", Phase::Failed, 2)).await.unwrap();
    assert!(matches!(later, Accepted::Known { observation: Some(_), identical: false, .. }), "{later:?}");
    for other in [event("a", "c-2", Phase::Failed, 1), event("a", "c-1", Phase::Succeeded, 1)] {
        assert_eq!(outbox.accept(other).await.unwrap(), Accepted::Conflict);
    }
    assert!(outbox.knows(first.key).await.unwrap());
    let loaded = outbox.load(sequence).await.unwrap().unwrap();
    assert_eq!((loaded.body, loaded.report), (first.body, first.report));
}

#[tokio::test]
async fn of_many_observations_the_first_and_last_sixteen_are_kept_and_all_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let outbox = SqliteOutbox::open(directory.path()).unwrap();
    for second in 0..50 {
        outbox.accept(event("a", "c-1", Phase::Failed, second)).await.unwrap();
    }
    let backlog = outbox.backlog().await.unwrap();
    let kept: Vec<_> = backlog.unsettled.iter().map(|o| o.observation.finished_at).collect();
    let expected: Vec<_> = (0..16).chain(34..50).map(at).collect();
    assert_eq!(kept, expected);
    let view = outbox.view(event("a", "c-1", Phase::Failed, 0).key).await.unwrap().unwrap();
    assert_eq!(view.observations, 50);
}

#[tokio::test]
async fn a_verdict_keeps_its_place_over_a_restart_and_takes_up_an_undelivered_one_of_the_same_event() {
    let directory = tempfile::tempdir().unwrap();
    let outbox = SqliteOutbox::open(directory.path()).unwrap();
    let failed = event("a", "c-1", Phase::Failed, 10);
    let Accepted::New { observation: Some(number), .. } = outbox.accept(failed.clone()).await.unwrap() else {
        panic!("it is new")
    };
    let handed = outbox.hand_over(vec![hand_over(&failed, 5, number)], at(11)).await.unwrap();
    assert_eq!((handed.len(), handed[0].order), (1, 1));
    outbox.accept(event("a", "c-1", Phase::Failed, 20)).await.unwrap();
    let again = outbox.hand_over(vec![hand_over(&failed, 20, i64::MAX)], at(21)).await.unwrap();
    assert_eq!((again[0].order, again[0].verdict.first_finished_at), (2, at(5)));
    drop(outbox);
    let outbox = SqliteOutbox::open(directory.path()).unwrap();
    let backlog = outbox.backlog().await.unwrap();
    assert!(backlog.unsettled.is_empty());
    let dora = backlog.events[0].targets.iter().find(|(target, _)| *target == Target::Dora).unwrap();
    assert_eq!(dora.1.state, TargetState::Stored);
    assert!(matches!(&dora.1.detail, Detail::Verdict { order: 2, .. }));
}

#[tokio::test]
async fn an_event_that_was_final_is_open_again_when_it_is_observed_again() {
    let directory = tempfile::tempdir().unwrap();
    let outbox = SqliteOutbox::open(directory.path()).unwrap();
    let failed = event("a", "c-1", Phase::Failed, 10);
    let Accepted::New { sequence, .. } = outbox.accept(failed.clone()).await.unwrap() else {
        panic!("it is new")
    };
    outbox.hand_over(vec![hand_over(&failed, 10, i64::MAX)], at(11)).await.unwrap();
    finish(&outbox, sequence, TargetState::Delivered, 12).await;
    assert!(outbox.backlog().await.unwrap().events.is_empty());
    outbox.accept(event("a", "c-1", Phase::Failed, 20)).await.unwrap();
    let open = outbox.open(sequence).await.unwrap().unwrap();
    let states: Vec<_> = open.targets.iter().map(|(target, status)| (*target, status.state)).collect();
    let expected = [
        (Target::Broker, TargetState::Delivered),
        (Target::Tracking, TargetState::Stored),
        (Target::Dora, TargetState::Waiting),
        (Target::Span, TargetState::Delivered),
    ];
    assert_eq!(states, expected);
}

#[tokio::test]
async fn the_end_of_a_call_does_not_end_what_came_in_while_it_was_out() {
    let directory = tempfile::tempdir().unwrap();
    let outbox = SqliteOutbox::open(directory.path()).unwrap();
    let failed = event("a", "c-1", Phase::Failed, 1);
    let Accepted::New { sequence, observation: Some(first) } = outbox.accept(failed.clone()).await.unwrap()
    else {
        panic!("it is new")
    };
    let out = outbox.hand_over(vec![hand_over(&failed, 1, first)], at(2)).await.unwrap().remove(0);
    let later = event("a", "c-1", Phase::Failed, 3);
    let Accepted::Known { observation: Some(second), .. } = outbox.accept(later.clone()).await.unwrap()
    else {
        panic!("it is an observation")
    };
    let newer = outbox.hand_over(vec![hand_over(&later, 1, second)], at(4)).await.unwrap().remove(0);
    let delivered = |target, detail, tracked| {
        let mut status = TargetStatus::new(TargetState::Delivered, at(5));
        status.detail = detail;
        StatusChange { sequence, target, status, tracked }
    };
    let dora = Detail::Verdict { order: out.order, verdict: out.verdict };
    let both = [
        delivered(Target::Tracking, Detail::None, vec![first]),
        delivered(Target::Dora, dora, Vec::new()),
        delivered(Target::Broker, Detail::None, Vec::new()),
        delivered(Target::Span, Detail::None, Vec::new()),
    ];
    outbox.record(both.to_vec()).await.unwrap();
    let open = outbox.backlog().await.unwrap().events.remove(0);
    let of = |target| &open.targets.iter().find(|(t, _)| *t == target).unwrap().1;
    assert_eq!(of(Target::Tracking).state, TargetState::Stored);
    assert_eq!(open.untracked.iter().map(|o| o.number).collect::<Vec<_>>(), [second]);
    assert_eq!(of(Target::Dora).state, TargetState::Stored);
    assert!(matches!(&of(Target::Dora).detail, Detail::Verdict { order, .. } if *order == newer.order));
}

#[tokio::test]
async fn bytes_go_first_then_delivered_events_then_dead_ones_and_open_ones_never() {
    let directory = tempfile::tempdir().unwrap();
    let outbox = SqliteOutbox::open(directory.path()).unwrap();
    let mut sequences = Vec::new();
    for (id, state) in [("a", TargetState::Delivered), ("b", TargetState::Dead), ("d", TargetState::Retrying)]
    {
        let accepted = outbox.accept(event(id, id, Phase::Succeeded, 0)).await.unwrap();
        let Accepted::New { sequence, .. } = accepted else { panic!("it is new") };
        finish(&outbox, sequence, state, 0).await;
        sequences.push(sequence);
    }
    let sweep = async |delivered, bodies, dead| {
        let ago = |hours: i64| at(0) + SignedDuration::from_hours(hours);
        let before = SweepBefore { delivered: ago(delivered), bodies: ago(bodies), dead: ago(dead) };
        while outbox.sweep(before).await.unwrap() > 0 {}
    };
    let bodies = async || {
        let mut lengths = Vec::new();
        for sequence in &sequences {
            lengths.push(outbox.load(*sequence).await.unwrap().map(|loaded| !loaded.body.is_empty()));
        }
        lengths
    };
    sweep(-1, 1, -1).await;
    assert_eq!(bodies().await, [Some(false), Some(true), Some(true)]);
    sweep(1, 1, -1).await;
    assert_eq!(bodies().await, [None, Some(true), Some(true)]);
    sweep(1, 1, 1).await;
    assert_eq!(bodies().await, [None, None, Some(true)]);
}

#[tokio::test]
async fn a_dead_target_is_replayed_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let outbox = SqliteOutbox::open(directory.path()).unwrap();
    let succeeded = event("a", "c-1", Phase::Succeeded, 0);
    let Accepted::New { sequence, .. } = outbox.accept(succeeded.clone()).await.unwrap() else {
        panic!("it is new")
    };
    finish(&outbox, sequence, TargetState::Dead, 1).await;
    let replayed = outbox.replay(succeeded.key, Some(Target::Broker), at(2)).await.unwrap();
    assert_eq!(replayed, Some((sequence, vec![Target::Broker])));
    let rest = outbox.replay(succeeded.key, None, at(3)).await.unwrap();
    assert_eq!(rest, Some((sequence, vec![Target::Dora, Target::Span, Target::Tracking])));
    let unknown = event("z", "z", Phase::Failed, 0).key;
    assert_eq!(outbox.replay(unknown, None, at(4)).await.unwrap(), None);
}
