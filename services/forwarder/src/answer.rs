//! What a broker's answer means: whose fault it is (DESIGN, delivery).

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use transponder_runtime::retry_after;

/// What the broker said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// When it asks to come again.
    pub(crate) retry_after: Option<Duration>,
    /// Its own id of the event; empty when it gave none.
    pub(crate) event_id: String,
}

/// What is to be made of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// It has the event.
    Accepted,
    /// The event itself is at fault: no repetition helps.
    EventRefused,
    /// We or the broker are set up wrongly: somebody must mend that first.
    SetUpWrongly,
    /// Not now.
    Later,
}

/// What a status means. Anything that is not known to be the event's fault is not held against it.
pub(crate) fn meaning(status: StatusCode) -> Meaning {
    match status.as_u16() {
        200..=299 => Meaning::Accepted,
        400 | 413 | 415 | 422 => Meaning::EventRefused,
        408 | 425 | 429 | 500..=599 => Meaning::Later,
        _ => Meaning::SetUpWrongly,
    }
}

/// `Retry-After` in either form.
pub(crate) fn asked_delay(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    headers.get(header::RETRY_AFTER)?.to_str().ok().and_then(|value| retry_after::parse(value, now))
}

/// Longest event id that is kept.
const EVENT_ID: usize = 256;

/// `eventID` of a Tekton EventListener's answer; empty when the body is anything else.
pub(crate) fn event_id(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Body {
        #[serde(rename = "eventID")]
        event_id: String,
    }
    let id = serde_json::from_slice::<Body>(body).map(|body| body.event_id).unwrap_or_default();
    if id.len() > EVENT_ID || id.chars().any(char::is_control) { String::new() } else { id }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_somebodys_fault_and_only_four_are_the_events() {
        for code in 100..1000 {
            let expected = match code {
                200..=299 => Meaning::Accepted,
                400 | 413 | 415 | 422 => Meaning::EventRefused,
                408 | 425 | 429 | 500..=599 => Meaning::Later,
                _ => Meaning::SetUpWrongly,
            };
            assert_eq!(meaning(StatusCode::from_u16(code).unwrap()), expected, "{code}");
        }
        for code in [301, 302, 307, 401, 403, 404, 405, 409, 410] {
            assert_eq!(meaning(StatusCode::from_u16(code).unwrap()), Meaning::SetUpWrongly, "{code}");
        }
    }

    #[test]
    fn the_event_id_is_taken_from_a_listeners_answer_alone() {
        for (body, expected) in [
            (r#"{"eventListener":"l","namespace":"n","eventID":"14d6-9c"}"#, "14d6-9c"),
            (r#"{"eventID":""}"#, ""),
            (r#"{"eventID":7}"#, ""),
            (r#"{"eventid":"x"}"#, ""),
            ("\"eventID\"", ""),
            ("", ""),
            ("<html>", ""),
            (r#"{"eventID":"a\nb"}"#, ""),
        ] {
            assert_eq!(event_id(body.as_bytes()), expected, "{body}");
        }
        assert_eq!(event_id(format!(r#"{{"eventID":"{}"}}"#, "a".repeat(257)).as_bytes()), "");
    }
}
