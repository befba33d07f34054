//! A unix stream that reports its end: for a client that must notice when its one connection is
//! over, because it has to introduce itself on every new one.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::oneshot;

/// Completes when the connection is over, whichever side ended it.
pub(crate) struct ConnectionClosed(oneshot::Receiver<Infallible>);

impl ConnectionClosed {
    pub(crate) async fn wait(&mut self) {
        // Nothing is ever sent: the receiver ends when the stream, which owns the sender, is dropped.
        let _ = (&mut self.0).await;
    }
}

pub(crate) struct TrackedStream {
    stream: UnixStream,
    _closed: oneshot::Sender<Infallible>,
}

impl TrackedStream {
    pub(crate) fn new(stream: UnixStream) -> (TrackedStream, ConnectionClosed) {
        let (_closed, over) = oneshot::channel();
        (TrackedStream { stream, _closed }, ConnectionClosed(over))
    }
}

impl AsyncRead for TrackedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for TrackedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
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
}
