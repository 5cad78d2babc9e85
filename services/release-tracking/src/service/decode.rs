//! Requests as the domain reads them; each fault names its field.

use transponder_core::{AppNamespace, Caller, NameError, Release, ReleaseId, Stream};
use transponder_proto::{
    convert::{self, FieldError},
    v1,
};
use transponder_runtime::{Fault, auth};

use crate::{
    page,
    record::{Observation, PullRequest},
    state::State,
    store::{Cursor, Filter},
    tracker::{Named, Sight},
};

/// Records of a page when nothing else is asked for.
const PAGE: u32 = 100;
/// Most records of a page.
const MAX_PAGE: u32 = 1000;

pub(super) struct Observe {
    pub(super) stream: Stream,
    /// `None` where nothing sets the release apart: a PreSync without chain id, revision and event id.
    pub(super) id: Option<ReleaseId>,
    pub(super) git_revision: String,
    pub(super) observation: Observation,
}

pub(super) struct List {
    pub(super) filter: Filter,
    pub(super) after: Option<Cursor>,
    pub(super) limit: u32,
}

pub(super) fn put(request: v1::PutRequest, caller: &Caller) -> Result<(Named, PullRequest), Fault> {
    let release = request.release.unwrap_or_default();
    authorize_text(&release.app_namespace, caller)?;
    pull_request_url(&request.pr_url)?;
    let pull_request = PullRequest {
        url: request.pr_url,
        created_at: convert::optional_time(request.pr_created_at.as_ref(), "pr_created_at")?,
        merged_at: convert::optional_time(request.merged_at.as_ref(), "merged_at")?,
        closed_at: convert::optional_time(request.closed_at.as_ref(), "closed_at")?,
    };
    if pull_request.merged_at.is_some() && pull_request.closed_at.is_some() {
        return Err(FieldError::new("closed_at", "must not be given together with merged_at").into());
    }
    // The release alone can be missing, so a complete one is asked for only where no pull request names it.
    if pull_request.url.is_empty() {
        if release == v1::Release::default() {
            return Err(FieldError::new("release", "is required, or pr_url").into());
        }
        let complete = v1::Release { event_id: String::new(), ..release.clone() };
        convert::release(Some(&complete), caller.app_namespace())?;
    }
    let mut named = named(&release, caller)?;
    // An event id sets no release apart before its event is there.
    if matches!(named.id, Some(ReleaseId::EventId(_))) {
        named.id = None;
    }
    Ok((named, pull_request))
}

pub(super) fn observe(request: v1::ObserveRequest) -> Result<Observe, Fault> {
    let stream = convert::stream(request.release.as_ref(), None)?;
    let release = request.release.unwrap_or_default();
    let phase = convert::phase(request.phase, "phase")?;
    let observation = Observation {
        phase,
        finished_at: convert::time(request.finished_at.as_ref(), "finished_at")?,
        received_at: convert::time(request.received_at.as_ref(), "received_at")?,
        event: Some(event_key(&request.event_key)?),
    };
    let id = release_id(&release)?;
    if id.is_none() && phase.is_terminal() {
        return Err(FieldError::new("release.chain_id", "is required, or git_revision, or event_id").into());
    }
    Ok(Observe { stream, id, git_revision: release.git_revision, observation })
}

/// `None` when the request names an app namespace that does not exist for the caller.
pub(super) fn resolve(
    request: v1::ResolveRequest,
    caller: &Caller,
) -> Result<Option<(Named, Option<Sight>)>, Fault> {
    let named = named(&request.release.unwrap_or_default(), caller)?;
    let sight = match v1::Phase::try_from(request.phase) {
        Ok(v1::Phase::Unspecified) => None,
        _ => Some(Sight {
            phase: convert::phase(request.phase, "phase")?,
            finished_at: convert::time(request.finished_at.as_ref(), "finished_at")?,
        }),
    };
    let foreign = matches!(
        (caller.app_namespace(), &named.app_namespace),
        (Some(own), Some(asked)) if own != asked
    );
    Ok((!foreign).then_some((named, sight)))
}

pub(super) fn list(request: &v1::ListRequest, caller: &Caller) -> Result<List, Fault> {
    let asked = optional_name(&request.app_namespace, "app_namespace")?;
    if let Some(namespace) = &asked {
        auth::authorize_namespace(caller, namespace)?;
    }
    let mut states = Vec::new();
    let mut any = request.states.is_empty();
    for &value in &request.states {
        match state(value)? {
            Some(state) if !states.contains(&state) => states.push(state),
            Some(_) => {}
            None => any = true,
        }
    }
    if any {
        states.clear();
    }
    let filter = Filter { app_namespace: asked.or_else(|| caller.app_namespace().cloned()), states };
    let limit = match request.page_size {
        0 => PAGE,
        1..=MAX_PAGE => request.page_size,
        _ => return Err(FieldError::new("page_size", format!("must be at most {MAX_PAGE}")).into()),
    };
    let after = match request.page_token.as_str() {
        "" => None,
        token => {
            Some(page::decode(token, &filter).map_err(|e| FieldError::new("page_token", e.to_string()))?)
        }
    };
    Ok(List { filter, after, limit })
}

pub(super) fn delete(request: &v1::DeleteRequest, caller: &Caller) -> Result<Release, Fault> {
    if let Some(release) = &request.release {
        authorize_text(&release.app_namespace, caller)?;
    }
    Ok(convert::release(request.release.as_ref(), caller.app_namespace())?)
}

/// Another's app namespace is refused before anything else of the request is looked at.
fn authorize_text(app_namespace: &str, caller: &Caller) -> Result<(), Fault> {
    match optional_name(app_namespace, "release.app_namespace")? {
        Some(namespace) => auth::authorize_namespace(caller, &namespace),
        None => Ok(()),
    }
}

/// What the caller names of a release. An app's caller that names no app namespace means its own.
fn named(release: &v1::Release, caller: &Caller) -> Result<Named, FieldError> {
    let app_namespace: Option<AppNamespace> = optional_name(&release.app_namespace, "release.app_namespace")?;
    Ok(Named {
        app_namespace: app_namespace.or_else(|| caller.app_namespace().cloned()),
        app: optional_name(&release.app_name, "release.app_name")?,
        env: optional_name(&release.env, "release.env")?,
        cluster: optional_name(&release.cluster, "release.cluster")?,
        id: release_id(release)?,
        git_revision: release.git_revision.clone(),
    })
}

fn release_id(release: &v1::Release) -> Result<Option<ReleaseId>, FieldError> {
    Ok(ReleaseId::of(
        convert::text(&release.chain_id, "release.chain_id")?,
        convert::text(&release.git_revision, "release.git_revision")?,
        convert::text(&release.event_id, "release.event_id")?,
    ))
}

fn optional_name<T: std::str::FromStr<Err = NameError>>(
    text: &str,
    field: &str,
) -> Result<Option<T>, FieldError> {
    if text.is_empty() { Ok(None) } else { convert::name(text, field).map(Some) }
}

fn event_key(text: &str) -> Result<transponder_core::EventKey, FieldError> {
    if text.is_empty() {
        return Err(FieldError::required("event_key"));
    }
    text.parse().map_err(|_| FieldError::new("event_key", "must be 40 lower-case hex digits"))
}

fn pull_request_url(text: &str) -> Result<(), FieldError> {
    if text.is_empty() {
        return Ok(());
    }
    if text.chars().count() > PullRequest::MAX_ADDRESS {
        let problem = format!("must have at most {} characters", PullRequest::MAX_ADDRESS);
        return Err(FieldError::new("pr_url", problem));
    }
    if !PullRequest::is_address(text) {
        return Err(FieldError::new("pr_url", "must be an http or https URL"));
    }
    Ok(())
}

/// A state of a filter; `None` means any.
fn state(value: i32) -> Result<Option<State>, FieldError> {
    let state = v1::ReleaseState::try_from(value)
        .map_err(|_| FieldError::new("states", format!("has no value {value}")))?;
    Ok(match state {
        v1::ReleaseState::Unspecified => None,
        v1::ReleaseState::Expected => Some(State::Expected),
        v1::ReleaseState::Merged => Some(State::Merged),
        v1::ReleaseState::Progressing => Some(State::Progressing),
        v1::ReleaseState::Succeeded => Some(State::Succeeded),
        v1::ReleaseState::Failed => Some(State::Failed),
        v1::ReleaseState::Unreported => Some(State::Unreported),
        v1::ReleaseState::Superseded => Some(State::Superseded),
        v1::ReleaseState::Closed => Some(State::Closed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_web_addresses_of_bounded_length_are_pull_requests() {
        let long = format!("https://git.example/{}", "x".repeat(PullRequest::MAX_ADDRESS - 20));
        for good in ["", "http://git.example/1", "https://git.example/a/b/pulls/7?x=1#y", &long] {
            assert_eq!(pull_request_url(good), Ok(()), "{good}");
        }
        let longer = format!("{long}x");
        for bad in [
            "git.example/1",
            "ftp://git.example/1",
            "javascript:alert(1)",
            "https://",
            "https://a/\nb",
            &longer,
        ] {
            assert_eq!(pull_request_url(bad).unwrap_err().field, "pr_url", "{bad}");
        }
    }
}
