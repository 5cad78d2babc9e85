//! Target `door`: an edge in this process, and clients of any sort that knock at it over TLS.
//!
//! Each input gets a connection of its own. Services to deliver to there are none.

mod answer;
mod installation;
mod request;

use std::{
    net::SocketAddr,
    panic,
    path::Path,
    sync::{
        Arc, Once,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    runtime::{Builder, Runtime},
    task::JoinHandle,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use transponder_edge::App;
use transponder_runtime::{Context, Shutdown, tls::provider};

use request::Request;

/// By then there is an answer or the connection is closed: thrice what the edge waits for anything.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long a client waits for an answer that may never come before it says that it will send no more.
const SILENCE: Duration = Duration::from_millis(20);
/// What the threads of the edge are called.
const THREADS: &str = "door";

/// Whether a thread of the edge has panicked; tokio would hide it.
static PANICKED: AtomicBool = AtomicBool::new(false);

/// A running edge. It ends, and its files go, when it is dropped.
pub struct Door {
    runtime: Option<Runtime>,
    shutdown: Shutdown,
    edge: Option<JoinHandle<()>>,
    address: SocketAddr,
    tls: Arc<ClientConfig>,
    _directory: TempDir,
}

impl Door {
    /// Starts an edge.
    ///
    /// # Panics
    ///
    /// When that is not possible.
    #[must_use]
    pub fn open() -> Self {
        watch_for_panics();
        let directory = tempfile::tempdir().expect("make a folder");
        let (config, mesh) = installation::write(directory.path());
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name(THREADS).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let context = Context::new();
        let app = runtime.block_on(App::build(config, &mesh, None, &context)).expect("an edge");
        let address = app.address();
        let edge = runtime.spawn(async move { app.run().await.expect("an edge ends well") });
        Self {
            runtime: Some(runtime),
            shutdown: context.shutdown,
            edge: Some(edge),
            address,
            tls: Arc::new(client(&directory.path().join("ca.crt"))),
            _directory: directory,
        }
    }

    /// Sends an input, see `Request::read` for its form, and reads until the edge closes the connection. Answers the
    /// status, if there was an answer.
    ///
    /// # Panics
    ///
    /// When the edge panics, is late, or answers what it may not.
    pub fn knock(&self, input: &[u8]) -> Option<u16> {
        let request = Request::read(input);
        let runtime = self.runtime.as_ref().expect("a runtime until the end");
        let talk = async { timeout(DEADLINE, self.talk(&request)).await };
        let received = runtime.block_on(talk).expect("an answer or a closed connection in time");
        assert!(!PANICKED.swap(false, Ordering::Relaxed), "the edge panicked");
        received.and_then(|received| answer::check(&request, &received))
    }

    /// All that came back; `None` when the connection was reset, which may have cost the answer.
    async fn talk(&self, request: &Request) -> Option<Vec<u8>> {
        let stream = TcpStream::connect(self.address).await.expect("the edge listens");
        stream.set_nodelay(true).expect("set an option");
        let name = ServerName::from(self.address.ip());
        let connector = TlsConnector::from(self.tls.clone());
        let mut stream = connector.connect(name, stream).await.expect("a handshake");
        let sent = stream.write_all(&request.bytes).await.is_ok() && stream.flush().await.is_ok();
        let mut received = Vec::new();
        if !request.complete && timeout(SILENCE, read(&mut stream, &mut received)).await.is_err() {
            let _ = stream.shutdown().await;
        }
        let whole = read(&mut stream, &mut received).await;
        (sent && whole).then_some(received)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.shutdown.begin();
        if let (Some(runtime), Some(edge)) = (self.runtime.take(), self.edge.take()) {
            let _ = runtime.block_on(async { timeout(DEADLINE, edge).await });
            runtime.shutdown_timeout(DEADLINE);
        }
    }
}

/// Reads until the end; `false` when there was none but a reset.
async fn read(stream: &mut TlsStream<TcpStream>, received: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) => return true,
            Ok(read) => received.extend_from_slice(&buffer[..read]),
            Err(error) => return error.kind() == std::io::ErrorKind::UnexpectedEof,
        }
    }
}

fn client(ca: &Path) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca).expect("read an authority") {
        roots.add(certificate.expect("a certificate")).expect("an authority");
    }
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider's versions")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

fn watch_for_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if std::thread::current().name() == Some(THREADS) {
                PANICKED.store(true, Ordering::Relaxed);
            }
            before(panic);
        }));
    });
}
