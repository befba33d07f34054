//! Access to the state for the rest of the daemon: the newest snapshot, a stream of changes, and a
//! few commands to the owner.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, oneshot, watch};

use diskvitals_finding::ids::{CheckId, DriveId, FindingId};
use diskvitals_finding::reason::Reason;
use diskvitals_finding::{Finding, SeenLevel};
use diskvitals_fscheck::Check;
use diskvitals_model::block::DiskStat;
use diskvitals_model::facts::checks::{CheckRequest, StartCheckError};
pub use diskvitals_model::facts::readings::WantedReading;
use diskvitals_model::lamp::{LampOrder, LampPlace};
use diskvitals_model::maintenance::{MaintenanceOrder, MaintenanceTarget};
use diskvitals_model::removal::Removal;
use diskvitals_model::replacement::Step;
use diskvitals_model::snapshot::Snapshot;
pub use diskvitals_model::snapshot_builder::{Change, ChangeKind, ChangedItem};
use diskvitals_model::source_update::SourceRequest;

/// The state after readings that were asked for.
#[derive(Clone, Debug)]
pub struct FreshReadings {
    pub snapshot: Arc<Snapshot>,
    /// A scan of the hardware was asked for, and one that began after the request has succeeded.
    pub inventory: bool,
    /// The kernel log was asked for, and all of it has been read, or what else counts errors since.
    pub kernel_log: bool,
    /// What could not be read, or not in time.
    pub missing: Vec<String>,
}

/// The start of a watch: no change is missed or repeated between `start` and `changes`.
#[derive(Debug)]
pub struct Subscription {
    pub start: SubscriptionStart,
    /// Bounded: a watcher that lags gets `RecvError::Lagged` and must subscribe again.
    pub changes: broadcast::Receiver<Arc<Change>>,
}

#[derive(Debug)]
pub enum SubscriptionStart {
    /// The complete snapshot; the changes after its revision follow.
    Snapshot(Arc<Snapshot>),
    /// All changes after the requested revision.
    Resume(Vec<Arc<Change>>),
}

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("no active finding has the id `{0}`")]
    NoSuchFinding(FindingId),
    #[error("finding `{0}` is not acknowledged")]
    NotAcknowledged(FindingId),
    #[error("finding `{0}` has become worse since it was listed: read it again")]
    Worsened(FindingId),
    #[error(
        "{1} (finding `{0}`) does not rest on errors of the past, which a repair would end: acknowledge it without --repaired"
    )]
    NotOfErrors(FindingId, Reason),
    #[error("{0} is not under maintenance by a command")]
    NotInMaintenance(String),
    #[error("the change could not be stored: {0}")]
    NotStored(String),
    #[error(transparent)]
    CheckRefused(#[from] StartCheckError),
    #[error("no check that goes on has the id `{0}`")]
    NoSuchCheck(CheckId),
    #[error("the I/O counters could not be read")]
    NoCounters,
    #[error("too many requests wait for readings: try again")]
    TooManyWaiters,
    #[error("the daemon is shutting down")]
    Stopping,
}

/// Commands that the owner answers.
#[derive(Debug)]
pub enum Command {
    /// Answered after the store has written it to disk. While history is in memory only
    /// (`NodeState.store`), answered at once: the acknowledgement holds and is written when the
    /// store works again. `NotStored`: it holds in memory, but the expected write to disk failed.
    Acknowledge {
        finding: FindingId,
        by: String,
        note: String,
        /// Refused if the finding is worse by now.
        seen: SeenLevel,
        /// The note names a repair of the cause.
        is_repaired: bool,
        reply: oneshot::Sender<Result<Arc<Finding>, CommandError>>,
    },
    Unacknowledge {
        finding: FindingId,
        reply: oneshot::Sender<Result<Arc<Finding>, CommandError>>,
    },
    /// Begins anew if it has begun. Answered as an acknowledgement.
    StartMaintenance {
        target: MaintenanceTarget,
        by: String,
        note: String,
        length: Duration,
        reply: oneshot::Sender<Result<Arc<MaintenanceOrder>, CommandError>>,
    },
    EndMaintenance {
        target: MaintenanceTarget,
        reply: oneshot::Sender<Result<Arc<MaintenanceOrder>, CommandError>>,
    },
    /// A locate lamp is about to be lit. Answered as an acknowledgement.
    RememberLamp {
        drive: DriveId,
        by: String,
        place: LampPlace,
        reply: oneshot::Sender<Result<Arc<LampOrder>, CommandError>>,
    },
    /// The lamp is off.
    ForgetLamp {
        drive: DriveId,
    },
    Subscribe {
        resume: Option<u64>,
        reply: oneshot::Sender<Subscription>,
    },
    /// Passed on to the sources.
    Refresh(SourceRequest),
    /// Answered with the next reading of the I/O counters; dropped when that reading fails.
    ReadIo {
        reply: oneshot::Sender<Arc<Vec<DiskStat>>>,
    },
    /// Whether a drive can be pulled, and the next step of its replacement, by `with` if a person has named
    /// the new drive; None: no such drive is known.
    JudgeRemoval {
        drive: DriveId,
        with: Option<DriveId>,
        reply: oneshot::Sender<Option<(Removal, Step)>>,
    },
    /// Passed on to the sources, and answered when the wanted readings have been made after the
    /// command, or after `patience`. Dropped if too many wait.
    ReadAgain {
        requests: Vec<SourceRequest>,
        wanted: Vec<WantedReading>,
        patience: Duration,
        reply: oneshot::Sender<FreshReadings>,
    },
    /// Whether volumes of this CSI driver were reached by a path that the daemon does not watch.
    SetBypassed {
        driver: String,
        bypassed: bool,
    },
    /// Answered when the check is queued; its progress is in the snapshot.
    StartCheck {
        request: CheckRequest,
        reply: oneshot::Sender<Result<Arc<Check>, CommandError>>,
    },
    /// Answered when the check was ordered to stop.
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
        Handle { snapshots, commands }
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshots.borrow().clone()
    }

    /// A receiver, to wait for a newer snapshot.
    pub fn snapshots(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshots.clone()
    }

    /// `is_repaired`: the note names a repair, and the errors until now no longer count.
    pub async fn acknowledge(
        &self,
        finding: FindingId,
        by: String,
        note: String,
        seen: SeenLevel,
        is_repaired: bool,
    ) -> Result<Arc<Finding>, CommandError> {
        let command = |reply| Command::Acknowledge { finding, by, note, seen, is_repaired, reply };
        self.ask(command).await?
    }

    pub async fn unacknowledge(&self, finding: FindingId) -> Result<Arc<Finding>, CommandError> {
        self.ask(|reply| Command::Unacknowledge { finding, reply }).await?
    }

    pub(crate) async fn start_maintenance(
        &self,
        target: MaintenanceTarget,
        by: String,
        note: String,
        length: Duration,
    ) -> Result<Arc<MaintenanceOrder>, CommandError> {
        self.ask(|reply| Command::StartMaintenance { target, by, note, length, reply }).await?
    }

    pub(crate) async fn end_maintenance(
        &self,
        target: MaintenanceTarget,
    ) -> Result<Arc<MaintenanceOrder>, CommandError> {
        self.ask(|reply| Command::EndMaintenance { target, reply }).await?
    }

    pub(crate) async fn remember_lamp(
        &self,
        drive: DriveId,
        by: String,
        place: LampPlace,
    ) -> Result<Arc<LampOrder>, CommandError> {
        self.ask(|reply| Command::RememberLamp { drive, by, place, reply }).await?
    }

    pub(crate) async fn forget_lamp(&self, drive: DriveId) -> Result<(), CommandError> {
        self.send(Command::ForgetLamp { drive }).await
    }

    /// Starts after revision `resume` if the owner still has all changes since; otherwise with a
    /// full snapshot.
    pub async fn subscribe(&self, resume: Option<u64>) -> Result<Subscription, CommandError> {
        self.ask(|reply| Command::Subscribe { resume, reply }).await
    }

    pub async fn refresh(&self, request: SourceRequest) -> Result<(), CommandError> {
        self.send(Command::Refresh(request)).await
    }

    /// The I/O counters of all devices, read after this call.
    pub(crate) async fn read_io(&self) -> Result<Arc<Vec<DiskStat>>, CommandError> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::ReadIo { reply }).await?;
        answer.await.map_err(|_| CommandError::NoCounters)
    }

    /// Whether a drive can be pulled now, and the next step of its replacement.
    pub(crate) async fn removal(
        &self,
        drive: DriveId,
        with: Option<DriveId>,
    ) -> Result<Option<(Removal, Step)>, CommandError> {
        self.ask(|reply| Command::JudgeRemoval { drive, with, reply }).await
    }

    /// The state after the wanted readings.
    pub async fn read_again(
        &self,
        requests: Vec<SourceRequest>,
        wanted: Vec<WantedReading>,
        patience: Duration,
    ) -> Result<FreshReadings, CommandError> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::ReadAgain { requests, wanted, patience, reply }).await?;
        answer.await.map_err(|_| CommandError::TooManyWaiters)
    }

    pub async fn set_bypassed(&self, driver: String, bypassed: bool) -> Result<(), CommandError> {
        self.send(Command::SetBypassed { driver, bypassed }).await
    }

    pub async fn start_check(&self, request: CheckRequest) -> Result<Arc<Check>, CommandError> {
        self.ask(|reply| Command::StartCheck { request, reply }).await?
    }

    pub async fn cancel_check(&self, check: CheckId) -> Result<Arc<Check>, CommandError> {
        self.ask(|reply| Command::CancelCheck { check, reply }).await?
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
        self.commands.send(command).await.map_err(|_| CommandError::Stopping)
    }
}
