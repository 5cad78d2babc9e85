//! Target `value`.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use transponder_runtime::{config::duration, retry_after, trace::TraceContext};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Configured(#[serde(with = "duration")] Duration);

/// Small texts that come from peers and operators: `Retry-After`, `traceparent`, durations.
///
/// # Panics
///
/// When one is read beyond its bound, or reads differently once it is written out.
pub fn value(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    for now in [SystemTime::UNIX_EPOCH, SystemTime::now()] {
        if let Some(delay) = retry_after::parse(text, now) {
            assert!(delay <= retry_after::MAX, "{delay:?}");
        }
    }
    if let Some(context) = TraceContext::parse(text) {
        assert_eq!(TraceContext::parse(&context.to_string()), Some(context));
        assert!(context.trace_id != [0; 16] && context.span_id != [0; 8], "an id is zero");
    }
    if let Ok(read) = duration::parse(text) {
        let written = serde_json::to_string(&Configured(read)).expect("a duration is written as text");
        let again: Configured = serde_json::from_str(&written).expect("what is written is read");
        assert_eq!(again.0, read, "{written}");
    }
}
