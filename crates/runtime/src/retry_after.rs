//! `Retry-After` (RFC 9110 section 10.2.3): seconds or a date; anything else counts as absent.

use std::time::{Duration, SystemTime};

/// Longest delay that is taken from a peer; what it asks beyond is cut.
pub const MAX: Duration = Duration::from_secs(300);

/// Reads a `Retry-After` value.
#[must_use]
pub fn parse(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        // Digits that do not fit are a very long time, not garbage.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)).min(MAX));
    }
    let at = httpdate::parse_http_date(value).ok()?;
    Some(at.duration_since(now).unwrap_or(Duration::ZERO).min(MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_and_garbage_is_absent() {
        let now = httpdate::parse_http_date("Mon, 14 Sep 2026 10:00:00 GMT").unwrap();
        for (text, expected) in [
            ("0", Some(0)),
            (" 7 ", Some(7)),
            ("99999999999999999999999", Some(300)),
            ("Mon, 14 Sep 2026 10:00:20 GMT", Some(20)),
            ("Mon, 14 Sep 2026 09:00:00 GMT", Some(0)),
            ("Tue, 14 Sep 2027 10:00:00 GMT", Some(300)),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
        ] {
            assert_eq!(parse(text, now), expected.map(Duration::from_secs), "{text}");
        }
    }
}
