//! Incoming connections: counted per uid, closed when they do not speak HTTP/2 in time, send more
//! control frames than calls need, and when the daemon ends.
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
use crate::api::server::frame_budget::{FrameBudget, PREFACE_BYTES};
use crate::api::server::quota::{ConnectionQuota, QuotaPermit};
use crate::api::server::refusals::{ConnectBudget, RefusalLog};
use crate::host::listen::Incoming;

/// The preface time-out consists of this many consecutive waits. A machine that did not run for a
/// while (a suspended machine, a paused guest) loses only one of them.
const TIMEOUT_SLICES: u32 = 5;

pub(crate) struct QuotaIncoming {
    incoming: Incoming<UnixListener>,
    quota: ConnectionQuota,
    preface: Duration,
    cancel: watch::Receiver<bool>,
    refusals: RefusalLog,
    connects: ConnectBudget,
}

impl QuotaIncoming {
    pub(crate) fn new(
        incoming: Incoming<UnixListener>,
        quota: ConnectionQuota,
        preface: Duration,
        cancel: watch::Receiver<bool>,
    ) -> QuotaIncoming {
        let refusals = RefusalLog::new(incoming.name());
        QuotaIncoming {
            incoming,
            quota,
            preface,
            cancel,
            refusals,
            connects: ConnectBudget::default(),
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
            let caller = (cred.map(|cred| cred.uid()), cred.map(|cred| cred.gid()));
            if !this.connects.admit(caller) {
                this.refusals.note(caller.0, "too many are opened");
                continue;
            }
            let Some(permit) = this.quota.acquire(caller.0, caller.1) else {
                this.refusals.note(caller.0, "too many are open");
                continue;
            };
            let guard = ConnectionGuard {
                handshake: Some(Handshake::new(this.preface)),
                cancel: WatchStream::from_changes(this.cancel.clone()),
                frames: FrameBudget::new(Instant::now()),
                caller,
                refusals: this.refusals.clone(),
                connects: this.connects.clone(),
                _permit: permit,
            };
            return Poll::Ready(Some(Ok(GuardedStream { stream, guard })));
        }
    }
}

pub(crate) type Connection = GuardedStream<ConnectionGuard>;

pub(crate) struct ConnectionGuard {
    /// Until the preface is read.
    handshake: Option<Handshake>,
    cancel: WatchStream<bool>,
    frames: FrameBudget,
    /// Its uid and gid.
    caller: (Option<u32>, Option<u32>),
    refusals: RefusalLog,
    connects: ConnectBudget,
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

    fn after_read(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> io::Result<()> {
        if let Err(flood) = self.frames.received(bytes, Instant::now()) {
            self.refusals.note(self.caller.0, &flood.to_string());
            self.connects.note_flood(self.caller);
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, flood));
        }
        let Some(handshake) = &mut self.handshake else {
            return Ok(());
        };
        handshake.bytes_read += bytes.len();
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

    fn after_write(&mut self, bytes: usize) {
        self.frames.sent(bytes);
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
                guard: ConnectionGuard {
                    handshake: Some(Handshake::new(preface)),
                    cancel: WatchStream::from_changes(cut),
                    frames: FrameBudget::new(Instant::now()),
                    caller: (Some(1), Some(1)),
                    refusals: RefusalLog::new("s"),
                    connects: ConnectBudget::default(),
                    _permit: share,
                },
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
