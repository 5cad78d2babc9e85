use bytes::Bytes;
use jiff::SignedDuration;
use transponder_core::{Event, Phase, Target, TargetState, settle::Verdict};

use super::*;
use crate::outbox::{Detail, HandOver, HandedOver, Place, StatusChange, TargetStatus};

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
    let targets = if phase.is_terminal() { &Target::ALL[..] } else { &[Target::Broker, Target::Tracking] };
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
        targets: targets.to_vec(),
    }
}

async fn accept(outbox: &SqliteOutbox, event: NewEvent) -> Accepted {
    outbox.accept(Arc::new(event)).await.unwrap()
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

async fn hand_over(
    outbox: &SqliteOutbox,
    event: &NewEvent,
    first: i64,
    (sequence, up_to): (Sequence, i64),
    second: i64,
) -> HandedOver {
    let verdict = HandOver { verdict: verdict(event, first), events: vec![sequence], up_to };
    let decided = outbox.decide(vec![Decision::HandOver(verdict)], at(second)).await.unwrap();
    decided.handed_over.into_iter().next().unwrap()
}

async fn finish(outbox: &SqliteOutbox, sequence: Sequence, state: TargetState, second: i64) {
    let status = TargetStatus::new(state, at(second));
    let change = |target| {
        let change = StatusChange { sequence, target, status: status.clone(), tracked: Vec::new() };
        Decision::Status(Box::new(change))
    };
    outbox.decide(Target::ALL.map(change).to_vec(), at(second)).await.unwrap();
}

#[tokio::test]
async fn an_event_is_new_once_then_known_and_its_key_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let outbox = SqliteOutbox::open(directory.path()).unwrap();
    let first = event("a", "c-1", Phase::Failed, 1);
    let Accepted::New { sequence, observation: Some(_) } = accept(&outbox, first.clone()).await else {
        panic!("it is new")
    };
    let again = accept(&outbox, first.clone()).await;
    assert_eq!(again, Accepted::Known { sequence, observation: None, identical: true });
    let later = accept(&outbox, event("a", "c-1", Phase::Failed, 2)).await;
    assert!(matches!(later, Accepted::Known { observation: Some(_), identical: false, .. }), "{later:?}");
    for other in [event("a", "c-2", Phase::Failed, 1), event("a", "c-1", Phase::Succeeded, 1)] {
        assert_eq!(accept(&outbox, other).await, Accepted::Conflict);
    }
    assert!(outbox.knows(first.key).await.unwrap());
    // Its states are not stored yet: the file's own table of targets says how each begins.
    let view = outbox.view(first.key).await.unwrap().unwrap();
    let begun: Vec<_> = view.targets.iter().map(|(target, status)| (*target, status.state)).collect();
    assert_eq!(begun, Target::ALL.map(|target| (target, target.begins())));
    let loaded = outbox.load(sequence).await.unwrap().unwrap();
    assert_eq!((loaded.body, loaded.report), (first.body, first.report));
}

#[tokio::test]
async fn of_many_observations_the_first_and_last_sixteen_are_kept_and_all_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let outbox = SqliteOutbox::open(directory.path()).unwrap();
    for second in 0..50 {
        accept(&outbox, event("a", "c-1", Phase::Failed, second)).await;
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
    let Accepted::New { sequence, observation: Some(number) } = accept(&outbox, failed.clone()).await else {
        panic!("it is new")
    };
    let handed = hand_over(&outbox, &failed, 5, (sequence, number), 11).await;
    assert_eq!(handed.order, 1);
    accept(&outbox, event("a", "c-1", Phase::Failed, 20)).await;
    let again = hand_over(&outbox, &failed, 20, (sequence, i64::MAX), 21).await;
    assert_eq!((again.order, again.verdict.first_finished_at), (2, at(5)));
    drop(outbox);
    let outbox = SqliteOutbox::open(directory.path()).unwrap();
    let backlog = outbox.backlog().await.unwrap();
    assert!(backlog.unsettled.is_empty());
    let dora = backlog.events[0].targets.iter().find(|(target, _)| *target == Target::Dora).unwrap();
    assert_eq!(dora.1.state, TargetState::Stored);
    assert!(matches!(&dora.1.detail, Detail::Verdict { order: 2, .. }));
}

#[tokio::test]
async fn a_verdict_that_is_handed_over_ends_the_wait_of_the_events_that_it_overtook() {
    let directory = tempfile::tempdir().unwrap();
    let outbox = SqliteOutbox::open(directory.path()).unwrap();
    let (failed, succeeded) = (event("a", "c-1", Phase::Failed, 1), event("b", "c-1", Phase::Succeeded, 2));
    let Accepted::New { sequence: first, .. } = accept(&outbox, failed).await else { panic!("it is new") };
    let Accepted::New { sequence: second, observation: Some(number) } =
        accept(&outbox, succeeded.clone()).await
    else {
        panic!("it is new")
    };
    let verdict = HandOver { verdict: verdict(&succeeded, 2), events: vec![first, second], up_to: number };
    let decided = outbox.decide(vec![Decision::HandOver(verdict)], at(3)).await.unwrap();
    assert_eq!((decided.handed_over[0].sequence, decided.replaced), (second, vec![first]));
    let open = outbox.open(first).await.unwrap().unwrap();
    let dora = open.targets.iter().find(|(target, _)| *target == Target::Dora).unwrap();
    assert_eq!(dora.1.state, TargetState::Replaced);
}

#[tokio::test]
async fn a_verdict_of_an_event_that_is_none_for_dora_ends_the_wait_of_the_others_too() {
    let directory = tempfile::tempdir().unwrap();
    let outbox = SqliteOutbox::open(directory.path()).unwrap();
    let failed = event("a", "c-1", Phase::Failed, 1);
    let mut succeeded = event("b", "c-1", Phase::Succeeded, 2);
    succeeded.targets.retain(|target| *target != Target::Dora);
    let Accepted::New { sequence: first, .. } = accept(&outbox, failed).await else { panic!("it is new") };
    let Accepted::New { sequence: second, .. } = accept(&outbox, succeeded.clone()).await else {
        panic!("it is new")
    };
    let verdict = HandOver { verdict: verdict(&succeeded, 2), events: vec![first, second], up_to: i64::MAX };
    let decided = outbox.decide(vec![Decision::HandOver(verdict)], at(3)).await.unwrap();
    assert_eq!(decided, Decided { handed_over: Vec::new(), replaced: vec![first] });
}

#[tokio::test]
async fn an_event_that_was_final_is_open_again_when_it_is_observed_again() {
    let directory = tempfile::tempdir().unwrap();
    let outbox = SqliteOutbox::open(directory.path()).unwrap();
    let failed = event("a", "c-1", Phase::Failed, 10);
    let Accepted::New { sequence, .. } = accept(&outbox, failed.clone()).await else { panic!("it is new") };
    hand_over(&outbox, &failed, 10, (sequence, i64::MAX), 11).await;
    finish(&outbox, sequence, TargetState::Delivered, 12).await;
    assert!(outbox.backlog().await.unwrap().events.is_empty());
    accept(&outbox, event("a", "c-1", Phase::Failed, 20)).await;
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
    let Accepted::New { sequence, observation: Some(first) } = accept(&outbox, failed.clone()).await else {
        panic!("it is new")
    };
    let out = hand_over(&outbox, &failed, 1, (sequence, first), 2).await;
    let later = event("a", "c-1", Phase::Failed, 3);
    let Accepted::Known { observation: Some(second), .. } = accept(&outbox, later.clone()).await else {
        panic!("it is an observation")
    };
    let newer = hand_over(&outbox, &later, 1, (sequence, second), 4).await;
    let delivered = |target, detail, tracked| {
        let mut status = TargetStatus::new(TargetState::Delivered, at(5));
        status.detail = detail;
        Decision::Status(Box::new(StatusChange { sequence, target, status, tracked }))
    };
    let dora = Detail::Verdict { order: out.order, verdict: out.verdict };
    let both = [
        delivered(Target::Tracking, Detail::None, vec![first]),
        delivered(Target::Dora, dora, Vec::new()),
        delivered(Target::Broker, Detail::None, Vec::new()),
        delivered(Target::Span, Detail::None, Vec::new()),
    ];
    outbox.decide(both.to_vec(), at(5)).await.unwrap();
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
        let accepted = accept(&outbox, event(id, id, Phase::Succeeded, 0)).await;
        let Accepted::New { sequence, .. } = accepted else { panic!("it is new") };
        finish(&outbox, sequence, state, 0).await;
        sequences.push(sequence);
    }
    let sweep = async |delivered, bodies, dead| {
        let ago = |hours: i64| at(0) + SignedDuration::from_hours(hours);
        let before =
            SweepBefore { now: at(0), delivered: ago(delivered), bodies: ago(bodies), dead: ago(dead) };
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
    let Accepted::New { sequence, .. } = accept(&outbox, succeeded.clone()).await else {
        panic!("it is new")
    };
    finish(&outbox, sequence, TargetState::Dead, 1).await;
    let replayed = outbox.replay(succeeded.key, Some(Target::Broker), at(2)).await.unwrap();
    assert_eq!(replayed, Some((sequence, vec![Target::Broker])));
    let rest = outbox.replay(succeeded.key, None, at(3)).await.unwrap();
    assert_eq!(rest, Some((sequence, vec![Target::Tracking, Target::Dora, Target::Span])));
    let unknown = event("z", "z", Phase::Failed, 0).key;
    assert_eq!(outbox.replay(unknown, None, at(4)).await.unwrap(), None);
}
