//! Closing without a reset: a client that is still sending when the connection is closed would lose the answer that
//! tells it why.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// Longest wait for the client to stop sending.
const LONGEST: Duration = Duration::from_secs(1);
/// Most bytes that are read past.
const ENOUGH: usize = 2 * 1024 * 1024;

/// A connection that, once its writing side is shut, reads on for a moment before it is closed.
pub(super) struct Linger<S> {
    stream: S,
    closing: Option<Pin<Box<Sleep>>>,
    past: usize,
}

impl<S> Linger<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, closing: None, past: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Linger<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Linger<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.closing.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        }
        let closing = this.closing.get_or_insert_with(|| Box::pin(sleep(LONGEST)));
        let mut space = [0; 4096];
        while this.past < ENOUGH && closing.as_mut().poll(cx).is_pending() {
            let mut buf = ReadBuf::new(&mut space);
            match ready!(Pin::new(&mut this.stream).poll_read(cx, &mut buf)) {
                Ok(()) if !buf.filled().is_empty() => this.past += buf.filled().len(),
                // It has ended, in whatever way.
                _ => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}
