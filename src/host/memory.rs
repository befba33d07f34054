//! The daemon's memory: all pages locked, so that the daemon keeps running when the disk of its own
//! program dies. The other programs lock nothing, and unmap what only their start needs.

use nix::errno::Errno;
use nix::sys::mman::{MlockAllFlags, mlockall, munlockall};
use nix::sys::resource::{Resource, getrlimit};

pub use crate::sys::unmap_code;

#[derive(Debug, thiserror::Error)]
#[error(
    "memory is not locked ({errno}; LimitMEMLOCK is {limit}): if the disk below the program or swap dies, the daemon may die with it"
)]
pub struct MemoryLockError {
    errno: Errno,
    limit: String,
}

/// Locks all pages of the program that are mapped now, and later ones when they are first used:
/// stacks are much larger than their used part, and unused pages need no disk. The error names the
/// limit to change.
pub fn lock_all() -> Result<(), MemoryLockError> {
    mlockall(MlockAllFlags::MCL_CURRENT)
        .and_then(|()| lock_when_used(MlockAllFlags::MCL_FUTURE))
        .map_err(lock_error)
}

/// Unlocks all pages while `work` runs, and locks them again, those that are mapped later too.
pub(crate) fn unlocked_during(work: impl FnOnce()) -> Result<(), MemoryLockError> {
    munlockall().map_err(lock_error)?;
    work();
    lock_when_used(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE).map_err(lock_error)
}

/// MCL_ONFAULT, which nix does not define, exists since Linux 4.4 (mlock(2)). The first call must not
/// use it: the program would not be read into memory.
fn lock_when_used(flags: MlockAllFlags) -> nix::Result<()> {
    mlockall(flags | MlockAllFlags::from_bits_retain(nix::libc::MCL_ONFAULT))
}

fn lock_error(errno: Errno) -> MemoryLockError {
    let limit = getrlimit(Resource::RLIMIT_MEMLOCK)
        .map_or_else(|_| "unknown".into(), |(soft, _)| format!("{} KiB", soft / 1024));
    MemoryLockError { errno, limit }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of files.
    fn mapped() -> u64 {
        let statm = procfs::process::Process::myself().and_then(|own| own.statm());
        statm.expect("/proc/self/statm").shared
    }

    #[test]
    fn unmapped_code_is_mapped_again_when_it_runs() {
        let before = mapped();
        unmap_code().expect("all mappings of files");
        let after = mapped();
        assert!(after < before, "{before} pages before, {after} after");
        let text: Vec<String> = (0..1000).map(|number| format!("{number:?}")).collect();
        assert_eq!(text.concat().len(), 2890);
    }
}
