//! An HTTP/1.1 server that does as it is told, to the byte.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

/// What the server does with one request, once it has read it.
#[derive(Clone)]
pub enum Reply {
    /// Writes these bytes and waits for the next request.
    Answer(Vec<u8>),
    /// Closes the connection.
    Cut,
    /// Says nothing more.
    Hang,
}

impl Reply {
    /// A complete answer.
    pub fn status(status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let mut bytes = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in headers {
            bytes.push_str(&format!("{name}: {value}\r\n"));
        }
        bytes.push_str("\r\n");
        Self::Answer([bytes.as_bytes(), body].concat())
    }
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Request line and headers.
    pub head: String,
    pub body: Vec<u8>,
    /// Which connection it came on, counted from 1.
    pub connection: usize,
}

impl Seen {
    /// All values of a header.
    pub fn header(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }
}

#[derive(Default)]
struct State {
    seen: Vec<Seen>,
    script: VecDeque<Reply>,
}

/// The server. It answers what its script says, and after that 202 with `{}`.
pub struct HttpServer {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl HttpServer {
    pub async fn start() -> Self {
        Self::with_tls(None).await
    }

    pub async fn start_tls(certificate: &str, key: &str) -> Self {
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(transponder_runtime::tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        Self::with_tls(Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn with_tls(acceptor: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        tokio::spawn(async move {
            for connection in 1.. {
                let (stream, _) = listener.accept().await.unwrap();
                let (state, acceptor) = (shared.clone(), acceptor.clone());
                tokio::spawn(async move { open(stream, acceptor, connection, &state).await });
            }
        });
        Self { address, state }
    }

    /// Adds to the script.
    pub fn then(&self, reply: Reply) -> &Self {
        self.state.lock().unwrap().script.push_back(reply);
        self
    }

    /// The requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.state.lock().unwrap().seen.clone()
    }
}

async fn open(stream: TcpStream, acceptor: Option<TlsAcceptor>, connection: usize, state: &Mutex<State>) {
    let _ = match acceptor {
        None => serve(stream, connection, state).await,
        Some(acceptor) => match acceptor.accept(stream).await {
            Ok(tls) => serve(tls, connection, state).await,
            Err(_) => None,
        },
    };
}

/// Serves one connection; `None` when it has ended.
async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    connection: usize,
    state: &Mutex<State>,
) -> Option<()> {
    let mut buffer = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            read(&mut stream, &mut buffer).await?;
        };
        let head = String::from_utf8(buffer.drain(..end).collect()).unwrap();
        let mut seen = Seen { head, body: Vec::new(), connection };
        let length = seen.header("content-length").first().map_or(0, |text| text.parse().unwrap());
        while buffer.len() < length {
            read(&mut stream, &mut buffer).await?;
        }
        seen.body = buffer.drain(..length).collect();
        let reply = {
            let mut state = state.lock().unwrap();
            state.seen.push(seen);
            state.script.pop_front()
        };
        match reply.unwrap_or_else(|| Reply::status(202, &[], "{}")) {
            Reply::Answer(bytes) => stream.write_all(&bytes).await.ok()?,
            Reply::Cut => return None,
            Reply::Hang => std::future::pending().await,
        }
    }
}

async fn read(stream: &mut (impl AsyncRead + Unpin), buffer: &mut Vec<u8>) -> Option<()> {
    let read = stream.read_buf(buffer).await.ok()?;
    (read > 0).then_some(())
}
