//! Forgetting what is old: whole days at a time, in collections.

use jiff::SignedDuration;
use kube::{api::DeleteParams, api::ListParams};
use transponder_core::Timestamp;
use transponder_store::StoreError;

use super::{KubernetesOutbox, edit::day};

/// How far back a new holder of the Lease looks for days that nobody swept.
const BACK: SignedDuration = SignedDuration::from_hours(24 * 60);
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// Days that one sweep looks at, so that a new holder does not ask for all of them at once.
const DAYS: usize = 5;
/// Objects that one request deletes.
const PAGE: u32 = 200;

/// How far the sweep has come.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// The day to look at next.
    next: Option<Timestamp>,
}

impl KubernetesOutbox {
    /// Deletes what may be forgotten by now. An event that is observed again in the very moment may go with its day.
    pub(super) async fn sweep_days(&self, now: Timestamp) -> Result<usize, StoreError> {
        // Only the holder of the Lease sweeps.
        let Ok(tenure) = self.tenure() else { return Ok(0) };
        let mut sweep = tenure.sweep.lock().await;
        let mut next = match sweep.next {
            Some(next) => next,
            None => now.checked_sub(BACK).unwrap_or(Timestamp::UNIX_EPOCH),
        };
        for _ in 0..DAYS {
            if next > now {
                break;
            }
            let selector = format!("status.forgetAfter={}", day(next));
            let parameters = ListParams::default().fields(&selector).limit(PAGE);
            let plain = DeleteParams::default();
            let delete = self.api.delete_collection(&plain, &parameters);
            // That it takes too long, or may not be done, says nothing of whether events can be stored.
            let deleted = self.access.call("forget outcomes", delete).await?;
            let deleted = deleted.left().map_or(0, |list| list.items.len());
            if deleted > 0 {
                tracing::info!(deleted, day = day(next), "outcomes forgotten");
            }
            if deleted >= PAGE as usize {
                sweep.next = Some(next);
                return Ok(deleted);
            }
            next = next.checked_add(DAY).unwrap_or(Timestamp::MAX);
        }
        sweep.next = Some(next);
        Ok(0)
    }
}
