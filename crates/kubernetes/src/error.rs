//! What the API server answers when it does not do what it was asked, and what that means for us.

use std::time::Duration;

use kube::core::response::{Status, StatusDetails, reason};
use transponder_store::StoreError;

/// A request that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the API server cannot {action}: {problem}")]
pub struct ApiError {
    /// What was to be done.
    pub action: &'static str,
    /// What became of it.
    pub kind: Kind,
    /// What the API server said, or what kept it from saying anything.
    pub problem: String,
    /// How long it asks us to wait.
    pub retry_after: Option<Duration>,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// There is no such object.
    NotFound,
    /// There is one already.
    Exists,
    /// It has changed since it was read.
    Conflict,
    /// What was asked for is older than what the API server remembers, or newer than all that it knows since its store
    /// was set back: list again.
    Expired,
    /// We may not: a permission, a quota, an admission webhook, a namespace that goes.
    Refused,
    /// The resource is not served, or without a field that we write: its definition is missing or older.
    Missing,
    /// The object is not what the definition demands.
    Invalid,
    /// It has too much to do, and did not begin with it (429).
    Busy,
    /// No answer, or one that says to come again. The request may have been carried out.
    Unavailable,
}

impl ApiError {
    /// No answer in time.
    pub(crate) fn timeout(action: &'static str, after: Duration) -> Self {
        let problem =
            format!("no answer within {:#}", jiff::SignedDuration::try_from(after).unwrap_or_default());
        Self { action, kind: Kind::Unavailable, problem, retry_after: None }
    }

    /// An object that is there and cannot be read.
    #[must_use]
    pub fn unreadable(action: &'static str, object: &str, problem: &str) -> Self {
        let problem = format!("{object} cannot be read: {problem}");
        Self { action, kind: Kind::Invalid, problem, retry_after: None }
    }

    /// Reads what the client says.
    #[must_use]
    pub fn of(action: &'static str, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(action, status),
            other => Self { action, kind: Kind::Unavailable, problem: causes(other), retry_after: None },
        }
    }

    /// Reads a status, which may also come inside a watch.
    #[must_use]
    pub fn of_status(action: &'static str, status: &Status) -> Self {
        let kind = kind(status);
        let problem = match kind {
            Kind::Missing if older_definition(status) => format!(
                "its definition is older than this program: apply the manifests of `transponder manifests crds` \
                 ({})",
                status.message
            ),
            Kind::Missing => {
                "it serves no such resource: apply the manifests of `transponder manifests crds`".to_owned()
            }
            // Whoever registers a cluster names its Secret, and no manifest of ours does.
            Kind::Refused
                if status.code == 403 && status.message.contains(" cannot get resource \"secrets\"") =>
            {
                format!(
                    "{}: name it in Role transponder-edge-registry, as `transponder cluster add NAME --url URL \
                     --store kubernetes --apply` does",
                    status.message
                )
            }
            Kind::Refused if status.code == 403 && status.message.contains(" cannot ") => {
                format!("{}: apply the manifests of `transponder manifests rbac`", status.message)
            }
            _ if status.message.is_empty() => format!("status {}", status.code),
            _ => status.message.clone(),
        };
        let wait = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        let retry_after = (wait > 0).then(|| Duration::from_secs(wait.into()));
        Self { action, kind, problem, retry_after }
    }
}

fn kind(status: &Status) -> Kind {
    match (status.code, status.reason.as_str()) {
        (_, reason::ALREADY_EXISTS) => Kind::Exists,
        (409, _) => Kind::Conflict,
        (410, _) | (_, reason::EXPIRED | reason::GONE) => Kind::Expired,
        _ if of_the_future(status) => Kind::Expired,
        // Admission may deny with any code, but says who it is.
        _ if denied(&status.message) => Kind::Refused,
        // A namespace that is not there refuses a creation in the same words as an object that is not there.
        (404, _) if names_something(status) => Kind::NotFound,
        (404, _) => Kind::Missing,
        (401 | 403, _) => Kind::Refused,
        _ if older_definition(status) => Kind::Missing,
        (429, _) => Kind::Busy,
        // It would be no smaller the next time.
        _ if status.message.contains("etcdserver: request is too large") => Kind::Invalid,
        (400 | 413 | 422, _) => Kind::Invalid,
        _ => Kind::Unavailable,
    }
}

/// Whether a version was asked for that the store has not come to: it was set back.
fn of_the_future(status: &Status) -> bool {
    const TOO_LARGE: &str = "ResourceVersionTooLarge";
    let named = |details: &StatusDetails| details.causes.iter().any(|cause| cause.reason == TOO_LARGE);
    status.details.as_ref().is_some_and(named) || status.message.starts_with("Too large resource version")
}

/// Whether a field is not known that this program writes.
fn older_definition(status: &Status) -> bool {
    status.code == 400 && status.message.contains("strict decoding error: unknown field")
}

fn denied(message: &str) -> bool {
    message.starts_with("admission webhook ")
        || message.contains("ValidatingAdmissionPolicy '") && message.contains(" denied request")
}

fn names_something(status: &Status) -> bool {
    status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}

/// An error with its causes, since the outermost one says no more than that something failed.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = cause.source();
    }
    text
}

impl From<ApiError> for StoreError {
    fn from(error: ApiError) -> Self {
        Self::Unavailable { action: error.action, problem: error.problem }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::response::StatusCause;

    use super::*;

    fn status(code: u16, reason: &str, name: &str) -> Status {
        let details = StatusDetails {
            name: name.into(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 0,
        };
        Status::failure("said", reason).with_code(code).with_details(details)
    }

    #[test]
    fn an_object_that_is_not_there_is_told_from_a_resource_that_is_not_served() {
        assert_eq!(kind(&status(404, "NotFound", "a")), Kind::NotFound);
        assert_eq!(kind(&status(404, "NotFound", "")), Kind::Missing);
        let error = ApiError::of_status("list outcomes", &status(404, "NotFound", ""));
        assert!(error.to_string().contains("transponder manifests crds"), "{error}");
    }

    #[test]
    fn a_definition_without_a_field_that_is_written_is_named_and_so_is_the_field() {
        let mut older = status(400, "BadRequest", "");
        older.message = "strict decoding error: unknown field \"status.replayed\"".into();
        let error = ApiError::of_status("store an event", &older);
        assert_eq!(error.kind, Kind::Missing);
        for named in ["transponder manifests crds", "status.replayed"] {
            assert!(error.to_string().contains(named), "{error}");
        }
    }

    #[test]
    fn a_missing_right_names_what_brings_it_which_for_a_secret_is_no_manifest() {
        let told = |resource: &str| {
            let mut forbidden = status(403, "Forbidden", "a");
            forbidden.message = format!("User \"edge\" cannot get resource \"{resource}\" in API group \"\"");
            ApiError::of_status("read", &forbidden).to_string()
        };
        let (secret, map) = (told("secrets"), told("configmaps"));
        assert!(secret.contains("transponder cluster add") && !secret.contains("manifests rbac"), "{secret}");
        assert!(map.contains("transponder manifests rbac"), "{map}");
    }

    #[test]
    fn what_is_too_large_for_etcd_is_invalid_and_not_tried_again() {
        let mut large = status(500, "", "");
        large.message = "etcdserver: request is too large".into();
        assert_eq!(kind(&large), Kind::Invalid);
    }

    #[test]
    fn a_conflict_is_told_from_an_object_that_exists() {
        assert_eq!(kind(&status(409, "AlreadyExists", "a")), Kind::Exists);
        assert_eq!(kind(&status(409, "Conflict", "a")), Kind::Conflict);
    }

    #[test]
    fn what_may_pass_is_unavailable_and_says_how_long() {
        let mut busy = status(429, "TooManyRequests", "");
        busy.details.as_mut().unwrap().retry_after_seconds = 7;
        let error = ApiError::of_status("write", &busy);
        assert_eq!((error.kind, error.retry_after), (Kind::Busy, Some(Duration::from_secs(7))));
        for code in [0, 500, 503, 504] {
            assert_eq!(kind(&status(code, "", "")), Kind::Unavailable, "{code}");
        }
    }

    #[test]
    fn a_version_of_the_future_is_expired() {
        let mut future = status(504, "Timeout", "");
        let reason = "ResourceVersionTooLarge".to_owned();
        let cause = StatusCause { reason, message: String::new(), field: String::new() };
        future.details.as_mut().unwrap().causes.push(cause);
        assert_eq!(kind(&future), Kind::Expired);
        future.details = None;
        future.message = "Too large resource version: 900, current: 500".into();
        assert_eq!(kind(&future), Kind::Expired);
    }

    #[test]
    fn who_denies_is_known_by_its_words_whatever_the_code() {
        for message in [
            "admission webhook \"freeze.example\" denied the request: no",
            "releaseoutcomes.transponder.dev \"a\" is forbidden: ValidatingAdmissionPolicy 'freeze' with binding \
             'freeze' denied request: no",
        ] {
            for code in [400, 403, 422, 500] {
                let mut denied = status(code, "Invalid", "a");
                denied.message = message.into();
                assert_eq!(kind(&denied), Kind::Refused, "{code} {message}");
            }
        }
    }

    #[test]
    fn an_old_version_is_expired_as_code_and_as_reason() {
        assert_eq!(kind(&status(410, "", "")), Kind::Expired);
        assert_eq!(kind(&status(0, "Expired", "")), Kind::Expired);
    }
}
