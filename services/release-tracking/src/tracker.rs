//! What the methods do: find, change, list and remove records, and tell the metrics.

use std::sync::Arc;

use transponder_core::{
    AppName, AppNamespace, ClusterName, EnvName, Maker, Phase, Release, ReleaseId, Stream, Timestamp,
};
use transponder_runtime::{Clock, Fault, outage::Outage};

use crate::{
    change::{Change, Unknown, What},
    metrics::Metrics,
    older::OlderRecords,
    record::{Observation, PullRequest, Record},
    store::{self, Changed, Cursor, Filter, Report, Store, Wanted},
};

/// The service's work, behind its door.
#[derive(Clone)]
pub(crate) struct Tracker {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Whoever finds no room tries again every minute, each release by itself.
    pub(crate) no_room: Arc<Outage>,
    /// What older Tasks wrote, where there may be any.
    pub(crate) older: Option<Arc<OlderRecords>>,
}

/// A release as far as a caller names it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) app_namespace: Option<AppNamespace>,
    pub(crate) app: Option<AppName>,
    pub(crate) env: Option<EnvName>,
    pub(crate) cluster: Option<ClusterName>,
    pub(crate) id: Option<ReleaseId>,
    /// Known beside a chain id, too; empty when unknown.
    pub(crate) git_revision: String,
}

impl Named {
    /// The release, when everything that names it is there.
    pub(crate) fn release(&self) -> Option<Release> {
        let stream = Stream {
            app_namespace: self.app_namespace.clone()?,
            app: self.app.clone()?,
            env: self.env.clone()?,
            cluster: self.cluster.clone()?,
        };
        Some(Release { stream, id: self.id.clone()? })
    }

    fn wanted(&self, pr_url: Option<String>) -> Wanted {
        Wanted {
            app_namespace: self.app_namespace.clone(),
            app: self.app.clone(),
            env: self.env.clone(),
            cluster: self.cluster.clone(),
            id: self.id.clone(),
            pr_url,
        }
    }
}

/// What a look-up came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Resolved {
    /// Exactly one record.
    Found(Box<Record>),
    /// Nothing was given that sets a release apart. The names of a stream alone do not: its last record may be that of
    /// another release.
    Blank,
    /// No record.
    Unknown,
    /// Several records.
    Ambiguous,
    /// No record of ours, but what an older Task wrote of the flow's pull request.
    Older(AppNamespace, String, PullRequest),
}

/// What a Task saw of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sight {
    pub(crate) phase: Phase,
    pub(crate) finished_at: Timestamp,
}

impl Tracker {
    /// Merges what a Task tells of a release, which may be named by its pull request alone.
    pub(crate) async fn put(
        &self,
        named: Named,
        pull_request: PullRequest,
        maker: Maker,
    ) -> Result<Record, Fault> {
        let url = pull_request.url.clone();
        let (release, unknown) = match named.release() {
            Some(release) => (release, Unknown::Create(maker)),
            None => (self.by_pull_request(&named, &url).await?, Unknown::Leave),
        };
        let changed = self.change(release, named.git_revision, What::Put(pull_request), unknown).await?;
        // It was there a moment ago, so it has been deleted since.
        let record = changed.record.ok_or_else(|| unknown_pull_request(&url))?;
        self.metrics.heard_of(&record.release.stream.cluster);
        Ok(record)
    }

    async fn by_pull_request(&self, named: &Named, url: &str) -> Result<Release, Fault> {
        let mut found = self.store.find(named.wanted(Some(url.to_owned())), 2).await?.into_iter();
        match (found.next(), found.next()) {
            (Some(record), None) => Ok(record.release),
            (None, _) => Err(unknown_pull_request(url)),
            (Some(_), Some(_)) => Err(Fault::precondition(
                "pr_url names several releases; name app, env and cluster of the one that is meant, too",
            )
            .reason("AMBIGUOUS")),
        }
    }

    /// Notes what the edge received; `None` for a PreSync of an unknown release that nothing can follow.
    pub(crate) async fn observe(
        &self,
        release: Release,
        git_revision: String,
        observation: Observation,
    ) -> Result<Option<Record>, Fault> {
        let unknown = Change::unknown_for(&release.id, observation.phase);
        self.note_report(&release.stream.cluster, observation.received_at);
        let changed = self.change(release, git_revision, What::Observed(observation), unknown).await?;
        match changed.record {
            Some(record) => Ok(Some(self.with_older(record).await?)),
            None => Ok(None),
        }
    }

    /// Takes over what an older Task wrote of the pull request, where nobody has told when it was created. The record has
    /// it from then on.
    async fn with_older(&self, record: Record) -> Result<Record, store::Error> {
        let (Some(older), None, ReleaseId::ChainId(chain_id)) =
            (&self.older, record.pr_created_at, &record.release.id)
        else {
            return Ok(record);
        };
        let Some(told) = older.find(&record.release.stream.app_namespace, chain_id).await? else {
            return Ok(record);
        };
        let release = record.release.clone();
        let changed = self.change(release, String::new(), What::Put(told), Unknown::Leave).await?;
        Ok(changed.record.unwrap_or(record))
    }

    /// What an older Task wrote of a flow of which there is no record.
    async fn older(&self, named: &Named) -> Result<Resolved, store::Error> {
        let (Some(older), Some(app_namespace), Some(ReleaseId::ChainId(chain_id))) =
            (&self.older, &named.app_namespace, &named.id)
        else {
            return Ok(Resolved::Unknown);
        };
        let told = older.find(app_namespace, chain_id).await?;
        Ok(told
            .map_or(Resolved::Unknown, |told| Resolved::Older(app_namespace.clone(), chain_id.clone(), told)))
    }

    /// Notes that a cluster reported something that belongs to no release.
    pub(crate) async fn reported(&self, cluster: &ClusterName, received_at: Timestamp) -> Result<(), Fault> {
        let report = self.note_report(cluster, received_at);
        Ok(self.store.reported(report, self.clock.wall()).await?)
    }

    /// That the cluster reported is true whatever becomes of the report.
    fn note_report(&self, cluster: &ClusterName, received_at: Timestamp) -> Report {
        let now = self.clock.wall();
        let report = Report { cluster: cluster.clone(), at: received_at.min(now) };
        self.metrics.reported(&report, now);
        report
    }

    /// Finds the one record that fits, and notes what the caller saw of it.
    pub(crate) async fn resolve(&self, named: Named, sight: Option<Sight>) -> Result<Resolved, Fault> {
        if named.id.is_none() {
            return Ok(Resolved::Blank);
        }
        let record = match self.look_up(&named).await? {
            Resolved::Found(record) => self.with_older(*record).await?,
            Resolved::Unknown => return Ok(self.older(&named).await?),
            other => return Ok(other),
        };
        let Some(Sight { phase, finished_at }) = sight else {
            return Ok(Resolved::Found(record.into()));
        };
        let observation = Observation { event: None, phase, finished_at, received_at: self.clock.wall() };
        let changed = self
            .change(record.release, named.git_revision, What::Observed(observation), Unknown::Leave)
            .await?;
        Ok(changed.record.map_or(Resolved::Unknown, |record| Resolved::Found(record.into())))
    }

    async fn look_up(&self, named: &Named) -> Result<Resolved, Fault> {
        if let Some(release) = named.release() {
            if let Some(record) = self.store.get(release.key()).await? {
                return Ok(Resolved::Found(record.into()));
            }
            // A complete key means one record; but a revision may also be that of a release that its chain id names.
            if !matches!(release.id, ReleaseId::GitRevision(_)) {
                return Ok(Resolved::Unknown);
            }
        }
        let mut found = self.store.find(named.wanted(None), 2).await?.into_iter();
        Ok(match (found.next(), found.next()) {
            (Some(record), None) => Resolved::Found(record.into()),
            (None, _) => Resolved::Unknown,
            (Some(_), Some(_)) => Resolved::Ambiguous,
        })
    }

    /// One page of records, and where the next one begins.
    pub(crate) async fn list(
        &self,
        filter: Filter,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<(Vec<Record>, Option<Cursor>), Fault> {
        let mut records = self.store.list(filter, after, limit + 1).await?;
        let more = records.len() > limit as usize;
        records.truncate(limit as usize);
        let next = records.last().filter(|_| more).map(Cursor::after);
        Ok((records, next))
    }

    /// Removes a record; answers whether there was one.
    pub(crate) async fn delete(&self, release: &Release) -> Result<bool, Fault> {
        let removed = self.store.delete(release.key()).await?;
        if let Some(state) = removed {
            self.metrics.removed(state);
            let stream = &release.stream;
            tracing::info!(
                app_namespace = %stream.app_namespace,
                app = %stream.app,
                env = %stream.env,
                cluster = %stream.cluster,
                id = %release.id,
                %state,
                "record deleted"
            );
        }
        Ok(removed.is_some())
    }

    pub(crate) async fn change(
        &self,
        release: Release,
        git_revision: String,
        what: What,
        unknown: Unknown,
    ) -> Result<Changed, store::Error> {
        let change = Change { release, git_revision, what, unknown, now: self.clock.wall() };
        let changed = self.store.change(change).await.inspect_err(|error| {
            if let store::Error::Spent(spent) = error {
                self.no_room.failed(spent);
            }
        })?;
        self.metrics.moved(&changed.moves);
        Ok(changed)
    }
}

fn unknown_pull_request(url: &str) -> Fault {
    Fault::not_found(format!("no record carries the pull request {url}")).reason("UNKNOWN_PULL_REQUEST")
}
