//! The record by itself: what each fact does, and that order and repetition do nothing.

use proptest::prelude::*;

use super::{fixture::*, *};

fn merged(second: i64) -> PullRequest {
    PullRequest { merged_at: Some(at(second)), ..PullRequest::default() }
}

fn closed(second: i64) -> PullRequest {
    PullRequest { closed_at: Some(at(second)), ..PullRequest::default() }
}

fn observe(record: &mut Record, event: u8, phase: Phase, finished: i64, received: i64) -> Noted {
    record.observe(&observed(event, phase, finished, received), "", at(received))
}

#[test]
fn fields_that_are_set_stay_as_they_were_first_set() {
    let mut record = record();
    let first = PullRequest {
        url: "https://git.example/1".into(),
        created_at: Some(at(-100)),
        merged_at: Some(at(10)),
        closed_at: None,
    };
    assert!(record.put(&first, "abc", at(20)));
    let after = record.clone();
    let other = PullRequest {
        url: "https://git.example/2".into(),
        created_at: Some(at(-50)),
        merged_at: Some(at(15)),
        closed_at: None,
    };
    assert!(!record.put(&other, "def", at(30)));
    assert_eq!(record, after);
    assert_eq!((record.git_revision.as_str(), record.updated_at), ("abc", at(20)));
}

#[test]
fn a_put_never_moves_a_state_back() {
    let mut record = record();
    assert_eq!(record.state(), State::Expected);
    record.put(&merged(10), "", at(10));
    assert_eq!(record.state(), State::Merged);
    record.put(&closed(11), "", at(11));
    record.put(&PullRequest::default(), "", at(12));
    assert_eq!(record.state(), State::Merged);
    observe(&mut record, 1, Phase::Succeeded, 20, 20);
    record.put(&merged(30), "", at(30));
    record.put(&closed(31), "", at(31));
    assert_eq!(record.state(), State::Succeeded);
}

#[test]
fn a_pull_request_that_is_closed_opened_again_and_merged_is_merged() {
    let mut record = record();
    record.put(&closed(5), "", at(5));
    assert_eq!(record.state(), State::Closed);
    record.put(&merged(10), "", at(10));
    assert_eq!(record.state(), State::Merged);
}

#[test]
fn the_state_follows_the_observation_that_finished_last_whatever_came_last() {
    let mut record = record();
    observe(&mut record, 1, Phase::Succeeded, 60, 61);
    observe(&mut record, 2, Phase::Failed, 30, 70);
    assert_eq!(record.state(), State::Succeeded);
    observe(&mut record, 3, Phase::Failed, 90, 91);
    assert_eq!(record.state(), State::Failed);
    assert_eq!(record.last().unwrap().finished_at, at(90));
}

#[test]
fn a_tie_is_a_success() {
    for order in [[Phase::Succeeded, Phase::Failed], [Phase::Failed, Phase::Succeeded]] {
        let mut record = record();
        for (event, phase) in (1..).zip(order) {
            observe(&mut record, event, phase, 10, 20);
        }
        assert_eq!(record.state(), State::Succeeded);
    }
}

#[test]
fn a_presync_makes_a_failed_release_progress_and_leaves_a_succeeded_one() {
    let mut failed = record();
    observe(&mut failed, 1, Phase::Failed, 10, 10);
    observe(&mut failed, 2, Phase::Syncing, 20, 20);
    assert_eq!(failed.state(), State::Progressing);
    let mut succeeded = record();
    observe(&mut succeeded, 1, Phase::Succeeded, 10, 10);
    observe(&mut succeeded, 2, Phase::Syncing, 20, 20);
    assert_eq!((succeeded.state(), succeeded.quiet_since()), (State::Succeeded, None));
    assert_eq!(succeeded.last().unwrap().phase, Phase::Syncing);
}

#[test]
fn five_attempts_of_one_operation_are_fifteen_observations_and_each_counts_once() {
    let mut record = record();
    for _ in 0..2 {
        for attempt in 0..5 {
            for (event, phase) in [(1, Phase::Syncing), (2, Phase::Failed), (3, Phase::Succeeded)] {
                observe(&mut record, event, phase, attempt * 10 + i64::from(event), 100);
            }
        }
    }
    assert_eq!((record.observations, record.state()), (15, State::Succeeded));
}

#[test]
fn a_cluster_whose_clock_is_ahead_does_not_hold_off_later_reports() {
    let mut record = record();
    observe(&mut record, 1, Phase::Failed, 86_400, 10);
    observe(&mut record, 2, Phase::Succeeded, 60, 61);
    assert_eq!(record.state(), State::Succeeded);
}

#[test]
fn a_tasks_word_for_an_observation_is_that_observation() {
    let told = Observation { event: None, ..observed(1, Phase::Succeeded, 10, 12) };
    let mut edge_first = record();
    assert_eq!(observe(&mut edge_first, 1, Phase::Succeeded, 10, 11), Noted::First);
    assert_eq!(edge_first.observe(&told, "", at(12)), Noted::Repeated);
    let mut task_first = record();
    assert_eq!(task_first.observe(&told, "", at(12)), Noted::First);
    assert_eq!(observe(&mut task_first, 1, Phase::Succeeded, 10, 11), Noted::Named);
    assert_eq!(observe(&mut task_first, 1, Phase::Succeeded, 10, 11), Noted::Repeated);
    assert_eq!(observe(&mut task_first, 2, Phase::Succeeded, 10, 11), Noted::Further);
    assert_eq!((edge_first.observations, task_first.observations), (1, 2));
}

#[test]
fn silence_starts_at_the_merge_and_again_at_each_presync() {
    let mut record = record();
    assert!(!record.fall_silent(at(1_000_000), at(1_000_000)), "an open pull request is not silent");
    record.put(&merged(100), "", at(110));
    assert_eq!(record.quiet_since(), Some(at(100)));
    observe(&mut record, 1, Phase::Syncing, 200, 205);
    assert_eq!(record.quiet_since(), Some(at(205)));
    assert!(!record.fall_silent(at(204), at(3000)));
    let before = record.clone();
    assert!(record.fall_silent(at(205), at(3000)));
    assert_eq!(record.state(), State::Unreported);
    assert!(!record.fall_silent(at(5000), at(6000)), "it is unreported once");
    // Nothing is made up.
    assert_eq!(record.last(), before.last());
    assert_eq!(record.observations, before.observations);
    assert_eq!(record.last_observed_at, before.last_observed_at);
}

#[test]
fn a_late_report_takes_unreported_back() {
    for (phase, state) in [
        (Phase::Syncing, State::Progressing),
        (Phase::Failed, State::Failed),
        (Phase::Succeeded, State::Succeeded),
    ] {
        let mut record = record();
        record.put(&merged(0), "", at(0));
        assert!(record.fall_silent(at(10), at(3000)));
        observe(&mut record, 1, phase, 50, 4000);
        assert_eq!(record.state(), state);
    }
}

#[test]
fn a_git_host_whose_clock_is_ahead_does_not_postpone_silence() {
    let mut record = record();
    record.put(&merged(86_400), "", at(10));
    assert_eq!(record.quiet_since(), Some(at(10)));
    assert_eq!(record.merged_at, Some(at(86_400)), "what was told is kept as it was told");
}

#[test]
fn only_what_was_waited_for_is_superseded_and_an_own_observation_reopens_it() {
    let mut waiting = record();
    waiting.put(&merged(100), "", at(100));
    assert!(!waiting.supersede(at(100), at(200)), "merged at the same time is not before");
    assert!(!waiting.supersede(at(50), at(200)), "merged after the other was observed");
    assert!(waiting.supersede(at(101), at(200)));
    assert_eq!((waiting.state(), waiting.quiet_since()), (State::Superseded, None));
    assert!(!waiting.fall_silent(at(10_000), at(10_000)));
    observe(&mut waiting, 1, Phase::Syncing, 300, 301);
    assert_eq!(waiting.state(), State::Progressing);

    let mut open = record();
    assert!(!open.supersede(at(1000), at(1000)));
    let mut done = record();
    observe(&mut done, 1, Phase::Failed, 10, 10);
    assert!(!done.supersede(at(1000), at(1000)));
    let mut lost = record();
    lost.put(&merged(0), "", at(0));
    lost.fall_silent(at(5), at(5));
    assert!(lost.supersede(at(1000), at(1000)));
}

#[test]
fn a_revision_never_becomes_the_identity_of_a_release_that_has_none() {
    let id = ReleaseId::EventId("e".into());
    let mut record = Record::new(Release { id, ..release("c") }, at(0));
    observe(&mut record, 1, Phase::Succeeded, 1, 1);
    record.put(&PullRequest::default(), "abc", at(2));
    assert_eq!(record.git_revision, "");
}

#[test]
fn a_record_survives_its_document() {
    let mut full = record();
    full.put(&merged(10), "abc", at(10));
    observe(&mut full, 1, Phase::Syncing, 20, 20);
    observe(&mut full, 2, Phase::Failed, 30, 30);
    for record in [record(), full] {
        let document = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&document).unwrap(), record);
    }
}

fn any_observation() -> impl Strategy<Value = Observation> {
    let phase = prop_oneof![Just(Phase::Syncing), Just(Phase::Succeeded), Just(Phase::Failed)];
    (0u8..6, phase, 0i64..40, 0i64..40)
        .prop_map(|(event, phase, finished, received)| observed(event, phase, finished, received))
}

/// Every fact of the record but the order in which observations came.
fn facts(mut record: Record) -> Record {
    record.recent.clear();
    record
}

/// The rule as it is written: sorted by finish, one after the other.
fn state_by_the_book(observations: &[Observation]) -> State {
    let rank = |o: &Observation| {
        let tie = [Phase::Syncing, Phase::Failed, Phase::Succeeded].iter().position(|p| *p == o.phase);
        (o.finished_at.min(o.received_at), tie)
    };
    let mut sorted = observations.to_vec();
    sorted.sort_by_key(rank);
    sorted.iter().fold(State::Expected, |state, observation| match (observation.phase, state) {
        (Phase::Succeeded, _) | (Phase::Syncing, State::Succeeded) => State::Succeeded,
        (Phase::Failed, _) => State::Failed,
        (Phase::Syncing, _) => State::Progressing,
    })
}

proptest! {
    #[test]
    fn order_and_repetition_of_observations_change_nothing(
        (ordered, shuffled) in prop::collection::vec(any_observation(), 1..20)
            .prop_map(|mut list| {
                // One receipt per observation, as the edge keeps it.
                let mut seen = Vec::new();
                list.retain(|o| {
                    let id = (o.event, o.phase, o.finished_at);
                    !seen.contains(&id) && { seen.push(id); true }
                });
                list
            })
            .prop_flat_map(|list| {
                let again = list.iter().chain(&list).copied().collect::<Vec<_>>();
                (Just(list), Just(again).prop_shuffle())
            })
    ) {
        let take = |list: &[Observation]| {
            let mut record = record();
            for observation in list {
                record.observe(observation, "", at(100));
            }
            record
        };
        let (one, other) = (take(&ordered), take(&shuffled));
        prop_assert_eq!(one.state(), state_by_the_book(&ordered));
        prop_assert_eq!(one.observations as usize, ordered.len());
        prop_assert_eq!(facts(one), facts(other));
    }

    #[test]
    fn what_is_told_of_a_pull_request_never_moves_a_state_back(
        observations in prop::collection::vec(any_observation(), 0..5),
        puts in prop::collection::vec((prop::option::of(0i64..50), prop::bool::ANY), 1..5),
    ) {
        let mut record = record();
        for observation in &observations {
            record.observe(observation, "", at(100));
        }
        let order = |state| match state {
            State::Expected => 0,
            State::Closed => 1,
            State::Merged => 2,
            _ => 3,
        };
        for (time, merge) in puts {
            let before = record.state();
            let told = match (time, merge) {
                (Some(time), true) => merged(time),
                (Some(time), false) => closed(time),
                (None, _) => PullRequest::default(),
            };
            record.put(&told, "", at(100));
            prop_assert!(order(record.state()) >= order(before));
            prop_assert!(observations.is_empty() || record.state() == before);
        }
    }

    #[test]
    fn the_list_of_recent_observations_is_bounded_and_none_of_them_is_counted_twice(n in 1i64..200) {
        let mut record = record();
        for second in 0..n {
            prop_assert_ne!(observe(&mut record, 1, Phase::Syncing, second, second), Noted::Repeated);
            prop_assert_eq!(observe(&mut record, 1, Phase::Syncing, second, second), Noted::Repeated);
        }
        prop_assert!(record.recent.len() <= RECENT);
        prop_assert_eq!(i64::from(record.observations), n);
    }
}
