//! Calls to the targets: what is sent, and what the answer means. Proto types stop here.

use std::{sync::Arc, time::Duration};

use tonic::Request;
use transponder_core::{Release, Report, ServiceName, Target, TargetState, Timestamp, settle::Verdict};
use transponder_proto::{
    convert::{to_proto_phase, to_proto_time},
    v1::{
        self, dora_recorder_client::DoraRecorderClient, forwarder_client::ForwarderClient,
        outcome_span_client::OutcomeSpanClient, release_tracking_client::ReleaseTrackingClient,
    },
};
use transponder_runtime::{
    crash,
    grpc::{MeshChannel, channel},
    mesh::MeshIdentity,
    trace::Tracer,
};

use super::fault::Failure;
use crate::{
    config::{DeliveryConfig, PeersConfig},
    error::Error,
    outbox::{Anchor, AnchorKind, Decision, Detail, Loaded, NewEvent, Outbox, Sequence, StoredObservation},
    trace,
};

/// The four services.
#[derive(Clone)]
pub(crate) struct Peers {
    forwarder: ForwarderClient<MeshChannel>,
    dora: DoraRecorderClient<MeshChannel>,
    tracking: ReleaseTrackingClient<MeshChannel>,
    span: OutcomeSpanClient<MeshChannel>,
    timeout: Duration,
    tracer: Tracer,
}

impl Peers {
    pub(crate) fn new(
        peers: &PeersConfig,
        delivery: &DeliveryConfig,
        identity: &Arc<MeshIdentity>,
        tracer: &Tracer,
    ) -> Result<Self, Error> {
        let to = |peer: &'static str, address: &str, service| {
            channel(address, service, identity.clone()).map_err(|source| Error::Peer { peer, source })
        };
        let forwarder = to("forwarder", &peers.forwarder, ServiceName::Forwarder)?;
        let dora = to("dora_recorder", &peers.dora_recorder, ServiceName::DoraRecorder)?;
        let tracking = to("release_tracking", &peers.release_tracking, ServiceName::ReleaseTracking)?;
        let span = to("outcome_span", &peers.outcome_span, ServiceName::OutcomeSpan)?;
        Ok(Self {
            forwarder: ForwarderClient::new(forwarder),
            dora: DoraRecorderClient::new(dora),
            tracking: ReleaseTrackingClient::new(tracking),
            span: OutcomeSpanClient::new(span),
            timeout: delivery.call_timeout,
            tracer: tracer.clone(),
        })
    }
}

/// What a call to a target is about.
pub(super) struct Job {
    pub sequence: Sequence,
    pub target: Target,
    /// The event, if it is still in memory.
    pub held: Option<Arc<NewEvent>>,
    /// What tracking is to be told.
    pub untracked: Vec<StoredObservation>,
    /// What was frozen before.
    pub detail: Detail,
}

/// How a call ended.
pub(crate) struct Called {
    pub(super) result: Result<Success, Failure>,
    /// The observations that tracking has been told, even if a later one failed.
    pub(super) tracked: Vec<i64>,
    /// The place of the verdict that was sent.
    pub(super) order: i64,
    /// What the call froze or learnt.
    pub(super) detail: Detail,
    /// For the log.
    pub(super) app: String,
}

/// What a target answered.
#[derive(Debug, Default)]
pub(super) struct Success {
    /// What the target says of it, for the log: a disposition, a trace id, a warning.
    pub note: String,
    /// The anchor that follows from what tracking knows.
    pub anchor: Option<Anchor>,
}

impl From<&NewEvent> for Loaded {
    fn from(event: &NewEvent) -> Self {
        Self {
            key: event.key,
            content_type: event.content_type.clone(),
            body: event.body.clone(),
            received_at: event.received_at,
            report: event.report.clone(),
            id: event.id.clone(),
            source: event.source.clone(),
        }
    }
}

/// Makes one call.
pub(super) async fn call(peers: Peers, outbox: Arc<dyn Outbox>, job: Job) -> Called {
    let order = match &job.detail {
        Detail::Verdict { order, .. } => *order,
        _ => 0,
    };
    let mut called = Called {
        result: Ok(Success::default()),
        tracked: Vec::new(),
        order,
        detail: job.detail.clone(),
        app: String::new(),
    };
    let loaded = match &job.held {
        Some(event) => Some(Loaded::from(event.as_ref())),
        None => match outbox.load(job.sequence).await {
            Ok(loaded) => loaded,
            Err(error) => {
                called.result = Err(Failure::ours("store", error.to_string()));
                return called;
            }
        },
    };
    let Some(loaded) = loaded else {
        called.result = Err(Failure::event("forgotten", "the event is not in the store"));
        return called;
    };
    called.app = loaded.report.as_ref().map(|r| r.release.stream.app.to_string()).unwrap_or_default();
    let mut span = trace::delivery(&peers.tracer, loaded.key, job.target);
    let timeout = peers.timeout;
    crash::point(point(job.target, "before"));
    let sent = span.context().scope(send(peers, outbox, &job, &loaded, &mut called));
    let result = tokio::time::timeout(timeout, sent)
        .await
        .unwrap_or_else(|_| Err(Failure::ours("timeout", format!("no answer within {timeout:?}"))));
    crash::point(point(job.target, "after"));
    if let Err(failure) = &result {
        span.failed(|| failure.code.to_owned());
    }
    called.result = result;
    called
}

fn point(target: Target, when: &str) -> &'static str {
    match (target, when) {
        (Target::Broker, "before") => "broker.before",
        (Target::Broker, _) => "broker.after",
        (Target::Tracking, "before") => "tracking.before",
        (Target::Tracking, _) => "tracking.after",
        (Target::Dora, "before") => "dora.before",
        (Target::Dora, _) => "dora.after",
        (Target::Span, "before") => "span.before",
        (Target::Span, _) => "span.after",
    }
}

async fn send(
    peers: Peers,
    outbox: Arc<dyn Outbox>,
    job: &Job,
    event: &Loaded,
    called: &mut Called,
) -> Result<Success, Failure> {
    match job.target {
        Target::Broker => forward(peers, event, called).await,
        Target::Tracking => track(peers, job, event, called).await,
        Target::Dora => record(peers, job, event).await,
        Target::Span => emit(peers, outbox, job, event, called).await,
    }
}

async fn forward(mut peers: Peers, event: &Loaded, called: &mut Called) -> Result<Success, Failure> {
    let request = v1::ForwardRequest {
        event: event.body.clone(),
        content_type: event.content_type.clone(),
        key: event.key.to_string(),
    };
    let response = peers.forwarder.forward(request).await?.into_inner();
    called.detail = Detail::BrokerEventId(response.broker_event_id.clone());
    Ok(Success { note: response.broker_event_id, anchor: None })
}

fn report(event: &Loaded) -> Result<&Report, Failure> {
    event.report.as_ref().ok_or_else(|| Failure::event("no_report", "the event reports no release"))
}

fn release(event: &Loaded, release: &Release, report: &Report) -> v1::Release {
    v1::Release {
        app_namespace: release.stream.app_namespace.to_string(),
        app_name: release.stream.app.to_string(),
        env: release.stream.env.to_string(),
        cluster: release.stream.cluster.to_string(),
        chain_id: report.chain_id.clone(),
        git_revision: report.git_revision.clone(),
        event_id: event.id.clone(),
    }
}

async fn observe(
    peers: &mut Peers,
    event: &Loaded,
    phase: v1::Phase,
    finished_at: Timestamp,
    received_at: Timestamp,
) -> Result<Option<v1::ReleaseRecord>, Failure> {
    let report = report(event)?;
    let request = v1::ObserveRequest {
        release: Some(release(event, &report.release, report)),
        phase: phase.into(),
        finished_at: Some(to_proto_time(finished_at)),
        received_at: Some(to_proto_time(received_at)),
        event_key: event.key.to_string(),
    };
    Ok(peers.tracking.observe(request).await?.into_inner().record)
}

async fn track(mut peers: Peers, job: &Job, event: &Loaded, called: &mut Called) -> Result<Success, Failure> {
    let report = report(event)?;
    let mut record = None;
    for stored in &job.untracked {
        let seen = &stored.observation;
        let phase = to_proto_phase(seen.phase);
        record = observe(&mut peers, event, phase, seen.finished_at, seen.received_at).await?;
        called.tracked.push(stored.number);
    }
    let note = record.as_ref().map(|r| r.state().as_str_name().to_owned()).unwrap_or_default();
    Ok(Success { note, anchor: Some(anchor(report, record.as_ref())) })
}

/// From when the span starts: the pull request's creation, else the flow's start, else the finish.
fn anchor(report: &Report, record: Option<&v1::ReleaseRecord>) -> Anchor {
    let time = |time: &prost_types::Timestamp| Timestamp::new(time.seconds, time.nanos).ok();
    let known = record.and_then(|record| record.pr_created_at.as_ref()).and_then(time);
    let pr_created_at = report.pr_created_at.or(known);
    let pr_url = match (report.pr_url.as_str(), record) {
        ("", Some(record)) => record.pr_url.clone(),
        (given, _) => given.to_owned(),
    };
    let kind = match (pr_created_at, report.flow_start_time) {
        (Some(_), _) => AnchorKind::PrCreated,
        (None, Some(_)) => AnchorKind::FlowStart,
        (None, None) => AnchorKind::Finished,
    };
    Anchor { kind, pr_created_at, pr_url }
}

async fn record(mut peers: Peers, job: &Job, event: &Loaded) -> Result<Success, Failure> {
    let report = report(event)?;
    let Detail::Verdict { verdict, .. } = &job.detail else {
        return Err(Failure::ours("internal", "there is no verdict to hand over"));
    };
    let Verdict { phase, finished_at, first_finished_at, received_at, .. } = verdict;
    let request = v1::RecordOutcomeRequest {
        release: Some(release(event, &report.release, report)),
        phase: to_proto_phase(*phase).into(),
        finished_at: Some(to_proto_time(*finished_at)),
        first_finished_at: Some(to_proto_time(*first_finished_at)),
        flow_start_time: report.flow_start_time.map(to_proto_time),
        received_at: Some(to_proto_time(*received_at)),
    };
    let response = peers.dora.record_outcome(request).await?.into_inner();
    Ok(Success { note: response.disposition().as_str_name().to_owned(), anchor: None })
}

async fn emit(
    mut peers: Peers,
    outbox: Arc<dyn Outbox>,
    job: &Job,
    event: &Loaded,
    called: &mut Called,
) -> Result<Success, Failure> {
    let report = report(event)?;
    let anchor = match &job.detail {
        Detail::Anchor(anchor) => anchor.clone(),
        _ => {
            // Tracking has given the event up: the span asks for itself, and freezes the answer before it is sent.
            let phase = to_proto_phase(report.phase);
            let record = observe(&mut peers, event, phase, report.finished_at, event.received_at).await?;
            let anchor = anchor(report, record.as_ref());
            freeze(outbox.as_ref(), job.sequence, &anchor, event.received_at).await?;
            called.detail = Detail::Anchor(anchor.clone());
            anchor
        }
    };
    let request = v1::EmitRequest {
        release: Some(release(event, &report.release, report)),
        phase: to_proto_phase(report.phase).into(),
        finished_at: Some(to_proto_time(report.finished_at)),
        flow_start_time: report.flow_start_time.map(to_proto_time),
        pr_created_at: anchor.pr_created_at.map(to_proto_time),
        pr_url: anchor.pr_url,
        anchor: match anchor.kind {
            AnchorKind::PrCreated => v1::Anchor::PrCreated,
            AnchorKind::FlowStart => v1::Anchor::FlowStart,
            AnchorKind::Finished => v1::Anchor::Finished,
        }
        .into(),
        event_key: event.key.to_string(),
        event_source: event.source.clone(),
        git_url: report.git_url.clone(),
        traceparent: report.traceparent.clone(),
    };
    let response = peers.span.emit(Request::new(request)).await?.into_inner();
    let note = if response.warning.is_empty() { response.trace_id } else { response.warning };
    Ok(Success { note, anchor: None })
}

async fn freeze(
    outbox: &dyn Outbox,
    sequence: Sequence,
    anchor: &Anchor,
    at: Timestamp,
) -> Result<(), Failure> {
    let mut status = crate::outbox::TargetStatus::new(TargetState::Stored, at);
    status.detail = Detail::Anchor(anchor.clone());
    let change = crate::outbox::StatusChange { sequence, target: Target::Span, status, tracked: Vec::new() };
    let kept = outbox.decide(vec![Decision::Status(Box::new(change))], at).await;
    kept.map(drop).map_err(|e| Failure::ours("store", e.to_string()))
}
