//! A ReleaseTracking that knows what it is told, behind the mesh's real door.

use std::sync::{Arc, Mutex};

use tonic::{Request, Response, Status};
use transponder_core::{ServiceName, caller::Method};
use transponder_proto::v1::{
    DeleteRequest, DeleteResponse, ListRequest, ListResponse, ObserveRequest, ObserveResponse, PutRequest,
    PutResponse, ResolveRequest, ResolveResponse,
    release_tracking_server::{ReleaseTracking, ReleaseTrackingServer},
};
use transponder_runtime::{
    Context,
    auth::{TokenFile, authorize},
    grpc::Server,
};

use super::mesh::Mesh;

type Answer = Result<ResolveResponse, Status>;

#[derive(Clone)]
pub struct Tracking {
    pub address: String,
    answer: Arc<Mutex<Answer>>,
    asked: Arc<Mutex<Vec<ResolveRequest>>>,
}

impl Tracking {
    pub async fn start(mesh: &Mesh, context: &Context) -> Self {
        let reviewer = TokenFile::load(&mesh.callers, context).unwrap();
        let identity = mesh.identity(ServiceName::ReleaseTracking);
        let address = "127.0.0.1:0".parse().unwrap();
        let server = Server::bind(address, identity, reviewer, context).await.unwrap();
        let tracking = Self {
            address: server.address().unwrap().to_string(),
            answer: Arc::new(Mutex::new(Ok(ResolveResponse::default()))),
            asked: Arc::default(),
        };
        tokio::spawn(server.serve(ReleaseTrackingServer::new(tracking.clone())));
        tracking
    }

    pub fn answer(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    pub fn asked(&self) -> Vec<ResolveRequest> {
        self.asked.lock().unwrap().clone()
    }
}

#[tonic::async_trait]
impl ReleaseTracking for Tracking {
    async fn resolve(&self, request: Request<ResolveRequest>) -> Result<Response<ResolveResponse>, Status> {
        authorize(&request, Method::Resolve)?;
        self.asked.lock().unwrap().push(request.into_inner());
        self.answer.lock().unwrap().clone().map(Response::new)
    }

    async fn put(&self, _: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        Err(Status::unimplemented("not asked in these tests"))
    }

    async fn observe(&self, _: Request<ObserveRequest>) -> Result<Response<ObserveResponse>, Status> {
        Err(Status::unimplemented("not asked in these tests"))
    }

    async fn list(&self, _: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        Err(Status::unimplemented("not asked in these tests"))
    }

    async fn delete(&self, _: Request<DeleteRequest>) -> Result<Response<DeleteResponse>, Status> {
        Err(Status::unimplemented("not asked in these tests"))
    }
}
