//! The gRPC door: decode, call, encode.

use std::{sync::Arc, time::Instant};

use http::HeaderValue;
use tonic::{Request, Response, Status};
use transponder_core::caller::Method;
use transponder_proto::{
    convert::FieldError,
    v1::{ForwardRequest, ForwardResponse, forwarder_server},
};
use transponder_runtime::{Clock, Fault, auth::authorize, outage::Outage};

use crate::{
    answer::{Meaning, meaning},
    broker::{Broker, Post},
    metrics::Metrics,
    token::{BrokerToken, TokenSource},
};

/// Longest event, the highest limit that an edge can be given.
const EVENT: usize = 1024 * 1024;
/// Longest content type.
const CONTENT_TYPE: usize = 256;

/// The service.
pub(crate) struct Service {
    pub(crate) broker: Arc<Broker>,
    pub(crate) token: Option<Arc<TokenSource>>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) outage: Outage,
    pub(crate) clock: Arc<dyn Clock>,
}

#[tonic::async_trait]
impl forwarder_server::Forwarder for Service {
    async fn forward(&self, request: Request<ForwardRequest>) -> Result<Response<ForwardResponse>, Status> {
        authorize(&request, Method::Forward)?;
        let post = decode(request.into_inner()).map_err(Fault::from)?;
        Ok(Response::new(self.forward(&post).await?))
    }
}

impl Service {
    async fn forward(&self, post: &Post) -> Result<ForwardResponse, Fault> {
        let token = self.token()?;
        let begun = Instant::now();
        let answer = match self.broker.post(post, token).await {
            Ok(answer) => answer,
            Err(error) => {
                self.metrics.posted("unreachable");
                self.outage.failed(&error);
                return Err(Fault::unavailable(error.to_string()).reason("BROKER_UNREACHABLE"));
            }
        };
        self.metrics.answered_within(begun.elapsed());
        let status = answer.status.as_u16();
        let said = format!("the broker answered {status}");
        let (result, fault) = match meaning(answer.status) {
            Meaning::Accepted => {
                self.metrics.posted("accepted");
                self.outage.worked();
                return Ok(ForwardResponse {
                    broker_status: status.into(),
                    broker_event_id: answer.event_id,
                });
            }
            Meaning::EventRefused => ("refused", Fault::invalid(said).reason("BROKER_REFUSED")),
            Meaning::SetUpWrongly => {
                self.outage.failed(&said);
                ("status", Fault::precondition(said).reason("BROKER_STATUS"))
            }
            Meaning::Later => {
                self.outage.failed(&said);
                let fault = Fault::unavailable(said).reason("BROKER_STATUS");
                ("later", fault.retry_after(answer.retry_after))
            }
        };
        self.metrics.posted(result);
        Err(fault.metadata("status", status))
    }

    fn token(&self) -> Result<Option<BrokerToken>, Fault> {
        let Some(source) = &self.token else { return Ok(None) };
        source.current(self.clock.wall()).map(Some).map_err(|error| {
            self.metrics.posted("token");
            self.outage.failed(&error);
            Fault::precondition(error.to_string()).reason("BROKER_TOKEN")
        })
    }
}

fn decode(request: ForwardRequest) -> Result<Post, FieldError> {
    if request.event.is_empty() {
        return Err(FieldError::required("event"));
    }
    if request.event.len() > EVENT {
        return Err(FieldError::new("event", format!("must have at most {EVENT} bytes")));
    }
    if request.content_type.is_empty() {
        return Err(FieldError::required("content_type"));
    }
    if request.key.is_empty() {
        return Err(FieldError::required("key"));
    }
    let content_type = HeaderValue::from_str(&request.content_type)
        .ok()
        .filter(|value| value.len() <= CONTENT_TYPE)
        .ok_or_else(|| FieldError::new("content_type", "must be a header value of at most 256 characters"))?;
    let key = request.key.parse().map_err(|_| FieldError::new("key", "must be 40 lower-case hex digits"))?;
    Ok(Post { event: request.event, content_type, key })
}
