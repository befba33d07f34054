//! Watch: a first snapshot, then changes. One small task per watcher feeds a bounded queue at the
//! client's pace.
//!
//! The owner never waits for a watcher: its broadcast is bounded, a watcher that lags gets a fresh
//! snapshot, and a watcher that does not read is disconnected, so that it cannot keep old snapshots
//! in memory.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{mpsc, watch as signal};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::api::server::caller::CallerId;
use crate::api::status::{exhausted, shutting_down};
use crate::state::handle::{Handle, Subscription, SubscriptionStart};
use diskvitals_convert as convert;
use diskvitals_model::snapshot::Snapshot;
use diskvitals_quota::places::{InUse, PlacePermit};
use diskvitals_wire as wire;
use wire::watch_event::{Change as Kind, Item};

/// Events between the task and the connection; when they are full, the client's pace decides.
const QUEUE: usize = 16;

pub(crate) async fn start(
    handle: Handle,
    resume: Option<u64>,
    stopped: signal::Receiver<bool>,
    send_timeout: Duration,
    share: (PlacePermit<CallerId>, InUse),
) -> Result<ReceiverStream<Result<wire::WatchEvent, Status>>, Status> {
    let subscription = handle.subscribe(resume).await?;
    let (events, stream) = mpsc::channel(QUEUE);
    let watcher = Watcher { handle, events, send_timeout };
    // The task is detached. It ends with the client (which drops the other end of the queue), with
    // the daemon, or when the client stops reading.
    tokio::spawn(async move {
        let (mut place, _in_use) = share;
        watcher.run(subscription, stopped, &mut place).await;
    });
    Ok(ReceiverStream::new(stream))
}

struct Watcher {
    handle: Handle,
    events: mpsc::Sender<Result<wire::WatchEvent, Status>>,
    send_timeout: Duration,
}

/// Why a watch ends.
enum WatchEnd {
    /// The client has disconnected.
    ClientGone,
    /// The stream ends with this status.
    Status(Status),
}

impl Watcher {
    async fn run(
        &self,
        subscription: Subscription,
        mut stopped: signal::Receiver<bool>,
        place: &mut PlacePermit<CallerId>,
    ) {
        let end = tokio::select! {
            end = self.follow(subscription) => end,
            () = self.events.closed() => WatchEnd::ClientGone,
            // An error: the sender no longer exists, and the daemon is ending.
            _ = stopped.wait_for(|stopped| *stopped) => WatchEnd::Status(shutting_down()),
            _ = place.revoked.wait_for(|revoked| *revoked) => WatchEnd::Status(exhausted(
                "another caller, who has fewer watches, has got the place of this one",
            )),
        };
        if let WatchEnd::Status(status) = end {
            // If the queue is full, the client does not read; the end of the connection informs it.
            let _ = self.events.try_send(Err(status));
        }
    }

    async fn follow(&self, mut subscription: Subscription) -> WatchEnd {
        loop {
            if let Err(end) = self.send_start(subscription.start).await {
                return end;
            }
            loop {
                match subscription.changes.recv().await {
                    Ok(change) => {
                        let event = convert::change(&self.handle.snapshot(), &change);
                        if let Err(end) = self.send(event).await {
                            return end;
                        }
                    }
                    Err(RecvError::Lagged(_)) => break,
                    Err(RecvError::Closed) => return WatchEnd::Status(shutting_down()),
                }
            }
            subscription = match self.handle.subscribe(None).await {
                Ok(fresh) => fresh,
                Err(error) => return WatchEnd::Status(error.into()),
            };
        }
    }

    async fn send_start(&self, start: SubscriptionStart) -> Result<(), WatchEnd> {
        match start {
            SubscriptionStart::Snapshot(snapshot) => self.send_snapshot(&snapshot).await,
            SubscriptionStart::Resume(changes) => {
                for change in changes {
                    self.send(convert::change(&self.handle.snapshot(), &change)).await?;
                }
                Ok(())
            }
        }
    }

    /// Sends SNAPSHOT_BEGIN, everything as ADDED, SNAPSHOT_END. Objects are converted one by one,
    /// at the client's pace.
    async fn send_snapshot(&self, snapshot: &Arc<Snapshot>) -> Result<(), WatchEnd> {
        let time = Some(convert::time(diskvitals_host::clock::now()));
        let event = |change: Kind, item: Option<Item>| wire::WatchEvent {
            revision: snapshot.revision,
            time,
            change: change.into(),
            item,
        };
        self.send(event(Kind::SnapshotBegin, None)).await?;
        let drives = snapshot.drives.values();
        let volumes = snapshot.volumes.values();
        let findings = snapshot.findings.values();
        let checks = snapshot.checks.values();
        let causes = snapshot.causes.values();
        let items = drives
            .map(|it| Item::Drive(convert::drive(snapshot, it)))
            .chain(volumes.map(|it| Item::Volume(convert::volume(snapshot, it))))
            .chain(findings.map(|it| Item::Finding(convert::finding(snapshot, it))))
            .chain(causes.map(|it| Item::Cause(convert::cause::cause(snapshot, it))))
            .chain(checks.map(|it| Item::Check(convert::check::check(it))));
        for item in items {
            self.send(event(Kind::Added, Some(item))).await?;
        }
        self.send(event(Kind::SnapshotEnd, None)).await
    }

    async fn send(&self, event: wire::WatchEvent) -> Result<(), WatchEnd> {
        use tokio::sync::mpsc::error::SendTimeoutError;
        match self.events.send_timeout(Ok(event), self.send_timeout).await {
            Ok(()) => Ok(()),
            Err(SendTimeoutError::Closed(_)) => Err(WatchEnd::ClientGone),
            Err(SendTimeoutError::Timeout(_)) => {
                Err(WatchEnd::Status(exhausted("the watcher has not read its events for too long")))
            }
        }
    }
}
