//! The store's thread: opens the database, writes the queued batches in one transaction, and
//! retries after a failure. It alone waits for the disk.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::state::lock::{self, LockError, StateLock};
use crate::state::store::open::{self, Database, OpenError};
use crate::state::store::{StoreConfig, StoreContents, StoreEvent, WriteRequest};
use diskvitals_model::snapshot::StoreStatus;
use diskvitals_text::causes::with_causes;

#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Runs until the owner has ended and its last writes are done or have failed.
pub(crate) fn run(
    config: StoreConfig,
    lock: Option<StateLock>,
    ops: &Receiver<WriteRequest>,
    events: &mpsc::Sender<StoreEvent>,
) {
    let mut thread = StoreThread {
        config,
        lock,
        database: None,
        opened_before: false,
        is_writable: false,
        last_error: String::new(),
        backoff: Duration::ZERO,
        next_attempt: Instant::now(),
        events,
    };
    loop {
        thread.open_if_due();
        let first = match thread.database {
            Some(_) => ops.recv().map_err(|_| RecvTimeoutError::Disconnected),
            None => ops.recv_timeout(thread.next_attempt.saturating_duration_since(Instant::now())),
        };
        match first {
            Ok(first) => thread.write(std::iter::once(first).chain(ops.try_iter()).collect()),
            Err(RecvTimeoutError::Timeout) => {}
            // Closing the database merges its WAL.
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

struct StoreThread<'a> {
    config: StoreConfig,
    lock: Option<StateLock>,
    database: Option<Database>,
    opened_before: bool,
    /// The last write worked.
    is_writable: bool,
    /// The error of the last failed write.
    last_error: String,
    backoff: Duration,
    next_attempt: Instant,
    events: &'a mpsc::Sender<StoreEvent>,
}

impl StoreThread<'_> {
    fn open_if_due(&mut self) {
        if self.database.is_some() || Instant::now() < self.next_attempt {
            return;
        }
        match self.open() {
            Ok((database, loaded)) => {
                self.database = Some(database);
                // The owner answers with a write of everything. Success is reported after that
                // write.
                self.send(if self.opened_before {
                    StoreEvent::Reopened
                } else {
                    StoreEvent::Opened(Box::new(loaded))
                });
                self.opened_before = true;
            }
            Err(error) => self.mark_failed(with_causes(&error)),
        }
    }

    fn open(&mut self) -> Result<(Database, StoreContents), StartError> {
        let dir: &Path = &self.config.dir;
        if !self.is_locked() {
            self.lock = Some(lock::acquire(dir)?);
        }
        Ok(open::open(dir, &self.config.boot_id)?)
    }

    fn is_locked(&self) -> bool {
        self.lock.as_ref().is_some_and(StateLock::is_in_place)
    }

    fn write(&mut self, ops: Vec<WriteRequest>) {
        let is_locked = self.is_locked();
        let result = match &mut self.database {
            None => Err(self.last_error.clone()),
            Some(database) => database
                .write(ops.iter().map(|op| &op.write))
                .map_err(|error| {
                    let path = self.config.dir.join(open::DATABASE);
                    format!("writing {}: {error}", path.display())
                })
                .and_then(|()| match database.is_in_place() && is_locked {
                    true => Ok(()),
                    false => Err(format!(
                        "files in {} were removed or replaced while they were in use",
                        self.config.dir.display()
                    )),
                }),
        };
        match &result {
            Ok(()) => self.mark_ok(),
            Err(why) if self.database.take().is_some() => self.mark_failed(why.clone()),
            Err(_) => {}
        }
        for stored in ops.into_iter().flat_map(|op| op.acks) {
            // The requester may have stopped waiting.
            let _ = stored.send(result.clone());
        }
    }

    fn mark_ok(&mut self) {
        self.backoff = Duration::ZERO;
        if !self.is_writable {
            self.is_writable = true;
            self.last_error.clear();
            tracing::info!(dir = %self.config.dir.display(), "history is written to disk");
            self.send(StoreEvent::Status(StoreStatus::Ok));
        }
    }

    fn mark_failed(&mut self, why: String) {
        self.backoff = (self.backoff * 2).clamp(self.config.min_backoff, self.config.max_backoff);
        self.next_attempt = Instant::now() + self.backoff;
        self.is_writable = false;
        if self.last_error != why {
            tracing::warn!(why, "history is kept in memory only");
            self.last_error.clone_from(&why);
            self.send(StoreEvent::Status(StoreStatus::MemoryOnly(why)));
        }
    }

    fn send(&self, event: StoreEvent) {
        // Sending fails only at shutdown, when the owner has ended.
        let _ = self.events.blocking_send(event);
    }
}
