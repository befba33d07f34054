//! dm-raid: LVM's RAID. Read by `source/layers/status.rs`.

use serde::{Deserialize, Serialize};

/// dm-raid's status (Documentation/admin-guide/device-mapper/dm-raid.rst).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DmRaid {
    pub level: String,
    /// One character a leg: A alive and in sync, a alive, D dead, - missing.
    pub health: String,
    pub sync_action: Option<String>,
    pub status_line: String,
    /// md's layout word, of a raid10 whose table was read.
    #[serde(default)]
    pub layout: Option<u32>,
}
