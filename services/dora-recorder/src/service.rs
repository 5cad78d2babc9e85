//! The gRPC service: decode, call, encode.

use std::sync::Arc;

use tonic::{Request, Response, Status};
use transponder_core::{
    Caller, ClusterName, Maker, Phase, Release, ServiceName, Stream, Timestamp, caller::Method,
};
use transponder_proto::{
    convert::{self, FieldError},
    v1::{self, dora_recorder_server::DoraRecorder},
};
use transponder_runtime::{
    Clock, Fault,
    auth::{authorize, authorize_namespace},
    outage::Outage,
};

use crate::{
    applications::{Applications, ExpectError},
    error::RecordError,
    ledger::Ledger,
    state::{Disposition, Outcome, Verdict},
};

pub(crate) struct Service {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) local: Local,
    /// The edge tries again for as long as there is no room, and so may any number of streams. It ends with a larger
    /// budget, and so with the process.
    pub(crate) no_room: Outage,
}

/// Releases of this cluster's own Argo CD.
pub(crate) enum Local {
    /// There is no cluster.
    NotOnKubernetes,
    /// The cluster has no name.
    Unnamed,
    /// They are read.
    Read(Arc<Applications>),
}

#[tonic::async_trait]
impl DoraRecorder for Service {
    async fn record_outcome(
        &self,
        request: Request<v1::RecordOutcomeRequest>,
    ) -> Result<Response<v1::RecordOutcomeResponse>, Status> {
        let caller = authorize(&request, Method::RecordOutcome)?;
        let (stream, verdict) = self.verdict(request.get_ref(), &caller).map_err(Fault::from)?;
        authorize_namespace(&caller, &stream.app_namespace)?;
        match self.ledger.record(stream.clone(), Maker::of(&caller), verdict).await {
            Ok(disposition) => {
                let release = verdict.release;
                tracing::debug!(%caller, source = stream.source(), %release, outcome = ?verdict.outcome, ?disposition, "verdict");
                Ok(Response::new(v1::RecordOutcomeResponse { disposition: encode(disposition).into() }))
            }
            Err(error) => {
                self.log_refusal(&caller, &stream, &error);
                Err(Fault::from(error).into())
            }
        }
    }

    async fn expect(
        &self,
        request: Request<v1::ExpectRequest>,
    ) -> Result<Response<v1::ExpectResponse>, Status> {
        let caller = authorize(&request, Method::Expect)?;
        let (release, flow_start) =
            expected(request.get_ref(), &caller, self.local_cluster()).map_err(Fault::from)?;
        authorize_namespace(&caller, &release.stream.app_namespace)?;
        let applications = match &self.local {
            Local::Read(applications) => applications,
            Local::NotOnKubernetes => {
                let message = "Expect needs Kubernetes: it reads the Argo CD Applications of this cluster, and this service runs without one";
                return Err(Fault::precondition(message).reason("NOT_ON_KUBERNETES").into());
            }
            Local::Unnamed => {
                let message =
                    "Expect needs dora.local_cluster, the name that releases of this cluster are counted by";
                return Err(Fault::precondition(message).reason("NO_LOCAL_CLUSTER").into());
            }
        };
        let source = release.stream.source();
        match applications.expect(&self.ledger, &release, Maker::of(&caller), flow_start).await {
            Ok(baseline) => {
                let release = release.key();
                tracing::debug!(%caller, source, %release, ?baseline, "a sync is awaited");
                let baseline_started_at = baseline.map(convert::to_proto_time);
                Ok(Response::new(v1::ExpectResponse { baseline_started_at }))
            }
            Err(error) => {
                match &error {
                    ExpectError::Record(error) => self.log_refusal(&caller, &release.stream, error),
                    _ => tracing::warn!(%caller, source, %error, "no sync is awaited"),
                }
                Err(Fault::from(error).into())
            }
        }
    }
}

impl Service {
    fn local_cluster(&self) -> Option<&ClusterName> {
        match &self.local {
            Local::Read(applications) => Some(applications.cluster()),
            Local::NotOnKubernetes | Local::Unnamed => None,
        }
    }

    fn verdict(
        &self,
        request: &v1::RecordOutcomeRequest,
        caller: &Caller,
    ) -> Result<(Stream, Verdict), FieldError> {
        let release = convert::release(request.release.as_ref(), caller.app_namespace())?;
        let phase = convert::terminal_phase(request.phase, "phase")?;
        let outcome = Outcome::of(phase).ok_or_else(|| FieldError::required("phase"))?;
        let finished_at = convert::time(request.finished_at.as_ref(), "finished_at")?;
        let first = convert::optional_time(request.first_finished_at.as_ref(), "first_finished_at")?;
        if phase == Phase::Failed && first.is_some_and(|first| first > finished_at) {
            return Err(FieldError::new("first_finished_at", "must not be after finished_at"));
        }
        let now = self.clock.wall();
        let received = convert::optional_time(request.received_at.as_ref(), "received_at")?.unwrap_or(now);
        // A finish is measured against its receipt, so whoever says both could make every later release late. The edge
        // says when it received, on its own clock; of anybody else a receipt in the future is none.
        let edge = *caller == Caller::Service(ServiceName::Edge);
        let verdict = Verdict {
            release: release.key(),
            outcome,
            finished_at,
            first_finished_at: first.unwrap_or(finished_at),
            flow_start: convert::optional_time(request.flow_start_time.as_ref(), "flow_start_time")?,
            received_at: if edge { received } else { received.min(now) },
        };
        Ok((release.stream, verdict))
    }

    fn log_refusal(&self, caller: &Caller, stream: &Stream, error: &RecordError) {
        let source = stream.source();
        match error {
            RecordError::Full { .. } => self.no_room.failed(&format_args!("{error} ({caller}, {source})")),
            _ => tracing::warn!(%caller, source, %error, "verdict not counted"),
        }
    }
}

/// Which release is expected, and when its flow began. A request that is wrong is told so also where the method does not
/// work: its sender finds the fault before it comes to a place where it does.
fn expected(
    request: &v1::ExpectRequest,
    caller: &Caller,
    cluster: Option<&ClusterName>,
) -> Result<(Release, Option<Timestamp>), FieldError> {
    let mut release = request.release.clone().ok_or_else(|| FieldError::required("release"))?;
    if !release.cluster.is_empty() {
        return Err(FieldError::new("release.cluster", "must be empty: it is this cluster"));
    }
    // Where it has no name any will do, so that the rest is checked as everywhere.
    cluster.map_or("local", ClusterName::as_str).clone_into(&mut release.cluster);
    let release = convert::release(Some(&release), caller.app_namespace())?;
    let flow_start = convert::optional_time(request.flow_start_time.as_ref(), "flow_start_time")?;
    Ok((release, flow_start))
}

fn encode(disposition: Disposition) -> v1::Disposition {
    match disposition {
        Disposition::New => v1::Disposition::New,
        Disposition::Repeated => v1::Disposition::Repeated,
        Disposition::Absorbed => v1::Disposition::Absorbed,
        Disposition::Conflict => v1::Disposition::Conflict,
        Disposition::Late => v1::Disposition::Late,
    }
}
