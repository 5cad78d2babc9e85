use std::{
    fs,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, version::TLS13};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tonic::{
    Code, Request, Response, Status,
    transport::{Channel, Endpoint, Uri},
};
use transponder_core::{Caller, ServiceName};
use transponder_proto::v1::{
    ForwardRequest, ForwardResponse,
    forwarder_client::ForwarderClient,
    forwarder_server::{Forwarder, ForwarderServer},
};

use super::{Server, seats::Seats};
use crate::{
    Context, Fault,
    auth::TokenReviewer,
    fixture::Authority,
    mesh::{MeshConfig, MeshIdentity},
    tls,
};

const TOKEN: &str = "the-token-of-a-task";

fn task() -> Caller {
    Caller::Platform { account: "platform-system/task".into() }
}

struct Reviewer;

impl TokenReviewer for Reviewer {
    fn review<'a>(
        &'a self,
        token: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Option<Caller>, Fault>> + Send + 'a>> {
        Box::pin(async move { Ok((token == TOKEN).then(task)) })
    }
}

struct Echo;

#[tonic::async_trait]
impl Forwarder for Echo {
    async fn forward(&self, _: Request<ForwardRequest>) -> Result<Response<ForwardResponse>, Status> {
        Ok(Response::new(ForwardResponse::default()))
    }
}

/// Whoever connects without a certificate.
#[derive(Clone)]
struct Client {
    tls: Arc<ClientConfig>,
    address: std::net::SocketAddr,
}

impl Client {
    async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        let name = "localhost".try_into().unwrap();
        TlsConnector::from(self.tls.clone()).connect(name, stream).await
    }

    /// A stranger that begins HTTP/2 and says no more.
    async fn stranger(&self) -> TlsStream<TcpStream> {
        let mut stream = self.connect().await.unwrap();
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        stream.write_all(preface).await.unwrap();
        // The settings of the server: it has been taken in.
        stream.read_u8().await.unwrap();
        stream
    }

    /// A Task, and how many connections it has made.
    fn task(&self) -> (ForwarderClient<Channel>, Arc<AtomicUsize>) {
        let (client, made) = (self.clone(), Arc::new(AtomicUsize::new(0)));
        let counter = made.clone();
        let connector = tower::service_fn(move |_: Uri| {
            counter.fetch_add(1, Ordering::Relaxed);
            let client = client.clone();
            async move { client.connect().await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from_static("http://localhost");
        (ForwarderClient::new(endpoint.connect_with_connector_lazy(connector)), made)
    }
}

async fn call(task: &mut ForwarderClient<Channel>, token: &str) -> Result<(), Code> {
    let mut request = Request::new(ForwardRequest::default());
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    task.forward(request).await.map(drop).map_err(|status| status.code())
}

/// A server with four places, of which Tasks keep two.
async fn serve(context: &Context) -> Client {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    fs::write(directory.path().join("ca.crt"), &authority.pem).unwrap();
    authority.issue(directory.path(), ServiceName::Forwarder, |_| ());
    let config = MeshConfig { directory: directory.path().to_owned(), ..MeshConfig::default() };
    let identity = MeshIdentity::load(ServiceName::Forwarder, &config, context).unwrap();
    let mut server =
        Server::bind(([127, 0, 0, 1], 0).into(), identity, Arc::new(Reviewer), context).await.unwrap();
    server.seats = Arc::new(Seats::new(4, 2));
    let address = server.address().unwrap();
    tokio::spawn(server.serve(ForwarderServer::new(Echo)));
    let mut tls = ClientConfig::builder_with_provider(tls::provider())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(tls::load_roots(&config.ca_files()).unwrap())
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    Client { tls: Arc::new(tls), address }
}

/// Waits until the server closes the connection.
async fn closed(mut stranger: TlsStream<TcpStream>) {
    let ended = async {
        let mut rest = [0; 256];
        while stranger.read(&mut rest).await.is_ok_and(|read| read > 0) {}
    };
    tokio::time::timeout(Duration::from_secs(10), ended).await.expect("the connection is closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_that_take_all_places_make_room_for_a_task_which_then_keeps_its_own() {
    let context = Context::new();
    let client = serve(&context).await;
    let mut strangers = Vec::new();
    for _ in 0..4 {
        strangers.push(client.stranger().await);
    }
    let (mut task, made) = client.task();
    assert_eq!(call(&mut task, TOKEN).await, Ok(()));
    closed(strangers.remove(0)).await;
    for _ in 0..8 {
        strangers.push(client.stranger().await);
    }
    assert_eq!(call(&mut task, TOKEN).await, Ok(()));
    assert_eq!(made.load(Ordering::Relaxed), 1, "the connection of a known caller stays");
    closed(strangers.remove(0)).await;
    context.shutdown.begin();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_with_a_bad_token_makes_nobody_known() {
    let context = Context::new();
    let client = serve(&context).await;
    let (mut liar, made) = client.task();
    assert_eq!(call(&mut liar, "a-bad-token").await, Err(Code::Unauthenticated));
    let mut strangers = Vec::new();
    for _ in 0..4 {
        strangers.push(client.stranger().await);
    }
    while made.load(Ordering::Relaxed) < 2 {
        // On the old connection until its end is noticed, then on a new one.
        let _ = call(&mut liar, "a-bad-token").await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    context.shutdown.begin();
}
