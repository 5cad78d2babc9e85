//! The server: one thread per connection, one scripted act per request, the last act again and again.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread,
    time::{Duration, Instant},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use rustls::{ServerConfig, ServerConnection, StreamOwned, pki_types::PrivateKeyDer};

/// What the server does with one request.
#[derive(Clone)]
pub(crate) enum Act {
    /// Answers with status, further headers and body.
    Answer(u16, Vec<(&'static str, String)>, String),
    /// Reads the request and cuts the connection.
    Cut,
    /// Reads the request and says nothing more.
    Hang,
    /// Runs this, then does that.
    Then(Arc<dyn Fn() + Send + Sync>, Box<Act>),
}

impl Act {
    pub(crate) fn status(status: u16) -> Self {
        Self::Answer(status, Vec::new(), String::new())
    }

    pub(crate) fn with(status: u16, name: &'static str, value: &str) -> Self {
        Self::Answer(status, vec![(name, value.to_owned())], String::new())
    }

    pub(crate) fn body(status: u16, body: &str) -> Self {
        Self::Answer(status, Vec::new(), body.to_owned())
    }

    pub(crate) fn after(run: impl Fn() + Send + Sync + 'static, act: Self) -> Self {
        Self::Then(Arc::new(run), Box::new(act))
    }
}

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) line: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) at: Instant,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(n, _)| n == name).map_or("", |(_, v)| v)
    }

    pub(crate) fn id(&self) -> String {
        let event: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        event["context"]["id"].as_str().unwrap().to_owned()
    }
}

#[derive(Default)]
struct State {
    requests: Vec<Request>,
    connections: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

pub(crate) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    ca: Option<String>,
    name: &'static str,
}

impl Server {
    /// Over TLS, as 127.0.0.1.
    pub(crate) fn tls(acts: impl IntoIterator<Item = Act>) -> Self {
        Self::named("127.0.0.1", acts)
    }

    /// Over TLS, under a name.
    pub(crate) fn named(name: &'static str, acts: impl IntoIterator<Item = Act>) -> Self {
        let (config, ca) = certificate(name);
        Self::start(bind(0), Some((config, ca)), name, acts)
    }

    pub(crate) fn plain(acts: impl IntoIterator<Item = Act>) -> Self {
        Self::plain_at(bind(0), acts)
    }

    pub(crate) fn plain_at(listener: TcpListener, acts: impl IntoIterator<Item = Act>) -> Self {
        Self::start(listener, None, "127.0.0.1", acts)
    }

    fn start(
        listener: TcpListener,
        tls: Option<(Arc<ServerConfig>, String)>,
        name: &'static str,
        acts: impl IntoIterator<Item = Act>,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let acts: Vec<Act> = acts.into_iter().collect();
        let (config, ca) = tls.unzip();
        let accepting = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (shared, acts, config) = (accepting.clone(), acts.clone(), config.clone());
                thread::spawn(move || {
                    let Ok(stream) = stream else { return };
                    shared.state.lock().unwrap().connections += 1;
                    match config {
                        Some(config) => {
                            let connection = ServerConnection::new(config).unwrap();
                            serve(StreamOwned::new(connection, stream), &shared, &acts);
                        }
                        None => serve(stream, &shared, &acts),
                    }
                });
            }
        });
        Self { address, shared, ca, name }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        let scheme = if self.ca.is_some() { "https" } else { "http" };
        format!("{scheme}://{}:{}{path}", self.name, self.address.port())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn ca(&self) -> Option<&str> {
        self.ca.as_deref()
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.state.lock().unwrap().requests.clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.shared.state.lock().unwrap().connections
    }

    /// Waits until so many requests have come.
    pub(crate) fn wait_for(&self, count: usize) {
        let state = self.shared.state.lock().unwrap();
        let limit = Duration::from_secs(20);
        let (state, timeout) =
            self.shared.changed.wait_timeout_while(state, limit, |s| s.requests.len() < count).unwrap();
        assert!(!timeout.timed_out(), "{} of {count} requests came", state.requests.len());
    }
}

pub(crate) fn bind(port: u16) -> TcpListener {
    TcpListener::bind(("127.0.0.1", port)).unwrap()
}

fn serve<S: Read + Write>(stream: S, shared: &Shared, acts: &[Act]) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read_request(&mut stream) {
        let mut act = {
            let mut state = shared.state.lock().unwrap();
            state.requests.push(request);
            shared.changed.notify_all();
            acts[(state.requests.len() - 1).min(acts.len() - 1)].clone()
        };
        while let Act::Then(run, next) = act {
            run();
            act = *next;
        }
        match act {
            Act::Answer(status, headers, body) => {
                let mut answer = format!("HTTP/1.1 {status} X\r\n");
                if !headers.iter().any(|(name, _)| *name == "Transfer-Encoding") {
                    answer.push_str(&format!("Content-Length: {}\r\n", body.len()));
                }
                for (name, value) in headers {
                    answer.push_str(&format!("{name}: {value}\r\n"));
                }
                let _ = stream.get_mut().write_all(format!("{answer}\r\n{body}").as_bytes());
                let _ = stream.get_mut().flush();
            }
            Act::Cut => return,
            // Until the client goes away.
            Act::Hang => {
                let _ = stream.read(&mut [0]);
                return;
            }
            Act::Then(..) => return,
        }
    }
}

fn read_request<S: Read>(stream: &mut BufReader<S>) -> Option<Request> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let headers: Vec<(String, String)> = lines[1..]
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(n, _)| n == "content-length").map_or(0, |(_, v)| v.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(Request { line: lines[0].clone(), headers, body, at: Instant::now() })
}

/// A certificate for the name, and the PEM of the CA that it comes from.
fn certificate(name: &str) -> (Arc<ServerConfig>, String) {
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .unwrap();
    (Arc::new(config), ca.pem())
}
