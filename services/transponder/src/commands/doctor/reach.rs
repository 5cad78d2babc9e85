//! Whether the services answer, as who they are, and their broker and tracing backend with them.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use rustls::CertificateError;

use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use transponder_core::ServiceName;
use transponder_outcome_span::{Endpoint, Settings};
use transponder_runtime::{Context, grpc, mesh::MeshIdentity};
use url::Url;

use super::finding::Findings;
use crate::{config::Config, mesh::reachable};

const AREA: &str = "reach";
/// Longest wait for one answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// Asks every part that the edge would ask, and the addresses of broker and tracing backend.
pub(super) async fn check(config: &Config, findings: &mut Findings) {
    let context = Context::new();
    // As the edge: the doctor stands where it stands.
    match MeshIdentity::load(ServiceName::Edge, &config.mesh, &context) {
        Ok(identity) => {
            for peer in peers(config) {
                health(&peer, &identity, findings).await;
            }
        }
        Err(error) => {
            let names = peers(config).map(|peer| peer.service.to_string()).join(", ");
            let what = format!("{names} were not asked, for want of the edge's identity: {}", error.problem);
            findings.doubtful(AREA, &what, error.path.display(), "mend what 'mesh cert' says first");
        }
    }
    context.shutdown.begin();
    listener("edge", &reachable(config.edge.listen).to_string(), findings).await;
    broker(config, findings).await;
    otlp(findings).await;
}

/// Where a service is asked, and the key that says so.
struct Peer {
    service: ServiceName,
    key: &'static str,
    address: String,
}

/// As the edge finds them: in 'transponder all' where they listen, whatever the peers' keys say. The doctor cannot tell
/// how the services run, so it takes a peer that is set at its word, and the service's own address otherwise.
fn peers(config: &Config) -> [Peer; 4] {
    let (given, default) = (&config.edge.peers, Config::default());
    let peer = |service, key, given: &str, peer: &str, listen: SocketAddr, standard: SocketAddr| {
        let moved = given == peer && listen != standard && listen.port() != 0;
        let address = if moved { reachable(listen).to_string() } else { given.to_owned() };
        Peer { service, key, address }
    };
    [
        peer(
            ServiceName::Forwarder,
            "forwarder",
            &given.forwarder,
            &default.edge.peers.forwarder,
            config.forwarder.listen,
            default.forwarder.listen,
        ),
        peer(
            ServiceName::DoraRecorder,
            "dora_recorder",
            &given.dora_recorder,
            &default.edge.peers.dora_recorder,
            config.dora.listen,
            default.dora.listen,
        ),
        peer(
            ServiceName::ReleaseTracking,
            "release_tracking",
            &given.release_tracking,
            &default.edge.peers.release_tracking,
            config.release_tracking.listen,
            default.release_tracking.listen,
        ),
        peer(
            ServiceName::OutcomeSpan,
            "outcome_span",
            &given.outcome_span,
            &default.edge.peers.outcome_span,
            config.outcome_span.listen,
            default.outcome_span.listen,
        ),
    ]
}

async fn health(peer: &Peer, identity: &Arc<MeshIdentity>, findings: &mut Findings) {
    let Peer { service, key, address } = peer;
    let asked = async {
        let channel = grpc::channel(address, *service, identity.clone())
            .map_err(|error| Trouble { text: error.to_string(), foreign: false })?;
        let request = HealthCheckRequest { service: grpc_name(*service).to_owned() };
        let answer = HealthClient::new(channel).check(request).await.map_err(|status| trouble(&status))?;
        Ok::<_, Trouble>(answer.into_inner().status())
    };
    let late = || Trouble { text: "no answer in 3 s".to_owned(), foreign: false };
    let mend = format!("start it ('transponder {service}' or 'transponder all'); its log says what keeps it");
    match tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| Err(late())) {
        Ok(ServingStatus::Serving) => findings.fine(AREA, format!("{service}: serving"), address),
        Ok(status) => {
            findings.wrong(AREA, &format!("{service}: {}", status.as_str_name()), address, &mend);
        }
        Err(Trouble { text, foreign: true }) => {
            let what = format!("{service}: another installation seems to answer there: {text}");
            let mend = format!(
                "let one of the two listen elsewhere, or correct edge.peers.{key}; if it is this one, it runs on \
                 certificates that are no longer in mesh.directory: start it anew"
            );
            findings.wrong(AREA, &what, address, &mend);
        }
        Err(Trouble { text, .. }) => findings.wrong(AREA, &format!("{service}: {text}"), address, &mend),
    }
}

/// The gRPC name under which a service reports its health.
fn grpc_name(service: ServiceName) -> &'static str {
    match service {
        ServiceName::Edge => "",
        ServiceName::Forwarder => "transponder.v1.Forwarder",
        ServiceName::DoraRecorder => "transponder.v1.DoraRecorder",
        ServiceName::ReleaseTracking => "transponder.v1.ReleaseTracking",
        ServiceName::OutcomeSpan => "transponder.v1.OutcomeSpan",
    }
}

/// Why there was no answer.
struct Trouble {
    text: String,
    /// Whether who answers has its certificate from an authority that is not ours.
    foreign: bool,
}

/// The innermost cause: the outer ones say only that the transport failed.
fn trouble(status: &tonic::Status) -> Trouble {
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(status);
    let mut trouble = Trouble { text: status.message().to_owned(), foreign: false };
    while let Some(error) = cause {
        trouble.text = error.to_string();
        // An I/O error does not count what it is made of among its sources.
        let tls = error.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref()?.downcast_ref());
        trouble.foreign |= matches!(
            tls,
            Some(rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature
            ))
        );
        cause = error.source();
    }
    trouble
}

async fn listener(name: &str, address: &str, findings: &mut Findings) {
    let connected = tokio::time::timeout(PATIENCE, tokio::net::TcpStream::connect(address)).await;
    match connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
        Ok(_) => findings.fine(AREA, format!("{name}: accepts connections"), address),
        Err(error) => {
            let mend = format!("start it: 'transponder {name}' or 'transponder all'");
            findings.wrong(AREA, &format!("{name}: {error}"), address, &mend);
        }
    }
}

/// The broker: only whether its address answers. Any request would be an event.
async fn broker(config: &Config, findings: &mut Findings) {
    // What is no URL of a broker is named already.
    if let Ok(url) = config.forwarder.url() {
        address("broker", &url, "start the broker, or correct forwarder.broker_url", findings).await;
    }
}

/// Whether the address of a URL accepts connections.
async fn address(what: &str, url: &Url, mend: &str, findings: &mut Findings) {
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else { return };
    let host = host.trim_matches(['[', ']']);
    let connecting = tokio::net::TcpStream::connect((host, port));
    let at = format!("{host}:{port}");
    match tokio::time::timeout(PATIENCE, connecting).await {
        Ok(Ok(_)) => findings.fine(AREA, format!("{what}: accepts connections"), at),
        Ok(Err(error)) => findings.wrong(AREA, &format!("{what}: {error}"), at, mend),
        Err(_) => findings.wrong(AREA, &format!("{what}: no answer in 3 s"), at, mend),
    }
}

/// The tracing backend: only whether its address answers. What it does with spans is seen by sending one. The variables
/// are those of the doctor's own shell: nobody else can see the service's.
async fn otlp(findings: &mut Findings) {
    const GENERAL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    // What cannot be read is named already.
    let Ok(settings) = Settings::from_env() else { return };
    let (variable, url) = match &settings.endpoint {
        Some(Endpoint::Base(url)) => (GENERAL, url),
        Some(Endpoint::Traces(url)) => ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", url),
        None => {
            let what = format!(
                "in this shell no {GENERAL} is set: outcome-span, started like this, appends spans to outcome_span.file"
            );
            findings.fine(AREA, what, GENERAL);
            return;
        }
    };
    let mend = format!("start the tracing backend, or correct {variable}");
    address("OTLP endpoint of this shell", url, &mend, findings).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_asked_where_it_listens_unless_its_peer_key_says_otherwise() {
        let forwarder = |listen: &str, peer: Option<&str>| {
            let mut config = Config::default();
            config.forwarder.listen = listen.parse().unwrap();
            if let Some(peer) = peer {
                config.edge.peers.forwarder = peer.to_owned();
            }
            let [forwarder, ..] = peers(&config);
            forwarder.address
        };
        for (listen, peer, expected) in [
            ("127.0.0.1:8444", None, "127.0.0.1:8444"),
            ("127.0.0.1:9444", None, "127.0.0.1:9444"),
            ("0.0.0.0:9444", None, "127.0.0.1:9444"),
            ("0.0.0.0:9444", Some("forwarder:9444"), "forwarder:9444"),
            // Which port it took nobody knows.
            ("127.0.0.1:0", None, "127.0.0.1:8444"),
        ] {
            assert_eq!(forwarder(listen, peer), expected, "{listen} {peer:?}");
        }
        let addresses = peers(&Config::default()).map(|peer| peer.address);
        assert_eq!(addresses, ["127.0.0.1:8444", "127.0.0.1:8445", "127.0.0.1:8446", "127.0.0.1:8447"]);
    }
}
