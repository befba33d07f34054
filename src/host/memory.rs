//! The daemon's memory: few malloc arenas, and all pages locked, so that the daemon keeps running
//! when the disk of its own program dies.

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

/// Locks all pages of the program that are mapped now, and later ones when they are first used:
/// stacks are much larger than their used part, and unused pages need no disk. The error names the
/// limit to change.
pub(crate) fn lock_all() -> Result<(), MemoryLockError> {
    // MCL_ONFAULT, which nix does not define, exists since Linux 4.4 (mlock(2)). The first call
    // must not use it: the program would not be read into memory.
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

/// Two heaps for all threads. By default, glibc creates one for each thread that allocates, and all
/// of them are locked.
pub(crate) fn limit_arenas() {
    crate::host::sys::limit_arenas(2);
}
