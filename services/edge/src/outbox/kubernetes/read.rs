//! What reads the outbox: everything that is open, and listings.

use std::collections::{HashMap, HashSet};

use kube::api::ListParams;
use transponder_core::{EventKey, ReleaseKey, Target, TargetState};
use transponder_store::StoreError;

use crate::delivery::HELD;

use super::{
    super::{Backlog, Filter, StoredObservation, View},
    Found, KubernetesOutbox, Tenure,
    edit::Edit,
    object::{Outcome, RELEASE},
    write::DELETED,
};

/// What is open, or was given up and may be replayed.
pub(super) const OPEN: &str = "status.state!=Delivered";

/// Objects of one page.
const PAGE: u32 = 500;
/// Releases that one list is asked for.
const RELEASES: usize = 100;

impl KubernetesOutbox {
    /// Everything that is open, as the new holder of the Lease or after a failure: what was in memory is not trusted.
    pub(super) async fn read_backlog(&self) -> Result<Backlog, StoreError> {
        let tenure = self.tenure()?;
        let newest = tenure.picture().newest();
        let (mut open, version) = self.pages(ListParams::default().fields(OPEN).limit(PAGE)).await?;
        open.sort_by_key(|outcome| (outcome.received_at, outcome.key));
        let listed: HashSet<EventKey> = open.iter().map(|outcome| outcome.key).collect();
        open.retain(|outcome| taken(outcome) || outcome.asks_replay().is_some());
        let gone = {
            let mut picture = tenure.picture();
            let listed_at = version.parse().unwrap_or(u64::MAX);
            if listed_at < newest {
                tracing::error!(
                    known = newest,
                    listed = version,
                    "the API server's store was set back to an older state: what was accepted since then is gone"
                );
                picture.doubt();
            }
            picture.replace(&listed, listed_at, &open)
        };
        for key in gone {
            // That its end was written may not have been answered.
            if matches!(self.find(key).await?, Found::Nothing) {
                tracing::error!(%key, "{DELETED}");
            }
        }
        // What was asked for while nobody held the Lease.
        for outcome in open.iter_mut().filter(|outcome| outcome.asks_replay().is_some()) {
            if let Some((replayed, _)) = self.follow_replay(&tenure, outcome).await? {
                *outcome = replayed.slim();
            }
        }
        open.retain(taken);
        let mut all: HashMap<_, _> = self
            .releases_of(&tenure, &open)
            .await?
            .into_iter()
            .map(|outcome| (outcome.key, outcome))
            .collect();
        let keys: Vec<_> = open.iter().map(|outcome| outcome.key).collect();
        all.extend(open.into_iter().map(|outcome| (outcome.key, outcome)));
        let settled = settled(&all);
        self.finish_hand_overs(&tenure, &all, &settled).await?;

        let picture = tenure.picture();
        let mut unsettled = Vec::new();
        let mut waiting: HashSet<ReleaseKey> = HashSet::new();
        for outcome in all.values() {
            let observations = picture.unsettled(outcome, settled.get(&outcome.key).copied().unwrap_or(0));
            if outcome.targets.contains(&Target::Dora) {
                waiting.extend(observations.iter().map(|stored| stored.place.release));
            }
            unsettled.extend(observations);
        }
        unsettled.retain(|stored: &StoredObservation| waiting.contains(&stored.place.release));
        unsettled.sort_by_key(|stored| (stored.observation.received_at, stored.number));
        let events = keys.iter().filter_map(|key| picture.open(all.get(key)?)).collect();
        tenure.listed.send_replace(Some(version));
        Ok(Backlog { events, unsettled })
    }

    /// The other events of releases that wait for a verdict, closed ones as well: a verdict rests on all of a release's.
    /// Not by pages: the API server reads every object of all from etcd for each page, and without them its own cache.
    async fn releases_of(&self, tenure: &Tenure, open: &[Outcome]) -> Result<Vec<Outcome>, StoreError> {
        let waits = |outcome: &&Outcome| tenure.picture().waits_for_verdict(outcome.key);
        let releases: HashSet<_> =
            open.iter().filter(waits).filter_map(|outcome| Some(outcome.place?.release)).collect();
        let releases: Vec<String> = releases.iter().map(ToString::to_string).collect();
        let mut found = Vec::new();
        for some in releases.chunks(RELEASES) {
            let selector = format!("{RELEASE} in ({})", some.join(","));
            found.extend(self.pages(ListParams::default().labels(&selector)).await?.0);
        }
        found.sort_by_key(|outcome| (outcome.received_at, outcome.key));
        let mut picture = tenure.picture();
        found.iter().for_each(|outcome| drop(picture.see(outcome)));
        Ok(found)
    }

    /// An event that a verdict rests on may not know of it: who handed the verdict over has died in between.
    async fn finish_hand_overs(
        &self,
        tenure: &Tenure,
        all: &HashMap<EventKey, Outcome>,
        settled: &HashMap<EventKey, u32>,
    ) -> Result<(), StoreError> {
        for outcome in all.values() {
            let settled = settled.get(&outcome.key).copied().unwrap_or(0);
            if tenure.picture().waits_for_verdict(outcome.key) && settled >= outcome.status.observed {
                self.edit(tenure, outcome.key, Edit::Replace { settled }).await?;
            }
        }
        Ok(())
    }

    /// All objects of a selection without their bytes, and the version of the list. One that cannot be read is named in
    /// the log and left alone.
    async fn pages(&self, mut parameters: ListParams) -> Result<(Vec<Outcome>, String), StoreError> {
        let mut outcomes = Vec::new();
        // Of a backlog that is not large nothing need be read again.
        let mut room = HELD;
        loop {
            let page = self.ask("list outcomes", self.api.list(&parameters)).await?;
            for object in page.items {
                match Outcome::read(object) {
                    Ok(outcome) => match room.checked_sub(outcome.bytes) {
                        Some(left) if taken(&outcome) => {
                            room = left;
                            outcomes.push(outcome);
                        }
                        _ => outcomes.push(outcome.slim()),
                    },
                    Err(problem) => tracing::error!(problem, "an outcome cannot be read, and is left alone"),
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters.continue_token = Some(token),
                None => return Ok((outcomes, page.metadata.resource_version.unwrap_or_default())),
            }
        }
    }

    pub(super) async fn read_list(&self, filter: Filter) -> Result<Vec<View>, StoreError> {
        let mut fields = Vec::new();
        fields.extend(filter.cluster.as_ref().map(|cluster| format!("spec.cluster={cluster}")));
        fields.extend((filter.state == Some(TargetState::Dead)).then(|| "status.state=Dead".to_owned()));
        let (mut outcomes, _) =
            self.pages(ListParams::default().fields(&fields.join(",")).limit(PAGE)).await?;
        if let Some(wanted) = filter.state {
            outcomes.retain(|outcome| outcome.statuses().iter().any(|(_, status)| status.state == wanted));
        }
        outcomes.sort_by_key(|outcome| std::cmp::Reverse((outcome.received_at, outcome.key)));
        outcomes.truncate(filter.limit);
        Ok(outcomes.into_iter().map(Outcome::view).collect())
    }
}

/// Whether there is something to be done for an event that is selected.
pub(super) fn taken(outcome: &Outcome) -> bool {
    outcome.status.ended.is_none()
}

/// Up to which observation each event is settled: by what it says itself, or by a verdict that rests on it.
fn settled(all: &HashMap<EventKey, Outcome>) -> HashMap<EventKey, u32> {
    let mut settled: HashMap<_, _> =
        all.values().map(|outcome| (outcome.key, outcome.status.settled)).collect();
    let rests = all.values().flat_map(|outcome| &outcome.status.targets).flat_map(|one| &one.rests_on);
    for (event, observation) in rests {
        let known = settled.entry(*event).or_default();
        *known = (*known).max(*observation);
    }
    settled
}
