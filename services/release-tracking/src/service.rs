//! The gRPC methods: decode, call, encode.

mod decode;
mod encode;

use tonic::{Request, Response, Status};
use transponder_core::{Maker, caller::Method};
use transponder_proto::v1;
use transponder_runtime::auth;

use crate::{page, tracker::Tracker};

/// The gRPC service.
pub(crate) struct Service {
    tracker: Tracker,
}

impl Service {
    pub(crate) fn new(tracker: Tracker) -> Self {
        Self { tracker }
    }
}

#[tonic::async_trait]
impl v1::release_tracking_server::ReleaseTracking for Service {
    async fn put(&self, request: Request<v1::PutRequest>) -> Result<Response<v1::PutResponse>, Status> {
        let caller = auth::authorize(&request, Method::Put)?;
        let (named, pull_request) = decode::put(request.into_inner(), &caller)?;
        let record = self.tracker.put(named, pull_request, Maker::of(&caller)).await?;
        Ok(Response::new(v1::PutResponse { record: Some(encode::record(record)) }))
    }

    async fn observe(
        &self,
        request: Request<v1::ObserveRequest>,
    ) -> Result<Response<v1::ObserveResponse>, Status> {
        auth::authorize(&request, Method::Observe)?;
        let decode::Observe { stream, id, git_revision, observation } =
            decode::observe(request.into_inner())?;
        let record = match id {
            Some(id) => {
                let release = transponder_core::Release { stream, id };
                self.tracker.observe(release, git_revision, observation).await?
            }
            None => {
                self.tracker.reported(&stream.cluster, observation.received_at).await?;
                None
            }
        };
        Ok(Response::new(v1::ObserveResponse { found: record.is_some(), record: record.map(encode::record) }))
    }

    async fn resolve(
        &self,
        request: Request<v1::ResolveRequest>,
    ) -> Result<Response<v1::ResolveResponse>, Status> {
        let caller = auth::authorize(&request, Method::Resolve)?;
        let resolved = match decode::resolve(request.into_inner(), &caller)? {
            Some((named, sight)) => self.tracker.resolve(named, sight).await?,
            None => crate::tracker::Resolved::Unknown,
        };
        Ok(Response::new(encode::resolved(resolved)))
    }

    async fn list(&self, request: Request<v1::ListRequest>) -> Result<Response<v1::ListResponse>, Status> {
        let caller = auth::authorize(&request, Method::List)?;
        let decode::List { filter, after, limit } = decode::list(&request.into_inner(), &caller)?;
        let (records, next) = self.tracker.list(filter.clone(), after, limit).await?;
        Ok(Response::new(v1::ListResponse {
            records: records.into_iter().map(encode::record).collect(),
            next_page_token: next.map(|cursor| page::encode(&cursor, &filter)).unwrap_or_default(),
        }))
    }

    async fn delete(
        &self,
        request: Request<v1::DeleteRequest>,
    ) -> Result<Response<v1::DeleteResponse>, Status> {
        let caller = auth::authorize(&request, Method::Delete)?;
        let release = decode::delete(&request.into_inner(), &caller)?;
        let found = self.tracker.delete(&release).await?;
        Ok(Response::new(v1::DeleteResponse { found }))
    }
}
