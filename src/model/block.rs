//! The graph between drives and filesystems: every block device of the node, its underlying
//! devices, and the state of the layers that can degrade.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::drive::DriveFacts;
use crate::signature::Signature;
use crate::stack::{
    BlockCache, BtrfsFs, DmIntegrity, DmRaid, MdState, Multipath, ThinPool, ZfsPool,
};
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::ids::DriveId;

/// One scan of /sys/class/block (and /sys/class/nvme) joined with udev's database. Complete each
/// time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    pub drives: Vec<DriveFacts>,
    /// By kernel name. An imported ZFS pool has none: it is `zfs:NAME`, a device over its members.
    pub devices: BTreeMap<String, BlockDevice>,
    /// Mounted btrfs filesystems, from /sys/fs/btrfs.
    pub btrfs: Vec<BtrfsFs>,
    /// Active swap devices by kernel name, with the path in /proc/swaps (proc_swaps(5)). A removed
    /// device stays there: the kernel cannot give up its pages.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub swaps: BTreeMap<String, String>,
    /// What our own reading of a device found, by kernel name: where udev names no signature, and of
    /// members that it does not describe. Without an entry, nothing is known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub signatures: BTreeMap<String, Vec<Signature>>,
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
    /// An imported ZFS pool.
    ZfsPool {
        name: String,
    },
    /// A block device that a pool provides (`/dev/zd0`); None: udev has not named its dataset.
    Zvol {
        dataset: Option<String>,
    },
    Loop {
        backing_file: Option<String>,
    },
    /// ram, zram, sr, fd, nbd without size, mtdblock…: not a drive, and it has no health.
    Other,
}

impl Layer {
    /// Whether it has a state of its own that a worker reads.
    pub fn has_state(&self) -> bool {
        matches!(self, Layer::Md { .. } | Layer::Dm { .. } | Layer::Bcache | Layer::ZfsPool { .. })
    }
}

impl BlockDevice {
    pub fn is_multipath(&self) -> bool {
        matches!(&self.layer, Layer::Dm { uuid: Some(uuid), .. } if uuid.starts_with("mpath-"))
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
    DmRaid(DmRaid),
    Zfs(ZfsPool),
    Cache(BlockCache),
    Integrity(DmIntegrity),
    /// A dm table of linear targets only (most logical volumes, partitions of multipath devices):
    /// the location of each piece.
    Linear {
        extents: Vec<Extent>,
    },
    /// Any other dm table: it has no health.
    Plain,
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
