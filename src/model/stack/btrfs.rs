//! A btrfs over its devices. Read by `source/inventory/btrfs.rs`; counters of members and scrubs:
//! `source/counters/btrfs.rs`. Members that were away: `facts/btrfs_members.rs`.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::assess::join_limited;
use crate::block::Inventory;
use crate::stack::{Kind, StorageStack};
use crate::volume::Stack;
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
            other => (tolerance(other) + 1).saturating_sub(self.missing_devices as usize),
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

    /// Each profile of its chunks once.
    fn profiles(&self) -> BTreeSet<&str> {
        self.data_profiles.iter().chain(&self.metadata_profiles).map(String::as_str).collect()
    }

    fn joined_profiles(&self) -> String {
        self.profiles().into_iter().collect::<Vec<_>>().join("+")
    }
}

impl StorageStack for BtrfsFs {
    fn kind(&self) -> Kind {
        Kind::Array
    }

    fn level(&self) -> String {
        join_limited(self.profiles())
    }

    fn name(&self, _: &Inventory, _: &str) -> String {
        format!("btrfs {}", self.label.as_ref().unwrap_or(&self.uuid))
    }

    fn figure(&self) -> String {
        let all = self.devices.len() + self.missing_devices as usize;
        let present = all.saturating_sub(self.without_copy());
        format!("{}, {present} of {all} devices", self.joined_profiles())
    }

    fn members(&self, _: &Inventory, _: &str) -> Vec<String> {
        self.devices.clone()
    }

    fn tree(&self, _: &Inventory, _: &str, below: &mut dyn FnMut(&str) -> Stack) -> Option<Stack> {
        let parts: Vec<Stack> = self.devices.iter().map(|name| below(name)).collect();
        Some(match self.profiles().into_iter().map(tolerance).min().unwrap_or(0) {
            0 => Stack::all_of(parts),
            weakest => Stack::Redundant {
                level: format!("btrfs {}", self.joined_profiles()),
                tolerates: weakest.saturating_sub(self.without_copy()),
                parts,
            },
        })
    }

    /// The weakest profile defines how many members it may lose (btrfs(5), PROFILES), minus those that
    /// are no copy already.
    fn tolerates(&self) -> Option<usize> {
        let weakest = self.profiles().into_iter().map(tolerance).min()?;
        weakest.checked_sub(self.without_copy())
    }

    fn is_intact(&self) -> Option<bool> {
        Some(self.without_copy() == 0)
    }
}

/// How many members a btrfs of this profile may lose (btrfs(5), PROFILES).
pub(crate) fn tolerance(profile: &str) -> usize {
    match profile.to_ascii_lowercase().as_str() {
        "raid1" | "raid10" | "raid5" => 1,
        "raid1c3" | "raid6" => 2,
        "raid1c4" => 3,
        _ => 0,
    }
}

#[cfg(test)]
#[test]
fn btrfs_profiles() {
    let profiles = [
        ("single", 0),
        ("dup", 0),
        ("raid0", 0),
        ("raid1", 1),
        ("raid10", 1),
        ("RAID5", 1),
        ("raid6", 2),
        ("raid1c3", 2),
        ("raid1c4", 3),
    ];
    for (profile, tolerates) in profiles {
        assert_eq!(tolerance(profile), tolerates, "{profile}");
    }
}
