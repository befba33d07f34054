//! Connections as they come in: counted per uid, closed when they do not speak HTTP/2 in time, cut off at the end.
//!
//! In: a listening socket. Out: streams for tonic, each holding its share until it is closed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::Sleep;
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;
use tonic::transport::server::{Connected, UdsConnectInfo};

use crate::api::server::share::{Share, Shares};

/// Length of `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n` (RFC 9113, 3.4).
const PREFACE: usize = 24;
/// Pause after accept(2) failed, for want of descriptors or memory: trying at once would only burn time.
const PAUSE: Duration = Duration::from_millis(100);

pub struct Incoming {
    listener: UnixListener,
    socket: String,
    shares: Shares,
    preface: Duration,
    cut: watch::Receiver<bool>,
    pause: Option<Pin<Box<Sleep>>>,
    /// Told once per spell, not per connection.
    refusing: bool,
}

impl Incoming {
    pub fn new(listener: UnixListener, socket: String, shares: Shares, preface: Duration, cut: watch::Receiver<bool>) -> Incoming {
        Incoming { listener, socket, shares, preface, cut, pause: None, refusing: false }
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(pause) = &mut this.pause {
                ready!(pause.as_mut().poll(cx));
                this.pause = None;
            }
            match ready!(this.listener.poll_accept(cx)) {
                Ok((stream, _)) => {
                    let uid = stream.peer_cred().ok().map(|cred| cred.uid());
                    if let Some(share) = this.shares.take(uid) {
                        this.refusing = false;
                        return Poll::Ready(Some(Ok(Connection::new(stream, share, this.preface, this.cut.clone()))));
                    }
                    if !this.refusing {
                        this.refusing = true;
                        tracing::warn!(socket = this.socket, uid, "connection refused: too many are open");
                    }
                }
                Err(error) => {
                    if !this.refusing {
                        this.refusing = true;
                        tracing::warn!(socket = this.socket, %error, "accepting connections fails");
                    }
                    this.pause = Some(Box::pin(tokio::time::sleep(PAUSE)));
                }
            }
        }
    }
}

pub struct Connection {
    stream: UnixStream,
    /// Until the preface is in: bytes read so far, and when patience ends.
    handshake: Option<(usize, Pin<Box<Sleep>>)>,
    cut: WatchStream<bool>,
    _share: Share,
}

impl Connection {
    fn new(stream: UnixStream, share: Share, preface: Duration, cut: watch::Receiver<bool>) -> Connection {
        let handshake = Some((0, Box::pin(tokio::time::sleep(preface))));
        Connection { stream, handshake, cut: WatchStream::from_changes(cut), _share: share }
    }

    fn poll_cut(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match Pin::new(&mut self.cut).poll_next(cx) {
            Poll::Ready(_) => Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the daemon is shutting down")),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.poll_cut(cx)?;
        let before = buf.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        if let Some((got, patience)) = &mut this.handshake {
            *got += buf.filled().len() - before;
            if *got >= PREFACE {
                this.handshake = None;
            } else if patience.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "no HTTP/2 preface in time")));
            }
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_cut(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.poll_cut(cx)?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl Connected for Connection {
    type ConnectInfo = UdsConnectInfo;

    fn connect_info(&self) -> UdsConnectInfo {
        self.stream.connect_info()
    }
}
