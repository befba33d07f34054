//! Notes of an lvm(8) that changes a logical volume: while it does, device-mapper holds all that
//! write to it (dmsetup(8), suspend), and an lvm that dies before its resume leaves them waiting
//! for ever.
//!
//! Written by the process that becomes lvm: its number and its start stay the same. In: names of
//! LVM. Knows nothing of device-mapper's devices.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Found, IntentError, find_all, start_of, write_whole};

const SUFFIX: &str = ".lvm";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub group: String,
    /// Whose writers are held; empty where that is nobody's.
    pub volume: String,
    /// What is made of it, or removed.
    pub snapshot: String,
    /// Of lvm, in the host's PID namespace, with its start time in ticks after boot
    /// (proc_pid_stat(5)).
    pub pid: u32,
    pub started: u64,
}

impl Change {
    pub fn write(&self, directory: &Path) -> Result<(), IntentError> {
        write_whole(directory, &format!("{}{SUFFIX}", self.pid), self).map(|_| ())
    }

    /// Whoever wrote it will still resume what it has suspended.
    pub fn writer_lives(&self) -> bool {
        start_of(self.pid) == Some(self.started)
    }
}

/// Oldest name first. None where the directory is missing.
pub fn find(directory: &Path) -> Result<Vec<Found<Change>>, IntentError> {
    find_all(directory, SUFFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_of_a_change_is_found_and_is_none_of_a_freeze() {
        let memory = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
        let pid = std::process::id();
        let change = Change {
            group: "vg0".into(),
            volume: "data".into(),
            snapshot: "diskvitals-check-c1".into(),
            pid,
            started: start_of(pid).expect("we live"),
        };
        change.write(memory.path()).expect("written");
        let found = find(memory.path()).expect("readable");
        assert_eq!(
            found
                .iter()
                .map(|found| found.intent.clone())
                .collect::<Vec<_>>(),
            [Some(change.clone())]
        );
        assert!(
            super::super::find(memory.path())
                .expect("readable")
                .is_empty()
        );
        assert!(change.writer_lives());
        assert!(
            !Change {
                started: change.started + 1,
                ..change
            }
            .writer_lives()
        );
        found[0].remove().expect("removed");
        assert!(find(memory.path()).expect("readable").is_empty());
    }
}
