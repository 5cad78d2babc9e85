//! Which spans must not be sent now: those that are under way, and those of which nobody knows whether they arrived.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use transponder_runtime::Clock;

/// How soon to come again while another call is sending the same span.
const UNDER_WAY: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    UnderWay,
    /// Until then, by the monotonic clock.
    Unknown(Duration),
}

/// The spans that must not be sent now. It holds those of the last `wait` alone, so it is bounded by the rate of calls.
pub(crate) struct Waiting {
    wait: Duration,
    clock: Arc<dyn Clock>,
    spans: Mutex<HashMap<[u8; 16], State>>,
}

impl Waiting {
    pub(crate) fn new(wait: Duration, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { wait, clock, spans: Mutex::new(HashMap::new()) })
    }

    /// How long a span waits after a send whose end is unknown.
    pub(crate) fn wait(&self) -> Duration {
        self.wait
    }

    /// Begins to send the span of this trace, or says how long that must wait.
    pub(crate) fn begin(self: &Arc<Self>, trace: [u8; 16]) -> Result<UnderWay, Duration> {
        let now = self.clock.monotonic();
        let mut spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        spans.retain(|_, state| !matches!(state, State::Unknown(until) if *until <= now));
        match spans.get(&trace) {
            Some(State::UnderWay) => return Err(UNDER_WAY),
            Some(State::Unknown(until)) => return Err(until.saturating_sub(now)),
            None => spans.insert(trace, State::UnderWay),
        };
        Ok(UnderWay { waiting: self.clone(), trace, known: false })
    }
}

/// A span that is being sent. Dropped without an end, as when the caller goes away, its end is unknown.
pub(crate) struct UnderWay {
    waiting: Arc<Waiting>,
    trace: [u8; 16],
    known: bool,
}

impl UnderWay {
    /// The backend has said what became of the span, or the span never left.
    pub(crate) fn end_is_known(mut self) {
        self.known = true;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut spans = self.waiting.spans.lock().unwrap_or_else(PoisonError::into_inner);
        if self.known {
            spans.remove(&self.trace);
        } else {
            let until = self.waiting.clock.monotonic().saturating_add(self.waiting.wait);
            spans.insert(self.trace, State::Unknown(until));
        }
    }
}

#[cfg(test)]
mod tests {
    use transponder_core::Timestamp;

    use super::*;

    #[derive(Default)]
    struct Manual(Mutex<Duration>);

    impl Clock for Manual {
        fn wall(&self) -> Timestamp {
            Timestamp::UNIX_EPOCH
        }

        fn monotonic(&self) -> Duration {
            *self.0.lock().unwrap()
        }
    }

    const TRACE: [u8; 16] = [1; 16];

    #[test]
    fn only_an_unknown_end_makes_a_span_wait_and_only_that_span() {
        let clock = Arc::new(Manual::default());
        let waiting = Waiting::new(Duration::from_secs(15), clock.clone());
        waiting.begin(TRACE).unwrap().end_is_known();
        let under_way = waiting.begin(TRACE).unwrap();
        assert_eq!(waiting.begin(TRACE).err(), Some(UNDER_WAY));
        drop(under_way);
        *clock.0.lock().unwrap() = Duration::from_secs(5);
        assert_eq!(waiting.begin(TRACE).err(), Some(Duration::from_secs(10)));
        assert!(waiting.begin([2; 16]).is_ok());
        *clock.0.lock().unwrap() = Duration::from_secs(15);
        assert!(waiting.begin(TRACE).is_ok());
    }
}
