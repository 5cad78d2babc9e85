//! What edits do to a status, and that objects keep everything.

mod picture;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use proptest::prelude::*;
use transponder_core::{
    ClusterName, Event, EventKey, Phase, Target, TargetState, Timestamp, settle::Verdict,
};

use super::{
    super::{Anchor, AnchorKind, Detail, NewEvent, Place, TargetStatus},
    edit::{Became, Edit, Facts, Keep, day_after},
    object::{Outcome, Status, object, replay_of},
    resource::{Ended, OutcomeStatus, ReleaseOutcome},
    write::stored_size,
};

const KEEP: Keep = Keep { delivered: Duration::from_hours(168), dead: Duration::from_hours(720) };

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn event(id: &str, phase: &str) -> NewEvent {
    let (kind, outcome) = match phase {
        "Syncing" => ("deploying", "in_progress"),
        "Succeeded" => ("deployed", "success"),
        _ => ("deployed", "failure"),
    };
    let body = format!(
        r#"{{"context":{{"version":"0.4.1","id":"{id}","source":"/s","type":"dev.cdevents.environment.{kind}.0.1.0",
        "chainId":"c"}},"subject":{{"id":"/s","content":{{"appNamespace":"app-shop-cicd","appName":"shop","env":"prod",
        "cluster":"kind-prod","phase":"{phase}","outcome":"{outcome}","finishedAt":"2027-01-15T08:00:00.000000001Z",
        "configJson":"\u00e4 \\u2028 \u2028 <>&"}}}}}}"#
    );
    let cluster = ClusterName::new("kind-prod").unwrap();
    let parsed = Event::parse(body.as_bytes()).unwrap();
    let mut targets = vec![Target::Broker, Target::Tracking];
    if phase != "Syncing" {
        targets.extend([Target::Dora, Target::Span]);
    }
    NewEvent {
        key: parsed.key(&cluster),
        place: parsed.report.as_ref().map(|report| Place::from(&report.release)),
        cluster,
        source: parsed.source,
        id: parsed.id,
        kind: parsed.kind,
        content_type: "application/cloudevents+json".into(),
        digest: [0; 32],
        body: Bytes::from(body),
        received_at: at(0),
        report: parsed.report,
        targets,
    }
}

/// The object as the API server would give it back.
fn stored(event: &NewEvent, version: u64, status: Option<OutcomeStatus>) -> ReleaseOutcome {
    let mut object = object(event);
    object.metadata.resource_version = Some(version.to_string());
    object.metadata.uid = Some("first".into());
    object.status = status;
    let text = serde_json::to_string(&object).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn facts(event: &NewEvent) -> Facts {
    Outcome::read(stored(event, 1, None)).unwrap().facts()
}

fn status(state: TargetState, detail: Detail) -> Box<TargetStatus> {
    Box::new(TargetStatus { detail, attempts: 1, ..TargetStatus::new(state, at(9)) })
}

fn verdict(event: &NewEvent, finished: i64) -> Verdict {
    Verdict {
        event: event.key,
        phase: Phase::Failed,
        finished_at: at(finished),
        first_finished_at: at(finished),
        received_at: at(finished),
    }
}

#[test]
fn the_bytes_come_back_as_they_were() {
    let event = event("a", "Succeeded");
    let read = Outcome::read(stored(&event, 7, None)).unwrap();
    assert_eq!((read.body.clone(), read.key, read.version), (event.body.clone(), event.key, 7));
    assert_eq!(read.observations().len(), 1);
    assert_eq!(read.event.report, event.report);
}

#[test]
fn an_object_in_another_name_is_refused_and_says_whose_event_it_holds() {
    let event = event("a", "Succeeded");
    let mut forged = stored(&event, 1, None);
    forged.metadata.name = Some("f".repeat(40));
    let problem = Outcome::read(forged).unwrap_err();
    assert!(problem.contains(&event.key.to_string()), "{problem}");
    let mut forged = stored(&event, 1, None);
    forged.spec.cluster = "other".into();
    assert!(Outcome::read(forged).is_err());
    let mut newer = stored(&event, 1, None);
    newer.spec.schema = 2;
    assert!(Outcome::read(newer).unwrap_err().contains("schema 2"));
}

#[test]
fn what_was_written_is_what_is_read() {
    let event = event("a", "Failed");
    let facts = facts(&event);
    let mut written = Outcome::read(stored(&event, 1, None)).unwrap().status;
    let anchor = Anchor { kind: AnchorKind::PrCreated, pr_created_at: Some(at(1)), pr_url: "u".into() };
    for edit in [
        Edit::Status {
            target: Target::Broker,
            status: status(TargetState::Delivered, Detail::BrokerEventId(String::new())),
            tracked: 0,
        },
        Edit::Status {
            target: Target::Tracking,
            status: status(TargetState::Delivered, Detail::None),
            tracked: 1,
        },
        Edit::Observe { finished_at: at(3), received_at: at(4) },
        Edit::HandOver {
            order: 5,
            verdict: verdict(&event, 3),
            settled: 2,
            rests_on: vec![(EventKey::from_bytes([3; 20]), 4)],
        },
        Edit::Status {
            target: Target::Span,
            status: status(TargetState::Retrying, Detail::Anchor(anchor)),
            tracked: 0,
        },
    ] {
        written.apply(&edit, &facts, at(9), KEEP);
    }
    let later = written.later.iter().map(|(number, finished_at, received_at)| super::resource::Observed {
        number: *number,
        finished_at: finished_at.to_string(),
        received_at: received_at.to_string(),
    });
    let raw = OutcomeStatus {
        state: written.ended,
        forget_after: written.forget_after.clone(),
        conditions: written.conditions(),
        observations: later.collect(),
        observed: written.observed,
        tracked: written.tracked,
        settled: written.settled,
        replayed: None,
    };
    let read = Outcome::read(stored(&event, 2, Some(raw))).unwrap();
    assert_eq!(read.status, written);
}

#[test]
fn an_observation_during_a_call_is_not_ended_by_its_answer() {
    let event = event("a", "Succeeded");
    let facts = facts(&event);
    let mut known = Outcome::read(stored(&event, 1, None)).unwrap().status;
    let handed = Edit::HandOver { order: 1, verdict: verdict(&event, 1), settled: 1, rests_on: Vec::new() };
    assert!(matches!(known.apply(&handed, &facts, at(2), KEEP), Became::HandedOver(_)));
    let again = Edit::Observe { finished_at: at(5), received_at: at(6) };
    assert_eq!(known.apply(&again, &facts, at(6), KEEP), Became::Observed(2));
    let detail = known.of(Target::Dora).unwrap().detail.clone();
    for (target, detail) in [(Target::Dora, detail), (Target::Tracking, Detail::None)] {
        let edit = Edit::Status { target, status: status(TargetState::Delivered, detail), tracked: 1 };
        known.apply(&edit, &facts, at(7), KEEP);
    }
    assert_eq!(known.of(Target::Dora).unwrap().state, TargetState::Waiting);
    assert_eq!(known.of(Target::Tracking).unwrap().state, TargetState::Stored);
}

#[test]
fn one_that_is_overtaken_waits_no_more_but_one_whose_verdict_is_out_stays() {
    let event = event("a", "Failed");
    let facts = facts(&event);
    let fresh = Outcome::read(stored(&event, 1, None)).unwrap().status;
    let mut overtaken = fresh.clone();
    assert_eq!(overtaken.apply(&Edit::Replace { settled: 1 }, &facts, at(1), KEEP), Became::Replaced);
    assert_eq!((overtaken.of(Target::Dora).unwrap().state, overtaken.settled), (TargetState::Replaced, 1));
    let mut out = fresh;
    let handed = Edit::HandOver { order: 1, verdict: verdict(&event, 1), settled: 1, rests_on: Vec::new() };
    out.apply(&handed, &facts, at(1), KEEP);
    assert_eq!(out.apply(&Edit::Replace { settled: 0 }, &facts, at(1), KEEP), Became::Unchanged);
    assert_eq!(out.of(Target::Dora).unwrap().state, TargetState::Stored);
}

#[test]
fn the_day_to_forget_begins_after_the_whole_time() {
    let end = "2026-12-01T23:59:59Z".parse().unwrap();
    assert_eq!(day_after(end, Duration::ZERO), "2026-12-02");
    assert_eq!(day_after(end, KEEP.delivered), "2026-12-09");
}

#[test]
fn what_the_api_server_escapes_is_counted_as_it_is_stored() {
    let body = "{\"a\":\"<\u{2028}\\n\u{e4}\"}";
    let escaped = serde_json::to_string(body).unwrap().replace('<', "\\u003c").replace('\u{2028}', "\\u2028");
    assert_eq!(stored_size(body.as_bytes()), escaped.len() as u64 - 2);
    assert_eq!(stored_size(&[b'<'; 1000]), 6000);
}

#[test]
fn only_what_ends_in_a_target_or_all_asks_for_a_replay() {
    assert_eq!(replay_of("2026-12-01T01:00:00Z broker"), Some(Some(Target::Broker)));
    assert_eq!(replay_of("again all"), Some(None));
    for nothing in ["", "again", "1 trackng", &format!("{} all", "x".repeat(300))] {
        assert_eq!(replay_of(nothing), None, "{nothing}");
    }
}

fn edit(event: Arc<NewEvent>) -> impl Strategy<Value = Edit> {
    let state = prop::sample::select(vec![TargetState::Delivered, TargetState::Retrying, TargetState::Dead]);
    let target = prop::sample::select(Target::ALL.to_vec());
    let handed = event.clone();
    prop_oneof![
        (target.clone(), state, 0u32..4).prop_map(|(target, state, tracked)| Edit::Status {
            target,
            status: status(state, Detail::None),
            tracked
        }),
        (0i64..40).prop_map(|s| Edit::Observe { finished_at: at(s), received_at: at(s) }),
        (1i64..9, 0u32..4).prop_map(move |(order, settled)| Edit::HandOver {
            order,
            verdict: verdict(&handed, 1),
            settled,
            rests_on: Vec::new()
        }),
        (0u32..4).prop_map(|settled| Edit::Replace { settled }),
        prop::option::of(target).prop_map(|target| Edit::Replay { target, asked: "now all".into() }),
    ]
}

proptest! {
    #[test]
    fn whatever_is_decided_an_end_has_a_day_and_nothing_open(
        edits in prop::collection::vec(edit(Arc::new(event("a", "Failed"))), 0..60)
    ) {
        let event = event("a", "Failed");
        let facts = facts(&event);
        let mut known: Status = Outcome::read(stored(&event, 1, None)).unwrap().status;
        let mut numbers = (0, 0, 0);
        for edit in &edits {
            known.apply(edit, &facts, at(50), KEEP);
            // Nothing that was known is forgotten.
            let now = (known.observed, known.tracked, known.settled);
            prop_assert!(now.0 >= numbers.0 && now.1 >= numbers.1 && now.2 >= numbers.2);
            numbers = now;
            prop_assert!(known.later.len() <= 31);
            prop_assert_eq!(known.ended.is_some(), known.forget_after.is_some());
            let open = super::object::statuses(&facts.targets, &known, facts.received_at)
                .iter()
                .any(|(_, status)| status.state.is_open());
            prop_assert_eq!(known.ended.is_none(), open);
            prop_assert_eq!(known.ended == Some(Ended::Dead), !open && !known.dead(None).is_empty());
        }
    }
}
