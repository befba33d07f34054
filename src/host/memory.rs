//! The daemon's memory: small arenas, and all of it locked, so that the daemon runs on when the
//! disk of its own program dies.

use nix::errno::Errno;
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::resource::{Resource, getrlimit};

#[derive(Debug, thiserror::Error)]
#[error(
    "memory is not locked ({errno}; LimitMEMLOCK is {limit}): if the disk below the program or swap dies, the daemon may die with it"
)]
pub(crate) struct MemoryLockError {
    errno: Errno,
    limit: String,
}

/// Locks all of the program that is mapped now, and what is mapped later as soon as it is used: a
/// thread's stack is made for the deepest call ever, and memory that nobody has touched needs no
/// disk. The error says what to change.
pub(crate) fn lock_all() -> Result<(), MemoryLockError> {
    // MCL_ONFAULT, which nix does not name, is of Linux 4.4 (mlock(2)); the first call must not
    // have it, or the program would not be read in.
    let when_used = MlockAllFlags::from_bits_retain(nix::libc::MCL_ONFAULT);
    let locked = mlockall(MlockAllFlags::MCL_CURRENT)
        .and_then(|()| mlockall(MlockAllFlags::MCL_FUTURE | when_used));
    locked.map_err(|errno| {
        let limit = getrlimit(Resource::RLIMIT_MEMLOCK).map_or_else(
            |_| "unknown".into(),
            |(soft, _)| format!("{} KiB", soft / 1024),
        );
        MemoryLockError { errno, limit }
    })
}

/// Two heaps for all threads. glibc makes one for each thread that allocates, and all of them are
/// locked.
pub(crate) fn limit_arenas() {
    crate::host::sys::limit_arenas(2);
}
