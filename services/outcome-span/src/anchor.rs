//! From when a span starts.

use transponder_core::{AppNamespace, Timestamp};
use transponder_proto::{
    convert::{FieldError, optional_time},
    v1::{self, ResolveRequest, release_tracking_client::ReleaseTrackingClient},
};
use transponder_runtime::{Fault, error::PeerFailure, grpc::MeshChannel};

use crate::span::{Anchor, Outcome};

/// Longest time to ask ReleaseTracking.
const ASK: std::time::Duration = std::time::Duration::from_secs(5);

/// The anchor that the caller has settled, checked against the times it gives.
pub(crate) fn given(anchor: v1::Anchor, outcome: &Outcome) -> Result<Option<Anchor>, FieldError> {
    let needs = |field, time: Option<Timestamp>, anchor| match time {
        Some(_) => Ok(Some(anchor)),
        None => Err(FieldError::new(field, "is required with the anchor that is given")),
    };
    match anchor {
        v1::Anchor::Unspecified => Ok(None),
        v1::Anchor::PrCreated => needs("pr_created_at", outcome.pr_created_at, Anchor::PrCreated),
        v1::Anchor::FlowStart => needs("flow_start_time", outcome.flow_start_time, Anchor::FlowStart),
        v1::Anchor::Finished => Ok(Some(Anchor::Finished)),
    }
}

/// The earliest time that the outcome itself knows.
pub(crate) fn of_times(outcome: &Outcome) -> Anchor {
    if outcome.pr_created_at.is_some() {
        Anchor::PrCreated
    } else if outcome.flow_start_time.is_some() {
        Anchor::FlowStart
    } else {
        Anchor::Finished
    }
}

/// ReleaseTracking, asked for the pull request of a release.
#[derive(Clone)]
pub(crate) struct Tracking(ReleaseTrackingClient<MeshChannel>);

impl Tracking {
    pub(crate) fn new(channel: MeshChannel) -> Self {
        Self(ReleaseTrackingClient::new(channel))
    }

    /// Adds the pull request to the outcome, if its release has a record. That it has none is an answer; that it
    /// cannot be told is an error.
    pub(crate) async fn complete(&self, outcome: &mut Outcome) -> Result<(), Fault> {
        let release = v1::Release {
            app_namespace: outcome.stream.app_namespace.to_string(),
            app_name: outcome.stream.app.to_string(),
            env: outcome.stream.env.to_string(),
            cluster: outcome.stream.cluster.to_string(),
            chain_id: outcome.chain_id.clone(),
            git_revision: outcome.git_revision.clone(),
            event_id: outcome.event_id.clone(),
        };
        let mut request =
            tonic::Request::new(ResolveRequest { release: Some(release), ..Default::default() });
        request.set_timeout(ASK);
        let trouble = |message: String| {
            Fault::unavailable(format!("release tracking: {message}")).reason("RELEASE_TRACKING")
        };
        let answer = match tokio::time::timeout(ASK, self.0.clone().resolve(request)).await {
            Ok(Ok(answer)) => answer.into_inner(),
            Ok(Err(status)) => {
                let failure = PeerFailure::from(&status);
                return Err(trouble(failure.message).retry_after(failure.retry_after));
            }
            Err(_) => return Err(trouble(format!("no answer within {ASK:?}"))),
        };
        let Some(record) = answer.record.filter(|_| answer.found) else { return Ok(()) };
        if !belongs(&record, &outcome.stream.app_namespace) {
            return Ok(());
        }
        outcome.pr_created_at = optional_time(record.pr_created_at.as_ref(), "pr_created_at")
            .map_err(|error| trouble(error.to_string()))?;
        if outcome.pr_url.is_empty() {
            outcome.pr_url = record.pr_url;
        }
        Ok(())
    }
}

/// A record of another app namespace is never shown, whatever the answer holds.
fn belongs(record: &v1::ReleaseRecord, namespace: &AppNamespace) -> bool {
    record.release.as_ref().is_some_and(|release| release.app_namespace == namespace.as_str())
}
