//! Access to the state for the rest of the daemon: the newest snapshot, a stream of changes, and a
//! few commands to the owner.

use std::sync::Arc;

use tokio::sync::{broadcast, mpsc, oneshot, watch};

use crate::model::block::DiskStat;
use crate::model::check::Check;
use crate::model::facts::checks::{CheckRequest, StartCheckError};
use crate::model::finding::Finding;
use crate::model::ids::{CheckId, FindingId};
use crate::model::snapshot::Snapshot;
pub use crate::model::snapshot_builder::{Change, ChangeKind, ChangedItem};
use crate::model::source_update::SourceRequest;

/// Where a watcher begins: no change is missed or repeated between `start` and `changes`.
#[derive(Debug)]
pub struct Subscription {
    pub start: SubscriptionStart,
    /// Bounded: a watcher that lags is told so (`RecvError::Lagged`) and subscribes anew.
    pub changes: broadcast::Receiver<Arc<Change>>,
}

#[derive(Debug)]
pub enum SubscriptionStart {
    /// All there is; the changes after its revision follow.
    Snapshot(Arc<Snapshot>),
    /// The changes after the asked revision, all of them.
    Resume(Vec<Arc<Change>>),
}

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("no active finding has the id `{0}`")]
    NoSuchFinding(FindingId),
    #[error("finding `{0}` is not acknowledged")]
    NotAcknowledged(FindingId),
    #[error("the acknowledgement could not be stored: {0}")]
    NotStored(String),
    #[error(transparent)]
    CheckRefused(#[from] StartCheckError),
    #[error("no check that goes on has the id `{0}`")]
    NoSuchCheck(CheckId),
    #[error("the I/O counters could not be read")]
    NoCounters,
    #[error("the daemon is shutting down")]
    Stopping,
}

/// Commands that the owner answers.
#[derive(Debug)]
pub enum Command {
    /// Answered after the store has it on disk. While history is known to be in memory only
    /// (`NodeState.store` says so), answered at once: the acknowledgement holds and is written when
    /// the store is back. `NotStored`: it holds in memory too, but was expected on disk and is not.
    Acknowledge {
        finding: FindingId,
        by: String,
        note: String,
        reply: oneshot::Sender<Result<Arc<Finding>, CommandError>>,
    },
    Unacknowledge {
        finding: FindingId,
        reply: oneshot::Sender<Result<Arc<Finding>, CommandError>>,
    },
    Subscribe {
        resume: Option<u64>,
        reply: oneshot::Sender<Subscription>,
    },
    /// Passed on to the sources.
    Refresh(SourceRequest),
    /// Answered with the next reading of the I/O counters; dropped when that fails.
    ReadIo {
        reply: oneshot::Sender<Arc<Vec<DiskStat>>>,
    },
    /// Volumes of this CSI driver have, or have not, been reached by another path than the one that
    /// is watched.
    SetBypassed { driver: String, bypassed: bool },
    /// Answered when it is queued: how it goes is in the snapshot.
    StartCheck {
        request: CheckRequest,
        reply: oneshot::Sender<Result<Arc<Check>, CommandError>>,
    },
    /// Answered when its stopping was ordered.
    CancelCheck {
        check: CheckId,
        reply: oneshot::Sender<Result<Arc<Check>, CommandError>>,
    },
}

#[derive(Clone, Debug)]
pub struct Handle {
    snapshots: watch::Receiver<Arc<Snapshot>>,
    commands: mpsc::Sender<Command>,
}

impl Handle {
    pub fn new(
        snapshots: watch::Receiver<Arc<Snapshot>>,
        commands: mpsc::Sender<Command>,
    ) -> Handle {
        Handle {
            snapshots,
            commands,
        }
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshots.borrow().clone()
    }

    /// To wait for a newer one.
    pub fn snapshots(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshots.clone()
    }

    pub async fn acknowledge(
        &self,
        finding: FindingId,
        by: String,
        note: String,
    ) -> Result<Arc<Finding>, CommandError> {
        let command = |reply| Command::Acknowledge {
            finding,
            by,
            note,
            reply,
        };
        self.ask(command).await?
    }

    pub(crate) async fn unacknowledge(
        &self,
        finding: FindingId,
    ) -> Result<Arc<Finding>, CommandError> {
        self.ask(|reply| Command::Unacknowledge { finding, reply })
            .await?
    }

    /// From after `resume`, where the owner still has all changes since; else from a full snapshot.
    pub(crate) async fn subscribe(
        &self,
        resume: Option<u64>,
    ) -> Result<Subscription, CommandError> {
        self.ask(|reply| Command::Subscribe { resume, reply }).await
    }

    pub(crate) async fn refresh(&self, request: SourceRequest) -> Result<(), CommandError> {
        self.send(Command::Refresh(request)).await
    }

    /// The I/O counters of all devices, read after this call.
    pub(crate) async fn read_io(&self) -> Result<Arc<Vec<DiskStat>>, CommandError> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::ReadIo { reply }).await?;
        answer.await.map_err(|_| CommandError::NoCounters)
    }

    pub(crate) async fn set_bypassed(
        &self,
        driver: String,
        bypassed: bool,
    ) -> Result<(), CommandError> {
        self.send(Command::SetBypassed { driver, bypassed }).await
    }

    pub(crate) async fn start_check(
        &self,
        request: CheckRequest,
    ) -> Result<Arc<Check>, CommandError> {
        self.ask(|reply| Command::StartCheck { request, reply })
            .await?
    }

    pub(crate) async fn cancel_check(&self, check: CheckId) -> Result<Arc<Check>, CommandError> {
        self.ask(|reply| Command::CancelCheck { check, reply })
            .await?
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, CommandError> {
        let (reply, answer) = oneshot::channel();
        self.send(command(reply)).await?;
        answer.await.map_err(|_| CommandError::Stopping)
    }

    async fn send(&self, command: Command) -> Result<(), CommandError> {
        self.commands
            .send(command)
            .await
            .map_err(|_| CommandError::Stopping)
    }
}
