use transponder_core::{Maker, Phase, ReleaseId};

use super::*;
use crate::record::{
    Observation, PullRequest,
    fixture::{at, observed, release},
};
use crate::store::kubernetes::object::SCHEMA;

fn merged(chain_id: &str, merged: i64, told: i64) -> Record {
    let mut record = Record::new(release(chain_id), at(told));
    let told_of = PullRequest { merged_at: Some(at(merged)), ..PullRequest::default() };
    record.put(&told_of, "", at(told));
    record
}

fn seen(chain_id: &str, received: i64) -> Record {
    let mut record = Record::new(release(chain_id), at(received));
    record.observe(&observed(1, Phase::Succeeded, received, received), "", at(received));
    record
}

/// The chain ids of what is overdue, each with the second of what does it.
fn found(records: &[Record]) -> Vec<(String, Timestamp)> {
    let entry = |record: &Record| Entry {
        record: record.clone(),
        maker: Maker::Platform,
        reported_at: None,
        version: None,
        schema: SCHEMA,
    };
    let signs: Vec<Sign> = records.iter().filter_map(|record| Sign::of(&entry(record))).collect();
    let id = |key| match &records.iter().find(|record| record.release.key() == key).unwrap().release.id {
        ReleaseId::ChainId(id) => id.clone(),
        other => panic!("{other:?}"),
    };
    let mut found: Vec<_> = overdue(&signs).into_iter().map(|(key, at)| (id(key), at)).collect();
    found.sort();
    found
}

#[test]
fn what_was_merged_before_another_release_was_first_seen_is_overdue_until_it_is_marked() {
    let mut old = merged("old", 10, 11);
    let new = seen("new", 50);
    assert_eq!(found(&[old.clone(), new.clone()]), [("old".to_owned(), at(50))]);
    assert!(old.supersede(at(50), at(51)));
    assert_eq!(found(&[old, new]), []);
}

#[test]
fn a_release_does_not_supersede_itself_nor_what_came_after_it() {
    let mut syncing = Record::new(release("syncing"), at(20));
    syncing.observe(&observed(2, Phase::Syncing, 20, 20), "", at(20));
    assert_eq!(found(&[syncing.clone()]), []);
    assert_eq!(found(&[syncing.clone(), seen("before", 10)]), []);
    assert_eq!(found(&[syncing.clone(), merged("later", 30, 31)]), []);
    // Of three, the one in the middle is both.
    let all = [merged("old", 5, 6), syncing, seen("new", 50)];
    assert_eq!(found(&all), [("old".to_owned(), at(50)), ("syncing".to_owned(), at(50))]);
}

#[test]
fn another_stream_is_another_matter() {
    let mut other = seen("new", 50);
    other.release.stream.env = transponder_core::EnvName::new("staging").unwrap();
    assert_eq!(found(&[merged("old", 10, 11), other]), []);
}

#[test]
fn what_changed_since_then_is_left_as_it_is() {
    let new = seen("new", 50);
    // The merge is told late.
    assert_eq!(found(&[merged("old", 10, 60), new.clone()]), []);
    // An observation of its own that was long on its way has reopened it.
    let mut reopened = merged("old", 10, 11);
    assert!(reopened.supersede(at(50), at(51)));
    let late = Observation { received_at: at(40), ..observed(3, Phase::Syncing, 40, 40) };
    reopened.observe(&late, "", at(61));
    assert_eq!(found(&[reopened, new.clone()]), []);
    // An open pull request and an outcome wait for nothing.
    assert_eq!(found(&[Record::new(release("open"), at(1)), seen("done", 5), new]), []);
}
