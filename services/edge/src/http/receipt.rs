//! The receipt: how far an event has come. Fixed codes and times; no internal text, no pull-request data.

use serde::{Serialize, Serializer, ser::SerializeMap as _};
use transponder_core::{ClusterName, EventKey, Phase, Report, Target, TargetState, Timestamp};

use crate::outbox::{NewEvent, TargetStatus, View};

/// The receipt of an event.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Receipt<'a> {
    key: EventKey,
    cluster: &'a ClusterName,
    source: &'a str,
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<Phase>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<Timestamp>,
    received_at: Timestamp,
    observations: u32,
    targets: Targets<'a>,
    /// Whether the bytes are those that were stored; of an event that was just posted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) identical: Option<bool>,
}

impl<'a> Receipt<'a> {
    /// Of an event that was stored a moment ago: nothing has been done with it.
    pub(super) fn fresh(event: &'a NewEvent) -> Self {
        let report = event.report.as_ref();
        Self {
            key: event.key,
            cluster: &event.cluster,
            source: &event.source,
            id: &event.id,
            kind: &event.kind,
            phase: report.map(|report| report.phase),
            finished_at: report.map(|report| report.finished_at),
            received_at: event.received_at,
            observations: u32::from(report.is_some()),
            targets: Targets::Fresh(&event.targets, event.received_at),
            identical: Some(true),
        }
    }

    /// Of an event as the outbox has it.
    pub(super) fn of(view: &'a View) -> Self {
        let report: Option<&Report> = view.report.as_ref();
        Self {
            key: view.key,
            cluster: &view.cluster,
            source: &view.source,
            id: &view.id,
            kind: &view.kind,
            phase: report.map(|report| report.phase),
            finished_at: report.map(|report| report.finished_at),
            received_at: view.received_at,
            observations: view.observations,
            targets: Targets::Stored(&view.targets),
            identical: None,
        }
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        // Text, numbers and times always can be written.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

enum Targets<'a> {
    /// All as they begin.
    Fresh(&'a [Target], Timestamp),
    Stored(&'a [(Target, TargetStatus)]),
}

impl Serialize for Targets<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::Fresh(targets, since) => {
                for target in *targets {
                    map.serialize_entry(target, &State::new(target.begins(), *since))?;
                }
            }
            Self::Stored(targets) => {
                for (target, status) in *targets {
                    map.serialize_entry(target, &State::of(status))?;
                }
            }
        }
        map.end()
    }
}

/// How far it is with one target.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct State<'a> {
    state: TargetState,
    since: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_try_at: Option<Timestamp>,
}

impl<'a> State<'a> {
    fn new(state: TargetState, since: Timestamp) -> Self {
        Self { state, since, attempts: None, code: None, next_try_at: None }
    }

    fn of(status: &'a TargetStatus) -> Self {
        let failing = matches!(status.state, TargetState::Retrying | TargetState::Dead);
        Self {
            attempts: Some(status.attempts).filter(|attempts| *attempts > 0),
            code: failing.then_some(status.code.as_str()),
            next_try_at: status.next_at.filter(|_| status.state == TargetState::Retrying),
            ..Self::new(status.state, status.updated_at)
        }
    }
}
