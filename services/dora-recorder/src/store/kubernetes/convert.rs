//! A stream's state, and what was imported of an app, as spec and status, and back, exactly.

use std::{fmt, time::Duration};

use transponder_core::{AppName, AppNamespace, ClusterName, EnvName, Maker, Stream};

use super::{
    resource::{self, DoraStream, DoraStreamSpec, DoraStreamStatus, SCHEMA, Samples},
    text::{Line, Problem, count, length, read_count, read_length, read_time, time},
};
use crate::state::{
    Awaited, Counted, Discarded, Histogram, Hold, Imported, Instant, StreamState, Syncs, Totals, Window,
};

/// The object of a state.
pub(super) fn stream_object(state: &StreamState) -> DoraStream {
    let stream = &state.stream;
    let spec = DoraStreamSpec {
        app_namespace: stream.app_namespace.as_str().to_owned(),
        app: stream.app.as_str().to_owned(),
        env: stream.env.as_str().to_owned(),
        cluster: stream.cluster.as_str().to_owned(),
        maker: match state.maker {
            Maker::Platform => resource::Maker::Platform,
            Maker::App => resource::Maker::App,
        },
    };
    let mut object = DoraStream::new(&stream.key().to_string(), spec);
    object.status = Some(status(state));
    object
}

/// The object of what was imported of an app, at that time.
pub(super) fn import_object(import: &Imported, at: Instant) -> DoraStream {
    let spec = DoraStreamSpec {
        app_namespace: import.app_namespace.as_str().to_owned(),
        app: import.app.as_str().to_owned(),
        env: String::new(),
        cluster: String::new(),
        maker: resource::Maker::Import,
    };
    let mut object = DoraStream::new(&import.key().to_string(), spec);
    object.status = Some(DoraStreamStatus {
        schema: SCHEMA,
        first_verdict_at: time(at),
        hold: length(Duration::ZERO),
        totals: totals(&import.totals, import.deployments),
        failing_since: import.failing_since.map(time),
        succeeded_until: None,
        forgotten_until: None,
        claimed_by: import.claimed_by.map(|by| by.to_string()),
        inherited: None,
        awaited: Vec::new(),
        counted_syncs: Vec::new(),
        releases: Vec::new(),
    });
    object
}

/// What changes in the object of a state.
pub(super) fn status(state: &StreamState) -> DoraStreamStatus {
    DoraStreamStatus {
        schema: SCHEMA,
        first_verdict_at: time(state.hold.since),
        hold: length(state.hold.length),
        totals: totals(&state.totals, state.totals.succeeded),
        failing_since: state.failing_since.map(time),
        succeeded_until: state.succeeded_until.map(time),
        forgotten_until: state.window.forgotten_until().map(time),
        claimed_by: None,
        inherited: state.inherited.map(time),
        awaited: state.syncs.awaited.iter().map(awaited).collect(),
        counted_syncs: state.syncs.counted.iter().map(counted).collect(),
        releases: state.window.known().iter().map(|known| Line(*known).to_string()).collect(),
    }
}

fn awaited(awaited: &Awaited) -> resource::AwaitedSync {
    resource::AwaitedSync {
        application_uid: awaited.application.clone(),
        baseline: awaited.baseline.map(time),
        release: awaited.release.to_string(),
        flow_start: awaited.flow_start.map(time),
    }
}

fn counted(counted: &Counted) -> resource::CountedSync {
    let application_uid = counted.application.clone();
    resource::CountedSync { application_uid, started_at: time(counted.started_at) }
}

fn read_syncs(status: &DoraStreamStatus) -> Result<Syncs, Problem> {
    let awaited = status.awaited.iter().map(|awaited| -> Result<_, Problem> {
        Ok(Awaited {
            application: awaited.application_uid.clone(),
            baseline: optional(awaited.baseline.as_ref(), "status.awaited: baseline")?,
            release: awaited.release.parse().map_err(wrong("status.awaited: release"))?,
            flow_start: optional(awaited.flow_start.as_ref(), "status.awaited: flowStart")?,
        })
    });
    let counted = status.counted_syncs.iter().map(|counted| {
        let started_at = read_time(&counted.started_at).map_err(wrong("status.countedSyncs: startedAt"))?;
        Ok(Counted { application: counted.application_uid.clone(), started_at })
    });
    Ok(Syncs {
        awaited: awaited.collect::<Result<_, _>>()?,
        counted: counted.collect::<Result<_, Problem>>()?,
    })
}

fn totals(totals: &Totals, deployments: u64) -> resource::Totals {
    resource::Totals {
        deployments: count(deployments),
        succeeded: count(totals.succeeded),
        failed: count(totals.failed),
        conflicts: count(totals.conflicts),
        late: count(totals.late),
        lead_time: samples(&totals.lead_time, totals.lead_time_discarded),
        restore: samples(&totals.restore, totals.restore_discarded),
    }
}

fn samples<const N: usize>(histogram: &Histogram<[u64; N]>, discarded: Discarded) -> Samples {
    Samples {
        sum: length(histogram.sum),
        buckets: histogram.buckets.map(count).to_vec(),
        above: count(histogram.above),
        negative: count(discarded.negative),
        implausible: count(discarded.implausible),
    }
}

/// The state of a stream.
pub(super) fn state(spec: &DoraStreamSpec, status: &DoraStreamStatus) -> Result<StreamState, Problem> {
    let (app_namespace, app) = app(spec)?;
    let releases = status.releases.iter().map(|line| Line::read(line)).collect::<Result<_, _>>();
    let forgotten = optional(status.forgotten_until.as_ref(), "status.forgottenUntil")?;
    Ok(StreamState {
        stream: Stream {
            app_namespace,
            app,
            env: EnvName::new(&spec.env).map_err(wrong("spec.env"))?,
            cluster: ClusterName::new(&spec.cluster).map_err(wrong("spec.cluster"))?,
        },
        maker: match spec.maker {
            resource::Maker::Platform => Maker::Platform,
            resource::Maker::App => Maker::App,
            resource::Maker::Import => return Err("spec.maker: no stream is imported".to_owned()),
        },
        hold: Hold {
            since: read_time(&status.first_verdict_at).map_err(wrong("status.firstVerdictAt"))?,
            length: read_length(&status.hold).map_err(wrong("status.hold"))?,
        },
        totals: read_totals(&status.totals)?,
        window: Window::new(releases.map_err(wrong("status.releases"))?, forgotten),
        failing_since: optional(status.failing_since.as_ref(), "status.failingSince")?,
        succeeded_until: optional(status.succeeded_until.as_ref(), "status.succeededUntil")?,
        inherited: optional(status.inherited.as_ref(), "status.inherited")?,
        syncs: read_syncs(status)?,
    })
}

/// What was imported of an app.
pub(super) fn imported(spec: &DoraStreamSpec, status: &DoraStreamStatus) -> Result<Imported, Problem> {
    let (app_namespace, app) = app(spec)?;
    let claimed_by = status.claimed_by.as_deref().map(str::parse).transpose();
    Ok(Imported {
        app_namespace,
        app,
        deployments: read_count(status.totals.deployments).map_err(wrong("status.totals.deployments"))?,
        totals: read_totals(&status.totals)?,
        failing_since: optional(status.failing_since.as_ref(), "status.failingSince")?,
        claimed_by: claimed_by.map_err(wrong("status.claimedBy"))?,
    })
}

fn app(spec: &DoraStreamSpec) -> Result<(AppNamespace, AppName), Problem> {
    let app_namespace = AppNamespace::new(&spec.app_namespace).map_err(wrong("spec.appNamespace"))?;
    Ok((app_namespace, AppName::new(&spec.app).map_err(wrong("spec.app"))?))
}

fn read_totals(totals: &resource::Totals) -> Result<Totals, Problem> {
    let total = |count, field| read_count(count).map_err(wrong(field));
    let (lead_time, lead_time_discarded) =
        read_samples(&totals.lead_time).map_err(wrong("status.totals.leadTime"))?;
    let (restore, restore_discarded) =
        read_samples(&totals.restore).map_err(wrong("status.totals.restore"))?;
    Ok(Totals {
        succeeded: total(totals.succeeded, "status.totals.succeeded")?,
        failed: total(totals.failed, "status.totals.failed")?,
        conflicts: total(totals.conflicts, "status.totals.conflicts")?,
        late: total(totals.late, "status.totals.late")?,
        lead_time,
        restore,
        lead_time_discarded,
        restore_discarded,
    })
}

fn optional(text: Option<&String>, field: &'static str) -> Result<Option<Instant>, Problem> {
    text.map(|text| read_time(text)).transpose().map_err(wrong(field))
}

/// Names the field of what is wrong.
fn wrong<E: fmt::Display>(field: &'static str) -> impl Fn(E) -> Problem {
    move |problem| format!("{field}: {problem}")
}

fn read_samples<const N: usize>(samples: &Samples) -> Result<(Histogram<[u64; N]>, Discarded), Problem> {
    let buckets = samples.buckets.iter().map(|count| read_count(*count)).collect::<Result<Vec<_>, _>>()?;
    let found = buckets.len();
    let buckets = buckets.try_into().map_err(|_| format!("{found} buckets where there are {N}"))?;
    let histogram = Histogram { sum: read_length(&samples.sum)?, buckets, above: read_count(samples.above)? };
    let discarded =
        Discarded { negative: read_count(samples.negative)?, implausible: read_count(samples.implausible)? };
    Ok((histogram, discarded))
}
