//! One post of one event, and what its answer means.

use std::{
    io::Read,
    time::{Duration, SystemTime},
};

use ureq::http::{HeaderMap, HeaderValue, header};
use url::Url;

pub use crate::http::TransportError;
use crate::{http, token::Token, trust::Roots};

/// How long the rest of an answer is waited for once its status is known.
const ANSWER_PATIENCE: Duration = Duration::from_secs(2);
/// Longest text of a peer that is repeated.
const MAX_REASON: usize = 300;

/// What the server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// How long the server asks to wait, from either form of `Retry-After`; `None` when it asks for nothing readable.
    pub retry_after: Option<Duration>,
    /// `Location`: where the receipt is.
    pub location: Option<String>,
    /// `Content-Type`: what the body claims to be.
    pub content_type: Option<String>,
    /// The first 64 KiB of the body, as far as they came; empty when they did not.
    pub body: Vec<u8>,
}

/// What an answer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// The edge has the event.
    Delivered,
    /// The token is not the right one (any more).
    Unauthorized,
    /// Asking again can help.
    Again,
    /// Asking again cannot help. A redirect is one: the token goes nowhere else.
    Never,
}

impl Answer {
    /// What the status means (DESIGN §3). A web page is no relay's answer, and the portal or proxy that shows it may
    /// go away.
    #[must_use]
    pub fn meaning(&self) -> Meaning {
        match self.status {
            200..=299 if self.is_web_page() => Meaning::Again,
            200..=299 => Meaning::Delivered,
            401 => Meaning::Unauthorized,
            408 | 425 | 429 | 500..=599 => Meaning::Again,
            _ => Meaning::Never,
        }
    }

    /// The status and, where the server gave one, its reason (RFC 9457), on one line and without the token.
    #[must_use]
    pub fn summary(&self, token: &Token) -> String {
        #[derive(serde::Deserialize)]
        struct ProblemJson {
            title: Option<String>,
            detail: Option<String>,
        }
        if (200..300).contains(&self.status) && self.is_web_page() {
            let sign = if self.claims_html() { "text/html" } else { "its body begins with '<'" };
            return format!("answered {}, but with a web page ({sign}): that is no relay", self.status);
        }
        let problem: Option<ProblemJson> = serde_json::from_slice(&self.body).ok();
        let reason = problem
            .and_then(|problem| problem.detail.or(problem.title))
            .unwrap_or_else(|| String::from_utf8_lossy(&self.body).trim().to_owned());
        // Redacted before it is cut: the cut could go through a token and leave most of it.
        let reason: String = token.redact(&reason).chars().take(MAX_REASON).collect();
        let redirect = if (300..400).contains(&self.status) { " (a redirect is not followed)" } else { "" };
        let colon = if reason.is_empty() { "" } else { ": " };
        format!("answered {}{redirect}{colon}{reason}", self.status)
    }

    /// Whether this is what a captive portal or a proxy shows. A relay answers JSON, and older ones little or nothing;
    /// none ever answered markup.
    fn is_web_page(&self) -> bool {
        self.claims_html() || self.body.trim_ascii_start().starts_with(b"<")
    }

    fn claims_html(&self) -> bool {
        let media_type = self.content_type.as_deref().and_then(|value| value.split(';').next());
        media_type.is_some_and(|text| text.trim().eq_ignore_ascii_case("text/html"))
    }
}

/// Posts an event once, on a connection of its own.
///
/// # Errors
/// When no status came within `within`. The server may have stored the event all the same; posting the same bytes
/// again is harmless.
pub fn post(
    url: &Url,
    roots: &Roots,
    token: &Token,
    body: &[u8],
    within: Duration,
) -> Result<Answer, TransportError> {
    let mut bearer = HeaderValue::from_bytes(format!("Bearer {}", token.expose()).as_bytes())
        .map_err(|error| ureq::Error::Http(error.into()))?;
    bearer.set_sensitive(true);
    let mut response = http::client(roots, within)
        .post(url.as_str())
        .config()
        .timeout_recv_body(Some(ANSWER_PATIENCE))
        .build()
        .header(header::AUTHORIZATION, bearer)
        .header(header::CONTENT_TYPE, "application/cloudevents+json")
        .send(body)
        .map_err(|error| TransportError::of_relay(error, url, roots))?;
    let headers = response.headers();
    let text = |name| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let mut answer = Answer {
        status: response.status().as_u16(),
        retry_after: retry_after(headers, SystemTime::now()),
        location: text(header::LOCATION),
        content_type: text(header::CONTENT_TYPE),
        body: Vec::new(),
    };
    // The status is the answer; of a body that is cut, late or too long, what came is kept.
    let _ = response.body_mut().as_reader().take(http::MAX_ANSWER).read_to_end(&mut answer.body);
    Ok(answer)
}

/// `Retry-After` as RFC 9110 section 10.2.3 gives it: seconds, or a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        // More seconds than fit are as good as for ever; the caller has a cap.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::from(u32::MAX))));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, content_type: Option<&str>, body: &str) -> Answer {
        let content_type = content_type.map(str::to_owned);
        Answer { status, retry_after: None, location: None, content_type, body: body.into() }
    }

    fn asked(value: &str) -> Option<Duration> {
        let headers = HeaderMap::from_iter([(header::RETRY_AFTER, HeaderValue::from_str(value).unwrap())]);
        let now = httpdate::parse_http_date("Mon, 14 Sep 2026 10:00:00 GMT").unwrap();
        retry_after(&headers, now)
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_and_garbage_asks_for_nothing() {
        for (value, seconds) in [
            ("7", Some(7)),
            ("0", Some(0)),
            ("99999999999999999999999", Some(u64::from(u32::MAX))),
            ("Mon, 14 Sep 2026 10:00:09 GMT", Some(9)),
            ("Mon, 14 Sep 2026 09:00:00 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
            ("1.5", None),
            ("", None),
        ] {
            assert_eq!(asked(value), seconds.map(Duration::from_secs), "{value}");
        }
    }

    #[test]
    fn every_status_has_one_meaning() {
        for (statuses, meaning) in [
            (&[200, 202, 204][..], Meaning::Delivered),
            (&[401], Meaning::Unauthorized),
            (&[408, 425, 429, 500, 502, 503, 504], Meaning::Again),
            (&[301, 302, 307, 308, 400, 403, 404, 405, 409, 411, 413, 415, 422, 431], Meaning::Never),
        ] {
            for &status in statuses {
                assert_eq!(answer(status, None, "").meaning(), meaning, "{status}");
            }
        }
    }

    #[test]
    fn a_web_page_is_no_relays_answer_and_anything_else_is() {
        let json = Some("application/json");
        let by_type = "answered 200, but with a web page (text/html): that is no relay";
        let by_body = "answered 200, but with a web page (its body begins with '<'): that is no relay";
        for (content_type, body, page) in [
            (Some("text/html"), "", Some(by_type)),
            (Some("Text/HTML; charset=utf-8"), "very-secret", Some(by_type)),
            (Some(" text/html ;x"), "{}", Some(by_type)),
            (None, "<html>very-secret", Some(by_body)),
            (json, "\r\n\t <!DOCTYPE", Some(by_body)),
            (None, "", None),
            (json, "", None),
            (json, r#"{"key":"<"}"#, None),
            (json, r#"{"ke"#, None),
            (Some("text/plain"), "ok", None),
            (Some("text/html5"), "ok", None),
            (Some("application/json; profile=text/html"), "{}", None),
        ] {
            let answer = answer(200, content_type, body);
            let meaning = if page.is_some() { Meaning::Again } else { Meaning::Delivered };
            assert_eq!(answer.meaning(), meaning, "{content_type:?} {body}");
            if let Some(expected) = page {
                assert_eq!(answer.summary(&Token::parse(b"very-secret").unwrap()), expected);
            }
        }
        assert_eq!(answer(404, Some("text/html"), "<html>").meaning(), Meaning::Never);
    }

    #[test]
    fn a_reason_is_the_servers_own_words_without_the_token() {
        let token = Token::parse(b"very-secret").unwrap();
        let summary = |status, body: &str| answer(status, None, body).summary(&token);
        assert_eq!(summary(503, ""), "answered 503");
        assert_eq!(
            summary(400, r#"{"title":"t","detail":"context.id is required"}"#),
            "answered 400: context.id is required"
        );
        assert_eq!(summary(403, "you sent Bearer very-secret"), "answered 403: you sent Bearer [token]");
        let padded = format!("{}very-secret", "x".repeat(MAX_REASON - 4));
        assert!(!summary(500, &padded).contains("very"));
        assert_eq!(summary(302, ""), "answered 302 (a redirect is not followed)");
    }
}
