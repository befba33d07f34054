//! The graph between drives and filesystems: every block device of the node, its underlying
//! devices, and the state of the layers that can degrade.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::drive::DriveFacts;
use crate::redundancy::btrfs_tolerance;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::ids::DriveId;
use diskvitals_kernel_log::event::DamagedCopies;

/// One scan of /sys/class/block (and /sys/class/nvme) joined with udev's database. Complete each
/// time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    pub drives: Vec<DriveFacts>,
    /// By kernel name.
    pub devices: BTreeMap<String, BlockDevice>,
    /// Mounted btrfs filesystems, from /sys/fs/btrfs.
    pub btrfs: Vec<BtrfsFs>,
    /// Active swap devices by kernel name, with the path in /proc/swaps (proc_swaps(5)). A removed
    /// device stays there: the kernel cannot give up its pages.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub swaps: BTreeMap<String, String>,
    /// Kernel names of devices that our own filesystem checks have created. They are not among
    /// `devices`.
    #[serde(rename = "of_checks", default, skip_serializing_if = "BTreeSet::is_empty")]
    pub check_devices: BTreeSet<String>,
    /// Files that could not be read or parsed, each by name. They raise no finding.
    pub warnings: Vec<String>,
}

impl Inventory {
    /// The mounted btrfs that has, or had, a member of this name.
    pub(crate) fn btrfs_of(&self, device: &str) -> Option<&BtrfsFs> {
        self.btrfs.iter().find(|fs| fs.has_member(device))
    }

    /// The device and all devices below it.
    pub(crate) fn devices_below<'a>(&'a self, device: &'a str) -> BTreeSet<&'a str> {
        let mut next = vec![device];
        let mut seen = BTreeSet::new();
        while let Some(name) = next.pop() {
            if seen.insert(name)
                && let Some(device) = self.devices.get(name)
            {
                next.extend(device.underlying.iter().map(String::as_str));
            }
        }
        seen
    }

    /// The drives that the device is or is on.
    pub fn drives_below(&self, device: &str) -> BTreeSet<&DriveId> {
        let devices = self.devices_below(device).into_iter();
        let devices = devices.filter_map(|name| self.devices.get(name));
        devices.filter_map(|device| device.drive.as_ref()).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockDevice {
    pub name: String,
    pub dev: DevNo,
    pub size_bytes: u64,
    pub read_only: bool,
    pub layer: Layer,
    /// Kernel names of the underlying devices: the whole disk of a partition, `slaves/` of md, dm
    /// and bcache. Sorted.
    #[serde(rename = "below")]
    pub underlying: Vec<String>,
    /// The drive that this device is, not an underlying drive.
    pub drive: Option<DriveId>,
    /// `/dev/…` links from udev.
    pub links: Vec<String>,
    /// Whether udev's database has a record of the device; without udevd there are none.
    #[serde(default)]
    pub has_udev_record: bool,
    /// udev's ID_FS_TYPE, ID_FS_UUID, ID_FS_LABEL: the filesystem that blkid found.
    pub fs_type: Option<String>,
    /// udev's ID_FS_USAGE: `filesystem`, `raid`, `crypto` or `other`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_usage: Option<String>,
    pub fs_uuid: Option<String>,
    /// ID_FS_UUID_SUB: of the member of an array, whose members share `fs_uuid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_uuid_sub: Option<String>,
    pub fs_label: Option<String>,
    /// False where `queue/iostats` is 0: then /proc/diskstats has no figures for it.
    pub iostats: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    Disk,
    Partition {
        number: u32,
        start_bytes: u64,
    },
    /// `level` as in md's sysfs: `raid1`, `raid5`, `linear`, `container`…
    Md {
        level: Option<String>,
    },
    Dm {
        /// The name below /dev/mapper.
        name: String,
        /// `LVM-…`, `CRYPT-…`, `mpath-…`, `part1-mpath-…`; None for tables without one.
        uuid: Option<String>,
        /// LVM's names, from udev (DM_VG_NAME, DM_LV_NAME) or split from `name`, in which LVM
        /// doubles hyphens.
        volume_group: Option<String>,
        logical_volume: Option<String>,
    },
    Bcache,
    Loop {
        backing_file: Option<String>,
    },
    /// ram, zram, sr, fd, nbd without size, mtdblock…: not a drive, and it has no health.
    Other,
}

impl BlockDevice {
    pub fn is_multipath(&self) -> bool {
        matches!(&self.layer, Layer::Dm { uuid: Some(uuid), .. } if uuid.starts_with("mpath-"))
    }
}

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

/// State of a layer; reading it may block (md attributes, dm status). A worker reads one device at
/// a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerState {
    Md(MdState),
    Thin(ThinPool),
    Multipath(Multipath),
    /// dm-raid (LVM's RAID): `health` is one character a leg: A alive and in sync, a alive, D dead,
    /// - missing (dm-raid.rst).
    DmRaid {
        level: String,
        health: String,
        sync_action: Option<String>,
        status_line: String,
        /// md's layout word, of a raid10 whose table was read.
        #[serde(default)]
        layout: Option<u32>,
    },
    /// A dm table of linear targets only (most logical volumes, partitions of multipath devices):
    /// the location of each piece.
    Linear {
        extents: Vec<Extent>,
    },
    /// Any other dm table: it has no health.
    Plain,
}

impl LayerState {
    /// Whether a redundant layer has all its members; None for other layers.
    pub(crate) fn is_intact(&self) -> Option<bool> {
        match self {
            LayerState::Md(md) => Some(md.degraded == 0),
            LayerState::DmRaid { health, .. } => Some(health.chars().all(|leg| leg == 'A')),
            _ => None,
        }
    }
}

/// A piece of a linear mapping, in sectors of 512 bytes
/// (Documentation/admin-guide/device-mapper/linear.rst).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    pub start: u64,
    pub length: u64,
    pub dev: DevNo,
    /// The offset on `dev`.
    pub offset: u64,
}

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

/// dm-thin's pool status (Documentation/admin-guide/device-mapper/thin-provisioning.rst), in
/// blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThinPool {
    pub metadata_used: u64,
    pub metadata_total: u64,
    pub data_used: u64,
    pub data_total: u64,
    /// `rw`, `ro`, `out_of_data_space`, `Fail`.
    pub mode: String,
    pub needs_check: bool,
    pub status_line: String,
}

/// dm-multipath's status: each path and whether the kernel uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Multipath {
    pub paths: Vec<MultipathPath>,
    pub status_line: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MultipathPath {
    pub dev: DevNo,
    pub active: bool,
    pub fail_count: u64,
}

/// Reads and writes of a device, completed since it appeared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfers {
    pub reads: u64,
    pub writes: u64,
    pub sectors_read: u64,
    /// The time that the requests took, added up.
    pub read_milliseconds: u64,
    pub write_milliseconds: u64,
}

/// One line of /proc/diskstats: the fields that rules use (Documentation/admin-guide/iostats.rst).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskStat {
    pub dev: DevNo,
    pub name: String,
    /// Reads + writes + discards + flushes completed since boot.
    pub completed: u64,
    /// Sectors written since boot.
    #[serde(default)]
    pub sectors_written: u64,
    pub in_flight: u64,
    #[serde(default)]
    pub transfers: Transfers,
    /// The line itself, for evidence.
    pub line: Arc<str>,
}
