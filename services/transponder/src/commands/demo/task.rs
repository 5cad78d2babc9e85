//! A Tekton Task: calls the mesh with a ServiceAccount token.

use std::net::SocketAddr;

use anyhow::Context as _;
use tonic::{
    Request,
    metadata::{Ascii, MetadataValue},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};
use transponder_core::Timestamp;
use transponder_proto::{
    convert::to_proto_time,
    v1::{
        PutRequest, Release, ReleaseRecord, ResolveRequest, release_tracking_client::ReleaseTrackingClient,
    },
};

/// The Task's way to ReleaseTracking.
pub(super) struct Task {
    tracking: ReleaseTrackingClient<Channel>,
    bearer: MetadataValue<Ascii>,
}

/// What a Task knows of a pull request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PullRequest<'a> {
    pub(super) url: &'a str,
    pub(super) created_at: Option<Timestamp>,
    pub(super) merged_at: Option<Timestamp>,
}

impl Task {
    /// Connects; `ca` is the mesh's authority as PEM.
    pub(super) async fn connect(tracking: SocketAddr, ca: &str, token: &str) -> anyhow::Result<Self> {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
        let channel = Endpoint::from_shared(format!("https://{tracking}"))?
            .tls_config(tls)?
            .connect()
            .await
            .with_context(|| format!("connecting to release-tracking at {tracking}"))?;
        let bearer = format!("Bearer {token}").parse()?;
        Ok(Self { tracking: ReleaseTrackingClient::new(channel), bearer })
    }

    pub(super) async fn put(
        &self,
        release: &Release,
        pull_request: PullRequest<'_>,
    ) -> anyhow::Result<ReleaseRecord> {
        let request = self.request(PutRequest {
            release: Some(release.clone()),
            pr_url: pull_request.url.to_owned(),
            pr_created_at: pull_request.created_at.map(to_proto_time),
            merged_at: pull_request.merged_at.map(to_proto_time),
            closed_at: None,
        });
        let answer = self.tracking.clone().put(request).await.map_err(said).context("ReleaseTracking.Put")?;
        answer.into_inner().record.context("ReleaseTracking.Put answered without a record")
    }

    pub(super) async fn resolve(&self, release: &Release) -> anyhow::Result<Option<ReleaseRecord>> {
        let request = self.request(ResolveRequest { release: Some(release.clone()), ..Default::default() });
        let answer =
            self.tracking.clone().resolve(request).await.map_err(said).context("ReleaseTracking.Resolve")?;
        Ok(answer.into_inner().record)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", self.bearer.clone());
        request
    }
}

/// The peer's words: what tonic prints beside them is for debugging.
fn said(status: tonic::Status) -> anyhow::Error {
    anyhow::anyhow!("{:?}: {}", status.code(), status.message())
}
