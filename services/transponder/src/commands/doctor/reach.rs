//! Whether the services run, answer as who they are, and are well.

use std::{env, sync::Arc, time::Duration};

use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use transponder_core::ServiceName;
use transponder_runtime::{Context, grpc, mesh::MeshIdentity};
use url::Url;

use super::finding::Findings;
use crate::{config::Config, mesh::reachable};

const AREA: &str = "reach";
/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Asks every part that the edge would ask, and the admin listener, and the tracing backend's address.
pub(super) async fn check(config: &Config, findings: &mut Findings) {
    let context = Context::new();
    let peers = &config.edge.peers;
    // As the edge: the doctor stands where it stands. Where its key is not readable, what is wrong is named already.
    if let Ok(identity) = MeshIdentity::load(ServiceName::Edge, &config.mesh, &context) {
        for (service, address) in [
            (ServiceName::Forwarder, &peers.forwarder),
            (ServiceName::DoraRecorder, &peers.dora_recorder),
            (ServiceName::ReleaseTracking, &peers.release_tracking),
            (ServiceName::OutcomeSpan, &peers.outcome_span),
        ] {
            health(service, address, &identity, findings).await;
        }
    }
    context.shutdown.begin();
    listener("edge", &reachable(config.edge.listen).to_string(), findings).await;
    admin(config, findings).await;
    broker(config, findings).await;
    otlp(findings).await;
}

async fn health(service: ServiceName, address: &str, identity: &Arc<MeshIdentity>, findings: &mut Findings) {
    let name = service.to_string();
    let asked = async {
        let channel = grpc::channel(address, service, identity.clone()).map_err(|e| e.to_string())?;
        let request = HealthCheckRequest { service: grpc_name(service).to_owned() };
        let answer = HealthClient::new(channel).check(request).await.map_err(|status| describe(&status))?;
        Ok::<_, String>(answer.into_inner().status())
    };
    let mend = format!("start it ('transponder {name}' or 'transponder all'); its log says what keeps it");
    match tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| Err("no answer in 3 s".into())) {
        Ok(ServingStatus::Serving) => findings.fine(AREA, format!("{name}: serving"), address),
        Ok(status) => {
            findings.wrong(AREA, &format!("{name}: {}", status.as_str_name()), address, &mend);
        }
        Err(why) => findings.wrong(AREA, &format!("{name}: {why}"), address, &mend),
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

/// The innermost cause: the outer ones say only that the transport failed.
fn describe(status: &tonic::Status) -> String {
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(status);
    let mut text = status.message().to_owned();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    text
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

async fn admin(config: &Config, findings: &mut Findings) {
    let url = format!("http://{}/readyz", reachable(config.admin.listen));
    let asked = async {
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build()?;
        let response = client.get(&url).send().await?;
        Ok::<_, reqwest::Error>((response.status(), response.text().await?))
    };
    match asked.await {
        Ok((status, _)) if status.is_success() => findings.fine(AREA, "every part is ready", &url),
        Ok((_, body)) => {
            let what = format!("not ready: {}", body.trim().replace('\n', "; "));
            findings.wrong(AREA, &what, &url, "mend what is named; the parts become ready by themselves");
        }
        Err(_) => {
            findings.wrong(AREA, "the admin listener does not answer", &url, "start 'transponder all'");
        }
    }
}

/// The broker: only whether its address answers. Any request would be an event.
async fn broker(config: &Config, findings: &mut Findings) {
    let mend = "start the broker, or correct forwarder.broker_url";
    address("broker", &config.forwarder.broker_url, "forwarder.broker_url", mend, findings).await;
}

/// Whether the address of a URL accepts connections.
async fn address(what: &str, url: &str, key: &str, mend: &str, findings: &mut Findings) {
    let Some((host, port)) = Url::parse(url).ok().and_then(|url| {
        Some((url.host_str()?.trim_matches(['[', ']']).to_owned(), url.port_or_known_default()?))
    }) else {
        findings.wrong(AREA, &format!("{what}: '{url}' is no URL with a host"), key, mend);
        return;
    };
    let connecting = tokio::net::TcpStream::connect((host.as_str(), port));
    let at = format!("{host}:{port}");
    match tokio::time::timeout(PATIENCE, connecting).await {
        Ok(Ok(_)) => findings.fine(AREA, format!("{what}: accepts connections"), at),
        Ok(Err(error)) => findings.wrong(AREA, &format!("{what}: {error}"), at, mend),
        Err(_) => findings.wrong(AREA, &format!("{what}: no answer in 3 s"), at, mend),
    }
}

/// The tracing backend: only whether its address answers. What it does with spans is seen by sending one.
async fn otlp(findings: &mut Findings) {
    let of = |name: &str| {
        env::var(name).ok().filter(|value| !value.is_empty()).map(|value| (name.to_owned(), value))
    };
    let Some((variable, endpoint)) =
        of("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(|| of("OTEL_EXPORTER_OTLP_ENDPOINT"))
    else {
        findings.fine(
            AREA,
            "no OTLP endpoint is set: spans go to outcome_span.file",
            "OTEL_EXPORTER_OTLP_ENDPOINT",
        );
        return;
    };
    let mend = format!("start the tracing backend, or correct {variable}");
    address("OTLP endpoint", &endpoint, &variable, &mend, findings).await;
}
