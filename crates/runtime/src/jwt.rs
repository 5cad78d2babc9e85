//! What a token says of itself, unverified. Good for refusing one that cannot be right, never for believing one.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use transponder_core::Timestamp;

/// The claims of a JWT (RFC 7519) that matter here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// Whom it is for.
    pub audiences: Vec<String>,
    /// Until when it is valid, if it says so.
    pub expires: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Payload {
    #[serde(default)]
    aud: Audiences,
    exp: Option<serde_json::Number>,
}

/// RFC 7519 section 4.1.3: one text or an array of them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Audiences {
    One(String),
    Many(Vec<String>),
}

impl Default for Audiences {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl Claims {
    /// Reads them; `None` when the token is no JWT of three parts.
    #[must_use]
    pub fn read(token: &str) -> Option<Self> {
        let mut parts = token.split('.');
        let (_, payload, _) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        let payload = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?;
        let Payload { aud, exp } = serde_json::from_slice(&payload).ok()?;
        let audiences = match aud {
            Audiences::One(one) => vec![one],
            Audiences::Many(many) => many,
        };
        Some(Self { audiences, expires: exp.as_ref().and_then(expiry) })
    }
}

/// A NumericDate, which may have a fraction; one too far off to be a time counts as the last there is.
fn expiry(number: &serde_json::Number) -> Option<Timestamp> {
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates, which is what is wanted")]
    let seconds = number.as_i64().or_else(|| number.as_f64().map(|seconds| seconds as i64))?;
    Some(Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(claims: &str) -> Option<(Vec<String>, Option<i64>)> {
        let claims = Claims::read(&format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims)))?;
        Some((claims.audiences, claims.expires.map(Timestamp::as_second)))
    }

    #[test]
    fn audience_and_expiry_are_read_in_every_form_that_they_have() {
        let audiences = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        assert_eq!(read(r#"{"aud":"a","exp":7}"#), Some((audiences(&["a"]), Some(7))));
        assert_eq!(read(r#"{"aud":["a","b"],"exp":7.5}"#), Some((audiences(&["a", "b"]), Some(7))));
        assert_eq!(read(r#"{"exp":1e300}"#), Some((vec![], Some(Timestamp::MAX.as_second()))));
        assert_eq!(read("{}"), Some((vec![], None)));
    }

    #[test]
    fn what_is_no_jwt_has_no_claims() {
        for token in ["", "opaque", "a.b", "a.b.c.d", "e30.%%.c", "e30.W10.c", "..", "e30.eyJhdWQiOjF9.c"] {
            assert_eq!(Claims::read(token), None, "{token}");
        }
    }
}
