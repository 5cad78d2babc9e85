//! What a stream adds up to: counters and two histograms. They only ever grow.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Upper bounds of the lead time's buckets in seconds: an hour, a day, a week, thirty days.
pub const LEAD_TIME_BOUNDS: [u32; 4] = [3_600, 86_400, 604_800, 2_592_000];
/// Upper bounds of the restore time's buckets in seconds.
pub const RESTORE_BOUNDS: [u32; 6] = [300, 1_800, 3_600, 14_400, 86_400, 604_800];

/// Longest sample that is believed.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// A histogram whose buckets are given by whoever reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Histogram<B> {
    /// Sum of the samples, exact, so that no order of adding changes it.
    pub sum: Duration,
    /// Samples in each bucket, not cumulated.
    pub buckets: B,
    /// Samples above the last bound.
    pub above: u64,
}

impl<const N: usize> Histogram<[u64; N]> {
    fn observe(&mut self, sample: Duration, bounds: &[u32; N]) {
        self.sum = self.sum.saturating_add(sample);
        // A bound belongs to its bucket (`le`).
        let bucket = bounds.iter().position(|bound| sample <= Duration::from_secs(u64::from(*bound)));
        match bucket.and_then(|at| self.buckets.get_mut(at)) {
            Some(count) => *count += 1,
            None => self.above += 1,
        }
    }

    /// Number of samples.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum::<u64>() + self.above
    }
}

/// Samples that were not observed, by why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Discarded {
    /// Ended before it began.
    pub negative: u64,
    /// Over a year, or a finish over ten minutes ahead of its receipt.
    pub implausible: u64,
}

/// A time that was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sample {
    /// To be observed.
    Valid(Duration),
    /// To be counted as negative.
    Negative,
    /// To be counted as implausible.
    Implausible,
}

impl Sample {
    /// Judges the time from a beginning to an end; `None` when the end came first.
    #[must_use]
    pub fn of(elapsed: Option<Duration>) -> Self {
        match elapsed {
            None => Self::Negative,
            Some(elapsed) if elapsed > LONGEST => Self::Implausible,
            Some(elapsed) => Self::Valid(elapsed),
        }
    }
}

impl Discarded {
    fn count(&mut self, sample: Sample) -> Option<Duration> {
        match sample {
            Sample::Valid(elapsed) => return Some(elapsed),
            Sample::Negative => self.negative += 1,
            Sample::Implausible => self.implausible += 1,
        }
        None
    }
}

/// All totals of a stream. Written as JSON; fields are only ever added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Releases that succeeded: each is one deployment.
    pub succeeded: u64,
    /// Releases that failed.
    pub failed: u64,
    /// Releases that were reported failed after they had been counted as succeeded.
    pub conflicts: u64,
    /// Reports of unknown releases that are older than all that are known.
    pub late: u64,
    /// From the start of the flow to the first success of a release.
    pub lead_time: Histogram<[u64; LEAD_TIME_BOUNDS.len()]>,
    /// From the first unrestored failure of the stream to its next success.
    pub restore: Histogram<[u64; RESTORE_BOUNDS.len()]>,
    /// Lead times that were not observed.
    pub lead_time_discarded: Discarded,
    /// Restore times that were not observed.
    pub restore_discarded: Discarded,
}

impl Totals {
    pub(crate) fn lead_time(&mut self, sample: Sample) {
        if let Some(elapsed) = self.lead_time_discarded.count(sample) {
            self.lead_time.observe(elapsed, &LEAD_TIME_BOUNDS);
        }
    }

    pub(crate) fn restore(&mut self, sample: Sample) {
        if let Some(elapsed) = self.restore_discarded.count(sample) {
            self.restore.observe(elapsed, &RESTORE_BOUNDS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_on_a_bound_belongs_to_that_bucket_and_a_year_is_the_longest() {
        let mut totals = Totals::default();
        for seconds in [0, 3_600, 3_601, 2_592_001, 365 * 86_400, 365 * 86_400 + 1] {
            totals.lead_time(Sample::of(Some(Duration::from_secs(seconds))));
        }
        totals.lead_time(Sample::of(None));
        assert_eq!((totals.lead_time.buckets, totals.lead_time.above), ([2, 1, 0, 0], 2));
        assert_eq!(totals.lead_time.count(), 5);
        assert_eq!(totals.lead_time_discarded, Discarded { negative: 1, implausible: 1 });
    }

    #[test]
    fn totals_read_back_and_a_field_of_a_later_version_is_no_obstacle() {
        let totals = Totals { succeeded: 3, late: 1, ..Totals::default() };
        let text = serde_json::to_string(&totals).unwrap();
        assert_eq!(serde_json::from_str::<Totals>(&text).unwrap(), totals);
        assert_eq!(serde_json::from_str::<Totals>(r#"{"succeeded":3,"later":[]}"#).unwrap().succeeded, 3);
    }
}
