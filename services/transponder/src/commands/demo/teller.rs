//! Tells the story, and keeps account of whether it went as it should.

use std::{
    io::IsTerminal as _,
    time::{Duration, Instant},
};

use super::look::PATIENCE;
use crate::output::{BAD, FAINT, GOOD, STRONG, paint, print};

/// Wait for what is expected after something else failed.
const IMPATIENCE: Duration = Duration::from_millis(300);

/// The teller.
pub(super) struct Teller {
    started: Instant,
    steps: usize,
    held: usize,
    failed: Vec<String>,
}

impl Teller {
    pub(super) fn new() -> Self {
        Self { started: Instant::now(), steps: 0, held: 0, failed: Vec::new() }
    }

    /// How long what is expected is waited for: not long any more once something failed, since much hangs together.
    pub(super) fn patience(&self) -> Duration {
        if self.failed.is_empty() { PATIENCE } else { IMPATIENCE }
    }

    /// A new step.
    pub(super) fn step(&mut self, title: &str) {
        self.steps += 1;
        print(&format!("\n{} {}\n", paint(FAINT, &format!("{:>2}", self.steps)), paint(STRONG, title)));
    }

    /// What was sent.
    pub(super) fn sent(&self, what: &str) {
        print(&format!("   {} {what}\n", paint(FAINT, "→")));
    }

    /// What is being waited for, on a terminal only, until the next line.
    pub(super) fn waiting(&self, what: &str) {
        if std::io::stdout().is_terminal() {
            print(&format!("   {}\r", paint(FAINT, &format!("… {what}"))));
        }
    }

    /// What a service did, and whether that is what it should have done.
    pub(super) fn outcome(&mut self, who: &str, outcome: anyhow::Result<String>) {
        // What was waited for is overwritten to the end of the line.
        let clear = if std::io::stdout().is_terminal() { "\x1b[2K" } else { "" };
        let who_column = format!("{who:<17}");
        match outcome {
            Ok(what) => {
                self.held += 1;
                print(&format!("{clear}   {} {who_column} {what}\n", paint(GOOD, "✓")));
            }
            Err(error) => {
                let what = format!("{error:#}");
                print(&format!("{clear}   {} {who_column} {}\n", paint(BAD, "✗"), paint(BAD, &what)));
                self.failed.push(format!("step {}: {who}: {what}", self.steps));
            }
        }
    }

    /// The sum of it all; whether everything came out as it should.
    pub(super) fn end(&self) -> bool {
        let seconds = self.started.elapsed().as_secs_f64();
        if self.failed.is_empty() {
            let sum = format!("{} expectations, all held, {seconds:.1} s", self.held);
            print(&format!("\n{} {}\n", paint(GOOD, "✓"), paint(GOOD, &sum)));
            return true;
        }
        print(&format!("\n{}\n", paint(BAD, &format!("{} expectations did not hold:", self.failed.len()))));
        for failed in &self.failed {
            print(&format!("  {failed}\n"));
        }
        print("run it again with '--log info' to see what the services say\n");
        false
    }
}
