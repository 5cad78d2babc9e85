//! What the holder of the Lease takes from what it reads, is told of, and writes.

use super::{
    super::picture::{Picture, Seen},
    *,
};

#[test]
fn what_is_seen_again_is_no_news_and_a_later_observation_is() {
    let event = event("a", "Succeeded");
    let mut picture = Picture::default();
    let first = Outcome::read(stored(&event, 5, None)).unwrap();
    assert!(matches!(picture.see(&first), Seen::New));
    assert!(matches!(picture.see(&first), Seen::Old));
    let mut observed = first.clone();
    observed.version = 6;
    observed.status.apply(
        &Edit::Observe { finished_at: at(1), received_at: at(2) },
        &first.facts(),
        at(2),
        KEEP,
    );
    // Its own write may have come back first, with the version but not the news.
    picture.wrote(event.key, 6, &observed.status);
    let Seen::Observed(news) = picture.see(&observed) else { panic!("it is news") };
    assert_eq!(news.len(), 1);
    assert!(picture.get(event.key).unwrap().within(news[0].number) == 2);
}

#[test]
fn an_event_that_was_deleted_and_sent_again_is_new() {
    let event = event("a", "Succeeded");
    let mut picture = Picture::default();
    let first = Outcome::read(stored(&event, 5, None)).unwrap();
    picture.see(&first);
    let before = picture.get(event.key).unwrap().sequence;
    let mut again = first.clone();
    (again.uid, again.version) = ("second".into(), 9);
    assert!(matches!(picture.see(&again), Seen::New));
    assert_ne!(picture.get(event.key).unwrap().sequence, before);
    assert_eq!(picture.key(before), None);
}

#[test]
fn an_event_that_has_ended_is_forgotten_whether_that_is_told_or_answered_first() {
    let event = event("a", "Succeeded");
    let first = Outcome::read(stored(&event, 5, None)).unwrap();
    let mut ended = first.status.clone();
    for target in Target::ALL {
        let delivered = status(TargetState::Delivered, Detail::None);
        ended.apply(&Edit::Status { target, status: delivered, tracked: 1 }, &first.facts(), at(9), KEEP);
    }
    assert!(ended.ended.is_some());
    for told_first in [true, false] {
        let mut picture = Picture::default();
        picture.see(&first);
        let told = |picture: &mut Picture| picture.left(event.key, 7);
        if told_first {
            told(&mut picture);
            assert!(picture.get(event.key).is_some(), "it is not known to have ended");
        }
        picture.wrote(event.key, 7, &ended);
        if !told_first {
            told(&mut picture);
        }
        assert!(picture.get(event.key).is_none(), "told first: {told_first}");
    }
}

#[test]
fn a_place_in_the_order_comes_after_every_one_that_was_read_whatever_the_clock_says() {
    let event = event("a", "Failed");
    let mut handed = Outcome::read(stored(&event, 5, None)).unwrap();
    let facts = handed.facts();
    let ahead = Edit::HandOver { order: 900, verdict: verdict(&event, 1), settled: 1, rests_on: Vec::new() };
    handed.status.apply(&ahead, &facts, at(1), KEEP);
    let mut picture = Picture::default();
    picture.see(&handed);
    assert_eq!((picture.next_order(100), picture.next_order(100)), (901, 902));
    assert_eq!(picture.next_order(2000), 2000);
}

#[test]
fn an_observation_that_is_read_before_it_is_told_of_is_still_news_then() {
    let event = event("a", "Succeeded");
    let mut picture = Picture::default();
    let first = Outcome::read(stored(&event, 5, None)).unwrap();
    picture.see(&first);
    let mut observed = first.clone();
    observed.version = 6;
    let again = Edit::Observe { finished_at: at(1), received_at: at(2) };
    observed.status.apply(&again, &first.facts(), at(2), KEEP);
    let open = picture.take_up(&observed).unwrap();
    assert_eq!(open.untracked.len(), 1);
    assert_eq!(picture.get(event.key).unwrap().version, 6);
    assert!(matches!(picture.see(&observed), Seen::Observed(news) if news.len() == 1));
}

#[test]
fn what_has_come_while_a_list_was_read_is_kept_and_what_is_missing_from_it_is_not() {
    let [listed, gone, new] = ["a", "b", "c"].map(|id| event(id, "Succeeded"));
    let mut picture = Picture::default();
    for (event, version) in [(&listed, 3), (&gone, 4), (&new, 8)] {
        picture.see(&Outcome::read(stored(event, version, None)).unwrap());
    }
    let open = [Outcome::read(stored(&listed, 3, None)).unwrap()];
    assert_eq!(picture.replace(&[listed.key].into_iter().collect(), 7, &open), [gone.key]);
    assert!(picture.get(listed.key).is_some() && picture.get(new.key).is_some());
    assert!(picture.get(gone.key).is_none());
}

#[test]
fn an_event_that_a_later_list_has_in_an_older_version_was_set_back_and_is_as_the_list_says() {
    let event = event("a", "Succeeded");
    let backed_up = Outcome::read(stored(&event, 5, None)).unwrap();
    let mut picture = Picture::default();
    picture.see(&backed_up);
    let mut delivered = backed_up.status.clone();
    let taken = status(TargetState::Delivered, Detail::None);
    let edit = Edit::Status { target: Target::Broker, status: taken, tracked: 0 };
    delivered.apply(&edit, &backed_up.facts(), at(9), KEEP);
    picture.wrote(event.key, 9, &delivered);
    let listed = [event.key].into_iter().collect();
    let known = |picture: &Picture| {
        let known = picture.get(event.key).unwrap();
        (known.version, known.status.of(Target::Broker).map(|status| status.state))
    };
    // Written while the list was read.
    picture.replace(&listed, 7, std::slice::from_ref(&backed_up));
    assert_eq!(known(&picture), (9, Some(TargetState::Delivered)));
    picture.replace(&listed, 20, std::slice::from_ref(&backed_up));
    assert_eq!(known(&picture), (5, None));
    // Its observations are counted anew, too.
    assert_eq!(picture.unsettled(&backed_up, 0).len(), 1);
}
