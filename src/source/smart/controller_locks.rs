//! Places behind controllers at which a smartctl runs: one at a time at each, whether its disk is
//! asked how it is or the controller who is there, until that smartctl has really gone. And
//! controllers that answer one program at a time.
//!
//! May not enter: the kernel's own devices. Their names are given to other drives, which are not to
//! wait for what hangs on the one before.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::model::path::HostPath;

/// A controller's node and a place (`megaraid,3`), or all of it.
type LockKey = (HostPath, Option<String>);

#[derive(Clone, Debug, Default)]
pub struct ControllerLocks(Arc<Mutex<BTreeSet<LockKey>>>);

/// It is free again when this is dropped.
#[derive(Debug)]
pub struct ControllerLockGuard {
    locks: ControllerLocks,
    key: LockKey,
}

impl ControllerLocks {
    /// None: it is taken.
    pub fn lock_slot(&self, device: &HostPath, place: &str) -> Option<ControllerLockGuard> {
        self.acquire((device.clone(), Some(place.to_owned())))
    }

    /// Areca's controllers are opened by one program at a time (O_EXCL, os_linux.cpp): their disks
    /// are asked one after the other.
    pub fn lock_controller(&self, device: &HostPath) -> Option<ControllerLockGuard> {
        self.acquire((device.clone(), None))
    }

    fn acquire(&self, way: LockKey) -> Option<ControllerLockGuard> {
        let free = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(way.clone());
        free.then(|| ControllerLockGuard {
            locks: self.clone(),
            key: way,
        })
    }
}

impl Drop for ControllerLockGuard {
    fn drop(&mut self) {
        self.locks
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.key);
    }
}
