//! Locks for RAID controllers: one smartctl at a time for each slot, both for queries of its disk
//! and for enumeration, until that smartctl has exited. A controller that serves one program at a
//! time has a separate lock.
//!
//! May not enter: block devices of the kernel. The kernel reuses their names, and a new drive must
//! not wait for a process that hangs on the old one.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use diskvitals_finding::path::HostPath;

/// The device node of a controller and a slot (`megaraid,3`); without a slot, the whole controller.
type LockKey = (HostPath, Option<String>);

#[derive(Clone, Debug, Default)]
pub struct ControllerLocks(Arc<Mutex<BTreeSet<LockKey>>>);

/// Releases the lock when dropped.
#[derive(Debug)]
pub struct ControllerLockGuard {
    locks: ControllerLocks,
    key: LockKey,
}

impl ControllerLocks {
    /// None: the lock is held.
    pub(crate) fn lock_slot(&self, device: &HostPath, place: &str) -> Option<ControllerLockGuard> {
        self.acquire((device.clone(), Some(place.to_owned())))
    }

    /// Only one program can open an Areca controller (O_EXCL, os_linux.cpp): its disks are queried
    /// one after the other.
    pub(crate) fn lock_controller(&self, device: &HostPath) -> Option<ControllerLockGuard> {
        self.acquire((device.clone(), None))
    }

    fn acquire(&self, way: LockKey) -> Option<ControllerLockGuard> {
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(way.clone());
        free.then(|| ControllerLockGuard { locks: self.clone(), key: way })
    }
}

impl Drop for ControllerLockGuard {
    fn drop(&mut self) {
        self.locks.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}
