//! A btrfs over its devices. Read by `source/inventory/btrfs.rs`; counters of members and scrubs:
//! `source/counters/btrfs.rs`. Members that were away: `facts/btrfs_members.rs`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::redundancy::btrfs_tolerance;
use diskvitals_finding::ids::DriveId;
use diskvitals_kernel_log::event::DamagedCopies;

/// A mounted btrfs: its member devices and the profiles of its chunks (directory names below
/// allocation/{data,metadata}: `single`, `dup`, `raid0`, `raid1`, `raid1c3`, `raid10`, `raid5`…).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BtrfsFs {
    pub uuid: String,
    pub label: Option<String>,
    /// Kernel names, sorted.
    pub devices: Vec<String>,
    /// Members whose block device is gone, because the drive was pulled while the filesystem was
    /// mounted. The kernel keeps their links, and `missing` stays 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pulled: Vec<PulledMember>,
    /// The ids of the members within the filesystem (devinfo/*), without the target of a replacement.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub member_ids: Vec<u64>,
    /// Those of them that are missing (devinfo/*/missing = 1).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_ids: Vec<u64>,
    /// Members that are not in use: the missing ones, those that came back since the mount, and
    /// those that were pulled.
    pub missing_devices: u32,
    /// Another one after each mount of the filesystem. None in a recorded tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_mark: Option<String>,
    /// Members that were away while it was written to, and that no scrub has read since. Not read:
    /// what the daemon remembers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub returned: Vec<ReturnedMember>,
    pub data_profiles: Vec<String>,
    pub metadata_profiles: Vec<String>,
}

/// A member of a btrfs that was away while it was written to, and is back: it lacks what was written
/// in between.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnedMember {
    pub member: BtrfsMember,
    /// The scans that showed it missing first, and present again.
    pub since: Timestamp,
    pub until: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PulledMember {
    /// The kernel name that it had.
    pub name: String,
    /// Not read: which drive had that name is what the daemon remembers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drive: Option<DriveId>,
}

/// How a member of a btrfs is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BtrfsMember {
    /// Its id within the filesystem.
    Id(u64),
    /// The kernel name that it had: nothing says which id a device had that was pulled.
    Name(String),
}

impl BtrfsFs {
    /// The name of a member that was pulled is given to no other device before the unmount.
    pub(crate) fn has_member(&self, device: &str) -> bool {
        self.devices.iter().any(|name| name == device)
            || self.pulled.iter().any(|pulled| pulled.name == device)
    }

    /// Whether a block of which so many copies are damaged has another one. A member that was away
    /// has the damaged ones.
    pub(crate) fn has_good_copy(&self, damaged: DamagedCopies) -> bool {
        let copies = |profile: &String| match profile.to_ascii_lowercase().as_str() {
            "dup" => 2,
            other => (btrfs_tolerance(other) + 1).saturating_sub(self.missing_devices as usize),
        };
        let has_more = |damaged: u8, profiles: &[String]| {
            let copies = profiles.iter().map(copies).min();
            damaged == 0 || copies.is_none_or(|copies| copies > damaged.into())
        };
        has_more(damaged.data, &self.data_profiles)
            && has_more(damaged.metadata, &self.metadata_profiles)
    }

    /// The members that are no copy: they are missing, or lack what was written while they were away.
    pub(crate) fn without_copy(&self) -> usize {
        self.missing_devices as usize + self.returned.len()
    }
}
