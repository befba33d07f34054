//! Mounted btrfs filesystems and their member devices, from /sys/fs/btrfs (fs/btrfs/sysfs.c). No
//! `slaves/` directory of a block device lists the members.

use crate::inventory::CLASS_BLOCK;
use crate::inventory::sysfs::{DeviceRemoved, SysfsReader};
use diskvitals_model::stack::{BtrfsFs, PulledMember};

const DIR: &str = "/sys/fs/btrfs";
/// BTRFS_DEV_REPLACE_DEVID (uapi/linux/btrfs.h).
const REPLACEMENT: u64 = 0;

pub fn read(reader: &SysfsReader<'_>) -> Vec<BtrfsFs> {
    uuids(reader).filter_map(|uuid| read_one(reader, uuid).ok()).collect()
}

/// The directories of filesystems are named by UUID; `features` and `debug` are others.
pub(crate) fn uuids(reader: &SysfsReader<'_>) -> impl Iterator<Item = String> + use<> {
    let names = reader.list(DIR).into_iter();
    names.filter(|name| name.len() == 36 && name.matches('-').count() == 4)
}

fn read_one(reader: &SysfsReader<'_>, uuid: String) -> Result<BtrfsFs, DeviceRemoved> {
    let dir = format!("{DIR}/{uuid}");
    // The link of a drive that was pulled stays until the unmount.
    let (devices, pulled): (Vec<String>, Vec<String>) = reader
        .list(&format!("{dir}/devices"))
        .into_iter()
        .partition(|name| reader.exists(&format!("{CLASS_BLOCK}/{name}")));
    let listed = reader.list(&format!("{dir}/devinfo"));
    let mut missing_ids = Vec::new();
    for member in &listed {
        let is_missing = reader.flag(&format!("{dir}/devinfo/{member}/missing"))? == Some(true);
        missing_ids.extend(member.parse::<u64>().ok().filter(|_| is_missing));
    }
    // A device scan clears the mark of a member that came back; it is used after the next mount.
    let unused = listed.len().saturating_sub(devices.len() + pulled.len());
    let missing_devices = missing_ids.len().max(unused) + pulled.len();
    let ids = listed.iter().filter_map(|id| id.parse().ok());
    Ok(BtrfsFs {
        label: reader.text(&format!("{dir}/label"))?,
        devices,
        pulled: pulled.into_iter().map(|name| PulledMember { name, drive: None }).collect(),
        member_ids: ids.filter(|id| *id != REPLACEMENT).collect(),
        missing_devices: u32::try_from(missing_devices).unwrap_or(u32::MAX),
        missing_ids,
        mount_mark: reader.boot_id()?.and_then(|boot| {
            let directory = reader.inode(&dir)?;
            Some(format!("{boot} {directory}"))
        }),
        returned: Vec::new(),
        data_profiles: profiles(reader, &format!("{dir}/allocation/data"))?,
        metadata_profiles: metadata_profiles(reader, &dir)?,
        // Since Linux 5.10.
        operation: reader
            .text(&format!("{dir}/exclusive_operation"))?
            .filter(|operation| operation != "none"),
        uuid,
    })
}

/// Those of the system chunks too: without them nothing is found.
fn metadata_profiles(reader: &SysfsReader<'_>, dir: &str) -> Result<Vec<String>, DeviceRemoved> {
    let mut all = profiles(reader, &format!("{dir}/allocation/metadata"))?;
    all.extend(profiles(reader, &format!("{dir}/allocation/system"))?);
    all.sort();
    all.dedup();
    Ok(all)
}

/// Profiles are directories among attribute files. After a conversion the old one stays there without
/// a chunk until the filesystem is mounted anew.
fn profiles(reader: &SysfsReader<'_>, dir: &str) -> Result<Vec<String>, DeviceRemoved> {
    let mut profiles = Vec::new();
    for name in reader.list(dir) {
        let path = format!("{dir}/{name}");
        if reader.is_dir(&path) && reader.number(&format!("{path}/total_bytes"))? != Some(0) {
            profiles.push(name);
        }
    }
    Ok(profiles)
}
