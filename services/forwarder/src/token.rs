//! The broker token: read anew for each use, and checked before it is sent.
//!
//! The check is of the unverified claims: the broker verifies. It is here because a broker answers 202 to an event
//! with a wrong token and then drops it, so that only we can tell.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use http::HeaderValue;
use secrecy::{ExposeSecret as _, SecretString};
use transponder_core::Timestamp;
use transponder_runtime::jwt::Claims;

/// A token that must not be sent. No message holds a part of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// There is no token, and there was none before.
    #[error("the broker token file {} is missing, unreadable or empty", .0.display())]
    Missing(PathBuf),
    /// It cannot stand in a header.
    #[error("the broker token in {} holds control characters or is not ASCII", .0.display())]
    Unfit(PathBuf),
    /// Its claims cannot be read.
    #[error("the broker token in {} is no JWT, so its audience cannot be checked", .0.display())]
    Opaque(PathBuf),
    /// It is for somebody else.
    #[error("the broker token is for audience {found:?}, not for \"{wanted}\"")]
    Audience {
        /// What the token carries.
        found: Vec<String>,
        /// What the broker wants.
        wanted: String,
    },
    /// It does not say until when it is valid.
    #[error("the broker token carries no expiry")]
    NoExpiry,
    /// It is past its expiry.
    #[error("the broker token expired at {0}")]
    Expired(Timestamp),
}

/// What a token says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenFacts {
    /// Until when it is valid; `None` for a token that is no JWT.
    pub expires: Option<Timestamp>,
}

/// A token that may be sent.
#[derive(Clone)]
pub(crate) struct BrokerToken {
    /// `Bearer …`, marked sensitive.
    pub(crate) header: HeaderValue,
    pub(crate) facts: TokenFacts,
}

/// Where tokens come from.
pub(crate) struct TokenSource {
    path: PathBuf,
    audience: String,
    /// The last one that passed: it stands in while the file is missing or empty, as it is when a volume is swapped.
    last: Mutex<Option<(SecretString, BrokerToken)>>,
}

impl TokenSource {
    /// `None` when no token is to be sent.
    pub(crate) fn new(path: &Path, audience: &str) -> Option<Self> {
        if path.as_os_str().is_empty() {
            return None;
        }
        if audience.is_empty() {
            tracing::warn!("forwarder.audience is empty: the broker token's audience is not checked");
        }
        Some(Self { path: path.to_owned(), audience: audience.to_owned(), last: Mutex::new(None) })
    }

    /// The token as it is now. The file is small and in memory (a projected volume), so it is read where it is used.
    pub(crate) fn current(&self, now: Timestamp) -> Result<BrokerToken, TokenError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let read = read(&self.path);
        let token = match (&*last, read) {
            (Some((known, token)), Some(raw)) if known.expose_secret() == raw.expose_secret() => {
                token.clone()
            }
            (Some((_, token)), None) => token.clone(),
            (None, None) => return Err(TokenError::Missing(self.path.clone())),
            (_, Some(raw)) => {
                let token = check(&raw, &self.path, &self.audience)?;
                not_expired(&token.facts, now)?;
                *last = Some((raw, token.clone()));
                return Ok(token);
            }
        };
        not_expired(&token.facts, now)?;
        Ok(token)
    }
}

/// Checks a token file as the service does.
///
/// # Errors
/// Says why its token would not be sent.
pub fn check_file(path: &Path, audience: &str, now: Timestamp) -> Result<TokenFacts, TokenError> {
    let raw = read(path).ok_or_else(|| TokenError::Missing(path.to_owned()))?;
    let token = check(&raw, path, audience)?;
    not_expired(&token.facts, now)?;
    Ok(token.facts)
}

/// The trimmed contents; `None` when there are none.
fn read(path: &Path) -> Option<SecretString> {
    let text = SecretString::from(std::fs::read_to_string(path).ok()?);
    let trimmed = text.expose_secret().trim();
    (!trimmed.is_empty()).then(|| SecretString::from(trimmed))
}

fn check(raw: &SecretString, path: &Path, audience: &str) -> Result<BrokerToken, TokenError> {
    let text = SecretString::from(format!("Bearer {}", raw.expose_secret()));
    let mut header = HeaderValue::from_str(text.expose_secret())
        .ok()
        .filter(|_| raw.expose_secret().bytes().all(|b| b.is_ascii_graphic()))
        .ok_or_else(|| TokenError::Unfit(path.to_owned()))?;
    header.set_sensitive(true);
    let expires = match Claims::read(raw.expose_secret()) {
        None if audience.is_empty() => {
            tracing::warn!(path = %path.display(), "the broker token is no JWT: it is sent unchecked");
            None
        }
        None => return Err(TokenError::Opaque(path.to_owned())),
        Some(Claims { audiences: found, expires }) => {
            if !audience.is_empty() && !found.iter().any(|a| a == audience) {
                return Err(TokenError::Audience { found, wanted: audience.to_owned() });
            }
            Some(expires.ok_or(TokenError::NoExpiry)?)
        }
    };
    Ok(BrokerToken { header, facts: TokenFacts { expires } })
}

fn not_expired(facts: &TokenFacts, now: Timestamp) -> Result<(), TokenError> {
    match facts.expires {
        Some(expires) if expires <= now => Err(TokenError::Expired(expires)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

    use super::*;

    fn jwt(claims: &str) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
    }

    fn now() -> Timestamp {
        Timestamp::from_second(1000).unwrap()
    }

    fn outcome(contents: &str, audience: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, contents).unwrap();
        match check_file(&path, audience, now()) {
            Ok(facts) => format!("ok {:?}", facts.expires.map(Timestamp::as_second)),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn only_a_token_for_the_broker_that_has_not_expired_passes() {
        let broker = "cdevents-broker";
        for (contents, audience, expected) in [
            (jwt(r#"{"aud":["cdevents-broker"],"exp":1001}"#), broker, "ok Some(1001)"),
            (format!(" {}\n", jwt(r#"{"aud":"cdevents-broker","exp":1001.5}"#)), broker, "ok Some(1001)"),
            (jwt(r#"{"aud":["x","cdevents-broker"],"exp":1e300}"#), broker, "ok Some(253402207200)"),
            (
                jwt(r#"{"aud":["api"],"exp":1001}"#),
                broker,
                "the broker token is for audience [\"api\"], not for \"cdevents-broker\"",
            ),
            (
                jwt(r#"{"exp":1001}"#),
                broker,
                "the broker token is for audience [], not for \"cdevents-broker\"",
            ),
            (
                jwt(r#"{"aud":["cdevents-broker"],"exp":1000}"#),
                broker,
                "the broker token expired at 1970-01-01T00:16:40Z",
            ),
            (jwt(r#"{"aud":["cdevents-broker"]}"#), broker, "the broker token carries no expiry"),
            (jwt(r#"{"aud":["api"],"exp":1001}"#), "", "ok Some(1001)"),
            (jwt(r#"{"aud":["api"],"exp":1}"#), "", "the broker token expired at 1970-01-01T00:00:01Z"),
            ("opaque-token".into(), "", "ok None"),
        ] {
            assert_eq!(outcome(&contents, audience), expected, "{contents}");
        }
        for (contents, expected) in
            [("opaque", "is no JWT"), (" \n", "is missing, unreadable or empty"), ("a\r\nb: c", "control")]
        {
            assert!(outcome(contents, broker).contains(expected), "{contents:?}");
        }
    }

    #[test]
    fn a_missing_file_keeps_the_last_good_token_until_it_expires() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let source = TokenSource::new(&path, "b").unwrap();
        assert_eq!(source.current(now()).err(), Some(TokenError::Missing(path.clone())));
        let good = jwt(r#"{"aud":"b","exp":1001}"#);
        std::fs::write(&path, &good).unwrap();
        assert!(source.current(now()).is_ok());
        std::fs::write(&path, "\n").unwrap();
        assert_eq!(source.current(now()).unwrap().header, format!("Bearer {good}"));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(source.current(now()).unwrap().header, format!("Bearer {good}"));
        let later = Timestamp::from_second(1001).unwrap();
        assert_eq!(source.current(later).err(), Some(TokenError::Expired(later)));
        std::fs::write(&path, jwt(r#"{"aud":"other","exp":1001}"#)).unwrap();
        assert!(matches!(source.current(now()), Err(TokenError::Audience { .. })));
    }

    #[test]
    fn a_token_does_not_print() {
        let path = Path::new("/t");
        let raw = SecretString::from(jwt(r#"{"aud":"b","exp":1001}"#));
        let token = check(&raw, path, "b").unwrap();
        assert_eq!(format!("{:?}", token.header), "Sensitive");
    }
}
