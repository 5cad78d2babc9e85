//! What a process uses, by /proc.

use std::{
    fs,
    time::{Duration, Instant},
};

/// Clock ticks a second in /proc: 100 on every Linux that we run on.
const TICKS: f64 = 100.0;

/// Anonymous memory of a process, in MiB.
///
/// # Panics
///
/// When it does not run.
#[must_use]
pub fn anonymous_mib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("its anonymous memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number of kB") / 1024
}

/// The share of one core that a process uses during so long, in percent.
///
/// # Panics
///
/// When it does not run.
pub async fn cpu_percent(pid: u32, during: Duration) -> f64 {
    let (before, started) = (cpu_seconds(pid), Instant::now());
    tokio::time::sleep(during).await;
    100.0 * (cpu_seconds(pid) - before) / started.elapsed().as_secs_f64()
}

/// Processor time of a process so far, in seconds.
///
/// # Panics
///
/// When it does not run.
#[must_use]
pub fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    // The program's name, in brackets, may hold spaces; utime and stime are the 14th and 15th field.
    let (_, fields) = stat.rsplit_once(')').expect("the name ends with a bracket");
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a number of ticks");
    (ticks(11) + ticks(12)) / TICKS
}
