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
type Way = (HostPath, Option<String>);

#[derive(Clone, Debug, Default)]
pub struct Taken(Arc<Mutex<BTreeSet<Way>>>);

/// It is free again when this is dropped.
#[derive(Debug)]
pub struct Hold {
    taken: Taken,
    way: Way,
}

impl Taken {
    /// None: it is taken.
    pub fn place(&self, device: &HostPath, place: &str) -> Option<Hold> {
        self.take((device.clone(), Some(place.to_owned())))
    }

    /// Areca's controllers are opened by one program at a time (O_EXCL, os_linux.cpp): their disks
    /// are asked one after the other.
    pub fn lane(&self, device: &HostPath) -> Option<Hold> {
        self.take((device.clone(), None))
    }

    fn take(&self, way: Way) -> Option<Hold> {
        let free = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(way.clone());
        free.then(|| Hold {
            taken: self.clone(),
            way,
        })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.taken
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.way);
    }
}
