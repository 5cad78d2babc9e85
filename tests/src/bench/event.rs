//! The event that everything is measured with: about 2 KiB, as the hook writes it.

use std::sync::atomic::{AtomicU32, Ordering};

/// The same as that of the other benchmarks.
const TEMPLATE: &str = include_str!("../../../xtask/src/bench/event.json");

/// The event with the times of now. What differs from one to the next is left to fill in: `@ID@`, `@CLUSTER@`, `@APP@`.
pub(crate) fn template() -> String {
    let now = jiff::Timestamp::now();
    let time = |time: jiff::Timestamp| time.strftime("%Y-%m-%dT%H:%M:%S.123Z").to_string();
    let hour_ago = now - jiff::SignedDuration::from_hours(1);
    TEMPLATE.trim_end().replace("@TIME@", &time(now)).replace("@FLOW@", &time(hour_ago))
}

/// Distinct for every run of a generator, so that no event comes twice.
pub(crate) fn seed() -> String {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let second = jiff::Timestamp::now().as_second();
    format!("{:05x}{:03x}", second & 0xf_ffff, RUNS.fetch_add(1, Ordering::Relaxed) & 0xfff)
}

/// One event of a cluster, of a release of its own.
pub(crate) fn event(cluster: &str, app: usize, number: usize) -> String {
    let id = format!("{}ff{number:010x}", seed());
    template().replace("@ID@", &id).replace("@CLUSTER@", cluster).replace("@APP@", &format!("app-{app:05}"))
}
