//! What is undelivered of each cluster, as every edge counts it: by the labels of what is open.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use kube::{Api, ResourceExt as _, core::PartialObjectMeta};
use tokio::sync::mpsc;
use transponder_core::{ClusterName, EventKey};
use transponder_kubernetes::{
    Access,
    watch::{News, Selection, follow},
};
use transponder_runtime::Shutdown;

use super::{
    object::{BYTES, CLUSTER},
    resource::ReleaseOutcome,
};
use crate::{
    budget::{Budget, Budgets},
    delivery::{Delivery, Message},
};

/// What takes room.
const TAKES_ROOM: &str = "status.state!=Delivered,status.state!=Dead";
/// How long an event that went is remembered, in case that its own acceptance is told of only then; and one that was
/// accepted here, in case that nobody tells of it.
const REMEMBERED: Duration = Duration::from_secs(60);

type Object = PartialObjectMeta<ReleaseOutcome>;

/// Counts until shutdown. The hand that is answered takes what this edge accepts, which has taken its room already.
pub(crate) fn count_budgets(
    access: &Access,
    budgets: Budgets,
    shutdown: &Shutdown,
) -> (Delivery, impl Future<Output = ()> + Send + 'static) {
    let (delivery, mut accepted) = Delivery::new();
    let (told, mut news) = mpsc::channel(64);
    let api: Api<Object> = access.api();
    let selection =
        Selection { fields: TAKES_ROOM.to_owned(), ..Selection::all("counting what is undelivered") };
    let following = follow(api, selection, shutdown.clone(), async move |one| {
        let _ = told.send(one).await;
    });
    let shutdown = shutdown.clone();
    let counting = async move {
        let mut count = Count { budgets, open: HashMap::new(), gone: VecDeque::new() };
        let counted = async {
            loop {
                tokio::select! {
                    Some(one) = news.recv() => count.take(one),
                    Some(message) = accepted.recv() => if let Message::Stored { event, budget, .. } = message {
                        count.accepted(event.key, budget, event.body.len() as u64);
                    },
                    else => return,
                }
            }
        };
        tokio::join!(following, shutdown.or(counted));
    };
    (delivery, counting)
}

struct Room {
    budget: Arc<Budget>,
    bytes: u64,
    /// Since when this edge waits to be told of it; `None` once it was.
    unconfirmed: Option<Instant>,
}

struct Count {
    budgets: Budgets,
    open: HashMap<EventKey, Room>,
    gone: VecDeque<(Instant, EventKey)>,
}

impl Count {
    fn accepted(&mut self, key: EventKey, budget: Arc<Budget>, bytes: u64) {
        let now = Instant::now();
        self.remember(now);
        if self.open.contains_key(&key) || self.gone.iter().any(|(_, gone)| *gone == key) {
            // Told of already, and counted then.
            budget.give_back(bytes);
            return;
        }
        self.open.insert(key, Room { budget, bytes, unconfirmed: Some(now) });
    }

    fn take(&mut self, news: News<Object>) {
        match news {
            News::Changed(object) => self.occupied(&object),
            News::Gone(object) => {
                if let Some(key) = key(&object) {
                    self.free(key);
                    let now = Instant::now();
                    self.remember(now);
                    self.gone.push_back((now, key));
                }
            }
            News::All(objects) => {
                let now = Instant::now();
                let told: std::collections::HashSet<_> = objects.iter().filter_map(key).collect();
                let fresh = |room: &Room| {
                    room.unconfirmed.is_some_and(|since| now.duration_since(since) < REMEMBERED)
                };
                let over: Vec<_> = self
                    .open
                    .iter()
                    .filter(|(key, room)| !told.contains(key) && !fresh(room))
                    .map(|(key, _)| *key)
                    .collect();
                over.into_iter().for_each(|key| self.free(key));
                objects.iter().for_each(|object| self.occupied(object));
            }
            News::Lost(_) => {}
        }
    }

    fn occupied(&mut self, object: &Object) {
        let Some(key) = key(object) else { return };
        if let Some(room) = self.open.get_mut(&key) {
            room.unconfirmed = None;
            return;
        }
        let labels = object.labels();
        let cluster = labels.get(CLUSTER).and_then(|cluster| ClusterName::new(cluster).ok());
        // Anybody who may create an object may write anything there.
        let bytes = labels
            .get(BYTES)
            .and_then(|bytes| bytes.parse().ok())
            .map(|bytes: u64| bytes.min(super::write::LARGEST));
        let (Some(cluster), Some(bytes)) = (cluster, bytes) else { return };
        let budget = self.budgets.of(&cluster);
        budget.occupy(bytes);
        self.open.insert(key, Room { budget, bytes, unconfirmed: None });
    }

    /// Forgets what went too long ago for its acceptance to be still on its way here.
    fn remember(&mut self, now: Instant) {
        while self.gone.front().is_some_and(|(when, _)| now.duration_since(*when) >= REMEMBERED) {
            self.gone.pop_front();
        }
    }

    fn free(&mut self, key: EventKey) {
        if let Some(room) = self.open.remove(&key) {
            room.budget.give_back(room.bytes);
        }
    }
}

fn key(object: &Object) -> Option<EventKey> {
    object.metadata.name.as_deref()?.parse().ok()
}
