//! Instants in eight bytes: a full stream holds 256 releases, and there are thousands of streams.

use std::{num::NonZeroU64, time::Duration};

use transponder_core::Timestamp;

/// Nanoseconds since 1970, never 0, so that an absent one takes no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Instant(NonZeroU64);

impl Instant {
    /// The instant of a stored number of nanoseconds; `None` for what is none.
    #[must_use]
    pub fn from_nanos(nanos: i64) -> Option<Self> {
        u64::try_from(nanos).ok().and_then(NonZeroU64::new).map(Self)
    }

    /// Nanoseconds since 1970, as a store keeps them.
    #[must_use]
    pub fn as_nanos(self) -> i64 {
        i64::try_from(self.0.get()).unwrap_or(i64::MAX)
    }

    /// How long after `earlier` this is; `None` when it is before it.
    #[must_use]
    pub fn since(self, earlier: Self) -> Option<Duration> {
        self.0.get().checked_sub(earlier.0.get()).map(Duration::from_nanos)
    }

    /// This much later.
    #[must_use]
    pub fn plus(self, length: Duration) -> Self {
        let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl From<Timestamp> for Instant {
    /// Times before 1970 or after 2262 become the nearest instant; requests are checked before for lying within.
    fn from(time: Timestamp) -> Self {
        let nanos = time.as_nanosecond().clamp(1, i128::from(i64::MAX));
        Self(u64::try_from(nanos).ok().and_then(NonZeroU64::new).unwrap_or(NonZeroU64::MIN))
    }
}

impl From<Instant> for Timestamp {
    fn from(instant: Instant) -> Self {
        Self::from_nanosecond(i128::from(instant.as_nanos())).unwrap_or(Self::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_keeps_its_nanoseconds_in_eight_bytes() {
        assert_eq!(size_of::<Option<Instant>>(), 8);
        let time: Timestamp = "2026-09-14T10:00:00.123456789Z".parse().unwrap();
        assert_eq!(Timestamp::from(Instant::from(time)), time);
        assert_eq!(Instant::from_nanos(Instant::from(time).as_nanos()), Some(Instant::from(time)));
        assert_eq!(Instant::from_nanos(0), None);
        assert_eq!(Instant::from_nanos(-1), None);
    }
}
