//! What the hooks of the story send, and the names and times in it.

use jiff::SignedDuration;
use transponder_core::{Phase, Stream, Timestamp};
use transponder_hook::event::{self, Built, Fields};
use transponder_proto::v1::Release;

use super::stage::CLUSTER;
use crate::installation::TASK_NAMESPACE;

/// The pull request of the first release was opened so long ago.
pub(super) const PULL_REQUEST_AGE: SignedDuration = SignedDuration::from_hours(74);
/// And each release's flow, which makes the lead time, began so long ago.
pub(super) const FLOW_AGE: SignedDuration = SignedDuration::from_hours(50);

/// One event of the story.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) finished_at: Timestamp,
    pub(super) built: Built,
}

/// The hooks of app `shop` in `prod`. All times are reckoned from when the story began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hooks {
    pub(super) began: Timestamp,
}

impl Hooks {
    /// What a hook reports of a release, finished some milliseconds after the story began. All of one release and one
    /// kind of hook have one Job name, as in the retries of one operation of Argo CD.
    pub(super) fn event(&self, chain_id: &str, phase: Phase, after: i64) -> anyhow::Result<Event> {
        let finished_at = self.began + SignedDuration::from_millis(after);
        let fields = Fields {
            stream: stream("prod")?,
            phase,
            finished_at,
            chain_id: chain_id.to_owned(),
            gitops_revision: "4b1d9e0c".into(),
            git_url: "https://git.example/shop".into(),
            git_revision: format!("{chain_id}-revision"),
            flow_start_time: (self.began - FLOW_AGE).to_string(),
            config_json: "{}".into(),
        };
        let hook = match phase {
            Phase::Syncing => "presync",
            Phase::Succeeded => "postsync",
            Phase::Failed => "syncfail",
        };
        let job = format!("shop-outcome-{chain_id}-{hook}-{}", self.began.as_second());
        let attempt = event::attempt(Some(&job), None, phase, finished_at);
        Ok(Event { finished_at, built: event::build(&fields, &attempt)? })
    }
}

fn stream(env: &str) -> anyhow::Result<Stream> {
    Ok(Stream {
        app_namespace: TASK_NAMESPACE.parse()?,
        app: "shop".parse()?,
        env: env.parse()?,
        cluster: CLUSTER.parse()?,
    })
}

/// The same release as a Task names it.
pub(super) fn release(env: &str, chain_id: &str) -> Release {
    Release {
        app_namespace: TASK_NAMESPACE.into(),
        app_name: "shop".into(),
        env: env.into(),
        cluster: CLUSTER.into(),
        chain_id: chain_id.into(),
        ..Default::default()
    }
}

/// A long time in words.
pub(super) fn age(duration: SignedDuration) -> String {
    let hours = duration.as_hours();
    format!("{} d {} h", hours / 24, hours % 24)
}
