//! Incoming connections: counted by their callers, closed when they do not speak HTTP/2 in time, send
//! more control frames than calls need, when another caller gets their place, and when the daemon ends.
//!
//! In: a listening socket. Out: streams for tonic, each with a permit until it is closed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep};
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;

use crate::api::server::caller::{Caller, CallerId};
use crate::api::server::quota::{ConnectionQuota, Share, Standing};
use crate::api::server::refusals::{ConnectBudget, RefusalLog};
use diskvitals_host::listen::Incoming;
use diskvitals_host::peer::{Peer, UnreadPeer};
use diskvitals_quota::frame_budget::{FrameBudget, PREFACE_BYTES};
use diskvitals_quota::places::{Activity, PlacePermit};
use diskvitals_quota::refusals::{Refusal, RefusalCounts};
use diskvitals_wire::client::tracked_stream::{GuardedStream, StreamGuard};

/// Reading two files of /proc takes some ten microseconds.
const PEER_TIMEOUT: Duration = Duration::from_millis(200);

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
    /// Accepted, until it is known whose it is.
    newcomer: Option<Newcomer>,
    /// A read of /proc that has not ended in time: no other is begun.
    stuck: Option<PeerRead>,
}

type PeerRead = JoinHandle<Option<Peer>>;

struct Newcomer {
    stream: UnixStream,
    caller: CallerId,
    pid: Option<u32>,
    standing: Standing,
    /// With its time-out.
    read: Option<(PeerRead, Pin<Box<Sleep>>)>,
}

impl QuotaIncoming {
    pub(crate) fn new(
        incoming: Incoming<UnixListener>,
        quota: ConnectionQuota,
        preface: Duration,
        cancel: watch::Receiver<bool>,
        refusals: RefusalCounts,
    ) -> QuotaIncoming {
        let refusals = RefusalLog::new(incoming.name(), refusals);
        QuotaIncoming {
            incoming,
            quota,
            preface,
            cancel,
            refusals,
            connects: ConnectBudget::default(),
            newcomer: None,
            stuck: None,
        }
    }

    /// None if its uid opens too many connections.
    fn receive(&mut self, stream: UnixStream) -> Option<Newcomer> {
        let cred = stream.peer_cred().ok();
        let (uid, gid) = (cred.map(|cred| cred.uid()), cred.map(|cred| cred.gid()));
        let pid = cred.and_then(|cred| u32::try_from(cred.pid()?).ok());
        let (caller, standing) = (self.quota.caller(uid, gid), self.quota.standing(uid, gid));
        let is_admitted = match uid {
            // Readers with uid 0 are told apart later.
            Some(0) => !pid.is_some_and(|pid| self.connects.was_refused((gid, pid))),
            _ => self.connects.admit(&Share::new(standing, &caller)),
        };
        if !is_admitted {
            self.refusals.note(uid, Refusal::ConnectRate);
            return None;
        }
        self.stuck.take_if(|read| read.is_finished());
        let is_looked_up =
            self.stuck.is_none() && (standing != Standing::Root || self.connects.admit_lookup());
        let read = pid.filter(|_| is_looked_up).map(|pid| {
            let peer = UnreadPeer::new(&stream, pid);
            let read = tokio::task::spawn_blocking(|| peer.read());
            (read, Box::pin(tokio::time::sleep(PEER_TIMEOUT)))
        });
        Some(Newcomer { stream, caller, pid, standing, read })
    }

    /// Ready when it is known whose the connection is, or cannot be known.
    fn poll_peer(
        newcomer: &mut Newcomer,
        stuck: &mut Option<PeerRead>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Peer>> {
        let Some((read, timer)) = &mut newcomer.read else {
            return Poll::Ready(None);
        };
        if let Poll::Ready(peer) = Pin::new(read).poll(cx) {
            return Poll::Ready(peer.ok().flatten());
        }
        ready!(timer.as_mut().poll(cx));
        *stuck = newcomer.read.take().map(|(read, _)| read);
        Poll::Ready(None)
    }

    fn admit(&self, newcomer: Newcomer, peer: Option<Peer>) -> Option<Connection> {
        let Newcomer { stream, caller, pid, standing, .. } = newcomer;
        let (uid, gid) = (caller.uid, caller.gid);
        let (control_groups, process) = match peer {
            Some(peer) => (Some(peer.control_groups), Some((peer.pid, peer.started))),
            // Root's processes are told apart also where they are not looked up.
            None => (None, pid.filter(|_| standing == Standing::Root).map(|pid| (pid, 0))),
        };
        let caller = Caller {
            id: CallerId { control_groups, process, ..caller },
            standing,
            activity: Activity::new(),
            refusals: self.refusals.counts.clone(),
        };
        if uid == Some(0) && !self.connects.admit(&caller.share()) {
            if let Some(pid) = pid {
                self.connects.note_refused((gid, pid));
            }
            self.refusals.note(uid, Refusal::ConnectRate);
            return None;
        }
        let place = self.quota.acquire(standing, &caller.id, &caller.activity);
        let Some(place) = place else {
            self.refusals.note(uid, Refusal::Connections);
            return None;
        };
        let guard = ConnectionGuard {
            handshake: Some(Handshake::new(self.preface)),
            cancel: WatchStream::from_changes(self.cancel.clone()),
            revoked: WatchStream::from_changes(place.revoked.clone()),
            frames: FrameBudget::default(),
            caller,
            refusals: self.refusals.clone(),
            connects: self.connects.clone(),
            place,
        };
        Some(GuardedStream { stream, guard })
    }
}

impl Stream for QuotaIncoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(newcomer) = &mut this.newcomer {
                let peer = ready!(QuotaIncoming::poll_peer(newcomer, &mut this.stuck, cx));
                let newcomer = this.newcomer.take();
                match newcomer.and_then(|newcomer| this.admit(newcomer, peer)) {
                    Some(connection) => return Poll::Ready(Some(Ok(connection))),
                    None => continue,
                }
            }
            let stream = ready!(this.incoming.poll_accept(cx));
            this.newcomer = this.receive(stream);
        }
    }
}

pub(crate) type Connection = GuardedStream<ConnectionGuard>;

pub(crate) struct ConnectionGuard {
    /// Until the preface is read.
    handshake: Option<Handshake>,
    cancel: WatchStream<bool>,
    /// Somebody else gets the place of this connection.
    revoked: WatchStream<bool>,
    frames: FrameBudget,
    caller: Caller,
    refusals: RefusalLog,
    connects: ConnectBudget,
    place: PlacePermit<CallerId>,
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
    type Caller = Caller;

    fn caller(&self) -> Caller {
        self.caller.clone()
    }

    fn before_io(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let ended = |why| Err(io::Error::new(io::ErrorKind::ConnectionAborted, why));
        if Pin::new(&mut self.cancel).poll_next(cx).is_ready() {
            return ended("the daemon is shutting down");
        }
        // It was changed before the stream existed.
        if *self.place.revoked.borrow() || Pin::new(&mut self.revoked).poll_next(cx).is_ready() {
            return ended("another caller has got the place of this connection");
        }
        Ok(())
    }

    fn after_read(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> io::Result<()> {
        if let Err(flood) = self.frames.received(bytes, Instant::now()) {
            self.refusals.note(self.caller.id.uid, flood);
            self.connects.note_flood(&self.caller.share());
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, flood));
        }
        let Some(handshake) = &mut self.handshake else {
            return Ok(());
        };
        handshake.bytes_read += bytes.len();
        if handshake.bytes_read >= PREFACE_BYTES {
            self.handshake = None;
        } else if handshake.poll_timeout(cx).is_ready() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no HTTP/2 preface in time"));
        }
        Ok(())
    }

    fn after_write(&mut self, bytes: usize) {
        self.frames.sent(bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tokio::io::AsyncReadExt;

    use super::*;
    use diskvitals_quota::places::Places;

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
            let (id, activity) = (CallerId::default(), Activity::new());
            let place = Places::new(1, 1).acquire(&id, &activity).unwrap();
            let (_cutter, cut) = watch::channel(false);
            let mut connection = GuardedStream {
                stream: UnixStream::from_std(here).unwrap(),
                guard: ConnectionGuard {
                    handshake: Some(Handshake::new(preface)),
                    cancel: WatchStream::from_changes(cut),
                    frames: FrameBudget::default(),
                    revoked: WatchStream::from_changes(place.revoked.clone()),
                    caller: Caller {
                        id,
                        standing: Standing::Other,
                        activity,
                        refusals: RefusalCounts::default(),
                    },
                    refusals: RefusalLog::new("s", RefusalCounts::default()),
                    connects: ConnectBudget::default(),
                    place,
                },
            };
            assert!(read(&mut connection).await.is_none());
            // Far more than the time-out passes at once.
            tokio::time::advance(preface * 10).await;
            assert!(read(&mut connection).await.is_none());
            if speaks {
                there.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
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
