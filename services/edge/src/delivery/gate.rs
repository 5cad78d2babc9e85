//! The gate of one target: how many calls may run, and when none may.
//!
//! A target that fails once is not down; three failures in a row without a success between them leave one probe at a
//! time, further and further apart, so that a target that is away for a day costs next to nothing.
//!
//! A target that takes nobody's events and one that does not take those of one cluster look alike to that cluster, and
//! must not to the others. So each cluster has a line of its own, which closes by its own failures; the gate as a whole
//! closes when clusters fail one after the other, and probes first with a cluster whose line is open.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use transponder_core::{ClusterName, retry::Backoff};

/// Failures in a row that close.
const CLOSE: u32 = 3;
/// Probes are never further apart: a target that is back is noticed within this.
const PROBE: Backoff = Backoff { base: Duration::from_millis(500), cap: Duration::from_secs(15) };
/// Longest pause that a target may ask for. It is the pause of the cluster whose event was answered so.
const ASKED: Duration = Duration::from_secs(300);
/// How often a closed gate is mentioned in the log.
const REMIND: Duration = Duration::from_secs(60);

/// The gate of one target.
#[derive(Debug)]
pub(super) struct Gate {
    limit: usize,
    in_flight: usize,
    /// Since the last success of anybody.
    all: Line,
    /// Who failed last since then, and whether others did as well.
    last: Option<ClusterName>,
    several: bool,
    /// Of the clusters that fail.
    lines: HashMap<ClusterName, Line>,
    reminded: Option<Instant>,
}

/// Failures in a row, and what follows from them.
#[derive(Debug, Default)]
struct Line {
    failures: u32,
    pause_until: Option<Instant>,
    /// Whether a probe is out.
    probing: bool,
}

/// What a success did to the gate.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opened {
    /// It was open.
    Before,
    /// It was closed until now.
    Now,
}

impl Line {
    fn is_closed(&self) -> bool {
        self.failures >= CLOSE
    }

    fn admits(&self, now: Instant) -> bool {
        !self.is_closed() || !self.probing && self.pause_until.is_none_or(|until| until <= now)
    }

    fn failed(&mut self, now: Instant, asked: Duration, random: f64) {
        // What fails during a pause was sent before it: a burst is one failure.
        if self.pause_until.is_none_or(|until| until <= now) {
            self.failures = self.failures.saturating_add(1);
        }
        if self.is_closed() {
            // Half of the ceiling at least: full jitter alone could probe many times in a row.
            let pause = PROBE.delay(self.failures - CLOSE + 1, None, 0.5 + random / 2.0).max(asked);
            self.pause_until = self.pause_until.max(Some(now + pause));
        }
    }
}

impl Gate {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            in_flight: 0,
            all: Line::default(),
            last: None,
            several: false,
            lines: HashMap::new(),
            reminded: None,
        }
    }

    /// Whether another call may start at all.
    pub(super) fn admits(&self, now: Instant) -> bool {
        self.in_flight < self.limit && (!self.is_closed_to_all() || self.all.admits(now))
    }

    /// Whether a call for this cluster may.
    pub(super) fn admits_cluster(&self, cluster: &ClusterName, now: Instant) -> bool {
        self.lines.get(cluster).is_none_or(|line| line.admits(now))
    }

    /// Whether the target takes nobody's events.
    pub(super) fn is_down(&self) -> bool {
        self.all.is_closed()
    }

    /// One cluster that fails closes its own line alone.
    fn is_closed_to_all(&self) -> bool {
        self.is_down() && self.several
    }

    /// When a pause ends. A probe that is out ends by itself, and its end is told.
    pub(super) fn wake(&self, now: Instant) -> Option<Instant> {
        let pauses = |line: &Line| line.pause_until.filter(|until| *until > now);
        if self.is_closed_to_all() {
            return pauses(&self.all);
        }
        self.lines.values().filter_map(pauses).min()
    }

    pub(super) fn started(&mut self, cluster: &ClusterName) {
        self.in_flight += 1;
        self.all.probing = true;
        if let Some(line) = self.lines.get_mut(cluster) {
            line.probing = true;
        }
    }

    fn ended(&mut self, cluster: &ClusterName) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.all.probing = self.in_flight > 0;
        if let Some(line) = self.lines.get_mut(cluster) {
            line.probing = false;
        }
    }

    pub(super) fn succeeded(&mut self, cluster: &ClusterName) -> Opened {
        self.ended(cluster);
        let (was_down, was_away) = (self.is_down(), self.is_closed_to_all());
        self.all = Line { probing: self.all.probing, ..Line::default() };
        (self.last, self.several) = (None, false);
        let line = self.lines.remove(cluster);
        if was_away {
            self.lines.clear();
        }
        if was_down && (was_away || line.is_some()) {
            self.reminded = None;
            return Opened::Now;
        }
        if line.is_some_and(|line| line.is_closed()) { Opened::Now } else { Opened::Before }
    }

    /// The event was at fault, or nothing was sent: says nothing about the target.
    pub(super) fn neither(&mut self, cluster: &ClusterName) {
        self.ended(cluster);
    }

    /// Answers whether this is worth a line in the log: when something closes, and once a minute.
    pub(super) fn failed(
        &mut self,
        cluster: &ClusterName,
        now: Instant,
        asked: Option<Duration>,
        random: f64,
    ) -> bool {
        self.ended(cluster);
        self.all.failed(now, Duration::ZERO, random);
        self.several |= self.last.as_ref().is_some_and(|last| last != cluster);
        self.last = Some(cluster.clone());
        let line = self.lines.entry(cluster.clone()).or_default();
        line.failed(now, asked.unwrap_or_default().min(ASKED), random);
        if !line.is_closed() && !self.all.is_closed() {
            return false;
        }
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

    fn cluster(name: &str) -> ClusterName {
        name.parse().unwrap()
    }

    fn fail(gate: &mut Gate, of: &ClusterName, now: Instant) {
        gate.started(of);
        gate.failed(of, now, None, 0.0);
    }

    #[test]
    fn three_failures_leave_one_probe_at_a_time_and_a_success_opens_all() {
        for clusters in [&["a"][..], &["a", "b"], &["a", "b", "c", "d"]] {
            let clusters: Vec<_> = clusters.iter().map(|name| cluster(name)).collect();
            let mut gate = Gate::new(8);
            let now = Instant::now();
            for n in 0..3 {
                let one = &clusters[n % clusters.len()];
                assert!(gate.admits(now) && gate.admits_cluster(one, now), "{n}");
                fail(&mut gate, one, now);
            }
            let one = &clusters[0];
            let admits = |gate: &Gate, now| gate.admits(now) && gate.admits_cluster(one, now);
            assert!(gate.is_down() && !admits(&gate, now));
            let later = now + Duration::from_secs(1);
            assert!(admits(&gate, later));
            gate.started(one);
            assert!(!admits(&gate, later));
            assert_eq!(gate.wake(later), None, "the end of the probe wakes, and nothing before it");
            assert_eq!(gate.succeeded(one), Opened::Now);
            assert!(!gate.is_down());
            for _ in 0..8 {
                assert!(admits(&gate, later));
                gate.started(one);
            }
            assert!(!gate.admits(later));
        }
    }

    #[test]
    fn a_cluster_whose_events_are_not_taken_closes_the_gate_to_itself_alone() {
        let (a, b) = (cluster("a"), cluster("b"));
        let mut gate = Gate::new(8);
        let now = Instant::now();
        for _ in 0..10 {
            gate.started(&a);
            gate.failed(&a, now, Some(Duration::from_secs(3600)), 0.0);
        }
        assert!(!gate.admits_cluster(&a, now + Duration::from_secs(299)));
        assert!(gate.admits_cluster(&a, now + Duration::from_secs(300)), "an hour is too much to ask");
        assert!(gate.admits(now) && gate.admits_cluster(&b, now));
        gate.started(&b);
        assert_eq!(gate.succeeded(&b), Opened::Before);
        assert!(!gate.admits_cluster(&a, now + Duration::from_secs(299)));
    }

    #[test]
    fn who_failed_long_ago_does_not_make_another_clusters_failures_everybodys() {
        let (a, b, long_ago) = (cluster("a"), cluster("b"), cluster("long-ago"));
        let mut gate = Gate::new(8);
        let now = Instant::now();
        fail(&mut gate, &long_ago, now);
        gate.started(&b);
        gate.succeeded(&b);
        (0..10).for_each(|n| fail(&mut gate, &a, now + Duration::from_secs(60 * n)));
        let later = now + Duration::from_secs(60 * 9);
        assert!(!gate.admits_cluster(&a, later));
        assert!(gate.admits(later) && gate.admits_cluster(&b, later));
    }

    #[test]
    fn a_burst_that_fails_is_one_failure() {
        let a = cluster("a");
        let mut gate = Gate::new(32);
        let now = Instant::now();
        (0..32).for_each(|_| gate.started(&a));
        for _ in 0..32 {
            gate.failed(&a, now, None, 1.0);
        }
        assert!(gate.admits_cluster(&a, now + Duration::from_millis(500)));
    }

    #[test]
    fn a_target_that_is_away_is_mentioned_once_a_minute() {
        let (a, mut gate) = (cluster("a"), Gate::new(1));
        let start = Instant::now();
        let lines =
            (0..240).filter(|n| gate.failed(&a, start + Duration::from_secs(15 * n), None, 1.0)).count();
        assert_eq!(lines, 60);
    }
}
