//! Streams as custom resources `DoraStream`: an object per stream, named by its key, guarded by its resourceVersion.
//!
//! A change is one request: a creation, or a patch of our own fields that carries the version that was read. What others
//! put on the object, a label or a field of a newer version, stays.

mod convert;
mod object;
mod resource;
mod text;

use std::{sync::Arc, time::Duration};

use kube::{
    Api, Resource as _,
    api::{ListParams, ObjectMeta, Patch, PostParams},
};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use transponder_core::{Maker, Stream, StreamKey, Timestamp};
use transponder_kubernetes::{
    Access, ApiError, Kind, Reach, change, creation, definition,
    watch::{News, Selection, follow},
};
use transponder_runtime::{Shutdown, crash};
use transponder_store::{Health, StoreError};

use self::{object::Object, resource::DoraStream};
use super::{Answer, Everything, Imports, Item, Saved, Stored, StoredImport, StreamStore, Update};
use crate::state::{Hold, Imported, Instant, StreamState};

pub use resource::crd;

/// Objects in one answer to a list: a full one has some 20 KiB.
const PAGE: u32 = 100;

/// Fields of the status that may be absent: in a patch, what is not mentioned stays.
const OPTIONAL: [&str; 6] =
    ["failingSince", "succeededUntil", "forgottenUntil", "inherited", "awaited", "countedSyncs"];

/// The store on the Kubernetes API. Clones share its connections and its health.
#[derive(Clone)]
pub struct KubernetesStore {
    access: Access,
    objects: Api<Object>,
    creations: Api<DoraStream>,
    reach: Reach,
}

/// What a follower is told. What of it cannot be read is in the log.
#[derive(Debug)]
pub(crate) enum Heard {
    /// All that there is now.
    All(Everything),
    /// One is new or has changed.
    Changed(Item),
    /// The object of one was deleted; this is how it was.
    Gone(Item),
    /// Nothing is heard for now.
    Lost(StoreError),
}

impl KubernetesStore {
    /// The streams in the namespace of `access`. Nothing is asked of the API server yet.
    #[must_use]
    pub fn new(access: &Access) -> Self {
        Self { access: access.clone(), objects: access.api(), creations: access.api(), reach: Reach::new() }
    }

    /// Tries the API server whenever something failed, until shutdown.
    pub(crate) async fn watch_over(&self, shutdown: Shutdown) {
        self.reach.clone().watch_over(shutdown, || self.try_it()).await;
    }

    /// Follows all streams until shutdown, and tells what is heard.
    pub(crate) async fn follow(&self, shutdown: Shutdown, told: mpsc::Sender<Heard>) {
        let selection = Selection::all("watching DoraStreams");
        follow(self.objects.clone(), selection, shutdown, async move |news| {
            let heard = match news {
                News::All(objects) => Some(Heard::All(objects.iter().filter_map(readable).collect())),
                News::Changed(object) => readable(&object).map(Heard::Changed),
                News::Gone(object) => readable(&object).map(Heard::Gone),
                News::Lost(error) => Some(Heard::Lost(error.into())),
            };
            if let Some(heard) = heard {
                let _ = told.send(heard).await;
            }
        })
        .await;
    }

    /// Asks the API server to check a creation in every respect and not to carry it out.
    async fn try_it(&self) -> Result<(), ApiError> {
        let parameters = PostParams { dry_run: true, ..creation() };
        let probe = probe()?;
        let create = self.creations.create(&parameters, &probe);
        match self.access.call("create DoraStreams (dorastreams.transponder.dev)", create).await {
            Ok(_) => {}
            Err(error) if error.kind == Kind::Exists => {}
            Err(error) => return Err(error),
        }
        definition::check(&self.access, &crd()).await
    }

    async fn list(&self) -> Result<Everything, ApiError> {
        let (mut everything, mut next) = (Everything::default(), None::<String>);
        loop {
            // Without a resourceVersion: as it is now, and no older.
            let mut parameters = ListParams::default().limit(PAGE);
            parameters.continue_token = next;
            let list = self.objects.list(&parameters);
            let page = self.access.call("list DoraStreams (dorastreams.transponder.dev)", list).await?;
            everything.extend(page.items.iter().filter_map(readable));
            next = page.metadata.continue_.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(everything);
            }
        }
    }

    async fn read(&self, key: StreamKey) -> Result<Option<Item>, ApiError> {
        let name = key.to_string();
        let get = self.objects.get_opt(&name);
        let got = self.access.call("read a DoraStream (dorastreams.transponder.dev)", get).await;
        self.reach.note(&got);
        let unreadable =
            |problem: String| ApiError::unreadable("read a stream", &format!("DoraStream {name}"), &problem);
        got?.map(|object| object.item().map_err(unreadable)).transpose()
    }

    async fn create(&self, object: &DoraStream) -> Result<Saved, ApiError> {
        let action = "create a DoraStream (dorastreams.transponder.dev)";
        match self.access.call(action, self.creations.create(&creation(), object)).await {
            Ok(object) => version_of(action, &object.metadata),
            Err(error) if error.kind == Kind::Exists => Ok(Saved::Stale),
            Err(error) => {
                let failed = Err(error.clone());
                self.reach.note(&failed);
                // There is no such namespace.
                if error.kind == Kind::NotFound {
                    self.reach.failed(error.into());
                }
                failed
            }
        }
    }

    async fn patch(&self, key: StreamKey, read: u64, status: &Value) -> Result<Saved, ApiError> {
        let action = "patch a DoraStream (dorastreams.transponder.dev)";
        let patch =
            Patch::Merge(json!({ "metadata": { "resourceVersion": read.to_string() }, "status": status }));
        let name = key.to_string();
        let patched = self.access.call(action, self.objects.patch(&name, &change(), &patch)).await;
        self.reach.note(&patched);
        match patched {
            Ok(object) => version_of(action, object.meta()),
            // Not there any more is a change, too.
            Err(error) if matches!(error.kind, Kind::Conflict | Kind::NotFound) => Ok(Saved::Stale),
            Err(error) => Err(error),
        }
    }
}

impl StreamStore for KubernetesStore {
    fn load(&self) -> Answer<'_, Everything> {
        Box::pin(async {
            let listed = self.list().await;
            self.reach.note(&listed);
            Ok(listed?)
        })
    }

    fn find<'a>(&'a self, stream: &'a Stream) -> Answer<'a, Option<Stored>> {
        Box::pin(async {
            match self.read(stream.key()).await? {
                Some(Item::Stream(stored)) => Ok(Some(stored)),
                Some(Item::Import(_)) => {
                    let problem = "it is no stream but was imported";
                    Err(ApiError::unreadable("read a stream", &stream.source(), problem).into())
                }
                None => Ok(None),
            }
        })
    }

    fn save(&self, update: Update) -> Answer<'_, Saved> {
        Box::pin(async move {
            crash::point("dora.commit.before");
            let state = &update.next;
            let saved = match update.read {
                None => self.create(&convert::stream_object(state)).await,
                Some(version) => self.patch(state.stream.key(), version, &fields(state)?).await,
            };
            crash::point("dora.commit.after");
            Ok(saved?)
        })
    }

    /// Nothing to do: here a hold ends by being written as over, and what was shown stays shown.
    fn shorten_holds(&self, _longest: Duration) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn probe(&self) -> Answer<'_, ()> {
        Box::pin(async { Ok(self.try_it().await?) })
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.reach.health()
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

impl Imports for KubernetesStore {
    fn import<'a>(&'a self, import: &'a Imported) -> Answer<'a, ()> {
        Box::pin(async {
            let object = convert::import_object(import, Timestamp::now().into());
            crash::point("dora.import.before");
            self.create(&object).await?;
            crash::point("dora.import.after");
            Ok(())
        })
    }

    fn claim<'a>(&'a self, import: &'a StoredImport, by: StreamKey) -> Answer<'a, Option<StoredImport>> {
        Box::pin(async move {
            let key = import.import.key();
            let claimed = self.patch(key, import.version, &json!({ "claimedBy": by })).await?;
            crash::point("dora.claim.after");
            Ok(match claimed {
                Saved::As(version) => {
                    let import = Imported { claimed_by: Some(by), ..Imported::clone(&import.import) };
                    Some(StoredImport { version, import: Arc::new(import) })
                }
                Saved::Stale => match self.read(key).await? {
                    Some(Item::Import(stored)) => Some(stored),
                    _ => None,
                },
            })
        })
    }
}

/// All of our own fields as they will be.
fn fields(state: &StreamState) -> Result<Value, ApiError> {
    let mut status = serde_json::to_value(convert::status(state))
        .map_err(|e| ApiError::unreadable("write a stream", "its state", &e.to_string()))?;
    if let Value::Object(fields) = &mut status {
        for field in OPTIONAL {
            fields.entry(field).or_insert(Value::Null);
        }
    }
    Ok(status)
}

/// The version of what was written.
fn version_of(action: &'static str, metadata: &ObjectMeta) -> Result<Saved, ApiError> {
    let version = object::version(metadata);
    version.map(Saved::As).map_err(|problem| ApiError::unreadable(action, "what was written", &problem))
}

/// A stream that nobody has, to be checked and not to be written.
fn probe() -> Result<DoraStream, ApiError> {
    let unusable = |problem: String| ApiError::unreadable("try the API server", "the probe", &problem);
    let name = |error: transponder_core::NameError| unusable(error.to_string());
    let stream = Stream {
        app_namespace: "probe".parse().map_err(name)?,
        app: "probe".parse().map_err(name)?,
        env: "probe".parse().map_err(name)?,
        cluster: "probe".parse().map_err(name)?,
    };
    let since = Instant::from_nanos(1).ok_or_else(|| unusable("no instant".to_owned()))?;
    Ok(convert::stream_object(&StreamState::new(
        stream,
        Maker::Platform,
        Hold { since, length: Duration::ZERO },
    )))
}

/// What an object is, if it can be read. If not, it is a matter of that stream alone.
fn readable(object: &Object) -> Option<Item> {
    match object.item() {
        Ok(item) => Some(item),
        Err(problem) => {
            let name = object.name();
            tracing::error!(
                name,
                problem,
                "this DoraStream cannot be read: verdicts of its stream are refused until it is mended or deleted"
            );
            None
        }
    }
}
