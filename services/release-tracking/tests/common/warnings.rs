//! The warnings that the code under test logs.

use std::{
    fmt::{Debug, Write as _},
    sync::{Arc, Mutex},
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::DefaultGuard,
};

/// Collects what this thread warns of while it lives: a test's runtime has no other.
pub struct Warnings {
    lines: Arc<Mutex<Vec<String>>>,
    _guard: DefaultGuard,
}

impl Warnings {
    pub fn collect() -> Self {
        let lines = Arc::default();
        let guard = tracing::subscriber::set_default(Collector(Arc::clone(&lines)));
        Self { lines, _guard: guard }
    }

    /// The lines so far that contain this.
    pub fn of(&self, what: &str) -> Vec<String> {
        self.lines.lock().unwrap().iter().filter(|line| line.contains(what)).cloned().collect()
    }
}

struct Collector(Arc<Mutex<Vec<String>>>);

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}
