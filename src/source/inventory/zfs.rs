//! Imported ZFS pools and their members. The module lists its pools below /proc/spl/kstat/zfs without a
//! lock (module/os/linux/spl/spl-kstat.c). It shows no `slaves` and no `holders`: which devices are
//! members, udev's database says from their labels (libblkid, superblocks/zfs.c). The labels of spares
//! and of L2ARC devices name no pool.

use std::collections::{BTreeMap, BTreeSet};

use crate::inventory::classify::is_numbered_name;
use crate::inventory::sysfs::SysfsReader;
use crate::inventory::udev_db::UdevRecord;
use diskvitals_finding::dev::DevNo;
use diskvitals_model::block::{BlockDevice, Layer};
use diskvitals_model::stack::{device_of_dataset, device_of_pool};

const DIR: &str = "/proc/spl/kstat/zfs";

/// Beside the directories of pools are files of the module (`arcstats`).
pub fn pools(
    reader: &SysfsReader<'_>,
    devices: &BTreeMap<String, BlockDevice>,
) -> Vec<BlockDevice> {
    let mut pools = reader.list(DIR);
    pools.retain(|name| reader.exists(&format!("{DIR}/{name}/state")));
    let pool = |name: String| {
        // OpenZFS 2.2 and later.
        let guid = reader.text(&format!("{DIR}/{name}/guid")).ok().flatten();
        let underlying = members(devices, &name, guid.as_deref());
        let device = device_of_pool(&name);
        BlockDevice { underlying, ..without_node(device, Layer::ZfsPool { name }) }
    };
    pools.into_iter().map(pool).collect()
}

/// What no block device of the kernel stands for.
fn without_node(name: String, layer: Layer) -> BlockDevice {
    BlockDevice {
        name,
        dev: DevNo::new(0, 0),
        size_bytes: 0,
        read_only: false,
        layer,
        underlying: Vec::new(),
        drive: None,
        links: Vec::new(),
        has_udev_record: true,
        fs_type: None,
        fs_usage: None,
        fs_uuid: None,
        fs_uuid_sub: None,
        fs_label: None,
        iostats: false,
    }
}

/// A pool that was exported, or destroyed, may have had the same name: its GUID decides where it is
/// known.
fn members(devices: &BTreeMap<String, BlockDevice>, pool: &str, guid: Option<&str>) -> Vec<String> {
    let is_member = |device: &&BlockDevice| {
        device.fs_type.as_deref() == Some("zfs_member")
            && match guid {
                Some(guid) => device.fs_uuid.as_deref() == Some(guid),
                None => device.fs_label.as_deref() == Some(pool),
            }
    };
    let all: Vec<&BlockDevice> = devices.values().filter(is_member).collect();
    // The label at the end of a last partition is also found on the whole disk.
    let below: BTreeSet<&String> = all.iter().flat_map(|device| &device.underlying).collect();
    let names = all.iter().map(|device| &device.name);
    names.filter(|name| !below.contains(*name)).cloned().collect()
}

/// A zvol is `zdN` and has no parent device. Its dataset is in the links of zvol_id, which writes a
/// blank as `+` (udev/rules.d/60-zvol.rules.in).
pub fn zvol(name: &str, udev: &UdevRecord) -> Option<(Layer, Vec<String>)> {
    if !is_numbered_name(name, "zd") {
        return None;
    }
    let mut links = udev.links.iter();
    let dataset = links.find_map(|link| link.strip_prefix("/dev/zvol/"));
    let dataset = dataset.map(|dataset| dataset.replace('+', " "));
    let pool = dataset.as_deref().map(device_of_dataset);
    Some((Layer::Zvol { dataset }, pool.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use diskvitals_host::root::HostRoot;

    fn member(name: &str, pool: &str, guid: &str, below: &[&str]) -> BlockDevice {
        BlockDevice {
            underlying: below.iter().map(|name| (*name).to_owned()).collect(),
            fs_type: Some("zfs_member".into()),
            fs_label: Some(pool.into()),
            fs_uuid: Some(guid.into()),
            ..without_node(name.into(), Layer::Disk)
        }
    }

    /// Of each pool, its device and those below.
    fn scan(files: &[(&str, &str)], devices: &[BlockDevice]) -> Vec<(String, Vec<String>)> {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join("proc/spl/kstat/zfs").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = HostRoot::new(dir.path());
        let reader = SysfsReader::new(&root);
        let devices = devices.iter().map(|device| (device.name.clone(), device.clone())).collect();
        pools(&reader, &devices).into_iter().map(|pool| (pool.name, pool.underlying)).collect()
    }

    #[test]
    fn a_pool_is_over_the_devices_whose_label_has_its_guid() {
        let devices = [
            member("sda", "tank", "17002345678901234567", &[]),
            member("sda1", "tank", "17002345678901234567", &["sda"]),
            member("sdb1", "tank", "17002345678901234567", &["sdb"]),
            member("sdc1", "tank", "99", &["sdc"]),
        ];
        let files =
            [("tank/state", "ONLINE\n"), ("tank/guid", "17002345678901234567\n"), ("arcstats", "")];
        let tank = ("zfs:tank".to_owned(), vec!["sda1".to_owned(), "sdb1".to_owned()]);
        assert_eq!(scan(&files, &devices), [tank]);
    }

    #[test]
    fn before_openzfs_2_2_the_name_decides_and_a_name_may_have_blanks() {
        let devices = [member("sdb1", "my pool", "7", &[]), member("sdc1", "other", "8", &[])];
        let pool = ("zfs:my pool".to_owned(), vec!["sdb1".to_owned()]);
        assert_eq!(scan(&[("my pool/state", "DEGRADED\n")], &devices), [pool]);
        assert_eq!(scan(&[], &devices), []);
    }

    #[test]
    fn a_zvol_is_on_the_pool_of_its_dataset() {
        let udev = UdevRecord {
            links: vec!["/dev/zvol/my+pool/vm-101-disk-0".into()],
            ..UdevRecord::default()
        };
        let layer = Layer::Zvol { dataset: Some("my pool/vm-101-disk-0".into()) };
        assert_eq!(zvol("zd0", &udev), Some((layer, vec!["zfs:my pool".into()])));
        let unnamed = Some((Layer::Zvol { dataset: None }, Vec::new()));
        assert_eq!(zvol("zd16", &UdevRecord::default()), unnamed);
        assert_eq!(zvol("zda", &udev), None);
    }
}
