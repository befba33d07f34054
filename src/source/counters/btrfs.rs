//! btrfs: error counters of each member device, which persist over mounts (devinfo/ID/error_stats,
//! since 5.14; fs/btrfs/sysfs.c).
//!
//! sysfs identifies a member by its id within the filesystem, without its block device; with one
//! member there is no doubt. The members of larger filesystems are identified by ioctls on the
//! mount (`host::btrfs`), which open its directory, as a probe does; sleeping drives are left out. A
//! member's device is the one that udev knows by its UUID, or that is at the kernel's path.

use std::collections::BTreeMap;

use crate::counters::block_reading;
use crate::inventory::CLASS_BLOCK;
use crate::inventory::btrfs::uuids;
use crate::inventory::sysfs::{DeviceRemoved, SysfsReader};
use diskvitals_finding::path::HostPath;
use diskvitals_host::btrfs::{BtrfsError, members};
use diskvitals_model::counters::CounterReading;

const DIR: &str = "/sys/fs/btrfs";

/// Lines of `NAME COUNT`. None for `invalid` (the counters could not be read at the mount) and for
/// malformed text.
pub fn parse(text: &str) -> Option<BTreeMap<String, u64>> {
    let line = |line: &str| {
        let (name, count) = line.split_once(' ')?;
        Some((name.to_owned(), count.trim().parse().ok()?))
    };
    text.lines().map(line).collect::<Option<BTreeMap<_, _>>>().filter(|counts| !counts.is_empty())
}

pub fn read(reader: &SysfsReader<'_>) -> Vec<CounterReading> {
    uuids(reader).filter_map(|uuid| read_one(reader, &uuid).ok().flatten()).collect()
}

fn read_one(reader: &SysfsReader<'_>, uuid: &str) -> Result<Option<CounterReading>, DeviceRemoved> {
    let dir = format!("{DIR}/{uuid}");
    let (members, devices) =
        (reader.list(&format!("{dir}/devinfo")), reader.list(&format!("{dir}/devices")));
    let ([member], [device]) = (members.as_slice(), devices.as_slice()) else {
        return Ok(None);
    };
    reading(reader, uuid, member, device)
}

/// Reads the members of the btrfs mounted at `path`, if it has several. `name` returns the kernel's
/// name of the block device at a path.
pub fn read_members(
    reader: &SysfsReader<'_>,
    path: &HostPath,
    name: impl Fn(&HostPath) -> Option<String>,
) -> Result<Vec<CounterReading>, BtrfsError> {
    let Some(members) = members(path)?.filter(|members| members.devices.len() > 1) else {
        return Ok(Vec::new());
    };
    let devices = reader.list(&format!("{DIR}/{}/devices", members.uuid));
    let udev = member_uuids(reader, &devices);
    let mut readings = Vec::new();
    for member in &members.devices {
        let id = member.id;
        let by_path = || name(&member.path).filter(|name| devices.contains(name));
        match with_uuid(&udev, &member.uuid).or_else(by_path) {
            Some(name) => readings
                .extend(reading(reader, &members.uuid, &id.to_string(), &name).ok().flatten()),
            None => reader.warn(format!(
                "{DIR}/{}/devinfo/{id}: neither udev nor {} leads to the device of this member",
                members.uuid, member.path
            )),
        }
    }
    Ok(readings)
}

/// Devices with the UUIDs of members that udev knows of them.
fn member_uuids(reader: &SysfsReader<'_>, devices: &[String]) -> Vec<(String, String)> {
    let uuid_of = |name: &String| {
        let dev = reader.text(&format!("{CLASS_BLOCK}/{name}/dev")).ok().flatten()?;
        let record = reader.udev(&format!("b{dev}"))?;
        Some((name.clone(), record.get("ID_FS_UUID_SUB")?.to_owned()))
    };
    devices.iter().filter_map(uuid_of).collect()
}

/// The member's device, also where the path is of a link that is gone.
fn with_uuid(known: &[(String, String)], uuid: &str) -> Option<String> {
    let mut found = known.iter().filter(|(_, known)| known == uuid);
    found.next().filter(|_| found.next().is_none()).map(|(name, _)| name.clone())
}

/// Reads the member `id`, whose block device is `device`.
fn reading(
    reader: &SysfsReader<'_>,
    uuid: &str,
    id: &str,
    device: &str,
) -> Result<Option<CounterReading>, DeviceRemoved> {
    let file = format!("{DIR}/{uuid}/devinfo/{id}/error_stats");
    let Some(text) = reader.text(&file)? else {
        return Ok(None);
    };
    let Some(mut values) = parse(&text) else {
        if text != "invalid" {
            reader.warn(format!("{file}: `{text:.80}` are not counters"));
        }
        return Ok(None);
    };
    values.extend(
        reader
            .number(&format!("{DIR}/{uuid}/devinfo/{id}/missing"))?
            .map(|missing| ("missing".to_owned(), missing)),
    );
    let details = BTreeMap::from([
        ("filesystem".to_owned(), uuid.to_owned()),
        ("devid".to_owned(), id.to_owned()),
    ]);
    Ok(Some(block_reading(device, "btrfs", file, values, details)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskvitals_host::root::HostRoot;

    #[test]
    fn a_member_whose_path_is_gone_is_the_device_with_its_uuid() {
        let tree = tempfile::tempdir().unwrap();
        for (name, dev, uuid) in [("sda", "8:0", "a"), ("sdb", "8:16", "b"), ("sdc", "8:32", "b")] {
            let (sysfs, udev) = (tree.path().join("sys/class/block").join(name), "run/udev/data");
            std::fs::create_dir_all(&sysfs).unwrap();
            std::fs::write(sysfs.join("dev"), format!("{dev}\n")).unwrap();
            std::fs::create_dir_all(tree.path().join(udev)).unwrap();
            let record = format!("E:ID_FS_UUID=fs\nE:ID_FS_UUID_SUB={uuid}\n");
            std::fs::write(tree.path().join(udev).join(format!("b{dev}")), record).unwrap();
        }
        let root = HostRoot::new(tree.path());
        let reader = SysfsReader::new(&root);
        let of = |devices: &[&str], uuid| {
            let devices: Vec<String> = devices.iter().map(|it| (*it).to_owned()).collect();
            with_uuid(&member_uuids(&reader, &devices), uuid)
        };
        assert_eq!(of(&["sda", "sdb"], "b").as_deref(), Some("sdb"));
        assert_eq!(of(&["sda", "sdb"], "c"), None);
        assert_eq!(of(&["sda", "sdb", "sdc"], "b"), None, "a copy of a member");
    }

    #[test]
    fn each_line_is_a_counter_and_counters_that_the_kernel_could_not_read_are_none() {
        let stats = parse(
            "write_errs 1\nread_errs 0\nflush_errs 0\ncorruption_errs 7\ngeneration_errs 0\n",
        )
        .expect("counters");
        assert_eq!((stats["write_errs"], stats["corruption_errs"], stats.len()), (1, 7, 5));
        assert_eq!((parse("invalid"), parse(""), parse("write_errs x")), (None, None, None));
    }
}
