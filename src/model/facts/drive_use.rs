//! What uses a drive besides volumes, arrays and mappings: swap, and pools (ZFS, Ceph, bcachefs…) of
//! which the kernel shows no holder.
//!
//! In: the inventory, the I/O counters. Out: the signatures on a drive, and its use at the moment of
//! its removal. Reads prove no use: every scan for signatures reads.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::block::Inventory;
use crate::drive::{DriveFacts, Transport};
use crate::facts::disk_io::{DiskIo, RECENT_WRITES};
use crate::facts::{Facts, KnownDrive};
use crate::signature::LabelState;
use diskvitals_kernel_log::device_name::whole_disk;
use diskvitals_text::duration::elapsed;

/// Maximum number of UUIDs that are kept of one drive.
const MAX_CONTENTS: usize = 16;
/// The counters are read at intervals: writes before an unmount are counted after it.
const RELEASE_LAG: Duration = Duration::from_secs(60);

/// A signature that udev's blkid found on a drive or on a partition of it. A wiped array may leave
/// one: it proves no use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberSignature {
    /// Kernel name.
    pub device: String,
    /// `zfs_member`, `LVM2_member`, `swap`…
    pub fs_type: String,
    /// udev's ID_FS_UUID: of an array's member, that of the array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// ID_FS_UUID_SUB: of the member itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member_uuid: Option<String>,
    /// What a ZFS label says, where the pool is not imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_state: Option<LabelState>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LastUse {
    /// The kernel still lists its swap device after the removal.
    Swap { path: String, at: Timestamp },
    /// The last growth of its written sectors, and the line of /proc/diskstats.
    Writes { at: Timestamp, line: String },
}

impl MemberSignature {
    /// The owner of the signature, for people.
    pub fn owner(&self) -> &str {
        match self.fs_type.as_str() {
            "zfs_member" => "ZFS",
            "ceph_bluestore" => "Ceph",
            "LVM2_member" | "LVM1_member" => "LVM",
            "linux_raid_member" => "md",
            "crypto_LUKS" => "LUKS",
            other => other,
        }
    }

    /// What no other member has, unless one is a copy.
    pub(crate) fn own_uuid(&self) -> Option<&String> {
        match self.fs_type.as_str() {
            "LVM2_member" => self.uuid.as_ref(),
            "linux_raid_member" => self.member_uuid.as_ref(),
            _ => None,
        }
    }

    /// While such a member is in use, sysfs or the list of imported pools shows what holds it.
    fn has_holder_in_use(&self) -> bool {
        matches!(
            self.fs_type.as_str(),
            "linux_raid_member" | "crypto_LUKS" | "LVM2_member" | "bcache" | "zfs_member"
        )
    }

    /// Its own label says that no pool needs it: it was exported or destroyed, or is a spare or L2ARC.
    fn is_dispensable(&self) -> bool {
        self.label_state.is_some_and(|state| state != LabelState::Active)
    }
}

/// Signatures of members on the drive, by device. A filesystem of its own is none: unmounted, it is
/// not in use.
pub(super) fn signatures(inventory: &Inventory, drive: &DriveFacts) -> Vec<MemberSignature> {
    let devices = inventory.devices.values().filter(|device| is_part_of(&device.name, drive));
    let is_member = |usage: Option<&str>, fs_type: &str| {
        // blkid counts members of ZFS and bcachefs as filesystems (libblkid/src/superblocks).
        matches!(usage, Some("raid" | "crypto" | "other"))
            || matches!(
                fs_type,
                "zfs_member" | "bcachefs" | "swap" | "LVM2_member" | "drbd" | "ceph_bluestore"
            )
    };
    let mut found = Vec::new();
    for device in devices {
        let read = inventory.signatures.get(&device.name).map_or(&[][..], Vec::as_slice);
        let named = device.fs_type.as_deref();
        let named = named.filter(|kind| is_member(device.fs_usage.as_deref(), kind));
        let unnamed = read.iter().filter(|it| it.is_member() && Some(&*it.fs_type) != named);
        let kinds = named.into_iter().chain(unnamed.map(|it| &*it.fs_type));
        found.extend(kinds.map(|kind| {
            MemberSignature {
                device: device.name.clone(),
                fs_type: kind.to_owned(),
                uuid: device.fs_uuid.clone(),
                member_uuid: device.fs_uuid_sub.clone(),
                label_state: read
                    .iter()
                    .find(|it| it.fs_type == kind)
                    .and_then(|it| Some(it.zfs.as_ref()?.state)),
            }
        }));
    }
    found
}

/// What tells the medium of a drive from another one. A UUID that the members of one array or pool
/// share does not.
pub(super) fn contents(inventory: &Inventory, drive: &DriveFacts) -> BTreeSet<String> {
    let is_shared = |fs_type: &str| {
        matches!(fs_type, "linux_raid_member" | "zfs_member" | "btrfs" | "bcachefs")
    };
    let devices = inventory.devices.values().filter(|device| is_part_of(&device.name, drive));
    let uuids = devices.flat_map(|device| {
        let is_own = !device.fs_type.as_deref().is_some_and(is_shared);
        let links = device.links.iter();
        let partition = links.filter_map(|link| link.strip_prefix("/dev/disk/by-partuuid/"));
        partition.chain(device.fs_uuid.as_deref().filter(|_| is_own)).map(str::to_owned)
    });
    uuids.take(MAX_CONTENTS).collect()
}

/// The signatures that may be of something in use. A member that was taken out of its array before
/// the drive was removed keeps its signature.
pub(crate) fn unreleased(known: &KnownDrive) -> impl Iterator<Item = &MemberSignature> {
    let is_released = known.released.is_some();
    known.signatures.iter().filter(move |signature| {
        !(is_released && signature.has_holder_in_use() || signature.is_dispensable())
    })
}

/// The use of a drive that was just found missing and had no volume, array or mapping.
/// `inventory`: the scan that no longer lists it.
pub(super) fn at_removal(
    drive: &DriveFacts,
    signatures: &[MemberSignature],
    released: Option<Timestamp>,
    inventory: &Inventory,
    disk_io: &DiskIo,
    now: Timestamp,
) -> Option<LastUse> {
    let mut swaps = inventory.swaps.iter();
    // A name that the scan lists is another device's by now.
    if let Some((_, path)) = swaps
        .find(|(name, _)| is_part_of(name, drive) && !inventory.devices.contains_key(name.as_str()))
    {
        return Some(LastUse::Swap { path: path.clone(), at: now });
    }
    // A stick that was written to is made to be pulled.
    let portable = drive.removable || matches!(drive.transport, Transport::Usb | Transport::Mmc);
    if portable && signatures.is_empty() {
        return None;
    }
    // L2ARC is written to all the time.
    if !signatures.is_empty()
        && signatures.iter().all(|it| it.label_state == Some(LabelState::L2cache))
    {
        return None;
    }
    let (at, line) = unexplained_write(drive, released, disk_io, now)?;
    Some(LastUse::Writes { at, line: line.to_owned() })
}

/// The last write of the last hour that no former volume, array or mapping explains.
fn unexplained_write<'a>(
    drive: &DriveFacts,
    released: Option<Timestamp>,
    disk_io: &'a DiskIo,
    now: Timestamp,
) -> Option<(Timestamp, &'a str)> {
    let writes =
        drive.devices.iter().filter_map(|device| disk_io.last_write(device.dev, &device.name));
    let (at, line) = writes.max_by_key(|(at, _)| *at)?;
    let explained = released.is_some_and(|released| elapsed(released, at) <= RELEASE_LAG);
    (elapsed(at, now) <= RECENT_WRITES && !explained).then_some((at, line))
}

/// Whether something writes to a drive that has no volume, array, mapping or signature: the raw disk
/// of a virtual machine, a database on a whole disk.
pub(crate) fn is_written_raw(facts: &Facts, known: &KnownDrive) -> bool {
    let write = |now| unexplained_write(&known.facts, known.released, &facts.disk_io, now);
    known.missing_since.is_none()
        && !known.in_use
        && known.member_of.is_empty()
        && facts.disk_io.stats().at().and_then(write).is_some()
}

/// Whether the device is the drive's own, or a partition of it.
pub(super) fn is_part_of(device: &str, drive: &DriveFacts) -> bool {
    let whole = whole_disk(device);
    drive.devices.iter().any(|own| own.name == device || own.name == whole)
}
