//! Calling another part of the mesh.

use std::{sync::Arc, time::Duration};

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::{
    Status,
    service::interceptor::InterceptedService,
    transport::{Channel, Endpoint, Uri},
};
use transponder_core::ServiceName;

use crate::{mesh::MeshIdentity, trace::TraceContext};

/// A channel to another part, with trace context.
pub type MeshChannel =
    InterceptedService<Channel, fn(tonic::Request<()>) -> Result<tonic::Request<()>, Status>>;

/// A channel to `service` at `host:port`. It connects when it is first used, looks the name up anew and checks who
/// answers each time it connects, and notices a dead peer within 15 s.
///
/// # Errors
/// When the address is none.
pub fn channel(
    address: &str,
    service: ServiceName,
    identity: Arc<MeshIdentity>,
) -> Result<MeshChannel, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?
        .connect_timeout(Duration::from_secs(5))
        .http2_keep_alive_interval(Duration::from_secs(10))
        .keep_alive_timeout(Duration::from_secs(5))
        .keep_alive_while_idle(true)
        .tcp_nodelay(true);
    let connector = tower::service_fn(move |uri: Uri| {
        let identity = identity.clone();
        async move { connect(&uri, service, &identity).await.map(TokioIo::new) }
    });
    let channel = endpoint.connect_with_connector_lazy(connector);
    Ok(InterceptedService::new(channel, pass_on_trace))
}

fn pass_on_trace(mut request: tonic::Request<()>) -> Result<tonic::Request<()>, Status> {
    if let Ok(value) = TraceContext::current().to_string().parse() {
        request.metadata_mut().insert("traceparent", value);
    }
    Ok(request)
}

async fn connect(
    uri: &Uri,
    service: ServiceName,
    identity: &MeshIdentity,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let authority = uri.authority().ok_or_else(|| std::io::Error::other("the address has no host"))?;
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let stream = TcpStream::connect((host.as_str(), authority.port_u16().unwrap_or(8444))).await?;
    stream.set_nodelay(true)?;
    let name = rustls_pki_types::ServerName::try_from(host).map_err(std::io::Error::other)?;
    let tls = TlsConnector::from(identity.client()).connect(name, stream).await?;
    let certificates = tls.get_ref().1.peer_certificates().unwrap_or_default();
    match identity.peer(certificates) {
        Ok(answers) if answers == service => Ok(tls),
        Ok(answers) => Err(std::io::Error::other(format!("{authority} is {answers}, not {service}"))),
        Err(why) => Err(std::io::Error::other(format!("{authority} is not {service}: {why}"))),
    }
}
