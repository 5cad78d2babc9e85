//! The fuzz targets on what fuzzing begins from, and for seconds on changes of it.
//!
//! Longer, and looking for new code, it runs by `cargo xtask fuzz`. What that finds goes to `fuzz/corpus` and so comes
//! by here from then on.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use transponder_fuzz::{Door, Mutator, corpus};

/// Changes of known inputs that a target is given at most.
const ROUNDS: usize = 20_000;
/// And for how long at most.
const LIMIT: Duration = Duration::from_secs(2);

/// Shows the input that the target did not survive.
struct Shown<'a>(&'a [u8]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input was: {}", self.0.escape_ascii());
        }
    }
}

fn run(name: &str, target: impl Fn(&[u8])) {
    let known = corpus(name);
    let survive = |input: &[u8]| {
        let _shown = Shown(input);
        target(input);
    };
    known.iter().for_each(|input| survive(input));
    let started = Instant::now();
    let mut mutator = Mutator::new(114, known);
    let inputs = std::iter::repeat_with(|| mutator.next_input()).take(ROUNDS);
    let tried = inputs.take_while(|_| started.elapsed() < LIMIT).inspect(|input| survive(input)).count();
    println!("{tried} changed inputs in {:?}", started.elapsed());
}

#[test]
fn no_event_breaks_the_parser_and_what_is_accepted_is_what_others_read() {
    run("event", transponder_fuzz::event);
}

#[test]
fn no_text_breaks_the_time_parser_and_what_is_printed_is_read_as_the_same_instant() {
    run("time", transponder_fuzz::time);
}

#[test]
fn no_text_breaks_the_readers_of_retry_after_traceparent_and_durations() {
    run("value", transponder_fuzz::value);
}

#[test]
fn no_request_makes_the_edge_panic_hang_or_answer_a_server_error() {
    let door = Door::open();
    let statuses: BTreeSet<u16> = corpus("door").iter().filter_map(|input| door.knock(input)).collect();
    // Changes of these begin from everything that the edge can answer while it has all it needs, but 408 and 429.
    let all = [200, 202, 400, 401, 403, 404, 405, 409, 413, 415, 431];
    assert!(all.iter().all(|status| statuses.contains(status)), "{statuses:?}");
    run("door", |input| {
        door.knock(input);
    });
}
