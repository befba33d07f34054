//! md arrays. Read by `source/layers/md.rs`; counters of members: `source/counters/md.rs`.

use serde::{Deserialize, Serialize};

/// From /sys/block/mdN/md (Documentation/admin-guide/md.rst).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MdState {
    pub level: String,
    /// md's layout word: what it means depends on the level.
    #[serde(default)]
    pub layout: Option<u32>,
    pub raid_disks: u32,
    /// Number of devices that the array lacks; 0 when complete.
    pub degraded: u32,
    pub array_state: String,
    pub sync_action: Option<String>,
    /// Sectors done and total during a rebuild or check.
    pub sync_completed: Option<(u64, u64)>,
    /// The whole array has to be synchronized, or is: after a crash, or after its creation.
    #[serde(default)]
    pub is_resync_due: bool,
    pub members: Vec<MdMember>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MdMember {
    /// Kernel name of the member (`sda1`).
    pub device: String,
    /// `in_sync`, `faulty`, `spare`, `write_mostly`…, comma-separated.
    pub state: String,
    pub slot: Option<u32>,
    pub errors: u64,
    /// Ranges that it does not hold: first sector, counted from where its data begins, and length.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bad_blocks: Vec<(u64, u64)>,
}

impl MdMember {
    /// Whether its state has this word.
    pub fn is(&self, word: &str) -> bool {
        self.state.split(',').any(|part| part.trim() == word)
    }
}
