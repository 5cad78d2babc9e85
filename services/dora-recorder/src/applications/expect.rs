//! A release becomes pending.

use std::sync::Arc;

use transponder_core::{Maker, Release, Timestamp};
use transponder_kubernetes::{ApiError, Kind};
use transponder_runtime::Fault;

use super::{Applications, object::Application};
use crate::{
    error::RecordError,
    ledger::Ledger,
    state::{Awaited, Expected},
};
/// Reads of the Application, when the first turns out to be too old.
const READS: u32 = 3;

/// Why a release does not become pending.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExpectError {
    /// There is no such Application.
    #[error("there is no Application {0}")]
    NoApplication(String),
    /// It is not one of those that are followed.
    #[error("Application {application} has no label {label}=true: its syncs are not followed")]
    NotFollowed { application: String, label: String },
    /// It is not what an Application should be.
    #[error("Application {application} cannot be judged: {problem}")]
    Odd { application: String, problem: String },
    /// It cannot be read.
    #[error("Application {application}: {error}")]
    Unreadable { application: String, error: ApiError },
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl From<ExpectError> for Fault {
    fn from(error: ExpectError) -> Self {
        let message = error.to_string();
        match error {
            ExpectError::NoApplication(_) => Self::not_found(message).reason("APPLICATION"),
            ExpectError::NotFollowed { .. } | ExpectError::Odd { .. } => {
                Self::precondition(message).reason("APPLICATION")
            }
            // What the API server says is for the log: it names identities.
            ExpectError::Unreadable { application, error } => {
                Self::unavailable(format!("Application {application} cannot be read now"))
                    .reason("APPLICATIONS")
                    .retry_after(error.retry_after)
            }
            ExpectError::Record(error) => error.into(),
        }
    }
}

impl Applications {
    /// Makes a release pending. Answers the baseline: the first sync that starts after it is the release's.
    pub(crate) async fn expect(
        &self,
        ledger: &Arc<Ledger>,
        release: &Release,
        maker: Maker,
        flow_start: Option<Timestamp>,
    ) -> Result<Option<Timestamp>, ExpectError> {
        if let Err(problem) = &*ledger.loaded().borrow() {
            tracing::debug!(problem, "a release cannot become pending yet");
            return Err(RecordError::Loading.into());
        }
        let name = format!("{}-{}", release.stream.app, release.stream.env);
        for read in 1..=READS {
            let application = self.read(&name).await?;
            let odd = |problem| ExpectError::Odd { application: self.called(&name), problem };
            let awaited = Awaited {
                application: application.uid().to_owned(),
                baseline: application.started_at().map_err(odd)?,
                release: release.key(),
                flow_start: flow_start.map(Into::into),
            };
            let (stream, ended) = (release.stream.clone(), application.ended());
            match ledger.expect(stream, maker, awaited, ended, read == READS).await? {
                Expected::After(baseline) => return Ok(baseline.map(Timestamp::from)),
                Expected::Outdated => {}
            }
        }
        Err(RecordError::Contended.into())
    }

    async fn read(&self, name: &str) -> Result<Application, ExpectError> {
        let action = "read an Application (applications.argoproj.io)";
        let application = self.called(name);
        let read = self.access.call(action, self.api.get(name)).await.map_err(|error| match error.kind {
            Kind::NotFound => ExpectError::NoApplication(application.clone()),
            _ => ExpectError::Unreadable { application: application.clone(), error },
        })?;
        let label = self.label();
        if !read.has_label(&label, "true") {
            return Err(ExpectError::NotFollowed { application, label });
        }
        if read.uid().is_empty() {
            return Err(ExpectError::Odd { application, problem: "it has no UID".to_owned() });
        }
        Ok(read)
    }

    fn called(&self, name: &str) -> String {
        format!("{}/{name}", self.namespace)
    }
}
