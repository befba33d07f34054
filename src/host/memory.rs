//! Memory: small arenas, and all of it locked, so that the daemon runs on when the disk below its own program dies.

use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::resource::{Resource, getrlimit};

/// Locks what is mapped and what will be. The error says what to change.
pub fn lock() -> Result<(), String> {
    mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE).map_err(|errno| {
        let limit = getrlimit(Resource::RLIMIT_MEMLOCK).map_or_else(|_| "unknown".into(), |(soft, _)| format!("{} KiB", soft / 1024));
        format!("memory is not locked ({errno}; LimitMEMLOCK is {limit}): if the disk below the program or swap dies, the daemon may die with it")
    })
}

/// Two heaps for all threads. glibc makes one for each thread that allocates, and all of them are locked.
pub fn few_arenas() {
    crate::host::sys::limit_arenas(2);
}
