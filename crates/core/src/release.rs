//! Streams and releases.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{AppName, AppNamespace, ClusterName, EnvName, ReleaseKey, StreamKey};

/// That in which releases follow one another: one app in one environment of one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stream {
    /// CI namespace of the app on dev.
    pub app_namespace: AppNamespace,
    /// The app.
    pub app: AppName,
    /// The environment.
    pub env: EnvName,
    /// The upper cluster.
    pub cluster: ClusterName,
}

impl Stream {
    fn fields(&self) -> [&str; 4] {
        [self.app_namespace.as_str(), self.app.as_str(), self.env.as_str(), self.cluster.as_str()]
    }

    /// The stream's key.
    #[must_use]
    pub fn key(&self) -> StreamKey {
        StreamKey::of(&self.fields())
    }

    /// `context.source` in the form the hook writes.
    #[must_use]
    pub fn source(&self) -> String {
        format!("/platform-cicd/{}/{}-{}-{}-outcome", self.app_namespace, self.cluster, self.app, self.env)
    }
}

/// What sets a release apart in its stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseId {
    /// The flow's correlator.
    ChainId(String),
    /// The revision of the app's own repository.
    GitRevision(String),
    /// The event itself, where nothing else is known: such releases never collapse into one.
    EventId(String),
}

impl fmt::Display for ReleaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::ChainId(id) | Self::GitRevision(id) | Self::EventId(id)) = self;
        f.write_str(id)
    }
}

impl ReleaseId {
    /// The first that is not empty of chain id, revision and event id; `None` when all are empty.
    #[must_use]
    pub fn of(chain_id: &str, git_revision: &str, event_id: &str) -> Option<Self> {
        if !chain_id.is_empty() {
            Some(Self::ChainId(chain_id.to_owned()))
        } else if !git_revision.is_empty() {
            Some(Self::GitRevision(git_revision.to_owned()))
        } else if !event_id.is_empty() {
            Some(Self::EventId(event_id.to_owned()))
        } else {
            None
        }
    }

    fn fields(&self) -> [&str; 2] {
        match self {
            Self::ChainId(text) => ["chain", text],
            Self::GitRevision(text) => ["revision", text],
            Self::EventId(text) => ["event", text],
        }
    }
}

/// What DORA counts: a stream and what sets the release apart in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Release {
    /// The stream.
    pub stream: Stream,
    /// What sets it apart.
    pub id: ReleaseId,
}

impl Release {
    /// The release's key.
    #[must_use]
    pub fn key(&self) -> ReleaseKey {
        let [a, b, c, d] = self.stream.fields();
        let [kind, id] = self.id.fields();
        ReleaseKey::of(&[a, b, c, d, kind, id])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Stream {
        Stream {
            app_namespace: AppNamespace::new("app-shop-cicd").unwrap(),
            app: AppName::new("shop").unwrap(),
            env: EnvName::new("prod").unwrap(),
            cluster: ClusterName::new("kind-prod").unwrap(),
        }
    }

    #[test]
    fn the_vectors_of_stream_and_release_never_change() {
        assert_eq!(stream().key().to_string(), "e5359a6ca91889704182760cd0890b3ff13e7d24");
        let release = Release { stream: stream(), id: ReleaseId::of("c-1", "abc", "e").unwrap() };
        assert_eq!(release.key().to_string(), "8535148534dc5ed17916f04058ad2638afc3a7a5");
    }

    #[test]
    fn a_chain_id_and_a_revision_of_the_same_text_are_two_releases() {
        let of = |id| Release { stream: stream(), id }.key();
        assert_ne!(of(ReleaseId::ChainId("x".into())), of(ReleaseId::GitRevision("x".into())));
        assert_ne!(of(ReleaseId::GitRevision("x".into())), of(ReleaseId::EventId("x".into())));
    }

    #[test]
    fn the_source_is_the_one_the_hook_writes() {
        assert_eq!(stream().source(), "/platform-cicd/app-shop-cicd/kind-prod-shop-prod-outcome");
    }
}
