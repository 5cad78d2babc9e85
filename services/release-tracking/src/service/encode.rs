//! Records as proto writes them.

use transponder_core::ReleaseId;
use transponder_proto::{
    convert::{to_proto_phase, to_proto_time},
    v1,
};

use crate::{record::Record, state::State, tracker::Resolved};

pub(super) fn resolved(resolved: Resolved) -> v1::ResolveResponse {
    let absent = |reason: &str| v1::ResolveResponse { found: false, reason: reason.to_owned(), record: None };
    match resolved {
        Resolved::Found(found) => {
            v1::ResolveResponse { found: true, reason: String::new(), record: Some(record(*found)) }
        }
        Resolved::Blank => absent("blank"),
        Resolved::Unknown => absent("unknown"),
        Resolved::Ambiguous => absent("ambiguous"),
        Resolved::Older(app_namespace, chain_id, told) => v1::ResolveResponse {
            found: true,
            reason: String::new(),
            record: Some(v1::ReleaseRecord {
                release: Some(v1::Release {
                    app_namespace: app_namespace.into(),
                    chain_id,
                    ..Default::default()
                }),
                pr_url: told.url,
                pr_created_at: told.created_at.map(to_proto_time),
                ..Default::default()
            }),
        },
    }
}

pub(super) fn record(record: Record) -> v1::ReleaseRecord {
    let state = state(record.state());
    let last = record.last();
    let stream = record.release.stream;
    let (chain_id, event_id) = match record.release.id {
        ReleaseId::ChainId(id) => (id, String::new()),
        ReleaseId::GitRevision(_) => (String::new(), String::new()),
        ReleaseId::EventId(id) => (String::new(), id),
    };
    v1::ReleaseRecord {
        release: Some(v1::Release {
            app_namespace: stream.app_namespace.into(),
            app_name: stream.app.into(),
            env: stream.env.into(),
            cluster: stream.cluster.into(),
            chain_id,
            git_revision: record.git_revision,
            event_id,
        }),
        pr_url: record.pr_url,
        pr_created_at: record.pr_created_at.map(to_proto_time),
        merged_at: record.merged_at.map(to_proto_time),
        state: state.into(),
        last_phase: last.map_or(v1::Phase::Unspecified, |last| to_proto_phase(last.phase)).into(),
        last_finished_at: last.map(|last| to_proto_time(last.finished_at)),
        first_observed_at: record.first_observed_at.map(to_proto_time),
        last_observed_at: record.last_observed_at.map(to_proto_time),
        observations: record.observations,
        created_at: Some(to_proto_time(record.created_at)),
        updated_at: Some(to_proto_time(record.updated_at)),
    }
}

fn state(state: State) -> v1::ReleaseState {
    match state {
        State::Expected => v1::ReleaseState::Expected,
        State::Merged => v1::ReleaseState::Merged,
        State::Progressing => v1::ReleaseState::Progressing,
        State::Succeeded => v1::ReleaseState::Succeeded,
        State::Failed => v1::ReleaseState::Failed,
        State::Unreported => v1::ReleaseState::Unreported,
        State::Superseded => v1::ReleaseState::Superseded,
        State::Closed => v1::ReleaseState::Closed,
    }
}
