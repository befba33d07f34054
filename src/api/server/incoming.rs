//! Incoming connections: counted per uid, closed when they do not speak HTTP/2 in time, and closed
//! when the daemon ends.
//!
//! In: a listening socket. Out: streams for tonic, each with a permit until it is closed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;
use tonic::transport::server::{Connected, UdsConnectInfo};

use crate::api::client::tracked_stream::{GuardedStream, StreamGuard};
use crate::api::server::quota::{ConnectionQuota, QuotaPermit};
use crate::host::listen::Incoming;

/// Length of `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n` (RFC 9113, 3.4).
const PREFACE_BYTES: usize = 24;
/// The preface time-out consists of this many consecutive waits. A machine that did not run for a
/// while (a suspended machine, a paused guest) loses only one of them.
const TIMEOUT_SLICES: u32 = 5;

pub(crate) struct QuotaIncoming {
    incoming: Incoming<UnixListener>,
    quota: ConnectionQuota,
    preface: Duration,
    cancel: watch::Receiver<bool>,
    /// True while connections are refused: the refusal is logged once, not per connection.
    refusing: bool,
}

impl QuotaIncoming {
    pub(crate) fn new(
        incoming: Incoming<UnixListener>,
        quota: ConnectionQuota,
        preface: Duration,
        cancel: watch::Receiver<bool>,
    ) -> QuotaIncoming {
        QuotaIncoming {
            incoming,
            quota,
            preface,
            cancel,
            refusing: false,
        }
    }
}

impl Stream for QuotaIncoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            let stream = ready!(this.incoming.poll_accept(cx));
            let cred = stream.peer_cred().ok();
            let uid = cred.map(|cred| cred.uid());
            if let Some(permit) = this.quota.acquire(uid, cred.map(|cred| cred.gid())) {
                this.refusing = false;
                let guard = ConnectionGuard::new(permit, this.preface, this.cancel.clone());
                return Poll::Ready(Some(Ok(GuardedStream { stream, guard })));
            }
            if !std::mem::replace(&mut this.refusing, true) {
                tracing::warn!(
                    socket = this.incoming.name(),
                    uid,
                    "connection refused: too many are open"
                );
            }
        }
    }
}

pub(crate) type Connection = GuardedStream<ConnectionGuard>;

pub(crate) struct ConnectionGuard {
    /// Until the preface is read.
    handshake: Option<Handshake>,
    cancel: WatchStream<bool>,
    _permit: QuotaPermit,
}

struct Handshake {
    /// Bytes read so far.
    bytes_read: usize,
    slice: Duration,
    timer: Pin<Box<Sleep>>,
    slices_elapsed: u32,
}

impl Handshake {
    fn new(preface: Duration) -> Handshake {
        let each = preface / TIMEOUT_SLICES;
        Handshake {
            bytes_read: 0,
            slice: each,
            timer: Box::pin(tokio::time::sleep(each)),
            slices_elapsed: 0,
        }
    }

    /// Completes at the preface time limit.
    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            self.slices_elapsed += 1;
            if self.slices_elapsed >= TIMEOUT_SLICES {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(Instant::now() + self.slice);
        }
    }
}

impl ConnectionGuard {
    fn new(
        permit: QuotaPermit,
        preface: Duration,
        cancel: watch::Receiver<bool>,
    ) -> ConnectionGuard {
        ConnectionGuard {
            handshake: Some(Handshake::new(preface)),
            cancel: WatchStream::from_changes(cancel),
            _permit: permit,
        }
    }
}

impl StreamGuard for ConnectionGuard {
    fn before_io(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match Pin::new(&mut self.cancel).poll_next(cx) {
            Poll::Ready(_) => Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the daemon is shutting down",
            )),
            Poll::Pending => Ok(()),
        }
    }

    fn after_read(&mut self, bytes: usize, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(handshake) = &mut self.handshake else {
            return Ok(());
        };
        handshake.bytes_read += bytes;
        if handshake.bytes_read >= PREFACE_BYTES {
            self.handshake = None;
        } else if handshake.poll_timeout(cx).is_ready() {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "no HTTP/2 preface in time",
            ));
        }
        Ok(())
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
    use tokio::net::UnixStream;

    use super::*;
    use crate::api::server::quota::UidQuota;

    /// The result of a read that returns at once; None if it would wait.
    async fn read(connection: &mut Connection) -> Option<io::Result<usize>> {
        let mut bytes = [0; 64];
        tokio::select! {
            biased;
            read = connection.read(&mut bytes) => Some(read),
            () = std::future::ready(()) => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_suspended_machine_keeps_its_connections_and_a_silent_connection_is_closed() {
        let preface = Duration::from_secs(5);
        for speaks in [true, false] {
            let (here, mut there) = std::os::unix::net::UnixStream::pair().unwrap();
            here.set_nonblocking(true).unwrap();
            let share = UidQuota::new(1, 1).acquire(Some(1), 1).unwrap();
            let (_cutter, cut) = watch::channel(false);
            let mut connection = GuardedStream {
                stream: UnixStream::from_std(here).unwrap(),
                guard: ConnectionGuard::new(share, preface, cut),
            };
            assert!(read(&mut connection).await.is_none());
            // Far more than the time-out passes at once.
            tokio::time::advance(preface * 10).await;
            assert!(read(&mut connection).await.is_none());
            if speaks {
                there
                    .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
                    .unwrap();
                let mut bytes = [0; 64];
                assert_eq!(connection.read(&mut bytes).await.unwrap(), PREFACE_BYTES);
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
                began.elapsed() >= preface / TIMEOUT_SLICES * (TIMEOUT_SLICES - 1)
                    && began.elapsed() <= preface,
                "{:?}",
                began.elapsed()
            );
        }
    }
}
