//! What may come back.

use serde_json::Value;
use transponder_core::{ClusterName, Event};

use super::{installation::TOKEN, request::Request};

/// Everything the edge may answer while nothing is wrong with the edge.
const STATUSES: &[u16] = &[200, 202, 400, 401, 403, 404, 405, 408, 409, 411, 413, 414, 415, 429, 431];

struct Answer<'a> {
    status: u16,
    head: &'a str,
    body: &'a [u8],
    rest: &'a [u8],
}

/// Checks all that came back. Answers the first status, if there is one.
pub(super) fn check(request: &Request, received: &[u8]) -> Option<u16> {
    let shown = received.escape_ascii();
    // A client may write its token into an event, too, and then be told what is wrong with it.
    let told = tokens(received) > 0 && tokens(&request.bytes) < 2;
    assert!(!told, "it tells the token: {shown}");
    let mut rest = received;
    let mut status = None;
    while !rest.is_empty() {
        let Some(answer) = read(rest, status.is_none() && request.is_head()) else {
            // Cut short, as the client may have cut its request.
            assert!(!request.complete, "no HTTP answer: {shown}");
            return status;
        };
        rest = answer.rest;
        if answer.status == 100 {
            continue;
        }
        assert!(STATUSES.contains(&answer.status), "{shown}");
        check_body(&answer);
        if status.is_none() && request.complete && answer.status < 300 && !answer.body.is_empty() {
            check_receipt(request, &answer);
        }
        status = status.or(Some(answer.status));
        // What a raw input asked next is not known, and so not whether the answer has a body.
        if !request.complete {
            break;
        }
    }
    assert!(status.is_some() || !request.complete, "a complete request is not answered: {shown}");
    status
}

fn tokens(bytes: &[u8]) -> usize {
    bytes.windows(TOKEN.len()).filter(|part| *part == TOKEN.as_bytes()).count()
}

fn read(bytes: &[u8], without_body: bool) -> Option<Answer<'_>> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let status = head.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()?;
    let length = if without_body {
        0
    } else {
        header(head, "content-length").and_then(|l| l.parse().ok()).unwrap_or(0)
    };
    let (body, rest) = bytes[end + 4..].split_at_checked(length)?;
    Some(Answer { status, head, body, rest })
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.split("\r\n").filter_map(|line| line.split_once(':'));
    lines.find(|(there, _)| there.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// An answer of ours is JSON of the type it names; what is no HTTP at all is answered without a body.
fn check_body(answer: &Answer<'_>) {
    if answer.body.is_empty() {
        return;
    }
    let document: Value = serde_json::from_slice(answer.body).expect("an answer is JSON");
    let kind = header(answer.head, "content-type");
    if answer.status < 300 {
        assert_eq!(kind, Some("application/json"));
    } else {
        assert_eq!(kind, Some("application/problem+json"));
        assert_eq!(document["status"], answer.status);
        assert!(document["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{document}");
    }
    if answer.status == 429 {
        assert!(header(answer.head, "retry-after").is_some(), "{}", answer.head);
    }
}

/// What is stored is an event, under its own key.
fn check_receipt(request: &Request, answer: &Answer<'_>) {
    let receipt: Value = serde_json::from_slice(answer.body).expect("a receipt");
    if request.bytes.starts_with(b"GET ") {
        return;
    }
    let event = Event::parse(&request.body).expect("what is stored is an event");
    let cluster = ClusterName::new("kind-prod").expect("a name");
    assert_eq!(receipt["key"], event.key(&cluster).to_string());
    let location = format!("/outcome/kind-prod/{}", event.key(&cluster));
    assert_eq!(header(answer.head, "location"), Some(location.as_str()));
    assert!(event.cluster.is_none_or(|named| named == "kind-prod"), "it names another cluster");
}
