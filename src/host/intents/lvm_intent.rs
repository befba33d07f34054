//! Intents of lvm(8) processes that change a logical volume. During the change, device-mapper
//! suspends all its writers (dmsetup(8), suspend), and an lvm that dies before its resume leaves
//! them waiting for ever.
//!
//! Written by the process that becomes lvm: its process id and start time stay the same. In: LVM
//! names. Does not depend on device-mapper devices.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{IntentError, StoredIntent, find_all, process_start_time, write_atomically};

const SUFFIX: &str = ".lvm";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LvmIntent {
    pub group: String,
    /// The volume whose writers are held; empty if none.
    pub volume: String,
    /// The snapshot of it that is created or removed.
    pub snapshot: String,
    /// Process id of lvm in the host's PID namespace, and its start time in ticks after boot
    /// (proc_pid_stat(5)).
    pub pid: u32,
    pub started: u64,
}

impl LvmIntent {
    pub fn write(&self, directory: &Path) -> Result<(), IntentError> {
        write_atomically(directory, &format!("{}{SUFFIX}", self.pid), self).map(|_| ())
    }

    /// The process that wrote it can still resume the devices that it suspended.
    pub fn is_writer_alive(&self) -> bool {
        process_start_time(self.pid) == Some(self.started)
    }
}

/// Sorted by name. Empty where the directory is missing.
pub fn find(directory: &Path) -> Result<Vec<StoredIntent<LvmIntent>>, IntentError> {
    find_all(directory, SUFFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_lvm_intent_is_found_and_is_not_a_freeze_intent() {
        let memory = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
        let pid = std::process::id();
        let change = LvmIntent {
            group: "vg0".into(),
            volume: "data".into(),
            snapshot: "diskvitals-check-c1".into(),
            pid,
            started: process_start_time(pid).expect("we live"),
        };
        change.write(memory.path()).expect("written");
        let found = find(memory.path()).expect("readable");
        assert_eq!(
            found.iter().map(|found| found.intent.clone()).collect::<Vec<_>>(),
            [Some(change.clone())]
        );
        assert!(super::super::find(memory.path()).expect("readable").is_empty());
        assert!(change.is_writer_alive());
        assert!(!LvmIntent { started: change.started + 1, ..change }.is_writer_alive());
        found[0].remove().expect("removed");
        assert!(find(memory.path()).expect("readable").is_empty());
    }
}
