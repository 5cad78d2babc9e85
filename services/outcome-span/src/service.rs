//! The gRPC door: decode, call, encode.

use std::sync::Arc;

use tonic::{Request, Response, Status};
use transponder_core::{Caller, EventKey, Stream, caller::Method};
use transponder_proto::{
    convert::{self, FieldError},
    v1::{self, EmitRequest, EmitResponse, outcome_span_server},
};
use transponder_runtime::{
    Fault,
    auth::{authorize, authorize_namespace},
};

use crate::{
    anchor::{self, Tracking},
    sender::Sender,
    span::{self, Anchor, Ids, Outcome},
};

/// Longest URL, the bound that ReleaseTracking has.
const URL: usize = 2048;

/// The service.
pub(crate) struct Service {
    pub(crate) tracking: Tracking,
    pub(crate) sender: Arc<Sender>,
    pub(crate) service_name: String,
}

#[tonic::async_trait]
impl outcome_span_server::OutcomeSpan for Service {
    async fn emit(&self, request: Request<EmitRequest>) -> Result<Response<EmitResponse>, Status> {
        let caller = authorize(&request, Method::Emit)?;
        let (outcome, given) = decode(request.into_inner(), &caller)?;
        Ok(Response::new(self.emit(outcome, given).await?))
    }
}

impl Service {
    async fn emit(&self, mut outcome: Outcome, given: Option<Anchor>) -> Result<EmitResponse, Fault> {
        let anchor = match given {
            Some(anchor) => anchor,
            None => {
                if outcome.pr_created_at.is_none() && !outcome.chain_id.is_empty() {
                    self.tracking.complete(&mut outcome).await?;
                }
                anchor::of_times(&outcome)
            }
        };
        let ids = Ids::of(&outcome);
        let request = span::request(&outcome, anchor, &self.service_name);
        let accepted = self.sender.send(ids, &request).await?;
        Ok(EmitResponse {
            trace_id: hex::encode(ids.trace),
            span_id: hex::encode(ids.span),
            anchor: encode(anchor).into(),
            warning: accepted.warning,
        })
    }
}

fn encode(anchor: Anchor) -> v1::Anchor {
    match anchor {
        Anchor::PrCreated => v1::Anchor::PrCreated,
        Anchor::FlowStart => v1::Anchor::FlowStart,
        Anchor::Finished => v1::Anchor::Finished,
    }
}

fn decode(request: EmitRequest, caller: &Caller) -> Result<(Outcome, Option<Anchor>), Fault> {
    let stream = convert::stream(request.release.as_ref(), caller.app_namespace())?;
    authorize_namespace(caller, &stream.app_namespace)?;
    let release = request.release.unwrap_or_default();
    convert::text(&release.chain_id, "release.chain_id")?;
    convert::text(&release.git_revision, "release.git_revision")?;
    convert::text(&release.event_id, "release.event_id")?;
    convert::text(&request.event_source, "event_source")?;
    for (text, field) in [(&request.pr_url, "pr_url"), (&request.git_url, "git_url")] {
        if text.len() > URL {
            return Err(FieldError::new(field, format!("must have at most {URL} bytes")).into());
        }
    }
    let outcome = Outcome {
        key: key(&request.event_key, &request.event_source, &release.event_id, &stream)?,
        stream,
        phase: convert::terminal_phase(request.phase, "phase")?,
        finished_at: convert::time(request.finished_at.as_ref(), "finished_at")?,
        flow_start_time: convert::optional_time(request.flow_start_time.as_ref(), "flow_start_time")?,
        pr_created_at: convert::optional_time(request.pr_created_at.as_ref(), "pr_created_at")?,
        pr_url: request.pr_url,
        chain_id: release.chain_id,
        git_revision: release.git_revision,
        git_url: request.git_url,
        event_id: release.event_id,
        traceparent: request.traceparent,
    };
    let anchor = v1::Anchor::try_from(request.anchor)
        .map_err(|_| FieldError::new("anchor", format!("has no value {}", request.anchor)))?;
    let given = anchor::given(anchor, &outcome)?;
    Ok((outcome, given))
}

fn key(given: &str, source: &str, event_id: &str, stream: &Stream) -> Result<EventKey, FieldError> {
    if !given.is_empty() {
        return given.parse().map_err(|_| FieldError::new("event_key", "must be 40 lower-case hex digits"));
    }
    if event_id.is_empty() {
        return Err(FieldError::new("release.event_id", "is required, or event_key"));
    }
    let written = stream.source();
    let source = if source.is_empty() { written.as_str() } else { source };
    Ok(EventKey::new(&stream.cluster, source, event_id))
}
