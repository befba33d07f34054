//! Inventory: the drives of the node and the block devices above them, from sysfs
//! (/sys/class/block, /sys/class/nvme, /sys/fs/btrfs), udev's database (/run/udev/data) and, for ZFS
//! pools, /proc/spl. The same reader for the live host and for a recorded tree.
//!
//! In: the host root, patterns of names to admit and to ignore. Out: an `Inventory`. Reads only
//! attributes whose reading cannot wait for I/O, with one exception (virtio-blk's `serial`, if udev
//! has not read it before); even so the scan runs in a worker. May not enter: mounts, volumes,
//! health.

pub(crate) mod block;
pub(crate) mod btrfs;
pub(crate) mod classify;
mod drive;
pub(crate) mod formats;
pub(crate) mod identity;
mod nvme;
mod swaps;
pub(crate) mod sysfs;
pub mod udev_db;
mod zfs;

use std::collections::BTreeMap;
use std::io;

use crate::checks::SNAPSHOT_PREFIX;
use crate::inventory::drive::DetectedDrive;
use crate::inventory::sysfs::SysfsReader;
use crate::superblock;
use diskvitals_host::loops;
use diskvitals_host::root::HostRoot;
use diskvitals_model::block::{BlockDevice, Inventory, Layer};

pub(crate) const CLASS_BLOCK: &str = "/sys/class/block";

#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    #[error("reading {CLASS_BLOCK}")]
    ListDevices(#[source] io::Error),
    #[error("reading the recorded devices")]
    ReadRecorded(#[source] io::Error),
}

/// All present drives and block devices. `admit`: names (with `*` and `?`) of loop and other
/// virtual devices that count as drives; `ignore`: names of drives that do not.
///
/// A device that vanishes during the scan is left out. Other read errors are in `warnings`, each
/// naming its file.
pub fn scan(root: &HostRoot, admit: &[String], ignore: &[String]) -> Result<Inventory, ScanError> {
    let reader = SysfsReader::new(root);
    let names = reader.try_list(CLASS_BLOCK).map_err(ScanError::ListDevices)?;
    let (check_entries, mut entries): (Vec<_>, Vec<_>) =
        names.iter().filter_map(|name| block::read(&reader, name)).partition(is_check_device);
    let ignored = |name: &str| formats::matches_any(ignore, name);

    let mut found: Vec<DetectedDrive> = nvme::detect(&reader, &entries, &ignored);
    for entry in
        entries.iter().filter(|entry| entry.nvme_parent.is_none() && !ignored(&entry.device.name))
    {
        found.extend(drive::detect(&reader, entry, admit));
    }
    let drives = drive::build_drives(found);
    for drive in &drives {
        for node in &drive.devices {
            if let Some(entry) = entries.iter_mut().find(|entry| entry.device.name == node.name) {
                entry.device.drive = Some(drive.id.clone());
            }
        }
    }
    let mut devices: BTreeMap<String, BlockDevice> =
        entries.into_iter().map(|entry| (entry.device.name.clone(), entry.device)).collect();
    let pools = zfs::pools(&reader, &devices);
    devices.extend(pools.into_iter().map(|pool| (pool.name.clone(), pool)));
    let btrfs = btrfs::read(&reader);
    let swaps = swaps::read(&reader);
    let of_checks = check_entries.into_iter().map(|entry| entry.device.name).collect();
    let signatures = superblock::recorded_signatures(root).map_err(ScanError::ReadRecorded)?;
    Ok(Inventory {
        drives,
        devices,
        btrfs,
        swaps,
        signatures,
        check_devices: of_checks,
        warnings: reader.into_warnings(),
    })
}

/// A loop of ours, through which a checker reads, or a snapshot of ours (`checks::lvm_snapshot`):
/// it exists only briefly and is no device of the node.
fn is_check_device(entry: &block::BlockEntry) -> bool {
    match &entry.device.layer {
        Layer::Loop { backing_file: Some(file) } => loops::is_ours(file),
        Layer::Dm { logical_volume: Some(volume), .. } => volume.starts_with(SNAPSHOT_PREFIX),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
