//! Asking again what the API server was too busy to take.

use std::time::Duration;

use http::{Request, Response, StatusCode, header::RETRY_AFTER};
use kube::client::Body;
use tokio::time::{Sleep, sleep};
use tower::retry::Policy;

/// How often one request is asked again. Whoever waits for the answer may give up before.
const AGAIN: u32 = 4;
/// The wait that an API server asks for, when it does not say, and the longest that is heeded here.
const WAIT: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];

/// What is refused with 429 was not carried out, whatever it was, and is asked again. Nothing else is: of the rest the end
/// is unknown, or it is for the caller to say how often. (The client's own policy asks after 503 and 504, too, fifteen
/// times from 5 ms on; and after 429 everybody at the same moment.)
#[derive(Clone, Debug, Default)]
pub(crate) struct Busy {
    asked: u32,
}

impl<B> Policy<Request<Body>, Response<B>, kube::Error> for Busy {
    type Future = Sleep;

    fn retry(
        &mut self,
        _: &mut Request<Body>,
        answer: &mut Result<Response<B>, kube::Error>,
    ) -> Option<Sleep> {
        let answer =
            answer.as_ref().ok().filter(|answer| answer.status() == StatusCode::TOO_MANY_REQUESTS)?;
        if self.asked == AGAIN {
            return None;
        }
        self.asked += 1;
        let seconds = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let wait = seconds.map_or(WAIT[0], Duration::from_secs).min(WAIT[1]);
        // Those that were refused together come back one by one.
        Some(sleep(wait.mul_f64(0.25 + fastrand::f64())))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        let mut again = Request::new(request.body().try_clone()?);
        *again.method_mut() = request.method().clone();
        *again.uri_mut() = request.uri().clone();
        *again.headers_mut() = request.headers().clone();
        *again.extensions_mut() = request.extensions().clone();
        Some(again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks_again(busy: &mut Busy, status: u16) -> bool {
        let answer = Response::builder().status(status).body(()).unwrap();
        busy.retry(&mut Request::new(Body::empty()), &mut Ok(answer)).is_some()
    }

    #[tokio::test]
    async fn only_what_was_not_taken_is_asked_again_and_not_for_ever() {
        let mut busy = Busy::default();
        for status in [200, 409, 500, 503, 504] {
            assert!(!asks_again(&mut busy, status), "{status}");
        }
        for _ in 0..AGAIN {
            assert!(asks_again(&mut busy, 429));
        }
        assert!(!asks_again(&mut busy, 429));
    }

    #[test]
    fn what_is_asked_again_is_the_same() {
        let request = Request::put("https://a/b?c=d").header("e", "f").body(Body::from(vec![1, 2])).unwrap();
        let again = Policy::<_, Response<()>, _>::clone_request(&mut Busy::default(), &request).unwrap();
        assert_eq!(
            (again.method(), again.uri(), again.headers()),
            (request.method(), request.uri(), request.headers())
        );
    }
}
