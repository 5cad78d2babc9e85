//! Settling: from the observations of a release to its verdict.
//!
//! A counter cannot be taken back, and one operation of Argo CD may report Failed several times before it reports
//! Succeeded. So a verdict waits until its release has been quiet for a while. All windows run by receive times.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{EventKey, Phase, Timestamp};

/// One report of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// The event that carries it.
    pub event: EventKey,
    /// What it reports.
    pub phase: Phase,
    /// The finish time it reports.
    pub finished_at: Timestamp,
    /// When it was received.
    pub received_at: Timestamp,
}

impl Observation {
    /// The finish that counts: one after the receipt counts as the receipt.
    #[must_use]
    pub fn finish(&self) -> Timestamp {
        self.finished_at.min(self.received_at)
    }

    /// Order of candidates: the later finish, on a tie the success.
    fn rank(&self) -> (Timestamp, bool) {
        (self.finish(), self.phase == Phase::Succeeded)
    }
}

/// A finish that lies further ahead of its receipt is no finish: whoever counts is told of it as it came.
pub const IMPLAUSIBLE: Duration = Duration::from_secs(600);

/// How long verdicts settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// A success, after its receipt.
    pub succeeded: Duration,
    /// A failure, after the last observation of its release.
    pub failed: Duration,
    /// A failure, after the first failure of the open verdict.
    pub max: Duration,
}

/// What a release came to, handed over to DORA.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The event of the candidate.
    pub event: EventKey,
    /// Succeeded or Failed.
    pub phase: Phase,
    /// Finish of the candidate.
    pub finished_at: Timestamp,
    /// Of a failure, the finish of its first report.
    pub first_finished_at: Timestamp,
    /// Receipt of the candidate.
    pub received_at: Timestamp,
}

/// The one open verdict of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenVerdict {
    candidate: Observation,
    /// Earliest finish and earliest receipt of a failure.
    first_failed: Option<(Timestamp, Timestamp)>,
    last_received: Timestamp,
}

impl OpenVerdict {
    /// Opens a verdict; `None` for an observation that is not terminal.
    #[must_use]
    pub fn open(observation: Observation) -> Option<Self> {
        observation.phase.is_terminal().then(|| Self {
            candidate: observation,
            first_failed: (observation.phase == Phase::Failed)
                .then(|| (observation.finish(), observation.received_at)),
            last_received: observation.received_at,
        })
    }

    /// Takes in another observation of the release. Answers which event no longer is the candidate, if any.
    pub fn observe(&mut self, observation: Observation) -> Option<EventKey> {
        self.last_received = self.last_received.max(observation.received_at);
        if !observation.phase.is_terminal() {
            return None;
        }
        if observation.phase == Phase::Failed {
            let (finish, received) =
                self.first_failed.unwrap_or((observation.finish(), observation.received_at));
            self.first_failed =
                Some((finish.min(observation.finish()), received.min(observation.received_at)));
        }
        let loser = if observation.rank() > self.candidate.rank() {
            std::mem::replace(&mut self.candidate, observation)
        } else {
            observation
        };
        (loser.event != self.candidate.event).then_some(loser.event)
    }

    /// The observation that would be handed over now.
    #[must_use]
    pub fn candidate(&self) -> &Observation {
        &self.candidate
    }

    /// How long from `now` until the verdict is due. A wall clock that jumped can shorten the wait to nothing or
    /// stretch it to one full window, never beyond.
    #[must_use]
    pub fn due_in(&self, windows: &Windows, now: Timestamp) -> Duration {
        let remaining = |from: Timestamp, window: Duration| {
            let elapsed = now.duration_since(from);
            if elapsed.is_negative() { window } else { window.saturating_sub(elapsed.unsigned_abs()) }
        };
        match (self.candidate.phase, self.first_failed) {
            (Phase::Failed, Some((_, first_received))) => {
                remaining(self.last_received, windows.failed).min(remaining(first_received, windows.max))
            }
            _ => remaining(self.candidate.received_at, windows.succeeded),
        }
    }

    /// The verdict as it stands.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let ahead = self.candidate.finished_at.duration_since(self.candidate.received_at);
        let implausible = !ahead.is_negative() && ahead.unsigned_abs() > IMPLAUSIBLE;
        let finished_at = if implausible { self.candidate.finished_at } else { self.candidate.finish() };
        let first_finished_at = match (self.candidate.phase, self.first_failed) {
            (Phase::Failed, Some((first, _))) => first,
            _ => finished_at,
        };
        Verdict {
            event: self.candidate.event,
            phase: self.candidate.phase,
            finished_at,
            first_finished_at,
            received_at: self.candidate.received_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOWS: Windows = Windows {
        succeeded: Duration::ZERO,
        failed: Duration::from_secs(1200),
        max: Duration::from_secs(7200),
    };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn observation(event: u8, phase: Phase, finished: i64, received: i64) -> Observation {
        Observation {
            event: EventKey::from_bytes([event; 20]),
            phase,
            finished_at: at(finished),
            received_at: at(received),
        }
    }

    #[test]
    fn failures_that_end_in_a_success_are_a_success_at_once() {
        let mut open = OpenVerdict::open(observation(1, Phase::Failed, 0, 1)).unwrap();
        assert_eq!(open.due_in(&WINDOWS, at(1)), WINDOWS.failed);
        assert_eq!(
            open.observe(observation(2, Phase::Succeeded, 60, 61)),
            Some(EventKey::from_bytes([1; 20]))
        );
        assert_eq!(open.due_in(&WINDOWS, at(61)), Duration::ZERO);
        assert_eq!(open.verdict().phase, Phase::Succeeded);
        assert_eq!(open.verdict().first_finished_at, at(60));
    }

    #[test]
    fn each_observation_renews_the_window_of_a_failure_up_to_the_maximum() {
        let mut open = OpenVerdict::open(observation(1, Phase::Failed, 0, 0)).unwrap();
        open.observe(observation(3, Phase::Syncing, 1000, 1000));
        assert_eq!(open.due_in(&WINDOWS, at(1000)), WINDOWS.failed);
        open.observe(observation(1, Phase::Failed, 7000, 7000));
        assert_eq!(open.due_in(&WINDOWS, at(7000)), Duration::from_secs(200));
        let verdict = open.verdict();
        assert_eq!((verdict.first_finished_at, verdict.finished_at), (at(0), at(7000)));
    }

    #[test]
    fn a_tie_is_a_success_and_a_finish_after_its_receipt_is_the_receipt() {
        let mut open = OpenVerdict::open(observation(1, Phase::Failed, 9_999, 10)).unwrap();
        assert_eq!(open.candidate().finish(), at(10));
        open.observe(observation(2, Phase::Succeeded, 10, 20));
        assert_eq!(open.candidate().phase, Phase::Succeeded);
    }

    #[test]
    fn a_finish_far_ahead_of_its_receipt_is_handed_over_as_it_came() {
        let near = OpenVerdict::open(observation(1, Phase::Succeeded, 600, 0)).unwrap();
        assert_eq!(near.verdict().finished_at, at(0));
        let far = OpenVerdict::open(observation(1, Phase::Succeeded, 601, 0)).unwrap();
        assert_eq!(far.verdict().finished_at, at(601));
    }

    #[test]
    fn a_wall_clock_that_jumps_never_stretches_the_wait_beyond_a_window() {
        let open = OpenVerdict::open(observation(1, Phase::Failed, 0, 0)).unwrap();
        assert_eq!(open.due_in(&WINDOWS, at(-86_400)), WINDOWS.failed);
        assert_eq!(open.due_in(&WINDOWS, at(86_400)), Duration::ZERO);
    }
}
