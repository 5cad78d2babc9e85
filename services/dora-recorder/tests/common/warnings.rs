//! The warnings that the code under test logs.

use std::{cell::RefCell, io, sync::Once};

use tracing::Level;

thread_local! {
    /// Of this thread, and so of this test: its runtime has no other.
    static WRITTEN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

struct ThisThread;

impl io::Write for ThisThread {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        WRITTEN.with_borrow_mut(|written| written.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Begins to collect warnings. For the whole process: with a subscriber of one thread, a line that another thread comes to
/// first is taken for one that nobody wants.
pub(crate) fn collect() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let lines = tracing_subscriber::fmt().with_max_level(Level::WARN).with_ansi(false);
        lines.with_writer(|| ThisThread).init();
    });
}

/// The lines of this test so far that contain this.
pub(crate) fn of(what: &str) -> Vec<String> {
    let written = WRITTEN.with_borrow(|written| String::from_utf8_lossy(written).into_owned());
    written.lines().filter(|line| line.contains(what)).map(str::to_owned).collect()
}
