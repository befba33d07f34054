//! Connections as they come in: counted per uid, closed when they do not speak HTTP/2 in time, cut
//! off at the end.
//!
//! In: a listening socket. Out: streams for tonic, each holding its share until it is closed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;
use tonic::transport::server::{Connected, UdsConnectInfo};

use crate::api::server::share::{Share, Shares};

/// Length of `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n` (RFC 9113, 3.4).
const PREFACE: usize = 24;
/// Patience is counted in so many waits, one after the other: a machine that stood still altogether
/// (suspended, a guest whose host held it) has spent one.
const WAITS: u32 = 5;
/// Pause after accept(2) failed, for want of descriptors or memory: trying at once would only burn
/// time.
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
    pub fn new(
        listener: UnixListener,
        socket: String,
        shares: Shares,
        preface: Duration,
        cut: watch::Receiver<bool>,
    ) -> Incoming {
        Incoming {
            listener,
            socket,
            shares,
            preface,
            cut,
            pause: None,
            refusing: false,
        }
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
                        return Poll::Ready(Some(Ok(Connection::new(
                            stream,
                            share,
                            this.preface,
                            this.cut.clone(),
                        ))));
                    }
                    if !this.refusing {
                        this.refusing = true;
                        tracing::warn!(
                            socket = this.socket,
                            uid,
                            "connection refused: too many are open"
                        );
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
    /// Until the preface is in.
    handshake: Option<Handshake>,
    cut: WatchStream<bool>,
    _share: Share,
}

struct Handshake {
    /// Bytes read so far.
    got: usize,
    each: Duration,
    wait: Pin<Box<Sleep>>,
    /// That have passed.
    waits: u32,
}

impl Handshake {
    fn new(preface: Duration) -> Handshake {
        let each = preface / WAITS;
        Handshake {
            got: 0,
            each,
            wait: Box::pin(tokio::time::sleep(each)),
            waits: 0,
        }
    }

    /// Completes when patience is over.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.wait.as_mut().poll(cx));
            self.waits += 1;
            if self.waits >= WAITS {
                return Poll::Ready(());
            }
            self.wait.as_mut().reset(Instant::now() + self.each);
        }
    }
}

impl Connection {
    fn new(
        stream: UnixStream,
        share: Share,
        preface: Duration,
        cut: watch::Receiver<bool>,
    ) -> Connection {
        let handshake = Some(Handshake::new(preface));
        Connection {
            stream,
            handshake,
            cut: WatchStream::from_changes(cut),
            _share: share,
        }
    }

    fn poll_cut(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match Pin::new(&mut self.cut).poll_next(cx) {
            Poll::Ready(_) => Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the daemon is shutting down",
            )),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.poll_cut(cx)?;
        let before = buf.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        if let Some(handshake) = &mut this.handshake {
            handshake.got += buf.filled().len() - before;
            if handshake.got >= PREFACE {
                this.handshake = None;
            } else if handshake.poll_over(cx).is_ready() {
                return Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "no HTTP/2 preface in time",
                )));
            }
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_cut(cx)?;
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tokio::io::AsyncReadExt;

    use super::*;

    /// What a read gives at once: None where it waits.
    async fn read(connection: &mut Connection) -> Option<io::Result<usize>> {
        let mut bytes = [0; 64];
        tokio::select! {
            biased;
            read = connection.read(&mut bytes) => Some(read),
            () = std::future::ready(()) => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_stood_still_breaks_no_connection_off_and_one_that_says_nothing_is_closed()
     {
        let preface = Duration::from_secs(5);
        for speaks in [true, false] {
            let (here, mut there) = std::os::unix::net::UnixStream::pair().unwrap();
            here.set_nonblocking(true).unwrap();
            let share = Shares::new(1, 1).take(Some(1)).unwrap();
            let (_cutter, cut) = watch::channel(false);
            let mut connection =
                Connection::new(UnixStream::from_std(here).unwrap(), share, preface, cut);
            assert!(read(&mut connection).await.is_none());
            // Far more than its patience passes at once.
            tokio::time::advance(preface * 10).await;
            assert!(read(&mut connection).await.is_none());
            if speaks {
                there
                    .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
                    .unwrap();
                let mut bytes = [0; 64];
                assert_eq!(connection.read(&mut bytes).await.unwrap(), PREFACE);
                tokio::time::advance(preface * 10).await;
                assert!(read(&mut connection).await.is_none());
                continue;
            }
            let began = Instant::now();
            let mut bytes = [0; 64];
            assert_eq!(
                connection.read(&mut bytes).await.unwrap_err().kind(),
                io::ErrorKind::TimedOut
            );
            assert!(
                began.elapsed() >= preface / WAITS * (WAITS - 1) && began.elapsed() <= preface,
                "{:?}",
                began.elapsed()
            );
        }
    }
}
