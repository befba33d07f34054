//! Finds the device-mapper devices that block the writers of a logical volume, from sysfs
//! (Documentation/ABI/testing/sysfs-block-dm).
//!
//! In: LVM names of volumes. Out: devices, the lowest first, which is the order of resuming. Never
//! waits for a device.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::root::HostRoot;
use diskvitals_finding::dev::DevNo;

/// A device that is suspended, or has no active table: I/O to the first waits, I/O to the second
/// fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuspendedDevice {
    pub dev: DevNo,
    /// The name in dmsetup.
    pub name: String,
}

#[derive(Debug)]
struct DmDevice {
    device: SuspendedDevice,
    is_suspended: bool,
    /// Kernel names.
    underlying: Vec<String>,
}

/// The suspended devices among these volumes of a volume group and all devices below them.
pub fn beneath(root: &HostRoot, group: &str, volumes: &[&str]) -> io::Result<Vec<SuspendedDevice>> {
    let all = read_dm_devices(root)?;
    let names: Vec<String> =
        volumes.iter().filter(|name| !name.is_empty()).map(|name| dm_name(group, name)).collect();
    let mut held = Vec::new();
    let mut seen = Vec::new();
    for (kernel_name, mapped) in &all {
        if names.contains(&mapped.device.name) {
            collect_suspended(&all, kernel_name, &mut seen, &mut held);
        }
    }
    Ok(held)
}

fn collect_suspended(
    all: &BTreeMap<String, DmDevice>,
    at: &str,
    seen: &mut Vec<String>,
    held: &mut Vec<SuspendedDevice>,
) {
    // A disk, or a device that was already visited.
    let Some(mapped) = all.get(at).filter(|_| !seen.iter().any(|one| one == at)) else {
        return;
    };
    seen.push(at.to_owned());
    mapped.underlying.iter().for_each(|lower| collect_suspended(all, lower, seen, held));
    if mapped.is_suspended {
        held.push(mapped.device.clone());
    }
}

/// Hyphens within names are doubled (dm_build_dm_name() of lvm2).
fn dm_name(group: &str, volume: &str) -> String {
    format!("{}-{}", group.replace('-', "--"), volume.replace('-', "--"))
}

/// All device-mapper devices, by kernel name.
fn read_dm_devices(root: &HostRoot) -> io::Result<BTreeMap<String, DmDevice>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(root.at("/sys/block"))? {
        let entry = entry?;
        let path = entry.path();
        let text = |file: &str| {
            std::fs::read_to_string(path.join(file)).map(|text| text.trim().to_owned())
        };
        // Not a device-mapper device, or removed since.
        let (Ok(name), Ok(suspended), Ok(size), Ok(dev)) =
            (text("dm/name"), text("dm/suspended"), text("size"), text("dev"))
        else {
            continue;
        };
        let Ok(dev) = dev.parse() else { continue };
        let device = DmDevice {
            device: SuspendedDevice { dev, name },
            is_suspended: suspended != "0" || size == "0",
            underlying: underlying_devices(&path.join("slaves")),
        };
        all.insert(entry.file_name().to_string_lossy().into_owned(), device);
    }
    Ok(all)
}

/// The devices below the active and the inactive table.
fn underlying_devices(slaves: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(slaves).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `(kernel name, name, suspended, size, beneath)`.
    fn host(devices: &[(&str, &str, bool, u64, &[&str])]) -> (tempfile::TempDir, HostRoot) {
        let dir = tempfile::tempdir().expect("a folder");
        let block = dir.path().join("sys/block");
        std::fs::create_dir_all(block.join("sda")).expect("made");
        for (at, (kernel_name, name, suspended, size, beneath)) in devices.iter().enumerate() {
            let device = block.join(kernel_name);
            std::fs::create_dir_all(device.join("dm")).expect("made");
            for lower in *beneath {
                std::fs::create_dir_all(device.join("slaves").join(lower)).expect("made");
            }
            let files = [
                ("dm/name", (*name).to_owned()),
                ("dm/suspended", u8::from(*suspended).to_string()),
                ("size", size.to_string()),
                ("dev", format!("253:{at}")),
            ];
            files.iter().for_each(|(file, text)| {
                std::fs::write(device.join(file), format!("{text}\n")).expect("written")
            });
        }
        let root = HostRoot::new(dir.path());
        (dir, root)
    }

    fn names(root: &HostRoot, group: &str, volumes: &[&str]) -> Vec<String> {
        beneath(root, group, volumes).expect("readable").into_iter().map(|held| held.name).collect()
    }

    #[test]
    fn underlying_devices_come_first_and_active_ones_are_left_out() {
        // A classic snapshot in the making.
        let (_dir, root) = host(&[
            ("dm-0", "vg-data", true, 8, &["dm-1", "sda"]),
            ("dm-1", "vg-data-real", false, 0, &["sda"]),
            ("dm-2", "vg-diskvitals--check--c1", false, 8, &["dm-1", "dm-3"]),
            ("dm-3", "vg-diskvitals--check--c1-cow", true, 8, &["sda"]),
        ]);
        let held = names(&root, "vg", &["data", "diskvitals-check-c1"]);
        assert_eq!(held, ["vg-data-real", "vg-data", "vg-diskvitals--check--c1-cow"]);
    }

    #[test]
    fn a_thin_volume_includes_its_pool_and_no_others() {
        let (_dir, root) = host(&[
            ("dm-0", "vg-pool_tmeta", false, 8, &["sda"]),
            ("dm-1", "vg-pool-tpool", true, 8, &["dm-0"]),
            ("dm-2", "vg-data", true, 8, &["dm-1"]),
            ("dm-3", "vg-other", true, 8, &["sda"]),
            ("dm-4", "v-g--data", true, 8, &["sda"]),
        ]);
        assert_eq!(names(&root, "vg", &["data", ""]), ["vg-pool-tpool", "vg-data"]);
        assert_eq!(names(&root, "v-g", &["data"]), [""; 0]);
        assert_eq!(names(&root, "vg", &[""]), [""; 0]);
    }
}
