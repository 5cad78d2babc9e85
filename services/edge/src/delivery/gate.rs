//! The gate of one target: how many calls may run, and when none may.
//!
//! A target that fails once is not down; three failures in a row without a success between them close the gate to one
//! probe at a time, further and further apart, so that a target that is away for a day costs next to nothing. The probe
//! is whichever event is next in turn, so one bad event cannot keep the gate shut.

use std::time::{Duration, Instant};

use transponder_core::retry::Backoff;

/// Failures in a row that close the gate.
const CLOSE: u32 = 3;
/// Probes are never further apart: a target that is back is noticed within this.
const PROBE: Backoff = Backoff { base: Duration::from_millis(500), cap: Duration::from_secs(15) };
/// Longest pause that a target may ask for.
const ASKED: Duration = Duration::from_secs(300);
/// How often a closed gate is mentioned in the log.
const REMIND: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Gate {
    limit: usize,
    in_flight: usize,
    failures: u32,
    pause_until: Option<Instant>,
    reminded: Option<Instant>,
}

/// What a success did to the gate.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opened {
    /// It was open.
    Before,
    /// It was closed until now.
    Now,
}

impl Gate {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, in_flight: 0, failures: 0, pause_until: None, reminded: None }
    }

    /// Whether another call may start.
    pub(super) fn admits(&self, now: Instant) -> bool {
        let limit = if self.is_closed() { 1 } else { self.limit };
        self.in_flight < limit && self.pause_until.is_none_or(|until| until <= now)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.failures >= CLOSE
    }

    /// When a paused gate admits the next probe.
    pub(super) fn wake(&self) -> Option<Instant> {
        self.pause_until
    }

    pub(super) fn started(&mut self) {
        self.in_flight += 1;
    }

    pub(super) fn succeeded(&mut self) -> Opened {
        let before = self.is_closed();
        self.in_flight = self.in_flight.saturating_sub(1);
        (self.failures, self.pause_until, self.reminded) = (0, None, None);
        if before { Opened::Now } else { Opened::Before }
    }

    /// The event was at fault, or nothing was sent: says nothing about the target.
    pub(super) fn neither(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Answers whether this is worth a line in the log: when the gate closes, and once a minute.
    pub(super) fn failed(&mut self, now: Instant, asked: Option<Duration>, random: f64) -> bool {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.failures = self.failures.saturating_add(1);
        if !self.is_closed() {
            return false;
        }
        let attempts = self.failures - CLOSE + 1;
        // Half of the ceiling at least: full jitter alone could probe many times in a row. What the target asks for is
        // honoured beyond it.
        let delay = PROBE.delay(attempts, None, 0.5 + random / 2.0).max(asked.unwrap_or_default().min(ASKED));
        self.pause_until = Some(now + delay);
        let due = self.reminded.is_none_or(|last| now.duration_since(last) >= REMIND);
        if due {
            self.reminded = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_leave_one_probe_at_a_time_and_a_success_opens_all() {
        let mut gate = Gate::new(8);
        let now = Instant::now();
        for n in 0..3 {
            assert!(gate.admits(now), "{n}");
            gate.started();
            gate.failed(now, None, 0.0);
        }
        assert!(!gate.admits(now));
        let later = now + Duration::from_secs(1);
        assert!(gate.admits(later));
        gate.started();
        assert!(!gate.admits(later));
        assert_eq!(gate.succeeded(), Opened::Now);
        assert!((0..8).all(|_| {
            gate.started();
            true
        }));
        assert!(!gate.admits(later));
    }

    #[test]
    fn a_target_that_is_away_is_mentioned_once_a_minute() {
        let mut gate = Gate::new(1);
        let start = Instant::now();
        let lines = (0..240).filter(|n| gate.failed(start + Duration::from_secs(15 * n), None, 1.0)).count();
        assert_eq!(lines, 60);
    }
}
