//! A unix stream with a guard, which may end the stream and is dropped with it. The client's guard
//! reports the end of its one connection, on which it has introduced itself. The server's guard
//! limits how many connections a uid has, and for how long.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tonic::transport::server::Connected;

/// Observes the reads and writes of a stream. An error ends the connection.
pub trait StreamGuard: Unpin {
    /// What a server's methods learn of the other end.
    type Caller: Clone + Send + Sync + 'static;

    fn caller(&self) -> Self::Caller;

    fn before_io(&mut self, _cx: &mut Context<'_>) -> io::Result<()> {
        Ok(())
    }

    /// Called after each read, also after a read that gave no bytes yet.
    fn after_read(&mut self, _bytes: &[u8], _cx: &mut Context<'_>) -> io::Result<()> {
        Ok(())
    }

    fn after_write(&mut self, _bytes: usize) {}
}

pub struct GuardedStream<G> {
    pub stream: UnixStream,
    pub guard: G,
}

/// Completes when the connection is over, whichever side ended it.
pub struct ConnectionClosed(oneshot::Receiver<Infallible>);

impl ConnectionClosed {
    pub async fn wait(&mut self) {
        // Nothing is ever sent: the receiver ends when the stream, which owns the sender, is dropped.
        let _ = (&mut self.0).await;
    }
}

pub(crate) type TrackedStream = GuardedStream<oneshot::Sender<Infallible>>;

impl StreamGuard for oneshot::Sender<Infallible> {
    type Caller = ();

    fn caller(&self) {}
}

impl<G: StreamGuard> Connected for GuardedStream<G> {
    type ConnectInfo = G::Caller;

    fn connect_info(&self) -> G::Caller {
        self.guard.caller()
    }
}

impl TrackedStream {
    pub fn new(stream: UnixStream) -> (TrackedStream, ConnectionClosed) {
        let (guard, closed) = oneshot::channel();
        (GuardedStream { stream, guard }, ConnectionClosed(closed))
    }
}

impl<G: StreamGuard> GuardedStream<G> {
    fn note_written(&mut self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.guard.after_write(*bytes);
        }
    }
}

impl<G: StreamGuard> AsyncRead for GuardedStream<G> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.guard.before_io(cx)?;
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.guard.after_read(&buf.filled()[before..], cx)?;
        read
    }
}

impl<G: StreamGuard> AsyncWrite for GuardedStream<G> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.guard.before_io(cx)?;
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.note_written(&written);
        written
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
        self.guard.before_io(cx)?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.note_written(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
