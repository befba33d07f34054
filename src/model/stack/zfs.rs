//! ZFS pools. A pool has no device of its own: the graph has it as `zfs:NAME`, over its members, so that
//! it is found, read and judged like every other layer. Read by `source/layers/zfs.rs`; its members and
//! zvols by `source/inventory/zfs.rs`.

mod vdev;

pub use vdev::{PoolScan, PoolStatus, ScanState, Vdev, VdevClass, VdevState};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::block::{Inventory, Layer};
use crate::stack::{Below, StorageStack};
use crate::volume::Stack;
use diskvitals_finding::reason::LayerKind;

/// In place of the level of a pool, until `zpool status` has said which members hold the same data.
pub(crate) const UNKNOWN_LAYOUT: &str = "a ZFS pool whose layout is not known";

/// No kernel name has a colon and a letter in front of it like this.
const PREFIX: &str = "zfs:";

/// An imported pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZfsPool {
    pub state: PoolState,
    /// What `zpool status` said last, and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<PoolStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_at: Option<Timestamp>,
    /// Why it has said nothing since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_error: Option<String>,
}

/// The state that the module gives the pool as a whole (spa_state_to_name(), module/zfs/spa_misc.c). It
/// stays ONLINE with checksum errors and with a spare in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PoolState {
    #[default]
    Online,
    Degraded,
    Faulted,
    Unavail,
    Offline,
    Removed,
    Split,
    Suspended,
}

impl PoolState {
    pub const ALL: [PoolState; 8] = [
        PoolState::Online,
        PoolState::Degraded,
        PoolState::Faulted,
        PoolState::Unavail,
        PoolState::Offline,
        PoolState::Removed,
        PoolState::Split,
        PoolState::Suspended,
    ];

    /// None for any other word: also for TRANSITIONING, while the pool is imported or exported.
    pub fn of_word(word: &str) -> Option<PoolState> {
        PoolState::ALL.into_iter().find(|state| state.word() == word)
    }

    pub fn word(self) -> &'static str {
        match self {
            PoolState::Online => "ONLINE",
            PoolState::Degraded => "DEGRADED",
            PoolState::Faulted => "FAULTED",
            PoolState::Unavail => "UNAVAIL",
            PoolState::Offline => "OFFLINE",
            PoolState::Removed => "REMOVED",
            PoolState::Split => "SPLIT",
            PoolState::Suspended => "SUSPENDED",
        }
    }
}

impl PoolState {
    /// Datasets are read and written.
    pub(crate) fn works(self) -> bool {
        matches!(self, PoolState::Online | PoolState::Degraded)
    }
}

impl ZfsPool {
    /// Whether it is known which of its members hold the same data.
    pub(crate) fn has_layout(&self) -> bool {
        self.status.is_some()
    }

    /// `resilver` or `scrub`, while one runs.
    pub(crate) fn running_scan(&self) -> Option<&'static str> {
        self.status.as_ref()?.running_scan()
    }

    /// Takes an answer of `zpool status` that was asked for at this time. What is known of the members
    /// stays when there is none.
    pub fn take(&mut self, answer: Result<PoolStatus, String>, at: Timestamp) {
        match answer {
            Ok(status) => {
                (self.status, self.status_at, self.status_error) = (Some(status), Some(at), None);
            }
            Err(error) => self.status_error = Some(error),
        }
    }
}

/// The name of a pool among the devices.
pub fn device_of_pool(pool: &str) -> String {
    format!("{PREFIX}{pool}")
}

/// The pool that a device of the graph is.
pub(crate) fn pool_of_device(device: &str) -> Option<&str> {
    device.strip_prefix(PREFIX)
}

/// The device of the pool of a dataset, zvol, snapshot or bookmark (zfsconcepts(7)).
pub fn device_of_dataset(dataset: &str) -> String {
    device_of_pool(dataset.split(['/', '@', '#']).next().unwrap_or_default())
}

/// The file that shows the state of a pool: read without any lock (module/zfs/spa_stats.c,
/// spa_state_data()).
pub(crate) fn state_file(device: &str) -> String {
    format!("/proc/spl/kstat/zfs/{}/state", pool_of_device(device).unwrap_or(device))
}

impl StorageStack for ZfsPool {
    fn kind(&self) -> LayerKind {
        LayerKind::Zpool
    }

    fn level(&self) -> String {
        "ZFS".to_owned()
    }

    fn is_scrubbed(&self) -> bool {
        true
    }

    fn figure(&self) -> String {
        let layout = self.status.as_ref().map(PoolStatus::layout);
        let left = match self.tolerates().filter(|_| self.state == PoolState::Degraded) {
            None => String::new(),
            Some(0) => ", no redundancy left".to_owned(),
            Some(more) => format!(", {more} more may fail"),
        };
        format!("{}, {}{left}", layout.as_deref().unwrap_or("ZFS"), self.state.word())
    }

    fn members(&self, inventory: &Inventory, name: &str) -> Vec<String> {
        let device = inventory.devices.get(name);
        let device = device.filter(|device| matches!(device.layer, Layer::ZfsPool { .. }));
        device.map(|device| device.underlying.clone()).unwrap_or_default()
    }

    fn tree(&self, inventory: &Inventory, name: &str, below: Below) -> Option<Stack> {
        if let Some(status) = &self.status {
            return Some(status.stack(inventory, pool_of_device(name).unwrap_or(name), below));
        }
        let members = self.members(inventory, name);
        let parts = members.iter().map(|member| below(member));
        Some(match members.len() {
            0 | 1 => Stack::all_of(parts.collect()),
            _ => Stack::Undetermined { level: UNKNOWN_LAYOUT.to_owned(), parts: parts.collect() },
        })
    }

    /// ONLINE says that every member that holds data is there.
    fn is_intact(&self) -> Option<bool> {
        Some(self.state == PoolState::Online)
    }

    fn tolerates(&self) -> Option<usize> {
        self.status.as_ref()?.tolerates()
    }

    fn lacking(&self) -> Option<usize> {
        Some(self.status.as_ref()?.lacking().count())
    }

    fn is_hard_on_smr(&self) -> bool {
        true
    }

    fn clear_usage(&mut self) {
        self.status_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_the_module_is_a_state_and_no_other() {
        for state in PoolState::ALL {
            assert_eq!(PoolState::of_word(state.word()), Some(state));
        }
        for word in ["TRANSITIONING", "online", "", "ONLINE "] {
            assert_eq!(PoolState::of_word(word), None, "{word}");
        }
    }

    #[test]
    fn a_dataset_a_snapshot_and_the_root_are_of_their_pool() {
        for dataset in ["tank", "tank/home/anna", "tank/home@daily", "tank@x", "tank/a#mark"] {
            assert_eq!(device_of_dataset(dataset), "zfs:tank", "{dataset}");
        }
        assert_eq!(device_of_dataset("my pool/a b"), "zfs:my pool");
        assert_eq!(state_file("zfs:my pool"), "/proc/spl/kstat/zfs/my pool/state");
    }
}
