//! What is said of a token, and what it says of itself.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};
use transponder_core::{Caller, Timestamp};
use transponder_runtime::{Fault, jwt::Claims};

/// What came of a review.
#[derive(Debug, Clone)]
pub(super) enum Verdict {
    /// It is this caller's.
    Accepted(Caller),
    /// Whoever brings it may not call.
    Refused(Fault),
    /// There was no answer.
    Undecided(Fault),
}

impl From<Verdict> for Result<Caller, Fault> {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Accepted(caller) => Ok(caller),
            Verdict::Refused(fault) | Verdict::Undecided(fault) => Err(fault),
        }
    }
}

/// When a token expires that can be right by its own claims. Nothing is verified, so nothing is believed.
///
/// # Errors
/// What is wrong with it: its bearer can read that in it, too.
pub(super) fn plausible(token: &str, audience: &str, now: Timestamp) -> Result<Timestamp, Fault> {
    let wrong = |why: String| Fault::unauthenticated(why).reason("TOKEN");
    let claims =
        Claims::read(token).ok_or_else(|| wrong("the token is not that of a ServiceAccount".into()))?;
    if !claims.audiences.iter().any(|one| one == audience) {
        return Err(wrong(format!("the token is for another audience than '{audience}'")));
    }
    match claims.expires {
        None => Err(wrong("the token carries no expiry".into())),
        Some(expires) if expires <= now => Err(wrong("the token has expired".into())),
        Some(expires) => Ok(expires),
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    result: &'static str,
}

/// Reviews by what came of them.
#[derive(Clone)]
pub(super) struct Metrics(Family<Labels, Counter>);

/// `forbidden` stands apart: we may not review, and no Task is known until that is mended.
const RESULTS: [&str; 4] = ["accepted", "refused", "unavailable", "forbidden"];

impl Metrics {
    pub(super) fn register(metrics: &transponder_runtime::Metrics) -> Self {
        let reviews = Family::<Labels, Counter>::default();
        // From zero, so that `increase()` sees the first.
        for result in RESULTS {
            drop(reviews.get_or_create(&Labels { result }));
        }
        metrics.register(|registry| {
            let help = "Reviews of Tasks' tokens by the API server";
            registry.register("transponder_token_reviews", help, reviews.clone());
        });
        Self(reviews)
    }

    /// An answer, of whatever kind.
    pub(super) fn answered(&self, verdict: &Verdict) {
        match verdict {
            Verdict::Accepted(_) => self.count("accepted"),
            Verdict::Refused(_) => self.count("refused"),
            Verdict::Undecided(_) => {}
        }
    }

    /// No answer; because we may not ask, or because there was none.
    pub(super) fn failed(&self, forbidden: bool) {
        self.count(if forbidden { "forbidden" } else { "unavailable" });
    }

    fn count(&self, result: &'static str) {
        self.0.get_or_create(&Labels { result }).inc();
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

    use super::*;

    #[test]
    fn what_a_token_says_of_itself_can_refuse_it() {
        let jwt = |claims: &str| format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims));
        for (token, expected) in [
            (jwt(r#"{"aud":["x","transponder"],"exp":11}"#), "11"),
            (jwt(r#"{"aud":["transponder"],"exp":10}"#), "the token has expired"),
            (jwt(r#"{"aud":["transponder"]}"#), "the token carries no expiry"),
            (jwt(r#"{"aud":["x"],"exp":11}"#), "the token is for another audience than 'transponder'"),
            (jwt(r#"{"exp":11}"#), "the token is for another audience than 'transponder'"),
            ("opaque".into(), "the token is not that of a ServiceAccount"),
        ] {
            let said = match plausible(&token, "transponder", Timestamp::from_second(10).unwrap()) {
                Ok(expires) => expires.as_second().to_string(),
                Err(fault) => fault.to_string(),
            };
            assert_eq!(said, expected, "{token}");
        }
    }
}
