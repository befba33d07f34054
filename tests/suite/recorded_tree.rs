//! The generated tree of a host of any size has the requested contents.

use std::path::Path;

use crate::tree::{self, Plan};

fn walk(dir: &Path, visit: &mut dyn FnMut(&Path)) {
    for entry in std::fs::read_dir(dir).expect("readable") {
        let path = entry.expect("readable").path();
        visit(&path);
        if path.is_dir() && !path.is_symlink() {
            walk(&path, visit);
        }
    }
}

#[test]
fn every_symlink_of_the_tree_points_into_the_tree() {
    let dir = tempfile::tempdir().expect("a folder");
    tree::write(dir.path(), Plan { drives: 7, volumes: 40, hung: 1 }).expect("written");
    let root = dir.path().canonicalize().expect("there");
    let mut links = 0;
    walk(&root, &mut |path| {
        if path.is_symlink() {
            let target =
                path.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert!(target.starts_with(&root), "{} leads to {}", path.display(), target.display());
            links += 1;
        }
    });
    assert!(links > 40, "{links}");
}

#[test]
fn device_numbers_are_unique_and_every_device_has_its_udev_record() {
    let dir = tempfile::tempdir().expect("a folder");
    let volumes =
        tree::write(dir.path(), Plan { drives: 64, volumes: 1000, hung: 0 }).expect("written");
    let ids: std::collections::BTreeSet<String> =
        volumes.iter().map(|volume| volume.id()).collect();
    assert_eq!(ids.len(), 1000);
    let mut seen = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(dir.path().join("sys/class/block")).expect("readable") {
        let path = entry.expect("readable").path();
        let dev =
            std::fs::read_to_string(path.join("dev")).expect("has a number").trim().to_owned();
        assert!(dir.path().join(format!("run/udev/data/b{dev}")).is_file(), "{}", path.display());
        if let Some(other) = seen.insert(dev.clone(), path.clone()) {
            panic!("{dev} is {} and {}", other.display(), path.display());
        }
    }
    // Each disk, its two partitions and two of three volumes are devices.
    assert!(seen.len() > 64 * 3 + 600, "{}", seen.len());
}

#[test]
fn the_scan_understands_every_drive_and_device_of_the_tree() {
    use diskvitals_model::drive::{DriveKind, Transport};
    let dir = tempfile::tempdir().expect("a folder");
    tree::write(dir.path(), Plan { drives: 9, volumes: 60, hung: 0 }).expect("written");
    let inventory = diskvitals_source::inventory::scan(
        &diskvitals_host::root::HostRoot::new(dir.path()),
        &[],
        &[],
    )
    .expect("scanned");
    assert_eq!(inventory.warnings, Vec::<String>::new());
    assert_eq!(inventory.drives.len(), 9);
    assert!(
        inventory
            .drives
            .iter()
            .all(|drive| drive.id_stable && drive.serial.is_some() && drive.model.is_some()),
        "{:#?}",
        inventory.drives
    );
    let count = |kind, transport| {
        inventory
            .drives
            .iter()
            .filter(|drive| (drive.kind, drive.transport) == (kind, transport))
            .count()
    };
    assert_eq!(count(DriveKind::Hdd, Transport::Sata), 3);
    assert_eq!(count(DriveKind::Hdd, Transport::Sas), 3);
    assert_eq!(count(DriveKind::Nvme, Transport::Nvme), 3);
    let lvm = inventory
        .devices
        .values()
        .find(|device| device.name.starts_with("dm-"))
        .expect("a logical volume");
    assert!(!lvm.underlying.is_empty() && lvm.fs_uuid.is_some(), "{lvm:#?}");
}
