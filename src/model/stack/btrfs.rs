//! A btrfs over its devices. Read by `source/inventory/btrfs.rs`; counters of members and scrubs:
//! `source/counters/btrfs.rs`, `source/counters/btrfs_scrub.rs`. Members that were away:
//! `facts/btrfs_members.rs`.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::assess::join_limited;
use crate::block::Inventory;
use crate::facts::KnownDrive;
use crate::facts::btrfs_members::member_file;
use crate::stack::shortfall::serial_of;
use crate::stack::{Below, Left, Place, Proof, Shortfall, StorageStack};
use crate::volume::Stack;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::reason::LayerKind;
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
    /// `balance`, `device replace`… (exclusive_operation), while one runs or is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
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

    fn proof(&self, place: Place) -> Vec<Proof> {
        let missing = (self.missing_devices as usize).saturating_sub(self.pulled.len());
        let mut proof = Vec::new();
        if missing > 0 || self.pulled.is_empty() {
            let dir = format!("/sys/fs/btrfs/{}/devinfo", self.uuid);
            proof.push((dir, format!("missing: {missing}")));
        }
        proof.extend(self.pulled.iter().map(|PulledMember { name, .. }| {
            let file = member_file(&self.uuid, &BtrfsMember::Name(name.clone()));
            (file, format!("the block device {name} is gone"))
        }));
        proof.extend(self.returned.iter().map(|returned| {
            (member_file(&self.uuid, &returned.member), place.returned_text(returned))
        }));
        proof
    }

    fn repair(&self, place: Place, shortfall: &Shortfall) -> String {
        let when = shortfall.left.deadline();
        let mount =
            place.volume.and_then(|volume| volume.mounts.first()).map(|it| it.path.to_string());
        let not_current = shortfall.not_current.len();
        if not_current > 0 && shortfall.have + not_current == shortfall.all {
            let mount = mount.as_deref().unwrap_or("MOUNT");
            return format!(
                "Start a scrub, which brings the returned device up to date: `btrfs scrub start -B {mount}`. Repeat it: the first one corrects errors, and one that finds none proves it. Until then, pull no other device. Files without checksums (nodatacow) it cannot compare: if there are any, replace the device with itself instead (`btrfs replace start`)."
            );
        }
        match mount.filter(|_| place.are_back(self)) {
            Some(mount) => format!(
                "Unmount {mount}, run `btrfs device scan`, and mount it again {when}: the filesystem does not use the drive that is back before that. If nobody pulled it, check its cable and test it first. Then start a scrub, which brings it up to date: `btrfs scrub start -B {mount}`."
            ),
            None => format!(
                "Replace the missing device {when}: `btrfs replace start`, with the id of the missing device (`btrfs filesystem show`)."
            ),
        }
    }

    fn joined_profiles(&self) -> String {
        self.profiles().into_iter().collect::<Vec<_>>().join("+")
    }
}

impl StorageStack for BtrfsFs {
    fn kind(&self) -> LayerKind {
        LayerKind::Array
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

    fn tree(&self, _: &Inventory, _: &str, below: Below) -> Option<Stack> {
        let parts: Vec<Stack> = self.devices.iter().map(|name| below(name)).collect();
        Some(match self.profiles().into_iter().map(tolerance).min() {
            None if parts.len() > 1 => Stack::Undetermined {
                level: "btrfs whose profiles are not known".to_owned(),
                parts,
            },
            None | Some(0) => Stack::all_of(parts),
            Some(_) => Stack::Redundant {
                level: format!("btrfs {}", self.joined_profiles()),
                tolerates: self.tolerates().unwrap_or(0),
                parts,
            },
        })
    }

    fn is_hard_on_smr(&self) -> bool {
        let is_parity = |it: &str| matches!(&*it.to_ascii_lowercase(), "raid5" | "raid6");
        self.profiles().into_iter().any(is_parity)
    }

    /// The weakest profile defines how many members it may lose (btrfs(5), PROFILES), minus those that
    /// are no copy already.
    fn tolerates(&self) -> Option<usize> {
        let weakest = self.profiles().into_iter().map(tolerance).min()?;
        weakest.checked_sub(self.without_copy())
    }

    fn shortfall(&self, place: Place) -> Option<Shortfall> {
        let without_copy = self.without_copy();
        if without_copy == 0 {
            return None;
        }
        let profiles = self.profiles();
        let tolerances = || profiles.iter().map(|profile| tolerance(profile));
        // The kernel mounts it read-write only if every chunk has all it needs
        // (btrfs_check_rw_degradable(), fs/btrfs/volumes.c). Then a profile without redundancy is of
        // chunks that were written since.
        let mounts = place.volume.map(|volume| volume.mounts.as_slice()).unwrap_or_default();
        let is_writable = !mounts.is_empty() && mounts.iter().all(|it| !it.is_super_read_only());
        let was_written = is_writable || !self.returned.is_empty();
        let enough = || tolerances().filter(|it| was_written && *it >= without_copy);
        let weakest = enough().min().or_else(|| tolerances().min());
        let left = match weakest.unwrap_or(0).checked_sub(without_copy) {
            None => Left::TooFew,
            Some(0) => Left::None,
            Some(further) => Left::Some(further),
        };
        let is_parity = |it: &&str| matches!(it.to_ascii_lowercase().as_str(), "raid5" | "raid6");
        let shortfall = Shortfall {
            name: format!("the btrfs {}", self.label.as_ref().unwrap_or(&self.uuid)),
            level: self.level(),
            unit: "devices",
            clears: Some(
                "every member of the filesystem is present again, and a scrub without an error has read each one that was away",
            ),
            have: self.devices.len().saturating_sub(self.returned.len()),
            missing: place.pulled_members(self),
            all: self.devices.len() + self.missing_devices as usize,
            left,
            is_mounted: true,
            is_parity: profiles.iter().any(is_parity),
            holders: self.devices.clone(),
            not_current: self.returned.iter().map(|it| place.returned_text(it)).collect(),
            proof: self.proof(place),
            ..Shortfall::default()
        };
        Some(Shortfall { repair: self.repair(place, &shortfall), ..shortfall })
    }

    fn is_intact(&self) -> Option<bool> {
        Some(self.without_copy() == 0)
    }

    fn lacking(&self) -> Option<usize> {
        Some(self.without_copy())
    }
}

impl<'a> Place<'a> {
    fn returned_text(self, returned: &ReturnedMember) -> String {
        let device = match &returned.member {
            BtrfsMember::Id(id) => format!("device {id}"),
            BtrfsMember::Name(name) => format!("the device that was {name}"),
        };
        format!(
            "{device} (was away from {} to {})",
            self.facts.wall_text(returned.since),
            self.facts.wall_text(returned.until)
        )
    }

    /// Members of a btrfs that were pulled: `sdb, serial S, last seen …`.
    fn pulled_members(self, fs: &BtrfsFs) -> Vec<String> {
        let text = |pulled: &PulledMember| match self.drive_of_pulled(pulled) {
            Some((serial, known)) if known.missing_since.is_some() => {
                let last = self.facts.wall_text(known.last_seen);
                format!("{}{serial}, last seen {last}", pulled.name)
            }
            Some((serial, known)) => {
                format!("{}{serial} (back as {})", pulled.name, known.facts.name)
            }
            None => pulled.name.clone(),
        };
        fs.pulled.iter().map(text).collect()
    }

    /// Whether all that this btrfs lacks are drives that were pulled and are present again.
    fn are_back(self, fs: &BtrfsFs) -> bool {
        let is_back = |pulled: &PulledMember| {
            let drive = self.drive_of_pulled(pulled);
            drive.is_some_and(|(_, known)| known.missing_since.is_none())
        };
        let back = fs.pulled.iter().filter(|it| is_back(it)).count();
        back > 0 && back == fs.without_copy()
    }

    /// The drive with its serial.
    fn drive_of_pulled(self, pulled: &PulledMember) -> Option<(String, &'a KnownDrive)> {
        let known = self.facts.drives.get(pulled.drive.as_ref()?)?;
        let serial = serial_of(known).map(|serial| format!(", serial {serial}"));
        Some((serial.unwrap_or_default(), known))
    }
}

/// How many members a btrfs of this profile may lose (btrfs(5), PROFILES).
fn tolerance(profile: &str) -> usize {
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
