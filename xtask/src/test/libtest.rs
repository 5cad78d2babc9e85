//! Reads what Rust's test programs print.

use crate::{command::Finished, report::Tests};

/// Adds up the results of all test programs in the output of one `cargo test`.
///
/// A run that failed without a failed test (it did not compile, it crashed, it was ended) is one failure.
pub(super) fn read(finished: &Finished) -> Tests {
    let output = finished.text();
    let mut tests = Tests { passed: 0, failed: 0, ignored: 0, output: String::new() };
    for result in output.lines().filter_map(|line| line.trim_start().strip_prefix("test result: ")) {
        tests.passed += count(result, "passed");
        tests.failed += count(result, "failed");
        tests.ignored += count(result, "ignored");
    }
    if !finished.success() && tests.failed == 0 {
        tests.failed = 1;
    }
    tests.output = output;
    tests
}

/// The number before ` <word>` in `ok. 5 passed; 0 failed; 1 ignored; …`.
fn count(result: &str, word: &str) -> usize {
    let before = result.split([';', '.']).filter_map(|part| part.trim().strip_suffix(word)).next();
    before.and_then(|number| number.trim().parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::ExitStatusExt as _, process::ExitStatus};

    use super::*;

    fn finished(code: i32, output: &str) -> Finished {
        let status = ExitStatus::from_raw(code << 8);
        Finished { status, stdout: String::new(), output: output.to_owned(), timed_out: None }
    }

    #[test]
    fn the_results_of_all_programs_are_added_up() {
        let tests = read(&finished(
            101,
            "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
             test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 9 filtered out; finished in 1.00s\n",
        ));
        assert_eq!((tests.passed, tests.failed, tests.ignored), (7, 3, 1));
    }

    #[test]
    fn a_run_that_never_got_to_a_test_is_a_failure() {
        assert_eq!(read(&finished(101, "error: could not compile")).failed, 1);
        assert_eq!(read(&finished(0, "")).failed, 0);
    }
}
