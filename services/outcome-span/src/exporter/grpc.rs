//! OTLP/gRPC.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, trace_service_client::TraceServiceClient,
};
use tonic::{
    Code, ConnectError, Request, Status,
    metadata::MetadataMap,
    transport::{Channel, ClientTlsConfig, Identity},
};
use transponder_runtime::error::PeerFailure;

use super::{Accepted, CONNECT, Exporter, Failure, chain, judge, roots, shown, wrong};
use crate::{Endpoint, SettingError, Settings};

/// A backend that speaks gRPC.
pub(super) struct Grpc {
    client: TraceServiceClient<Channel>,
    metadata: MetadataMap,
}

impl Grpc {
    pub(super) fn new(endpoint: &Endpoint, settings: &Settings) -> Result<Self, SettingError> {
        let url = endpoint.url();
        // gRPC has no path of its own; one that is given for HTTP's sake must not end up in it.
        let mut origin = url.clone();
        origin.set_path("");
        origin.set_query(None);
        let mut channel = Channel::from_shared(origin.to_string())
            .map_err(|e| wrong("ENDPOINT", e))?
            .connect_timeout(CONNECT)
            // Not HTTP/2 pings: servers in Go close a connection that pings more often than every five minutes.
            .tcp_keepalive(Some(Duration::from_secs(15)))
            .tcp_nodelay(true);
        if url.scheme() == "https" {
            channel = channel.tls_config(tls(settings)?).map_err(|e| wrong("CERTIFICATE", chain(&e)))?;
        }
        Ok(Self {
            client: TraceServiceClient::new(channel.connect_lazy()),
            metadata: MetadataMap::from_headers(settings.headers.clone()),
        })
    }
}

fn tls(settings: &Settings) -> Result<ClientTlsConfig, SettingError> {
    let tls = ClientTlsConfig::new().trust_anchors(roots(settings)?.roots).timeout(CONNECT);
    let Some((certificate, key)) = &settings.client_identity else { return Ok(tls) };
    let read = |path: &std::path::Path, suffix| {
        std::fs::read(path).map_err(|e| wrong(suffix, format!("{}: {e}", path.display())))
    };
    let (certificate, key) = (read(certificate, "CLIENT_CERTIFICATE")?, read(key, "CLIENT_KEY")?);
    Ok(tls.identity(Identity::from_pem(certificate, key)))
}

#[tonic::async_trait]
impl Exporter for Grpc {
    async fn export(&self, request: &ExportTraceServiceRequest) -> Result<Accepted, Failure> {
        let mut request = Request::new(request.clone());
        *request.metadata_mut() = self.metadata.clone();
        match self.client.clone().export(request).await {
            Ok(response) => judge(response.into_inner().partial_success),
            Err(status) => Err(failure(&status)),
        }
    }
}

/// What a failed call means. A status with a cause is made on our side: the backend never said it.
fn failure(status: &Status) -> Failure {
    let mut source = std::error::Error::source(status);
    if source.is_none() {
        return told(status);
    }
    while let Some(cause) = source {
        if cause.is::<ConnectError>() {
            return Failure::later(
                format!("the tracing backend cannot be reached: {}", chain(cause)),
                None,
                true,
            );
        }
        source = cause.source();
    }
    Failure::Unknown(format!("the connection to the tracing backend broke: {}", chain(status)))
}

/// What the backend itself says: the table of the OTLP specification, "OTLP/gRPC response", and for what that does not
/// let us repeat, whose fault it is.
fn told(status: &Status) -> Failure {
    let peer = PeerFailure::from(status);
    let message = match shown(&peer.message) {
        text if text.is_empty() => format!("the tracing backend answered {:?}", peer.code),
        text => format!("the tracing backend answered {:?}: {text}", peer.code),
    };
    match peer.code {
        Code::Unavailable | Code::Aborted | Code::OutOfRange | Code::DataLoss => {
            Failure::later(message, peer.retry_after, true)
        }
        Code::ResourceExhausted => Failure::later(message, peer.retry_after, peer.retry_after.is_some()),
        // The backend gave up on a request that it had: whether it keeps the span it does not say.
        Code::Cancelled | Code::DeadlineExceeded => Failure::Unknown(message),
        Code::InvalidArgument => Failure::Rejected(shown(&peer.message)),
        Code::Ok | Code::Unknown | Code::Internal => Failure::later(message, peer.retry_after, false),
        Code::Unauthenticated
        | Code::PermissionDenied
        | Code::Unimplemented
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition => Failure::Refused(message),
    }
}

#[cfg(test)]
mod tests {
    use tonic_types::{ErrorDetails, StatusExt as _};

    use super::*;

    #[test]
    fn each_code_has_one_meaning() {
        let seven = Some(Duration::from_secs(7));
        for (code, retry_after, expected) in [
            (Code::Unavailable, None, "repeat None"),
            (Code::Unavailable, seven, "repeat Some(7s)"),
            (Code::Aborted, None, "repeat None"),
            (Code::OutOfRange, None, "repeat None"),
            (Code::DataLoss, None, "repeat None"),
            (Code::ResourceExhausted, None, "later None"),
            (Code::ResourceExhausted, seven, "repeat Some(7s)"),
            (Code::Internal, None, "later None"),
            (Code::Unknown, None, "later None"),
            (Code::DeadlineExceeded, None, "unknown"),
            (Code::Cancelled, None, "unknown"),
            (Code::InvalidArgument, None, "rejected"),
            (Code::Unauthenticated, None, "refused"),
            (Code::PermissionDenied, None, "refused"),
            (Code::Unimplemented, None, "refused"),
            (Code::NotFound, None, "refused"),
            (Code::FailedPrecondition, None, "refused"),
        ] {
            let mut details = ErrorDetails::new();
            if retry_after.is_some() {
                details.set_retry_info(retry_after);
            }
            let text = match failure(&Status::with_error_details(code, "why", details)) {
                Failure::Later { repeat: true, retry_after, .. } => format!("repeat {retry_after:?}"),
                Failure::Later { repeat: false, retry_after, .. } => format!("later {retry_after:?}"),
                Failure::Unknown(_) => "unknown".into(),
                Failure::Rejected(message) => {
                    assert_eq!(message, "why");
                    "rejected".into()
                }
                Failure::Refused(message) => {
                    assert_eq!(message, format!("the tracing backend answered {code:?}: why"));
                    "refused".into()
                }
            };
            assert_eq!(text, expected, "{code:?}");
        }
    }
}
