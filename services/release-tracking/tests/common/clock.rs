//! A clock that a test sets.

use std::{sync::Mutex, time::Duration};

use transponder_core::Timestamp;
use transponder_runtime::Clock;

/// Unix time at which the clock begins.
pub const BEGIN: i64 = 1_800_000_000;

pub struct FakeClock(Mutex<Times>);

struct Times {
    wall: i64,
    monotonic: Duration,
}

impl FakeClock {
    pub fn new() -> Self {
        Self(Mutex::new(Times { wall: BEGIN, monotonic: Duration::ZERO }))
    }

    /// Seconds since the clock began, by the wall.
    pub fn second(&self) -> i64 {
        self.0.lock().unwrap().wall - BEGIN
    }

    /// Lets time pass.
    pub fn pass(&self, seconds: u64) {
        let mut times = self.0.lock().unwrap();
        times.wall += i64::try_from(seconds).unwrap();
        times.monotonic += Duration::from_secs(seconds);
    }

    /// Moves the wall clock alone.
    pub fn jump(&self, seconds: i64) {
        self.0.lock().unwrap().wall += seconds;
    }
}

impl Clock for FakeClock {
    fn wall(&self) -> Timestamp {
        Timestamp::from_second(self.0.lock().unwrap().wall).unwrap()
    }

    fn monotonic(&self) -> Duration {
        self.0.lock().unwrap().monotonic
    }
}
