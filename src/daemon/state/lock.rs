//! One daemon per state directory: a lock on the file STATE-DIR/lock, which only this uid can open.
//!
//! The lock is in the directory that it protects, not in /run: daemons with other sockets, in another
//! container or with another path to the same directory must find it. A disk that hangs delays no
//! start for it: the lock is taken on a separate thread, and history stays in memory until then.
//!
//! The kernel releases the lock when its holder ends, so no stale lock remains. A holder that was
//! killed may wait for minutes on a dead disk. It is distinguished from a live holder, beside which
//! a second daemon must not start.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use diskvitals_host::lock_file::{LockFile, LockFileError, LockHolder};
use diskvitals_host::process::{self, ProcessState};

const LOCK_NAME: &str = "lock";
/// A process that was killed takes some milliseconds to end.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Held until it is dropped.
#[derive(Debug)]
pub struct StateLock {
    file: LockFile,
    path: PathBuf,
}

impl StateLock {
    /// The locked file is still that of the state directory: another daemon would find it.
    pub(crate) fn is_in_place(&self) -> bool {
        let locked = self.file.metadata();
        let named = std::fs::symlink_metadata(&self.path);
        matches!((locked, named), (Ok(locked), Ok(named))
            if (locked.dev(), locked.ino()) == (named.dev(), named.ino()))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Refuse to start: another daemon uses this history.
    #[error("{} is used by another diskvitalsd: {holder}", dir.display())]
    Held { dir: PathBuf, holder: LockHolder },
    /// Keep history in memory and try again.
    #[error("{} is still locked by {holder}, which was killed and has not ended", dir.display())]
    HolderDying { dir: PathBuf, holder: LockHolder },
    /// Either a child of the holder keeps the lock until its exec(2), or the holder is alive in
    /// another PID namespace.
    #[error("{} is locked by {holder}, which is not visible from here", dir.display())]
    HolderGone { dir: PathBuf, holder: LockHolder },
    #[error("creating {}", dir.display())]
    CreateDir {
        dir: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("locking {}", dir.display())]
    Lock {
        dir: PathBuf,
        #[source]
        source: LockFileError,
    },
    #[error("locking {}: no answer from its filesystem after {after:?}", dir.display())]
    Timeout { dir: PathBuf, after: Duration },
    #[error("locking {}: starting a thread for it", dir.display())]
    Thread {
        dir: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Creates the directory (0750) if it is missing and takes the lock. Accesses the disk and may
/// block; `acquire_within` does not block.
pub fn acquire(dir: &Path) -> Result<StateLock, LockError> {
    let create = DirBuilder::new().recursive(true).mode(0o750).create(dir);
    create.map_err(|source| LockError::CreateDir { dir: dir.to_owned(), source })?;
    match LockFile::acquire_in(dir, LOCK_NAME) {
        Ok(file) => Ok(StateLock { file, path: dir.join(LOCK_NAME) }),
        Err(LockFileError::Held { holder, .. }) => {
            let dir = dir.to_owned();
            match holder.pid.map(process::process_state) {
                Some(ProcessState::Dying) => Err(LockError::HolderDying { dir, holder }),
                Some(ProcessState::Exited) => Err(LockError::HolderGone { dir, holder }),
                Some(ProcessState::Alive) | None => Err(LockError::Held { dir, holder }),
            }
        }
        Err(source) => Err(LockError::Lock { dir: dir.to_owned(), source }),
    }
}

/// Like `acquire`, on a separate thread, so that a dead disk below the directory blocks no caller.
/// A lock that is acquired too late is released. A killed holder has until `limit` to end; a holder
/// that is not visible and still has the lock then counts as alive.
pub(crate) async fn acquire_within(dir: &Path, limit: Duration) -> Result<StateLock, LockError> {
    let end = Instant::now() + limit;
    let mut known = None;
    loop {
        let ended = match attempt(dir, end, limit).await {
            // A last attempt without time left does not replace the result of the previous one.
            Err(error @ LockError::Timeout { .. }) => Err(known.take().unwrap_or(error)),
            Err(error @ (LockError::HolderDying { .. } | LockError::HolderGone { .. }))
                if Instant::now() + RETRY_INTERVAL < end =>
            {
                known = Some(error);
                tokio::time::sleep(RETRY_INTERVAL).await;
                continue;
            }
            ended => ended,
        };
        return match ended {
            Err(LockError::HolderGone { dir, holder }) => Err(LockError::Held { dir, holder }),
            ended => ended,
        };
    }
}

async fn attempt(dir: &Path, end: Instant, limit: Duration) -> Result<StateLock, LockError> {
    let (send, receive) = oneshot::channel();
    let for_thread = dir.to_owned();
    let thread = std::thread::Builder::new().name("state-lock".to_owned()).stack_size(256 * 1024);
    let started = thread.spawn(move || {
        // The caller may have stopped waiting: dropping the answer releases the lock.
        let _ = send.send(acquire(&for_thread));
    });
    started.map_err(|source| LockError::Thread { dir: dir.to_owned(), source })?;
    match tokio::time::timeout_at(end, receive).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) | Err(_) => Err(LockError::Timeout { dir: dir.to_owned(), after: limit }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn a_second_holder_learns_the_pid_of_the_first_and_a_dropped_lock_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("a/b");
        let lock = acquire_within(&state, Duration::from_secs(60)).await.unwrap();
        assert_eq!(std::fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o750);
        match acquire(&state) {
            Err(LockError::Held { holder, .. }) => {
                assert_eq!(holder.pid, Some(std::process::id()));
            }
            other => panic!("{other:?}"),
        }
        drop(lock);
        acquire(&state).unwrap();
    }

    #[tokio::test]
    async fn a_lock_of_an_invisible_process_is_awaited_and_then_refused() {
        let dir = tempfile::tempdir().unwrap();
        let lock = acquire(dir.path()).unwrap();
        // No process has the highest number that there may be.
        std::fs::write(dir.path().join("lock"), "4194304\n").unwrap();
        // However little is left for the last attempt.
        for micros in [0, 300, 1000, 3000] {
            let limit = RETRY_INTERVAL * 20 + Duration::from_micros(micros);
            let wait = loop {
                let wait = acquire_within(dir.path(), limit).await;
                // A machine that is too busy for a single attempt says nothing of the holder.
                if !matches!(wait, Err(LockError::Timeout { .. })) {
                    break wait;
                }
            };
            assert!(
                matches!(
                    wait,
                    Err(LockError::Held { ref holder, .. }) if holder.pid == Some(4_194_304)
                ),
                "{wait:?}"
            );
        }
        let wait = acquire_within(dir.path(), Duration::from_secs(60));
        let free = async { drop(lock) };
        let (had, ()) = tokio::join!(wait, free);
        had.unwrap();
    }

    #[test]
    fn a_state_directory_that_is_a_file_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = acquire(file.path()).unwrap_err();
        assert_eq!(error.to_string(), format!("creating {}", file.path().display()));
    }
}
