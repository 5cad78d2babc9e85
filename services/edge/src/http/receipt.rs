//! The receipt: how far an event has come. Fixed codes and times; no internal text, no pull-request data.

use serde_json::{Map, Value, json};
use transponder_core::TargetState;

use crate::outbox::{TargetStatus, View};

/// The receipt of an event.
pub(super) fn receipt(view: &View, identical: Option<bool>) -> Value {
    let targets: Map<String, Value> =
        view.targets.iter().map(|(name, status)| (name.to_string(), target(status))).collect();
    let mut receipt = json!({
        "key": view.key,
        "cluster": view.cluster,
        "id": view.id,
        "source": view.source,
        "type": view.kind,
        "receivedAt": view.received_at,
        "observations": view.observations,
        "targets": targets,
    });
    if let Some(report) = &view.report {
        receipt["phase"] = json!(report.phase);
        receipt["finishedAt"] = json!(report.finished_at);
    }
    if let Some(identical) = identical {
        receipt["identical"] = json!(identical);
    }
    receipt
}

fn target(status: &TargetStatus) -> Value {
    let mut target = json!({ "state": status.state, "since": status.updated_at });
    if status.attempts > 0 {
        target["attempts"] = json!(status.attempts);
    }
    if matches!(status.state, TargetState::Retrying | TargetState::Dead) {
        target["code"] = json!(status.code);
    }
    if let (TargetState::Retrying, Some(next)) = (status.state, status.next_at) {
        target["nextTryAt"] = json!(next);
    }
    target
}
