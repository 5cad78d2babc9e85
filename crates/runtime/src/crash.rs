//! Named points at which a test lets the process die as by `kill -9`. Without the feature they are nothing.

/// Passes a point. With feature `crash-points` and `TRANSPONDER_CRASH_AT=<name>:<n>`, the n-th pass is the last.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub fn point(_name: &str) {}

/// Passes a point. With `TRANSPONDER_CRASH_AT=<name>:<n>`, the n-th pass is the last thing the process does.
#[cfg(feature = "crash-points")]
pub fn point(name: &str) {
    use std::sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    };

    static AT: LazyLock<Option<(String, u64)>> = LazyLock::new(|| {
        let text = std::env::var("TRANSPONDER_CRASH_AT").ok()?;
        let (name, pass) = text.rsplit_once(':')?;
        Some((name.to_owned(), pass.parse().ok()?))
    });
    static PASSES: AtomicU64 = AtomicU64::new(0);

    if let Some((at, pass)) = AT.as_ref()
        && at == name
        && PASSES.fetch_add(1, Ordering::SeqCst) + 1 == *pass
    {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}
