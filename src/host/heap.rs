//! The heaps of glibc's malloc: few of them, and freed memory goes back to the system.

use std::convert::Infallible;
use std::time::Duration;

use procfs::process::Process;

use crate::memory::{self, MemoryLockError};
use crate::sys;
use crate::timer_grid::TimerGrid;

/// Freed memory that stays resident for the next callers, beside what cannot be given back.
const MAX_FREED_BYTES: u64 = 1 << 20;
const RELEASE_INTERVAL: Duration = Duration::from_secs(10);

/// Gives memory back that callers have filled and left.
pub async fn release_freed_regularly(is_locked: bool, grid: TimerGrid) -> Infallible {
    // Stacks, and free parts of pages that are in use.
    let mut kept = 0;
    loop {
        tokio::time::sleep_until(grid.after(RELEASE_INTERVAL)).await;
        let freed = freed_bytes();
        kept = freed.min(kept);
        if freed <= kept + MAX_FREED_BYTES {
            continue;
        }
        if let Err(error) = release_freed(is_locked) {
            tracing::warn!(%error, "memory is not locked again");
        }
        kept = freed_bytes();
    }
}

/// Resident memory that no allocation uses; 0 if it is unknown.
fn freed_bytes() -> u64 {
    let statm = Process::myself().and_then(|own| own.statm());
    statm.map_or(0, |pages| {
        let anonymous = pages.resident.saturating_sub(pages.shared) * procfs::page_size();
        anonymous.saturating_sub(sys::allocated_bytes())
    })
}

/// The kernel takes no locked page (madvise(2), MADV_DONTNEED), hence they are unlocked for these
/// milliseconds.
fn release_freed(is_locked: bool) -> Result<(), MemoryLockError> {
    if is_locked {
        return memory::unlocked_during(sys::trim_heaps);
    }
    sys::trim_heaps();
    Ok(())
}

/// By default, glibc creates a heap for each thread that allocates, and all of them are locked. Hence
/// two heaps for all threads, and a mapping of its own for what is large, such as messages: it is
/// given back when it is freed.
pub fn configure_malloc() {
    sys::configure_malloc(2, 32 << 10);
}
