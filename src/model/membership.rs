//! What a device is a member of, for people: a pool, an array, a volume group, an OSD.
//!
//! In: the inventory, with udev's signatures and ours. Out: names; a mounted filesystem is none. A
//! signature proves no use.

use std::collections::{BTreeMap, BTreeSet};

use crate::block::{BlockDevice, Inventory, Layer};
use crate::label;
use crate::signature::{LabelState, OsdLabel, Signature};
use diskvitals_finding::ids::DriveId;

/// What is on each drive and its partitions, and the OSDs that stand on it. What is on a zvol or on
/// another logical volume may be of a virtual machine.
pub(crate) fn by_drive(inventory: &Inventory) -> BTreeMap<&DriveId, BTreeSet<String>> {
    let mut found: BTreeMap<&DriveId, BTreeSet<String>> = BTreeMap::new();
    for device in inventory.devices.values() {
        let is_own = match &device.layer {
            Layer::Dm { .. } => {
                device.is_multipath() || device.fs_type.as_deref() == Some("ceph_bluestore")
            }
            Layer::Zvol { .. } => false,
            _ => true,
        };
        let names = if is_own { of_device(inventory, device) } else { Vec::new() };
        let below = inventory.devices_below(&device.name).into_iter();
        let mut below = below.filter_map(|name| inventory.devices.get(name));
        if names.is_empty() || below.any(|it| matches!(it.layer, Layer::Zvol { .. })) {
            continue;
        }
        for drive in inventory.drives_below(&device.name) {
            found.entry(drive).or_default().extend(names.iter().cloned());
        }
    }
    found
}

/// `ZFS pool tank`, `osd.3 (DB) of Ceph cluster FSID`…
pub fn of_device(inventory: &Inventory, device: &BlockDevice) -> Vec<String> {
    let read = inventory.signatures.get(&device.name).map_or(&[][..], Vec::as_slice);
    let mut kinds: Vec<&str> = read.iter().map(|it| it.fs_type.as_str()).collect();
    kinds.extend(device.fs_type.as_deref().filter(|kind| !kinds.contains(kind)));
    let is_one_of_several = kinds.len() > 1;
    let name = |kind: &&str| {
        let name = name(inventory, device, kind, read.iter().find(|it| it.fs_type == **kind))?;
        Some(match is_one_of_several {
            true => format!("{name} (one of {} signatures)", kinds.len()),
            false => name,
        })
    };
    kinds.iter().filter_map(name).collect()
}

fn name(
    inventory: &Inventory,
    device: &BlockDevice,
    kind: &str,
    read: Option<&Signature>,
) -> Option<String> {
    let devices = inventory.devices.values();
    let mut above = devices.filter(|other| other.underlying.contains(&device.name));
    // What is at the end of a last partition is also found on the whole disk.
    let repeats = |it: &BlockDevice| {
        matches!(it.layer, Layer::Partition { .. }) && it.fs_type.as_deref() == Some(kind)
    };
    if above.clone().any(repeats) {
        return None;
    }
    let uuid = || device.fs_uuid.as_deref().map(|it| format!(" {it}")).unwrap_or_default();
    Some(match kind {
        "ceph_bluestore" => match read.and_then(|it| it.osd.as_ref()) {
            Some(label) => {
                let name = osd_name(inventory, label);
                match &main_label(inventory, label).cluster {
                    Some(cluster) => format!("{name} of Ceph cluster {cluster}"),
                    None => name,
                }
            }
            None => "a Ceph OSD".to_owned(),
        },
        "zfs_member" => {
            let pool = above.find(|it| matches!(it.layer, Layer::ZfsPool { .. }));
            if let Some(pool) = pool {
                return Some(format!("ZFS pool {}", label::device(inventory, &pool.name)));
            }
            let read = read.and_then(|it| it.zfs.as_ref());
            let pool = read.and_then(|it| it.pool.as_ref()).or(device.fs_label.as_ref());
            match (read.map(|it| it.state), pool) {
                (Some(LabelState::Spare), _) => "a ZFS pool, as its spare".to_owned(),
                (Some(LabelState::L2cache), _) => "a ZFS pool, as its L2ARC".to_owned(),
                (_, None) => "a ZFS pool that its label does not name".to_owned(),
                (Some(LabelState::Exported), Some(pool)) => format!("exported ZFS pool {pool}"),
                (Some(LabelState::Destroyed), Some(pool)) => format!("destroyed ZFS pool {pool}"),
                (Some(LabelState::Active) | None, Some(pool)) => {
                    format!("ZFS pool {pool}, not imported here")
                }
            }
        }
        "LVM2_member" => {
            let group = above.find_map(|it| match &it.layer {
                Layer::Dm { volume_group, .. } => volume_group.as_ref(),
                _ => None,
            });
            match group {
                Some(group) => format!("volume group {group}"),
                None => "a volume group of which nothing here is active".to_owned(),
            }
        }
        "linux_raid_member" => match above.find(|it| matches!(it.layer, Layer::Md { .. })) {
            Some(array) => array.name.clone(),
            None => format!("md array{}, not assembled here", uuid()),
        },
        "swap" if inventory.swaps.contains_key(&device.name) => "swap".to_owned(),
        "swap" => "swap, not active".to_owned(),
        "swsuspend" => "a hibernated system".to_owned(),
        // What is open stands on it.
        "crypto_LUKS" | "BitLocker" | "DM_integrity" if above.next().is_some() => return None,
        "crypto_LUKS" => "LUKS, not open".to_owned(),
        "bcachefs" => format!("bcachefs{}", uuid()),
        "drbd" => match above.find(|it| it.name.starts_with("drbd")) {
            Some(above) => above.name.clone(),
            None => "DRBD, not configured here".to_owned(),
        },
        "vdo" | "stratis" | "bcache" | "DM_integrity" | "BitLocker" | "DM_snapshot_cow" => {
            kind.to_owned()
        }
        _ => format!("firmware RAID ({})", kind.strip_suffix("_raid_member")?),
    })
}

/// `osd.3 (DB)`.
pub(crate) fn osd_name(inventory: &Inventory, label: &OsdLabel) -> String {
    let name = match &main_label(inventory, label).id {
        Some(id) => format!("osd.{id}"),
        None => format!("Ceph OSD {}", label.uuid),
    };
    match label.role.as_str() {
        "bluefs db" => format!("{name} (DB)"),
        "bluefs wal" => format!("{name} (WAL)"),
        _ => name,
    }
}

/// The label of a DB or WAL device does not have the number: another one with its UUID has.
fn main_label<'a>(inventory: &'a Inventory, label: &'a OsdLabel) -> &'a OsdLabel {
    let labels = inventory.signatures.values().flatten().filter_map(|it| it.osd.as_ref());
    let mut labels = labels.filter(|it| it.uuid == label.uuid && it.id.is_some());
    labels.next().unwrap_or(label)
}

#[cfg(test)]
mod tests;
