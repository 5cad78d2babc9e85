//! Target `time`.

use std::time::Duration;

use transponder_core::{Timestamp, parse_rfc3339};

/// When the first year that RFC 3339 can write began, in Unix seconds.
const YEAR_ZERO: i64 = -62_167_219_200;

/// A time: what is read is what another parser reads, and what is printed is read as the same instant.
///
/// # Panics
///
/// When one of that does not hold.
pub fn time(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let ours = parse_rfc3339(text);
    let theirs = text.parse::<Timestamp>().ok();
    if let Ok(ours) = ours {
        assert_eq!(parse_rfc3339(&ours.to_string()), Ok(ours), "what is printed is another time");
        assert!(text.len() >= 20 && text.is_ascii(), "that is no RFC 3339");
        if let Some(theirs) = theirs {
            // A leap second is the last nanosecond of its minute here, and the second before there.
            let leap = &text[17..19] == "60";
            let apart = ours.duration_since(theirs).unsigned_abs();
            assert!(apart.is_zero() || leap && apart < Duration::from_secs(1), "{ours} or {theirs}");
        }
    }
    if let Some(theirs) = theirs.filter(|time| time.as_second() >= YEAR_ZERO) {
        assert_eq!(parse_rfc3339(&theirs.to_string()), Ok(theirs), "a time that is well written is refused");
    }
}
