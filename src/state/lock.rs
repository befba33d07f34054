//! One daemon per state directory: flock(2) on STATE-DIR/lock, with the holder's process id written
//! into it.
//!
//! The kernel releases the lock when its holder ends, so no stale lock remains. A holder that was
//! killed may wait for minutes on a dead disk. It is distinguished from a live holder, beside which
//! a second daemon must not start.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::host::process::{self, ProcessState};

/// A process that was killed takes some milliseconds to end.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Held until it is dropped.
#[derive(Debug)]
pub struct StateLock {
    file: Flock<File>,
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
    #[error("{} is used by another diskvitalsd{}", dir.display(), pid.map(|pid| format!(" (process {pid})")).unwrap_or_default())]
    Held { dir: PathBuf, pid: Option<u32> },
    /// Keep history in memory and try again.
    #[error("{} is still locked by process {pid}, which was killed and has not ended", dir.display())]
    HolderDying { dir: PathBuf, pid: u32 },
    /// Either a child of the holder keeps the lock until its exec(2), or the holder is alive in
    /// another PID namespace.
    #[error("{} is locked, and its holder, process {pid}, is not to be seen", dir.display())]
    HolderGone { dir: PathBuf, pid: u32 },
    #[error("creating {}", dir.display())]
    CreateDir {
        dir: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("locking {}", path.display())]
    Lock {
        path: PathBuf,
        #[source]
        source: io::Error,
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
    create.map_err(|source| LockError::CreateDir {
        dir: dir.to_owned(),
        source,
    })?;
    let path = dir.join("lock");
    let failed = |source| LockError::Lock {
        path: path.clone(),
        source,
    };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o640)
        .open(&path)
        .map_err(failed)?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(mut file) => {
            // The id is for people and for `HolderDying`. The lock holds without it, for example on
            // a full disk.
            let _ = file
                .set_len(0)
                .and_then(|()| writeln!(file, "{}", std::process::id()));
            Ok(StateLock { file, path })
        }
        Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
            let mut text = String::new();
            // If the file is unreadable, the holder's id is unknown.
            let _ = file.rewind().and_then(|()| file.read_to_string(&mut text));
            let dir = dir.to_owned();
            match text.trim().parse::<u32>() {
                Ok(pid) if process::process_state(pid) == ProcessState::Dying => {
                    Err(LockError::HolderDying { dir, pid })
                }
                Ok(pid) if process::process_state(pid) == ProcessState::Exited => {
                    Err(LockError::HolderGone { dir, pid })
                }
                Ok(pid) => Err(LockError::Held {
                    dir,
                    pid: Some(pid),
                }),
                Err(_) => Err(LockError::Held { dir, pid: None }),
            }
        }
        Err((_, errno)) => Err(failed(errno.into())),
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
            Err(LockError::HolderGone { dir, pid }) => Err(LockError::Held {
                dir,
                pid: Some(pid),
            }),
            ended => ended,
        };
    }
}

async fn attempt(dir: &Path, end: Instant, limit: Duration) -> Result<StateLock, LockError> {
    let (send, receive) = oneshot::channel();
    let for_thread = dir.to_owned();
    let thread = std::thread::Builder::new()
        .name("state-lock".to_owned())
        .stack_size(256 * 1024);
    let started = thread.spawn(move || {
        // The caller may have stopped waiting: dropping the answer releases the lock.
        let _ = send.send(acquire(&for_thread));
    });
    started.map_err(|source| LockError::Thread {
        dir: dir.to_owned(),
        source,
    })?;
    match tokio::time::timeout_at(end, receive).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) | Err(_) => Err(LockError::Timeout {
            dir: dir.to_owned(),
            after: limit,
        }),
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
        let lock = acquire_within(&state, Duration::from_secs(60))
            .await
            .unwrap();
        assert_eq!(
            std::fs::metadata(&state).unwrap().permissions().mode() & 0o777,
            0o750
        );
        match acquire(&state) {
            Err(LockError::Held { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
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
            let wait = acquire_within(
                dir.path(),
                RETRY_INTERVAL * 20 + Duration::from_micros(micros),
            )
            .await;
            assert!(
                matches!(
                    wait,
                    Err(LockError::Held {
                        pid: Some(4_194_304),
                        ..
                    })
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
        assert_eq!(
            error.to_string(),
            format!("creating {}", file.path().display())
        );
    }
}
