//! The store's thread: the disk of the queue may be full, slow or dead, and nothing waits for it for
//! long.
//!
//! In: changes. Out: whether they are on disk. The store is opened again as long as it is not open.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tokio::sync::oneshot;

use crate::store::{Changes, Store, StoreError, Stored};
use diskvitals_text::causes::with_causes;

/// A successful write, with what an earlier run left if the store could be opened only now.
pub(crate) type Written = Result<Option<Stored>, (Changes, String)>;

struct Job {
    changes: Changes,
    done: oneshot::Sender<Written>,
}

#[derive(Debug)]
pub(crate) struct StoreThread {
    jobs: SyncSender<Job>,
}

/// Opens the store, in the caller's thread. Out: what was stored; why there is no store yet.
pub(crate) fn start(dir: &Path) -> Result<(StoreThread, Stored, Option<String>), StoreError> {
    let (store, stored, why) = match Store::open(dir) {
        Ok((store, stored)) => (Some(store), stored, None),
        Err(error @ StoreError::Locked(_)) => return Err(error),
        Err(error) => (None, Stored::default(), Some(with_causes(&error))),
    };
    // One job at a time: the owner waits for its result before it sends the next.
    let (jobs, queue) = sync_channel(1);
    let dir = dir.to_owned();
    std::thread::Builder::new()
        .name("store".into())
        .stack_size(512 * 1024)
        .spawn(move || work(store, &dir, &queue))
        .map_err(|source| StoreError::Folder {
            path: PathBuf::from("a thread for the queue"),
            source,
        })?;
    Ok((StoreThread { jobs }, stored, why))
}

fn work(mut store: Option<Store>, dir: &Path, jobs: &Receiver<Job>) {
    while let Ok(Job { changes, done }) = jobs.recv() {
        let mut late = None;
        if store.is_none() {
            match Store::open(dir) {
                Ok((opened, stored)) => (store, late) = (Some(opened), Some(stored)),
                Err(error) => {
                    // The owner has ended if nothing waits.
                    let _ = done.send(Err((changes, with_causes(&error))));
                    continue;
                }
            }
        }
        let written = match &mut store {
            Some(store) => store.write(&changes),
            None => Ok(()),
        };
        let _ = done.send(match written {
            Ok(()) => Ok(late),
            Err(error) => Err((changes, with_causes(&error))),
        });
    }
}

impl StoreThread {
    /// The result comes when the disk has answered. None: the thread is busy, which the owner avoids.
    pub(crate) fn write(&self, changes: Changes) -> Option<oneshot::Receiver<Written>> {
        let (done, written) = oneshot::channel();
        self.jobs.try_send(Job { changes, done }).ok()?;
        Some(written)
    }
}
