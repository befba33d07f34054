//! History on disk: drives, findings and memories in SQLite, on a thread of its own, which is the
//! only one that touches the state directory.
//!
//! In: `Write`s from the owner, through a bounded queue that never makes it wait. Out: `Event`s:
//! what was remembered, and how the store is. Whatever the disk does (full, read-only, damaged,
//! dead), the daemon goes on in memory and says so; when writing works again the owner is asked for
//! all it has. Every commit is synchronous (WAL, synchronous=FULL): there are few, and an answer
//! may depend on any.

mod memories;
mod open;
mod rows;
mod schema;
mod thread;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::model;
use crate::model::check::Check;
use crate::model::facts::kernel::Progress;
use crate::model::facts::{KnownDrive, StoredVolume, counters};
use crate::model::finding::{Finding, Subject};
use crate::model::ids::{CheckId, DriveId, FindingId, VolumeId};
use crate::model::kernel::memory::Memory;
use crate::model::smart;
use crate::model::snapshot::StoreStatus;
use crate::state::lock::Lock;

pub use open::DATABASE;

/// Writes that wait for the disk. When it is full, the owner sends everything anew later.
const QUEUE: usize = 64;

#[derive(Clone, Debug)]
pub struct Config {
    pub dir: PathBuf,
    /// Wait before the next attempt after a failure; doubles up to `retry_max`.
    pub retry_first: Duration,
    pub retry_max: Duration,
}

impl Config {
    pub fn new(dir: impl Into<PathBuf>) -> Config {
        Config {
            dir: dir.into(),
            retry_first: Duration::from_secs(1),
            retry_max: Duration::from_secs(60),
        }
    }
}

/// What the store remembers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loaded {
    pub drives: Vec<KnownDrive>,
    /// Active and cleared ones.
    pub findings: Vec<Finding>,
    /// What the kernel's log has said, and how far it is counted.
    pub errors: Vec<(Subject, Memory)>,
    pub progress: Option<Progress>,
    pub counters: Vec<(counters::Key, model::counters::Memory)>,
    pub smart: Vec<(DriveId, smart::memory::Memory)>,
    pub volumes: Vec<StoredVolume>,
    pub checks: Vec<(CheckId, Check)>,
    /// The boot in which they were there.
    pub boot: Option<String>,
}

#[derive(Debug)]
pub enum Event {
    /// For the first time since the start. The owner joins it with what it has and writes
    /// everything.
    Opened(Box<Loaded>),
    /// Writing works again: the owner writes everything.
    Reopened,
    Status(StoreStatus),
}

/// What to put on disk. Applying it twice is applying it once.
#[derive(Clone, Debug, Default)]
pub struct Write {
    pub drives: Vec<KnownDrive>,
    pub forgotten: Vec<DriveId>,
    pub findings: Vec<Arc<Finding>>,
    pub dropped: Vec<FindingId>,
    /// What the kernel's log has said. Together with `progress`, or not at all: else something
    /// would be counted twice or lost.
    pub errors: Rows<Subject, Arc<Memory>>,
    pub progress: Option<Arc<Progress>>,
    pub counters: Rows<counters::Key, Arc<model::counters::Memory>>,
    /// What drives have said of themselves.
    pub smart: Rows<DriveId, Arc<smart::memory::Memory>>,
    pub volumes: Rows<VolumeId, StoredVolume>,
    /// Filesystem checks, as they begin and end.
    pub checks: Rows<CheckId, Arc<Check>>,
    /// With everything.
    pub boot: Option<String>,
    /// This is all there is: what it does not name is deleted.
    pub everything: bool,
}

/// What is to be put of one topic, and what is to be deleted.
#[derive(Clone, Debug)]
pub struct Rows<K, V> {
    pub put: Vec<(K, V)>,
    pub gone: Vec<K>,
}

// Not derived: a derive would ask for `K: Default`.
#[allow(clippy::derivable_impls)]
impl<K, V> Default for Rows<K, V> {
    fn default() -> Self {
        Rows {
            put: Vec::new(),
            gone: Vec::new(),
        }
    }
}

impl<K, V> Rows<K, V> {
    pub fn is_empty(&self) -> bool {
        self.put.is_empty() && self.gone.is_empty()
    }
}

impl Write {
    pub fn is_empty(&self) -> bool {
        let Write {
            drives,
            forgotten,
            findings,
            dropped,
            errors,
            progress,
            counters,
            smart,
            volumes,
            checks,
            boot,
            everything,
        } = self;
        !everything
            && (drives.is_empty()
                && forgotten.is_empty()
                && findings.is_empty()
                && dropped.is_empty())
            && (errors.is_empty() && progress.is_none() && counters.is_empty() && smart.is_empty())
            && (volumes.is_empty() && checks.is_empty() && boot.is_none())
    }
}

/// Whom to tell that a write is on disk, or why it is not.
pub type Stored = oneshot::Sender<Result<(), String>>;

/// One write on its way.
#[derive(Debug)]
pub struct Op {
    pub write: Write,
    pub stored: Vec<Stored>,
}

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("the disk does not keep up: {QUEUE} writes wait")]
    QueueFull,
    #[error("the store has ended")]
    Ended,
}

/// The owner's end of the queue.
#[derive(Debug)]
pub struct Store {
    ops: SyncSender<Op>,
    ended: oneshot::Receiver<()>,
}

impl Store {
    /// Starts the thread; opening happens there. Without a lock the thread takes it, as soon as it
    /// can.
    pub fn spawn(config: Config, lock: Option<Lock>) -> io::Result<(Store, mpsc::Receiver<Event>)> {
        let (store, ops, end, events, receiver) = Store::ends();
        let thread = std::thread::Builder::new()
            .name("store".to_owned())
            .stack_size(512 * 1024);
        thread.spawn(move || {
            thread::run(config, lock, &ops, &events);
            // Nobody may be waiting for the end.
            let _ = end.send(());
        })?;
        Ok((store, receiver))
    }

    /// A store whose disk is played by the caller: for tests of a slow or dead one.
    pub fn played() -> (
        Store,
        Receiver<Op>,
        oneshot::Sender<()>,
        mpsc::Sender<Event>,
        mpsc::Receiver<Event>,
    ) {
        Store::ends()
    }

    fn ends() -> (
        Store,
        Receiver<Op>,
        oneshot::Sender<()>,
        mpsc::Sender<Event>,
        mpsc::Receiver<Event>,
    ) {
        let (ops, ops_end) = sync_channel(QUEUE);
        let (end, ended) = oneshot::channel();
        let (events, events_end) = mpsc::channel(8);
        (Store { ops, ended }, ops_end, end, events, events_end)
    }

    /// Never waits.
    pub fn write(&self, write: Write, stored: Vec<Stored>) -> Result<(), WriteError> {
        self.ops
            .try_send(Op { write, stored })
            .map_err(|error| match error {
                TrySendError::Full(_) => WriteError::QueueFull,
                TrySendError::Disconnected(_) => WriteError::Ended,
            })
    }

    /// Lets what is queued be written, for at most `limit`. False when the disk took longer: nobody
    /// waits for it any more.
    pub async fn close(self, limit: Duration) -> bool {
        drop(self.ops);
        matches!(tokio::time::timeout(limit, self.ended).await, Ok(Ok(())))
    }
}
