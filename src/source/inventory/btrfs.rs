//! Mounted btrfs filesystems and their member devices, from /sys/fs/btrfs (fs/btrfs/sysfs.c). No
//! `slaves/` directory of a block device lists the members.

use crate::model::block::BtrfsFs;
use crate::source::inventory::sysfs::{DeviceRemoved, SysfsReader};

const DIR: &str = "/sys/fs/btrfs";

pub(crate) fn read(reader: &SysfsReader<'_>) -> Vec<BtrfsFs> {
    uuids(reader)
        .filter_map(|uuid| read_one(reader, uuid).ok())
        .collect()
}

/// The directories of filesystems are named by UUID; `features` and `debug` are others.
pub(in crate::source) fn uuids(reader: &SysfsReader<'_>) -> impl Iterator<Item = String> + use<> {
    let names = reader.list(DIR).into_iter();
    names.filter(|name| name.len() == 36 && name.matches('-').count() == 4)
}

fn read_one(reader: &SysfsReader<'_>, uuid: String) -> Result<BtrfsFs, DeviceRemoved> {
    let dir = format!("{DIR}/{uuid}");
    let mut missing_devices = 0;
    for member in reader.list(&format!("{dir}/devinfo")) {
        if reader.flag(&format!("{dir}/devinfo/{member}/missing"))? == Some(true) {
            missing_devices += 1;
        }
    }
    Ok(BtrfsFs {
        label: reader.text(&format!("{dir}/label"))?,
        devices: reader.list(&format!("{dir}/devices")),
        missing_devices,
        data_profiles: profiles(reader, &format!("{dir}/allocation/data"))?,
        metadata_profiles: metadata_profiles(reader, &dir)?,
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
