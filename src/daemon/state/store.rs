//! History on disk: drives, findings and other histories in SQLite, on a separate thread, which is
//! the only one that accesses the state directory.
//!
//! In: `Write`s from the owner, through a bounded queue that never makes it wait. Out: `Event`s:
//! the stored contents, and the state of the store. Whatever the disk does (full, read-only,
//! damaged, dead), the daemon continues in memory and reports it. When writing works again, the
//! owner sends everything. Every commit is synchronous (WAL, synchronous=FULL): there are few, and
//! an answer may depend on any of them.

mod former_ids;
mod open;
mod rows;
mod schema;
mod thread;
mod topics;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use jiff::SignedDuration;
use tokio::sync::{mpsc, oneshot};

use crate::state::lock::StateLock;
use diskvitals_finding::ids::{CheckId, DriveId, FindingId, VolumeId};
use diskvitals_finding::{Finding, Subject};
use diskvitals_fscheck::Check;
use diskvitals_kernel_log::error_history::ErrorHistory;
use diskvitals_model::facts::kernel_log::LogProgress;
use diskvitals_model::facts::{KnownDrive, StoredVolume};
use diskvitals_model::lamp::LampOrder;
use diskvitals_model::maintenance::{MaintenanceOrder, MaintenanceTarget};
use diskvitals_model::snapshot::StoreStatus;
use diskvitals_model::space_history::SpaceHistory;

pub use open::DATABASE;

/// Writes that wait for the disk. When it is full, the owner sends everything later.
const QUEUE: usize = 64;

#[derive(Clone, Debug)]
pub struct StoreConfig {
    pub dir: PathBuf,
    /// The current boot; empty if it is not known.
    pub boot_id: String,
    /// Wait before the next attempt after a failure; doubles up to `retry_max`.
    pub min_backoff: Duration,
    pub max_backoff: Duration,
}

impl StoreConfig {
    pub fn new(dir: impl Into<PathBuf>) -> StoreConfig {
        StoreConfig {
            dir: dir.into(),
            boot_id: String::new(),
            min_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(60),
        }
    }
}

/// The stored contents, with times on this run's timeline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreContents {
    pub drives: Vec<KnownDrive>,
    /// Active and cleared findings.
    pub findings: Vec<Finding>,
    /// The errors of the kernel log, by subject.
    pub errors: Vec<(Subject, ErrorHistory)>,
    pub progress: Option<LogProgress>,
    pub counters:
        Vec<(diskvitals_model::counters::CounterKey, diskvitals_model::counters::CounterHistory)>,
    pub smart: Vec<(DriveId, diskvitals_smart::history::SmartHistory)>,
    pub space: Vec<(Subject, SpaceHistory)>,
    pub volumes: Vec<StoredVolume>,
    pub checks: Vec<(CheckId, Check)>,
    pub maintenance: Vec<(MaintenanceTarget, Arc<MaintenanceOrder>)>,
    pub lamps: Vec<(DriveId, Arc<LampOrder>)>,
    /// The boot in which the volumes existed.
    pub boot: Option<String>,
    /// The wall clock was stepped while no daemon ran, or was wrong before or is now.
    pub clock_step: SignedDuration,
    /// Quiet times begin anew: the machine was off for long.
    pub is_quiet_lost: bool,
}

#[derive(Debug)]
pub enum StoreEvent {
    /// Opened for the first time since the start. The owner merges the contents with its state and
    /// writes everything.
    Opened(Box<StoreContents>),
    /// Writing works again: the owner writes everything.
    Reopened,
    Status(StoreStatus),
}

/// The rows to write. Applying a batch twice has the same effect as applying it once.
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    pub drives: RowChanges<DriveId, KnownDrive>,
    pub findings: RowChanges<FindingId, Arc<Finding>>,
    /// The errors of the kernel log. They are written together with `progress` or not at all:
    /// otherwise errors would be counted twice or lost.
    pub errors: RowChanges<Subject, Arc<ErrorHistory>>,
    pub progress: Option<Arc<LogProgress>>,
    pub counters: RowChanges<
        diskvitals_model::counters::CounterKey,
        Arc<diskvitals_model::counters::CounterHistory>,
    >,
    /// The stored SMART history of drives.
    pub smart: RowChanges<DriveId, Arc<diskvitals_smart::history::SmartHistory>>,
    /// The free space of volumes and thin pools over time.
    pub space: RowChanges<Subject, Arc<SpaceHistory>>,
    pub volumes: RowChanges<VolumeId, StoredVolume>,
    /// Filesystem checks, written when they begin and end.
    pub checks: RowChanges<CheckId, Arc<Check>>,
    pub maintenance: RowChanges<MaintenanceTarget, Arc<MaintenanceOrder>>,
    pub lamps: RowChanges<DriveId, Arc<LampOrder>>,
    /// The current boot; set when everything is written.
    pub boot: Option<String>,
    /// The batch contains everything: rows that it does not name are deleted.
    pub is_complete: bool,
}

/// The rows of one topic to write and to delete.
#[derive(Clone, Debug)]
pub struct RowChanges<K, V> {
    pub upserted: Vec<(K, V)>,
    pub deleted: Vec<K>,
}

// Not derived: a derive would require `K: Default`.
#[allow(clippy::derivable_impls)]
impl<K, V> Default for RowChanges<K, V> {
    fn default() -> Self {
        RowChanges { upserted: Vec::new(), deleted: Vec::new() }
    }
}

impl<K, V> RowChanges<K, V> {
    pub fn is_empty(&self) -> bool {
        self.upserted.is_empty() && self.deleted.is_empty()
    }
}

impl WriteBatch {
    pub fn is_empty(&self) -> bool {
        let WriteBatch {
            drives,
            findings,
            errors,
            progress,
            counters,
            smart,
            space,
            volumes,
            checks,
            maintenance,
            lamps,
            boot,
            is_complete,
        } = self;
        !is_complete
            && (drives.is_empty() && findings.is_empty() && errors.is_empty() && progress.is_none())
            && (counters.is_empty() && smart.is_empty() && volumes.is_empty())
            && (space.is_empty() && checks.is_empty() && boot.is_none())
            && maintenance.is_empty()
            && lamps.is_empty()
    }
}

/// Receives the result when a write is on disk or has failed.
pub type WriteAck = oneshot::Sender<Result<(), String>>;

/// One write in the queue.
#[derive(Debug)]
pub struct WriteRequest {
    pub write: WriteBatch,
    pub acks: Vec<WriteAck>,
}

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("the disk does not keep up: {QUEUE} writes wait")]
    QueueFull,
    #[error("the store has ended")]
    Closed,
}

/// The owner's end of the queue.
#[derive(Debug)]
pub struct Store {
    ops: SyncSender<WriteRequest>,
    ended: oneshot::Receiver<()>,
}

impl Store {
    /// Starts the thread, which opens the database. Without a lock, the thread takes it as soon as
    /// possible.
    pub fn spawn(
        config: StoreConfig,
        lock: Option<StateLock>,
    ) -> io::Result<(Store, mpsc::Receiver<StoreEvent>)> {
        let (store, ops, end, events, receiver) = Store::fake();
        let thread = std::thread::Builder::new().name("store".to_owned()).stack_size(512 * 1024);
        thread.spawn(move || {
            thread::run(config, lock, &ops, &events);
            // The owner may no longer wait for the end.
            let _ = end.send(());
        })?;
        Ok((store, receiver))
    }

    /// A store with a disk that the caller simulates; returns its thread's ends of the channels.
    pub fn fake() -> (
        Store,
        Receiver<WriteRequest>,
        oneshot::Sender<()>,
        mpsc::Sender<StoreEvent>,
        mpsc::Receiver<StoreEvent>,
    ) {
        let (ops, ops_end) = sync_channel(QUEUE);
        let (end, ended) = oneshot::channel();
        let (events, events_end) = mpsc::channel(8);
        (Store { ops, ended }, ops_end, end, events, events_end)
    }

    /// Queues a write; never waits.
    pub fn write(&self, write: WriteBatch, stored: Vec<WriteAck>) -> Result<(), WriteError> {
        self.ops.try_send(WriteRequest { write, acks: stored }).map_err(|error| match error {
            TrySendError::Full(_) => WriteError::QueueFull,
            TrySendError::Disconnected(_) => WriteError::Closed,
        })
    }

    /// Waits until the queued writes are done, for at most `limit`. False if the disk took longer.
    pub async fn close(self, limit: Duration) -> bool {
        drop(self.ops);
        matches!(tokio::time::timeout(limit, self.ended).await, Ok(Ok(())))
    }
}
