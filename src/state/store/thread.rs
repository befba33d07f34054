//! The store's thread: opens, writes what is queued in one transaction, and after a failure keeps
//! trying. It alone waits for the disk.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::model::causes::with_causes;
use crate::model::snapshot::StoreStatus;
use crate::state::lock::{self, Lock};
use crate::state::store::open::{self, Database};
use crate::state::store::{Config, Event, Loaded, Op};

/// Until the owner is gone and what it left is written, or cannot be.
pub fn run(config: Config, lock: Option<Lock>, ops: &Receiver<Op>, events: &mpsc::Sender<Event>) {
    let mut keeper = Keeper {
        config,
        lock,
        database: None,
        opened_before: false,
        works: false,
        why: String::new(),
        wait: Duration::ZERO,
        next: Instant::now(),
        events,
    };
    loop {
        keeper.open_if_due();
        let first = match keeper.database {
            Some(_) => ops.recv().map_err(|_| RecvTimeoutError::Disconnected),
            None => ops.recv_timeout(keeper.next.saturating_duration_since(Instant::now())),
        };
        match first {
            Ok(first) => keeper.write(std::iter::once(first).chain(ops.try_iter()).collect()),
            Err(RecvTimeoutError::Timeout) => {}
            // Closing the database folds its log in.
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

struct Keeper<'a> {
    config: Config,
    lock: Option<Lock>,
    database: Option<Database>,
    opened_before: bool,
    /// The last write worked.
    works: bool,
    /// Why it did not.
    why: String,
    wait: Duration,
    next: Instant,
    events: &'a mpsc::Sender<Event>,
}

impl Keeper<'_> {
    fn open_if_due(&mut self) {
        if self.database.is_some() || Instant::now() < self.next {
            return;
        }
        match self.open() {
            Ok((database, loaded)) => {
                self.database = Some(database);
                // The owner answers with a write of everything; that it works is said when it has
                // worked.
                self.tell(if self.opened_before {
                    Event::Reopened
                } else {
                    Event::Opened(Box::new(loaded))
                });
                self.opened_before = true;
            }
            Err(why) => self.fail(why),
        }
    }

    fn open(&mut self) -> Result<(Database, Loaded), String> {
        let dir: &Path = &self.config.dir;
        if self.lock.is_none() {
            self.lock = Some(lock::acquire(dir).map_err(|error| with_causes(&error))?);
        }
        open::open(dir).map_err(|error| with_causes(&error))
    }

    fn write(&mut self, ops: Vec<Op>) {
        let result = match &mut self.database {
            None => Err(self.why.clone()),
            Some(database) => database
                .write(ops.iter().map(|op| &op.write))
                .map_err(|error| {
                    format!(
                        "writing {}: {error}",
                        self.config.dir.join(open::DATABASE).display()
                    )
                }),
        };
        match &result {
            Ok(()) => self.succeed(),
            Err(why) if self.database.take().is_some() => self.fail(why.clone()),
            Err(_) => {}
        }
        for stored in ops.into_iter().flat_map(|op| op.stored) {
            // Whoever asked may have stopped waiting.
            let _ = stored.send(result.clone());
        }
    }

    fn succeed(&mut self) {
        self.wait = Duration::ZERO;
        if !self.works {
            self.works = true;
            self.why.clear();
            tracing::info!(dir = %self.config.dir.display(), "history is written to disk");
            self.tell(Event::Status(StoreStatus::Ok));
        }
    }

    fn fail(&mut self, why: String) {
        self.wait = (self.wait * 2).clamp(self.config.retry_first, self.config.retry_max);
        self.next = Instant::now() + self.wait;
        self.works = false;
        if self.why != why {
            tracing::warn!(why, "history is kept in memory only");
            self.why.clone_from(&why);
            self.tell(Event::Status(StoreStatus::Memory(why)));
        }
    }

    fn tell(&self, event: Event) {
        // The owner is gone only when all ends.
        let _ = self.events.blocking_send(event);
    }
}
