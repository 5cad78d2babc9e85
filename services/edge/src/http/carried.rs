//! Work that ends even if nobody waits for it any more.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;

/// A future that a task of its own carries on if it is dropped before its end. While it is awaited it costs no task.
pub(super) struct Carried<T: Send + 'static>(Option<BoxFuture<'static, T>>);

impl<T: Send + 'static> Carried<T> {
    pub(super) fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Some(Box::pin(work)))
    }
}

impl<T: Send + 'static> Future for Carried<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(work) = &mut self.0 else { return Poll::Pending };
        let result = ready!(work.as_mut().poll(context));
        self.0 = None;
        Poll::Ready(result)
    }
}

impl<T: Send + 'static> Drop for Carried<T> {
    fn drop(&mut self) {
        // Without a runtime the process is ending; what is on disk is taken up at the next start.
        if let (Some(work), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn what_is_begun_ends_although_its_awaiter_has_gone() {
        let (go, gone) = oneshot::channel::<u8>();
        let (tell, told) = oneshot::channel();
        let work = Carried::new(async move {
            let _ = tell.send(gone.await);
        });
        assert!(tokio::time::timeout(std::time::Duration::from_millis(5), work).await.is_err());
        go.send(7).unwrap();
        assert_eq!(told.await, Ok(Ok(7)));
        assert_eq!(Carried::new(async { 8 }).await, 8);
    }
}
