//! How far an event is with one target, as a condition of its object and back.

use transponder_core::{EventKey, Phase, Report, Target, TargetState, settle::Verdict};

use super::{
    super::{Anchor, AnchorKind, Detail, TargetStatus},
    object::{time, word},
    resource::{Condition, HandedAnchor, HandedVerdict, Rest},
};

/// How far an event is with one target.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Standing {
    pub target: Target,
    pub status: TargetStatus,
    /// The other events that its verdict rests on, each with the last observation of it.
    pub rests_on: Vec<(EventKey, u32)>,
}

pub(super) fn read(condition: Condition, report: Option<&Report>, key: EventKey) -> Result<Standing, String> {
    let target = word(&condition.target, Target::parse)?;
    let state = word(&condition.reason.to_ascii_lowercase(), TargetState::parse)?;
    let mut rests_on = Vec::new();
    let detail = match (condition.broker_event_id, condition.verdict, condition.anchor, report) {
        (Some(id), ..) => Detail::BrokerEventId(id),
        (_, Some(handed), _, Some(report)) => {
            for rest in &handed.rests_on {
                let event = rest.event.parse().map_err(|_| format!("'{}' is no event key", rest.event))?;
                rests_on.push((event, rest.observation));
            }
            Detail::Verdict { order: handed.order, verdict: verdict(&handed, report.phase, key)? }
        }
        (_, _, Some(anchor), _) => Detail::Anchor(read_anchor(anchor)?),
        _ => Detail::None,
    };
    let status = TargetStatus {
        state,
        attempts: condition.attempts,
        updated_at: time(&condition.last_transition_time)?,
        next_at: condition.next_try_at.as_deref().map(time).transpose()?,
        first_failed_at: condition.first_failed_at.as_deref().map(time).transpose()?,
        code: condition.code,
        error: condition.message,
        detail,
    };
    Ok(Standing { target, status, rests_on })
}

fn verdict(handed: &HandedVerdict, phase: Phase, event: EventKey) -> Result<Verdict, String> {
    Ok(Verdict {
        event,
        phase,
        finished_at: time(&handed.finished_at)?,
        first_finished_at: time(&handed.first_finished_at)?,
        received_at: time(&handed.received_at)?,
    })
}

fn read_anchor(anchor: HandedAnchor) -> Result<Anchor, String> {
    let kind = [AnchorKind::PrCreated, AnchorKind::FlowStart, AnchorKind::Finished]
        .into_iter()
        .find(|kind| word_of(*kind) == anchor.kind)
        .ok_or_else(|| format!("'{}' is not known", anchor.kind))?;
    let pr_created_at = anchor.pr_created_at.as_deref().map(time).transpose()?;
    Ok(Anchor { kind, pr_created_at, pr_url: anchor.pr_url })
}

fn word_of(kind: AnchorKind) -> &'static str {
    match kind {
        AnchorKind::PrCreated => "PrCreated",
        AnchorKind::FlowStart => "FlowStart",
        AnchorKind::Finished => "Finished",
    }
}

pub(super) fn written(Standing { target, status, rests_on }: &Standing) -> Condition {
    let word = match status.state {
        TargetState::Stored => "Stored",
        TargetState::Waiting => "Waiting",
        TargetState::Retrying => "Retrying",
        TargetState::Delivered => "Delivered",
        TargetState::Replaced => "Replaced",
        TargetState::Dead => "Dead",
    };
    let truth = match status.state {
        state if state.is_final() => "True",
        TargetState::Dead => "False",
        _ => "Unknown",
    };
    let (mut broker_event_id, mut verdict, mut anchor) = (None, None, None);
    match &status.detail {
        Detail::None => {}
        Detail::BrokerEventId(id) => broker_event_id = Some(id.chars().take(1024).collect()),
        Detail::Verdict { order, verdict: handed } => {
            let rest = |(event, observation): &(EventKey, u32)| Rest {
                event: event.to_string(),
                observation: *observation,
            };
            verdict = Some(HandedVerdict {
                order: *order,
                finished_at: handed.finished_at.to_string(),
                first_finished_at: handed.first_finished_at.to_string(),
                received_at: handed.received_at.to_string(),
                rests_on: rests_on.iter().map(rest).collect(),
            });
        }
        Detail::Anchor(frozen) => {
            anchor = Some(HandedAnchor {
                kind: word_of(frozen.kind).to_owned(),
                pr_created_at: frozen.pr_created_at.map(|at| at.to_string()),
                pr_url: frozen.pr_url.clone(),
            });
        }
    }
    Condition {
        target: target.to_string(),
        status: truth.to_owned(),
        reason: word.to_owned(),
        message: status.error.clone(),
        last_transition_time: status.updated_at.to_string(),
        code: status.code.clone(),
        attempts: status.attempts,
        next_try_at: status.next_at.map(|at| at.to_string()),
        first_failed_at: status.first_failed_at.map(|at| at.to_string()),
        broker_event_id,
        verdict,
        anchor,
    }
}
