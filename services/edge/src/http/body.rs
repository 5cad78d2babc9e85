//! Receiving a body: against a limit, a deadline and the budgets for bodies in flight.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};

use super::problem::Problem;
use crate::budget::{Budget, Spent};

/// Room that a body takes while it is received and stored. Given back when dropped.
pub(super) struct Room {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Room {
    fn new(budget: Arc<Budget>) -> Self {
        Self { budget, bytes: 0 }
    }

    fn take(&mut self, bytes: u64) -> Result<(), Problem> {
        self.budget.take_body(bytes).map_err(|spent| match spent {
            Spent::Cluster => {
                Problem::Budget { what: "bodies in flight", retry_after: Duration::from_secs(1) }
            }
            Spent::Store => Problem::Unavailable("too many bodies are being received"),
        })?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.budget.give_back_body(self.bytes);
    }
}

/// Longest content type that is taken: it is kept with the event.
const LONGEST_TYPE: usize = 256;

/// Checks what the head says of the body, before any of it is read. Answers the content type as it came.
pub(super) fn check_head(headers: &HeaderMap, limit: u64) -> Result<String, Problem> {
    let encoded = headers
        .get(header::CONTENT_ENCODING)
        .is_some_and(|v| !v.as_bytes().eq_ignore_ascii_case(b"identity"));
    if encoded {
        return Err(Problem::MediaType("a content encoding is not taken"));
    }
    let wrong =
        Problem::MediaType("the content type must be application/cloudevents+json or application/json");
    let Some(kind) = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()) else {
        return Err(wrong);
    };
    if kind.len() > LONGEST_TYPE {
        return Err(Problem::MediaType("the content type has more than 256 bytes"));
    }
    let essence = kind.split(';').next().unwrap_or_default().trim();
    let taken = ["application/cloudevents+json", "application/json"];
    if !taken.iter().any(|taken| essence.eq_ignore_ascii_case(taken)) {
        return Err(wrong);
    }
    let length = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > limit) {
        return Err(Problem::TooLarge { limit });
    }
    Ok(kind.to_owned())
}

/// Receives a body. What has arrived counts, not what was announced: a client that dribbles holds little.
pub(super) async fn receive(
    body: &mut Incoming,
    limit: u64,
    deadline: Duration,
    budget: Arc<Budget>,
) -> Result<(Bytes, Room), Problem> {
    let mut room = Room::new(budget);
    let reading = async {
        let mut received = BytesMut::new();
        while let Some(frame) = body.frame().await {
            // Cut short, or chunks that are none; who has gone reads no answer anyway.
            let frame = frame.map_err(|_| Problem::Event {
                field: "the event".into(),
                reason: "did not arrive whole".into(),
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if received.len() as u64 + data.len() as u64 > limit {
                return Err(Problem::TooLarge { limit });
            }
            room.take(data.len() as u64)?;
            if received.is_empty() && body.is_end_stream() {
                return Ok(data);
            }
            received.extend_from_slice(&data);
        }
        Ok(received.freeze())
    };
    let bytes = tokio::time::timeout(deadline, reading).await.unwrap_or(Err(Problem::Timeout))?;
    Ok((bytes, room))
}
