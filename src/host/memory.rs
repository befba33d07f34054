//! The daemon's memory: few malloc arenas, and all pages locked, so that the daemon keeps running
//! when the disk of its own program dies.

use std::convert::Infallible;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::mman::{MlockAllFlags, mlockall, munlockall};
use nix::sys::resource::{Resource, getrlimit};
use procfs::process::Process;

use crate::host::sys;

/// Freed memory that stays resident for the next callers.
const MAX_FREED_BYTES: u64 = 4 << 20;
const RELEASE_INTERVAL: Duration = Duration::from_secs(10);

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
    mlockall(MlockAllFlags::MCL_CURRENT)
        .and_then(|()| lock_when_used(MlockAllFlags::MCL_FUTURE))
        .map_err(lock_error)
}

/// MCL_ONFAULT, which nix does not define, exists since Linux 4.4 (mlock(2)). The first call must not
/// use it: the program would not be read into memory.
fn lock_when_used(flags: MlockAllFlags) -> nix::Result<()> {
    mlockall(flags | MlockAllFlags::from_bits_retain(nix::libc::MCL_ONFAULT))
}

fn lock_error(errno: Errno) -> MemoryLockError {
    let limit = getrlimit(Resource::RLIMIT_MEMLOCK).map_or_else(
        |_| "unknown".into(),
        |(soft, _)| format!("{} KiB", soft / 1024),
    );
    MemoryLockError { errno, limit }
}

/// Gives memory back that callers have filled and left.
pub(crate) async fn release_freed_regularly(is_locked: bool) -> Infallible {
    loop {
        tokio::time::sleep(RELEASE_INTERVAL).await;
        if freed_bytes() > MAX_FREED_BYTES
            && let Err(error) = release_freed(is_locked)
        {
            tracing::warn!(%error, "memory is not locked again");
        }
    }
}

/// Resident memory of the heaps that nothing uses, about; 0 if it is unknown.
fn freed_bytes() -> u64 {
    let statm = Process::myself().and_then(|own| own.statm());
    statm.map_or(0, |pages| {
        let anonymous = pages.resident.saturating_sub(pages.shared) * procfs::page_size();
        anonymous.saturating_sub(sys::allocated_bytes() as u64)
    })
}

/// The kernel takes no locked page (madvise(2), MADV_DONTNEED), hence they are unlocked for these
/// milliseconds.
fn release_freed(is_locked: bool) -> Result<(), MemoryLockError> {
    if is_locked {
        munlockall().map_err(lock_error)?;
    }
    sys::trim_heaps();
    if is_locked {
        lock_when_used(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE)
            .map_err(lock_error)?;
    }
    Ok(())
}

/// By default, glibc creates a heap for each thread that allocates, and all of them are locked. Hence
/// two heaps for all threads, and a mapping of its own for what is large, such as messages: it is
/// given back when it is freed.
pub(crate) fn configure_malloc() {
    sys::configure_malloc(2, 32 << 10);
}
