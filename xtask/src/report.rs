//! What a run of several steps prints, and what it adds up to.

use std::{
    fmt::Write as _,
    io::Write as _,
    time::{Duration, Instant},
};

/// What a step came to.
pub(crate) enum Outcome {
    /// A check without counted tests that found nothing wrong.
    Passed,
    /// Something is wrong: the text to show.
    Failed(String),
    /// The step could not run: the reason.
    Skipped(String),
    /// Tests were run.
    Tests(Tests),
}

/// Counted tests of one suite, with the output to show when any failed.
pub(crate) struct Tests {
    /// Tests that passed.
    pub(crate) passed: usize,
    /// Tests that failed.
    pub(crate) failed: usize,
    /// Tests marked `#[ignore]`.
    pub(crate) ignored: usize,
    /// Everything the suite wrote.
    pub(crate) output: String,
}

/// Prints steps as they run and keeps the totals.
#[derive(Default)]
pub(crate) struct Report {
    passed: usize,
    failed: usize,
    skipped: usize,
    complaints: Vec<String>,
}

impl Report {
    /// Runs one step and prints its name, its result and its time.
    pub(crate) fn step(&mut self, name: &str, step: impl FnOnce() -> anyhow::Result<Outcome>) {
        line(&format!("   …  {name}"));
        let started = Instant::now();
        let outcome = step().unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        let time = duration(started.elapsed());
        match outcome {
            Outcome::Passed => {
                self.passed += 1;
                line(&format!("  ok  {name} ({time})"));
            }
            Outcome::Failed(text) => {
                self.failed += 1;
                self.complain(format!("{name} failed"), &text, &time);
            }
            Outcome::Skipped(reason) => {
                self.skipped += 1;
                let reason = one_line(&reason);
                self.complaints.push(format!("{name} skipped: {reason}"));
                line(&format!("skip  {name}: {reason} ({time})"));
            }
            Outcome::Tests(tests) => self.tests(name, &tests, &time),
        }
    }

    /// Prints what failed or was skipped and, last of all, the totals on one line. True when nothing failed.
    pub(crate) fn finish(self) -> bool {
        let mut text = String::from("\n");
        for complaint in &self.complaints {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{complaint}");
        }
        line(&format!("{text}{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped));
        self.failed == 0
    }

    fn tests(&mut self, name: &str, tests: &Tests, time: &str) {
        self.passed += tests.passed;
        self.failed += tests.failed;
        self.skipped += tests.ignored;
        let counts = format!("{} passed, {} failed, {} skipped", tests.passed, tests.failed, tests.ignored);
        if tests.failed == 0 {
            line(&format!("  ok  {name}: {counts} ({time})"));
        } else {
            self.complain(format!("{name}: {counts}"), &tests.output, time);
        }
    }

    fn complain(&mut self, complaint: String, text: &str, time: &str) {
        line(&format!("FAIL  {complaint} ({time})\n{}", indented(text)));
        self.complaints.push(complaint);
    }
}

/// Prints one line at once. Threads may call it at the same time.
pub(crate) fn line(text: &str) {
    println!("{text}");
    // Nobody reads any more: the exit code still tells.
    let _ = std::io::stdout().flush();
}

/// A time for people: `0.4 s`, `12.0 s`, `3 min 05 s`.
pub(crate) fn duration(time: Duration) -> String {
    if time < Duration::from_secs(60) {
        return format!("{:.1} s", time.as_secs_f64());
    }
    format!("{} min {:02} s", time.as_secs() / 60, time.as_secs() % 60)
}

/// A reason that may be the whole output of a program, fit for a list.
fn one_line(text: &str) -> String {
    const LONGEST: usize = 300;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= LONGEST {
        return line;
    }
    line.chars().take(LONGEST).chain(['…']).collect()
}

fn indented(text: &str) -> String {
    text.trim_end().lines().map(|line| format!("      | {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_outcome_is_counted_in_its_place() {
        let mut report = Report::default();
        report.step("a", || Ok(Outcome::Passed));
        report.step("b", || Ok(Outcome::Skipped("no tool".to_owned())));
        report.step("c", || {
            Ok(Outcome::Tests(Tests { passed: 4, failed: 0, ignored: 2, output: String::new() }))
        });
        assert_eq!((report.passed, report.failed, report.skipped), (5, 0, 3));
        report.step("d", || anyhow::bail!("broken"));
        report.step("e", || {
            Ok(Outcome::Tests(Tests { passed: 1, failed: 1, ignored: 0, output: String::new() }))
        });
        assert_eq!((report.passed, report.failed, report.skipped), (6, 2, 3));
        assert!(!report.finish());
    }

    #[test]
    fn a_reason_fits_on_one_line() {
        assert_eq!(one_line("go build failed:\n no network\n"), "go build failed: no network");
        assert_eq!(one_line(&"x".repeat(1000)).chars().count(), 301);
    }

    #[test]
    fn times_are_written_for_people() {
        assert_eq!(duration(Duration::from_millis(449)), "0.4 s");
        assert_eq!(duration(Duration::from_secs(185)), "3 min 05 s");
    }
}
