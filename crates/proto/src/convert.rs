//! Between proto messages and the domain. A fault names the field, as `release.env`.

use prost_types::Timestamp as ProtoTime;
use transponder_core::{
    AppNamespace, NameError, Phase, Release, ReleaseId, Stream, Timestamp, event::MAX_TEXT,
    event::is_plausible,
};

use crate::v1;

/// A field of a request that is missing or wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {reason}")]
pub struct FieldError {
    /// Path of the field.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}

impl FieldError {
    /// A fault of `field`.
    #[must_use]
    pub fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }

    /// The field is required and missing.
    #[must_use]
    pub fn required(field: &str) -> Self {
        Self::new(field, "is required")
    }
}

/// A required time.
///
/// # Errors
/// When it is missing, not a time, or outside 1970 to 2261.
pub fn time(value: Option<&ProtoTime>, field: &str) -> Result<Timestamp, FieldError> {
    optional_time(value, field)?.ok_or_else(|| FieldError::required(field))
}

/// An optional time.
///
/// # Errors
/// When it is not a time, or outside 1970 to 2261.
pub fn optional_time(value: Option<&ProtoTime>, field: &str) -> Result<Option<Timestamp>, FieldError> {
    let Some(value) = value else { return Ok(None) };
    if !(0..1_000_000_000).contains(&value.nanos) {
        return Err(FieldError::new(field, "must have nanos between 0 and 999999999"));
    }
    Timestamp::new(value.seconds, value.nanos)
        .ok()
        .filter(|time| is_plausible(*time))
        .map(Some)
        .ok_or_else(|| FieldError::new(field, "must lie between 1970 and 2261"))
}

/// A time as proto writes it: whole seconds rounded down, nanos never negative.
#[must_use]
pub fn to_proto_time(time: Timestamp) -> ProtoTime {
    let nanos = time.as_nanosecond();
    let seconds = i64::try_from(nanos.div_euclid(1_000_000_000)).unwrap_or(i64::MAX);
    let nanos = i32::try_from(nanos.rem_euclid(1_000_000_000)).unwrap_or(0);
    ProtoTime { seconds, nanos }
}

/// A required phase, as the enum's number.
///
/// # Errors
/// When it is missing or unknown.
pub fn phase(value: i32, field: &str) -> Result<Phase, FieldError> {
    match v1::Phase::try_from(value) {
        Ok(v1::Phase::Syncing) => Ok(Phase::Syncing),
        Ok(v1::Phase::Succeeded) => Ok(Phase::Succeeded),
        Ok(v1::Phase::Failed) => Ok(Phase::Failed),
        Ok(v1::Phase::Unspecified) => Err(FieldError::required(field)),
        Err(_) => Err(FieldError::new(field, format!("has no value {value}"))),
    }
}

/// A required terminal phase.
///
/// # Errors
/// When it is missing, unknown or not terminal.
pub fn terminal_phase(value: i32, field: &str) -> Result<Phase, FieldError> {
    match phase(value, field)? {
        Phase::Syncing => Err(FieldError::new(field, "must be PHASE_SUCCEEDED or PHASE_FAILED")),
        terminal => Ok(terminal),
    }
}

/// A phase as proto writes it.
#[must_use]
pub fn to_proto_phase(phase: Phase) -> v1::Phase {
    match phase {
        Phase::Syncing => v1::Phase::Syncing,
        Phase::Succeeded => v1::Phase::Succeeded,
        Phase::Failed => v1::Phase::Failed,
    }
}

/// One of the four names; an empty one is missing.
///
/// # Errors
/// When it is missing or no DNS label.
pub fn name<T: std::str::FromStr<Err = NameError>>(text: &str, field: &str) -> Result<T, FieldError> {
    if text.is_empty() {
        return Err(FieldError::required(field));
    }
    text.parse().map_err(|e: NameError| FieldError::new(field, e.to_string()))
}

/// A free text of bounded length; empty means not given.
///
/// # Errors
/// When it is longer than an event may carry.
pub fn text<'a>(value: &'a str, field: &str) -> Result<&'a str, FieldError> {
    if value.len() > MAX_TEXT {
        return Err(FieldError::new(field, format!("must have at most {MAX_TEXT} bytes")));
    }
    Ok(value)
}

/// The stream of a release. An empty app namespace is `own_namespace`, the caller's, where there is one.
///
/// # Errors
/// Names the field that is missing or wrong.
pub fn stream(
    release: Option<&v1::Release>,
    own_namespace: Option<&AppNamespace>,
) -> Result<Stream, FieldError> {
    let release = release.ok_or_else(|| FieldError::required("release"))?;
    let app_namespace = match own_namespace {
        Some(own) if release.app_namespace.is_empty() => own.clone(),
        _ => name(&release.app_namespace, "release.app_namespace")?,
    };
    Ok(Stream {
        app_namespace,
        app: name(&release.app_name, "release.app_name")?,
        env: name(&release.env, "release.env")?,
        cluster: name(&release.cluster, "release.cluster")?,
    })
}

/// A release with its identity.
///
/// # Errors
/// Names the field that is missing or wrong.
pub fn release(
    release: Option<&v1::Release>,
    own_namespace: Option<&AppNamespace>,
) -> Result<Release, FieldError> {
    let stream = stream(release, own_namespace)?;
    let release = release.ok_or_else(|| FieldError::required("release"))?;
    let id = ReleaseId::of(
        text(&release.chain_id, "release.chain_id")?,
        text(&release.git_revision, "release.git_revision")?,
        text(&release.event_id, "release.event_id")?,
    )
    .ok_or_else(|| FieldError::new("release.chain_id", "is required, or git_revision, or event_id"))?;
    Ok(Release { stream, id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_nanoseconds_on_the_way_there_and_back() {
        for text in ["2026-09-14T10:00:00.123456789Z", "1970-01-01T00:00:01Z", "2260-01-01T00:00:00Z"] {
            let instant: Timestamp = text.parse().unwrap();
            assert_eq!(time(Some(&to_proto_time(instant)), "t"), Ok(instant));
        }
    }

    #[test]
    fn a_missing_or_wrong_field_is_named() {
        assert_eq!(release(None, None).unwrap_err().to_string(), "release is required");
        let mut message =
            v1::Release { app_namespace: "app-a-cicd".into(), app_name: "A".into(), ..Default::default() };
        assert!(
            release(Some(&message), None).unwrap_err().to_string().starts_with("release.app_name must be")
        );
        message.app_name = "a".into();
        assert_eq!(release(Some(&message), None).unwrap_err().to_string(), "release.env is required");
        let negative = ProtoTime { seconds: 1, nanos: -1 };
        assert_eq!(time(Some(&negative), "finished_at").unwrap_err().field, "finished_at");
        assert_eq!(
            time(Some(&ProtoTime::default()), "t").unwrap_err().reason,
            "must lie between 1970 and 2261"
        );
        assert_eq!(phase(9, "phase").unwrap_err().reason, "has no value 9");
    }
}
