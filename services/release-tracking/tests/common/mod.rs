//! ReleaseTracking and its callers, all real and on loopback.
#![allow(unreachable_pub, missing_docs)]

pub mod clock;
pub mod mesh;
#[path = "../../../dora-recorder/tests/common/warnings.rs"]
pub mod warnings;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use clock::FakeClock;
use mesh::{Mesh, token};
use prost_types::Timestamp as ProtoTime;
use tokio::task::JoinHandle;
use tonic::{Status, metadata::MetadataValue, service::interceptor::InterceptedService, transport::Channel};
use tonic_types::StatusExt as _;
use transponder_core::{EventKey, ServiceName};
use transponder_proto::v1::{self, release_tracking_client::ReleaseTrackingClient};
use transponder_release_tracking::{App, Config, Error};
use transponder_runtime::{Context, auth::TokenFile, grpc::MeshChannel};

pub const SHOP: &str = "app-shop-cicd/pipeline-runner";
pub const BLOG: &str = "app-blog-cicd/pipeline-runner";
pub const PLATFORM: &str = "platform-system/outcome";

pub type Peer = ReleaseTrackingClient<MeshChannel>;
pub type Task = ReleaseTrackingClient<InterceptedService<Channel, Bearer>>;

/// Puts a token on each call.
#[derive(Clone)]
pub struct Bearer(String);

impl tonic::service::Interceptor for Bearer {
    fn call(&mut self, mut request: tonic::Request<()>) -> Result<tonic::Request<()>, Status> {
        let value: MetadataValue<_> = format!("Bearer {}", self.0).parse().unwrap();
        request.metadata_mut().insert("authorization", value);
        Ok(request)
    }
}

/// A service that runs.
pub struct Running {
    pub mesh: Arc<Mesh>,
    pub clock: Arc<FakeClock>,
    pub context: Context,
    pub address: SocketAddr,
    config: Config,
    running: JoinHandle<Result<(), Error>>,
}

impl Running {
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mesh = Mesh::new(&[SHOP, BLOG, PLATFORM]);
        let mut config = Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            data_directory: mesh.data_directory(),
            sweep_interval: Duration::from_millis(10),
            ..Config::default()
        };
        change(&mut config);
        Self::run(Arc::new(mesh), config, Arc::new(FakeClock::new())).await
    }

    async fn run(mesh: Arc<Mesh>, config: Config, clock: Arc<FakeClock>) -> Self {
        let context = Context { clock: clock.clone(), ..Context::new() };
        let reviewer = TokenFile::load(&mesh.callers, &context).unwrap();
        let app = App::build(config.clone(), &mesh.config, reviewer, None, &context).await.unwrap();
        let address = app.address();
        let running = tokio::spawn(app.run());
        Self { mesh, clock, context, address, config, running }
    }

    /// Stops the service and starts it again on the same directory.
    pub async fn restart(mut self) -> Self {
        self.context.shutdown.begin();
        (&mut self.running).await.unwrap().unwrap();
        Self::run(self.mesh.clone(), self.config.clone(), self.clock.clone()).await
    }

    pub fn peer(&self, service: ServiceName) -> Peer {
        ReleaseTrackingClient::new(self.mesh.channel(service, self.address))
    }

    pub fn edge(&self) -> Peer {
        self.peer(ServiceName::Edge)
    }

    pub fn task(&self, account: &str) -> Task {
        let bearer = Bearer(token(account));
        ReleaseTrackingClient::with_interceptor(self.mesh.task_channel(self.address), bearer)
    }

    /// One observation, as the edge tells of it, received now.
    pub async fn observe(
        &self,
        release: v1::Release,
        phase: v1::Phase,
        finished: i64,
    ) -> v1::ObserveResponse {
        let request = self.observation(release, phase, finished);
        self.edge().observe(request).await.unwrap().into_inner()
    }

    pub fn observation(&self, release: v1::Release, phase: v1::Phase, finished: i64) -> v1::ObserveRequest {
        v1::ObserveRequest {
            release: Some(release),
            phase: phase.into(),
            finished_at: Some(time(finished)),
            received_at: Some(time(self.clock.second())),
            event_key: EventKey::from_bytes([phase as u8; 20]).to_string(),
        }
    }

    /// Puts a merged release, as a Task does.
    pub async fn merged(&self, release: v1::Release, merged: i64) -> v1::ReleaseRecord {
        let request = v1::PutRequest {
            pr_url: format!("https://git.example/pulls/{}", release.chain_id),
            pr_created_at: Some(time(-1000)),
            merged_at: Some(time(merged)),
            release: Some(release),
            ..Default::default()
        };
        self.task(PLATFORM).put(request).await.unwrap().into_inner().record.unwrap()
    }

    pub async fn state(&self, release: &v1::Release) -> v1::ReleaseState {
        let request = v1::ResolveRequest { release: Some(release.clone()), ..Default::default() };
        let answer = self.task(PLATFORM).resolve(request).await.unwrap().into_inner();
        assert!(answer.found, "{}", answer.reason);
        answer.record.unwrap().state()
    }

    pub async fn until_state(&self, release: &v1::Release, expected: v1::ReleaseState) {
        for _ in 0..500 {
            if self.state(release).await == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the release is {:?}, not {expected:?}", self.state(release).await);
    }

    /// Waits for sweeps that began after now: so long that nothing happens because of time alone.
    pub async fn several_sweeps(&self) {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }

    /// Lines of the metrics that begin so.
    pub fn metric(&self, begin: &str) -> Vec<String> {
        let (text, _) = self.context.metrics.expose("").unwrap();
        let mut lines: Vec<_> =
            text.lines().filter(|line| line.starts_with(begin)).map(str::to_owned).collect();
        lines.sort();
        lines
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.context.shutdown.begin();
    }
}

/// A time, in seconds since the fake clock began.
pub fn time(second: i64) -> ProtoTime {
    ProtoTime { seconds: clock::BEGIN + second, nanos: 0 }
}

/// A release of the shop in production.
pub fn release(chain_id: &str) -> v1::Release {
    v1::Release {
        app_namespace: "app-shop-cicd".into(),
        app_name: "shop".into(),
        env: "prod".into(),
        cluster: "kind-prod".into(),
        chain_id: chain_id.into(),
        ..Default::default()
    }
}

/// The field that a refusal names in its details.
pub fn field(status: &Status) -> String {
    assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status}");
    let details = status.get_error_details();
    let violations = &details.bad_request().unwrap().field_violations;
    violations[0].field.clone()
}
