//! Instants, as RFC 3339 writes them.
//!
//! Accepted is what RFC 3339 section 5.6 gives, with lower-case `t` and `z`, any offset and 0 to 12 digits of a
//! fraction; an instant is kept to the nanosecond, further digits are cut. A leap second (`:60`) is the last
//! nanosecond of its minute. Refused are `24:00`, zone names, a space for the `T`, a date alone, a number, and an instant
//! that RFC 3339 cannot write in UTC.

pub use jiff::Timestamp;

/// When the year 0 began in UTC, in Unix seconds. An offset can lead to before it, where years have a sign.
const YEAR_ZERO: i64 = -62_167_219_200;

/// Why a text is no time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is not an RFC 3339 time such as 2026-09-14T10:00:00Z: {why}")]
pub struct TimeError {
    why: &'static str,
}

/// Reads an RFC 3339 time.
///
/// # Errors
/// Says what the text lacks.
pub fn parse_rfc3339(text: &str) -> Result<Timestamp, TimeError> {
    let error = |why| TimeError { why };
    let bytes = text.as_bytes();
    if bytes.is_empty() {
        return Err(error("it is empty"));
    }
    if !text.is_ascii() || bytes.len() > 40 {
        return Err(error("it is too long or has characters that a time has not"));
    }
    if bytes.len() < 20 {
        return Err(error("date, 'T', time and offset are all needed"));
    }
    let (date_time, rest) = bytes.split_at(19);
    let shape = b"dddd-dd-ddtdd:dd:dd";
    let fits = date_time.iter().zip(shape).all(|(b, s)| match s {
        b'd' => b.is_ascii_digit(),
        b't' => matches!(b, b'T' | b't'),
        _ => b == s,
    });
    if !fits {
        return Err(error("it does not begin with YYYY-MM-DDTHH:MM:SS"));
    }
    let number = |at: usize, len: usize| {
        date_time[at..at + len].iter().fold(0i64, |n, b| n * 10 + i64::from(b - b'0'))
    };
    let (fraction, offset) =
        split_fraction(rest).ok_or(error("the fraction has no digits or more than 12"))?;
    let offset_seconds =
        parse_offset(offset).ok_or(error("the offset is neither Z nor +HH:MM nor -HH:MM"))?;

    let (hour, minute, second) = (number(11, 2), number(14, 2), number(17, 2));
    if hour > 23 || minute > 59 || second > 60 {
        return Err(error("there is no such time of day"));
    }
    let leap = second == 60;
    let (second, nanos) = if leap { (59, 999_999_999) } else { (second, nanoseconds(fraction)) };
    let year = i16::try_from(number(0, 4)).map_err(|_| error("there is no such year"))?;
    let month = i8::try_from(number(5, 2)).map_err(|_| error("there is no such month"))?;
    let day = i8::try_from(number(8, 2)).map_err(|_| error("there is no such day"))?;
    let date = jiff::civil::Date::new(year, month, day).map_err(|_| error("there is no such day"))?;
    let days =
        date.since(jiff::civil::Date::constant(1970, 1, 1)).map_or(0, |span| i64::from(span.get_days()));
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second - offset_seconds;
    let time = Timestamp::new(seconds, nanos).ok().filter(|time| time.as_second() >= YEAR_ZERO);
    time.ok_or(error("it is out of range"))
}

/// Splits what follows the seconds into the digits of the fraction and the offset.
fn split_fraction(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let Some(after) = rest.strip_prefix(b".") else {
        return Some((&[], rest));
    };
    let digits = after.iter().take_while(|b| b.is_ascii_digit()).count();
    (1..=12).contains(&digits).then(|| after.split_at(digits))
}

/// The fraction as nanoseconds; digits past the ninth are cut.
fn nanoseconds(digits: &[u8]) -> i32 {
    (0..9).fold(0, |n, i| n * 10 + digits.get(i).map_or(0, |b| i32::from(b - b'0')))
}

/// Seconds east of UTC.
fn parse_offset(text: &[u8]) -> Option<i64> {
    match text {
        [b'Z' | b'z'] => Some(0),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2]
            if [h1, h2, m1, m2].iter().all(|b| b.is_ascii_digit()) =>
        {
            let two = |a: &u8, b: &u8| i64::from(a - b'0') * 10 + i64::from(b - b'0');
            let (hours, minutes) = (two(h1, h2), two(m1, m2));
            (hours <= 23 && minutes <= 59).then_some(())?;
            let seconds = hours * 3_600 + minutes * 60;
            Some(if *sign == b'-' { -seconds } else { seconds })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_written_form_has_one_result() {
        let table = [
            ("2026-09-14T10:00:00Z", Some("2026-09-14T10:00:00Z")),
            ("2026-09-14t10:00:00z", Some("2026-09-14T10:00:00Z")),
            ("2026-09-14T12:30:00+02:30", Some("2026-09-14T10:00:00Z")),
            ("2026-09-14T05:00:00-05:00", Some("2026-09-14T10:00:00Z")),
            ("2026-09-14T10:00:00-00:00", Some("2026-09-14T10:00:00Z")),
            ("2026-09-14T10:00:00.5Z", Some("2026-09-14T10:00:00.5Z")),
            ("2026-09-14T10:00:00.123456789Z", Some("2026-09-14T10:00:00.123456789Z")),
            ("2026-09-14T10:00:00.123456789999Z", Some("2026-09-14T10:00:00.123456789Z")),
            ("2026-06-30T23:59:60Z", Some("2026-06-30T23:59:59.999999999Z")),
            ("1969-12-31T23:59:59Z", Some("1969-12-31T23:59:59Z")),
            ("2024-02-29T00:00:00Z", Some("2024-02-29T00:00:00Z")),
            ("0000-01-01T00:00:00Z", Some("0000-01-01T00:00:00Z")),
            ("0000-01-01T00:00:00+00:01", None),
            ("9999-12-31T23:59:59-23:59", None),
            ("2026-02-29T00:00:00Z", None),
            ("2026-09-14T24:00:00Z", None),
            ("2026-09-14T10:00:61Z", None),
            ("2026-09-14T10:60:00Z", None),
            ("2026-13-14T10:00:00Z", None),
            ("2026-09-14 10:00:00Z", None),
            ("2026-09-14T10:00:00", None),
            ("2026-09-14T10:00:00.Z", None),
            ("2026-09-14T10:00:00.1234567890123Z", None),
            ("2026-09-14T10:00:00 Z", None),
            ("2026-09-14T10:00:00CET", None),
            ("2026-09-14T10:00:00Z[Europe/Berlin]", None),
            ("2026-09-14T10:00:00+0200", None),
            ("2026-09-14T10:00:00+24:00", None),
            ("2026-09-14", None),
            ("1789380000", None),
            ("20260914T100000Z", None),
            ("", None),
            ("2026-09-14T10:00:00Z ", None),
            ("٢٠٢٦-09-14T10:00:00Z", None),
        ];
        for (text, expected) in table {
            let expected = expected.map(|t| t.parse::<Timestamp>().unwrap());
            assert_eq!(parse_rfc3339(text).ok(), expected, "{text}");
        }
    }
}
