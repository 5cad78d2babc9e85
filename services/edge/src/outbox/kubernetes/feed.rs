//! What the holder of the Lease is told of what others write: new events, new observations, replays.

use std::sync::Arc;

use transponder_kubernetes::{changes, watch::News};
use transponder_runtime::Shutdown;

use super::{KubernetesOutbox, Tenure, object::Outcome, picture::Seen, read, resource::ReleaseOutcome};
use crate::delivery::{Delivery, Message};

/// Tells the engine of every change, from the list that it read on, until its term ends.
pub(crate) async fn feed(outbox: Arc<KubernetesOutbox>, delivery: Delivery, shutdown: Shutdown) {
    let Ok(tenure) = outbox.tenure() else { return };
    let mut listed = tenure.listed.subscribe();
    loop {
        let version = match shutdown.or(listed.wait_for(Option::is_some)).await {
            Some(Ok(version)) => version.clone().unwrap_or_default(),
            _ => return,
        };
        let told = |news: News<ReleaseOutcome>| tell(&outbox, &tenure, &delivery, news);
        let what = "watching the outcomes";
        let ended = changes(&outbox.api, what, read::OPEN, version, &shutdown, told).await;
        let Some(error) = ended else { return };
        // A gap: what there is now is read anew, as after any other failure.
        tracing::info!(%error, "changes were missed: the outcomes are listed anew");
        // Lists were read meanwhile, which are as old as what was missed.
        tenure.listed.send_replace(None);
        outbox.reach.failed(error.into());
        outbox.reach.works();
    }
}

fn tell(
    outbox: &Arc<KubernetesOutbox>,
    tenure: &Arc<Tenure>,
    delivery: &Delivery,
    news: News<ReleaseOutcome>,
) {
    let object = match news {
        News::Changed(object) => object,
        News::Gone(object) => return gone(tenure, object),
        News::All(_) | News::Lost(_) => return,
    };
    let outcome = match Outcome::read(object) {
        Ok(outcome) => outcome,
        Err(problem) => {
            tracing::error!(problem, "an outcome cannot be read, and is left alone");
            return;
        }
    };
    if !read::taken(&outcome) && outcome.asks_replay().is_none() {
        return;
    }
    let seen = tenure.picture().see(&outcome);
    match seen {
        Seen::Old => {}
        Seen::Observed(observations) => {
            for observation in observations {
                delivery.send(Message::Observed { sequence: observation.sequence, observation });
            }
        }
        Seen::New if !read::taken(&outcome) => {}
        Seen::New => {
            let picture = tenure.picture();
            let unsettled = picture.unsettled(&outcome, outcome.status.settled);
            if let Some(open) = picture.open(&outcome) {
                delivery.send(Message::Found { open: Box::new(open), unsettled });
            }
        }
    }
    if outcome.asks_replay().is_some() {
        tokio::spawn(replay(outbox.clone(), tenure.clone(), delivery.clone(), outcome));
    }
}

async fn replay(outbox: Arc<KubernetesOutbox>, tenure: Arc<Tenure>, delivery: Delivery, outcome: Outcome) {
    match outbox.follow_replay(&tenure, &outcome).await {
        Ok(Some((replayed, targets))) => {
            let open = tenure.picture().open(&replayed);
            if let Some(open) = open {
                delivery.send(Message::Replayed(Box::new(open), targets));
            }
        }
        Ok(None) => {}
        Err(error) => tracing::error!(%error, key = %outcome.key, "an outcome is not replayed: ask again"),
    }
}

/// An event that is selected no more: delivered by ourselves, as a rule.
fn gone(tenure: &Tenure, object: ReleaseOutcome) {
    let Some(key) = object.metadata.name.as_deref().and_then(|name| name.parse().ok()) else { return };
    let version = object.metadata.resource_version.and_then(|version| version.parse().ok()).unwrap_or(0);
    tenure.picture().left(key, version);
}
