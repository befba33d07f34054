use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use diskvitals_model::drive::DriveKind;

struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Tree {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("sys/class/block")).unwrap();
        fs::create_dir_all(dir.path().join("exec")).unwrap();
        Tree(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn file(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// A SATA disk on port `port`, called `name`.
    fn disk(&self, port: usize, name: &str, wwid: Option<&str>, serial: Option<&str>) {
        let device = format!(
            "devices/pci0000:00/0000:00:17.0/ata{port}/host{port}/target{port}:0:0/{port}:0:0:0"
        );
        let sysfs = format!("sys/{device}/block/{name}");
        self.file(&format!("{sysfs}/dev"), format!("8:{}\n", port * 16));
        self.file(&format!("{sysfs}/size"), "2048\n");
        self.file(&format!("sys/{device}/vendor"), "ATA     \n");
        self.file(&format!("sys/{device}/model"), "MODEL\n");
        self.file(&format!("sys/{device}/state"), "running\n");
        if let Some(wwid) = wwid {
            self.file(&format!("sys/{device}/wwid"), wwid);
        }
        if let Some(serial) = serial {
            let length = u8::try_from(serial.len()).unwrap();
            self.file(
                &format!("sys/{device}/vpd_pg80"),
                [&[0, 0x80, 0, length], serial.as_bytes()].concat(),
            );
        }
        symlink(format!("../../../{port}:0:0:0"), self.path().join(format!("{sysfs}/device")))
            .unwrap();
        symlink(
            format!("../../{device}/block/{name}"),
            self.path().join(format!("sys/class/block/{name}")),
        )
        .unwrap();
    }

    fn nvme(&self, namespaces: &[u32], serial: &str) {
        let controller = "devices/pci0000:00/0000:01:00.0/nvme/nvme0";
        for (name, text) in [
            ("model", "Fast\n"),
            ("serial", serial),
            ("transport", "pcie\n"),
            ("state", "live\n"),
            ("subsysnqn", "nqn.x\n"),
        ] {
            self.file(&format!("sys/{controller}/{name}"), text);
        }
        fs::create_dir_all(self.path().join("sys/class/nvme")).unwrap();
        symlink(format!("../../{controller}"), self.path().join("sys/class/nvme/nvme0")).unwrap();
        for nsid in namespaces {
            let name = format!("nvme0n{nsid}");
            let sysfs = format!("sys/{controller}/{name}");
            self.file(&format!("{sysfs}/dev"), format!("259:{nsid}\n"));
            self.file(&format!("{sysfs}/size"), "2048\n");
            self.file(&format!("{sysfs}/nsid"), format!("{nsid}\n"));
            self.file(&format!("{sysfs}/eui"), format!("00 25 38 5b 01 23 45 0{nsid}\n"));
            symlink(
                format!("../../{controller}/{name}"),
                self.path().join(format!("sys/class/block/{name}")),
            )
            .unwrap();
        }
    }

    fn scan(&self) -> Inventory {
        scan(&HostRoot::new(self.path()), &[], &[]).unwrap()
    }

    fn ids(&self) -> Vec<String> {
        self.scan().drives.iter().map(|drive| drive.id.to_string()).collect()
    }
}

#[test]
fn a_missing_block_class_is_an_error_not_an_empty_inventory() {
    let dir = tempfile::tempdir().unwrap();
    let error = scan(&HostRoot::new(dir.path()), &[], &[]).unwrap_err();
    assert_eq!(error.to_string(), "reading /sys/class/block");
}

#[test]
fn a_device_removed_during_the_scan_is_skipped_silently() {
    let tree = Tree::new();
    symlink("../../devices/pci0000:00/block/sdz", tree.path().join("sys/class/block/sdz")).unwrap();
    tree.disk(1, "sda", Some("naa.5000c500a1b2c3d4"), None);
    let inventory = tree.scan();
    assert_eq!(inventory.devices.keys().collect::<Vec<_>>(), ["sda"]);
    assert!(inventory.warnings.is_empty(), "{:?}", inventory.warnings);
}

#[test]
fn what_cannot_be_read_is_a_warning_that_names_the_file() {
    let tree = Tree::new();
    tree.disk(1, "sda", None, Some("S1"));
    tree.file("run/udev/data/b8:16", b"E:ID_FS_LABEL=\xff\n");
    // A folder where an attribute should be: EISDIR, which no driver answers for an attribute that
    // it does not have.
    fs::create_dir_all(tree.path().join("sys/class/block/sda/removable")).unwrap();
    let inventory = tree.scan();
    assert_eq!(inventory.drives.len(), 1);
    assert!(
        inventory.warnings.iter().any(|line| line.contains("/run/udev/data/b8:16")),
        "{:?}",
        inventory.warnings
    );
    assert!(
        inventory.warnings.iter().any(|line| line.contains("block/sda/removable")),
        "{:?}",
        inventory.warnings
    );
}

#[test]
fn a_second_namespace_does_not_change_a_controllers_id() {
    let id = |namespaces: &[u32]| {
        let tree = Tree::new();
        tree.nvme(namespaces, "SERIAL7\n");
        let inventory = tree.scan();
        assert_eq!(inventory.drives.len(), 1);
        assert_eq!(inventory.drives[0].devices.len(), namespaces.len());
        assert_eq!(inventory.drives[0].size_bytes, 1024 * 1024 * namespaces.len() as u64);
        inventory.drives[0].id.to_string()
    };
    assert_eq!([id(&[]), id(&[1]), id(&[1, 2]), id(&[2])], ["Fast_SERIAL7"; 4]);
}

#[test]
fn a_controller_with_a_bogus_serial_is_known_by_its_first_namespace() {
    let tree = Tree::new();
    tree.nvme(&[1, 2], "00000000\n");
    assert_eq!(tree.ids(), ["eui.0025385b01234501"]);
}

#[test]
fn a_controller_without_namespaces_is_a_drive_with_the_controllers_name() {
    let tree = Tree::new();
    tree.nvme(&[], "SERIAL7\n");
    let drive = tree.scan().drives.remove(0);
    assert_eq!(
        (drive.name.as_str(), drive.state.as_deref(), drive.size_bytes),
        ("nvme0", Some("live"), 0)
    );
}

#[test]
fn the_hidden_nodes_of_nvme_multipath_are_no_devices() {
    let tree = Tree::new();
    tree.nvme(&[1], "SERIAL7\n");
    tree.file("sys/class/block/nvme0n1/hidden", "1\n");
    assert!(tree.scan().devices.is_empty());
}

#[test]
fn a_network_block_device_is_a_drive_while_it_is_connected() {
    let tree = Tree::new();
    for (number, size) in [(0, 2048), (1, 0)] {
        let sysfs = format!("devices/virtual/block/nbd{number}");
        tree.file(&format!("sys/{sysfs}/dev"), format!("43:{number}\n"));
        tree.file(&format!("sys/{sysfs}/size"), format!("{size}\n"));
        symlink(format!("../../{sysfs}"), tree.path().join(format!("sys/class/block/nbd{number}")))
            .unwrap();
    }
    let inventory = tree.scan();
    assert_eq!(
        inventory.drives.iter().map(|drive| (drive.name.as_str(), drive.kind)).collect::<Vec<_>>(),
        [("nbd0", DriveKind::Remote)]
    );
    assert!(!inventory.drives[0].id_stable);
    assert_eq!(inventory.devices.len(), 2);
}

#[test]
fn a_disk_that_is_being_removed_is_no_drive_with_another_id() {
    let tree = Tree::new();
    tree.disk(1, "sda", Some("naa.5000c500a1b2c3d4"), None);
    let device = "sys/devices/pci0000:00/0000:00:17.0/ata1/host1/target1:0:0/1:0:0:0";
    for attribute in ["wwid", "state"] {
        fs::remove_file(tree.path().join(format!("{device}/{attribute}"))).unwrap();
    }
    assert!(tree.scan().drives.is_empty());
}

#[test]
fn ignored_drives_are_devices_but_no_drives() {
    let tree = Tree::new();
    tree.disk(1, "sda", None, Some("S1"));
    tree.nvme(&[1], "SERIAL7\n");
    let inventory =
        scan(&HostRoot::new(tree.path()), &[], &["sd*".into(), "nvme0".into()]).unwrap();
    assert!(inventory.drives.is_empty());
    assert_eq!(inventory.devices.len(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn kernel_names_have_no_part_in_ids(names in proptest::sample::subsequence(vec!["sda", "sdb", "sdc", "sdd", "sdaa"], 3), turn in 0usize..3,
                                        wwid in any::<bool>(), serial in any::<bool>(), twins in any::<bool>()) {
        let ids = |names: &[&str]| {
            let tree = Tree::new();
            for (port, name) in names.iter().enumerate() {
                let own = if twins { 0 } else { port };
                let (wwid_text, serial_text) = (format!("naa.5000c500a1b2c3d{own}"), format!("S00{own}X"));
                tree.disk(port + 1, name, wwid.then_some(wwid_text.as_str()), serial.then_some(serial_text.as_str()));
            }
            tree.ids()
        };
        let mut renamed = names.clone();
        renamed.rotate_left(turn);
        let before = ids(&names);
        prop_assert_eq!(before.len(), 3);
        prop_assert_eq!(before, ids(&renamed));
    }

    #[test]
    fn no_udev_record_makes_the_scan_panic(junk in proptest::collection::vec(any::<u8>(), 0..200), value in proptest::collection::vec(any::<u8>(), 0..40),
                                           key in "(ID_MODEL_ENC|ID_SERIAL_SHORT|ID_WWN|ID_PATH|ID_FS_LABEL_ENC|ID_BUS)") {
        let tree = Tree::new();
        tree.disk(1, "sda", None, None);
        let record = [junk.as_slice(), b"\nE:", key.as_bytes(), b"=", &value, b"\n"].concat();
        tree.file("run/udev/data/b8:16", record);
        prop_assert_eq!(tree.scan().drives.len(), 1);
    }

    #[test]
    fn no_attribute_makes_the_scan_panic(junk in proptest::collection::vec(any::<u8>(), 0..120),
                                         name in "(size|ro|hidden|partition|removable|device/wwid|device/vpd_pg80|device/vpd_pg89|device/state|device/model|dm/name|md/level)") {
        let tree = Tree::new();
        tree.disk(1, "sda", None, None);
        tree.file(&format!("sys/class/block/sda/{name}"), junk);
        tree.scan();
    }
}

#[test]
fn only_an_array_has_the_driver_of_its_raid_controller() {
    let driver = |level: &str, vendor: &str| {
        let tree = Tree::new();
        tree.disk(1, "sda", None, Some("S"));
        let host = "sys/devices/pci0000:00/0000:00:17.0/ata1/host1";
        tree.file(&format!("{host}/scsi_host/host1/proc_name"), "hpsa\n");
        tree.file(&format!("{host}/target1:0:0/1:0:0:0/raid_level"), level);
        tree.file(&format!("{host}/target1:0:0/1:0:0:0/vendor"), vendor);
        tree.scan().drives[0].location.array_driver.clone()
    };
    assert_eq!(driver("RAID 5", "HPE").as_deref(), Some("hpsa"));
    assert_eq!(driver("N/A", "HPE"), None, "a physical disk");
    assert_eq!(driver("RAID 5", "QEMU"), None, "a disk of a hypervisor");
}

#[test]
fn a_check_snapshot_is_excluded_from_devices() {
    let tree = Tree::new();
    for (name, number, mapped) in
        [("dm-0", "253:0", "vg-home"), ("dm-1", "253:1", "vg-diskvitals--check--0123456789ab")]
    {
        let sysfs = format!("devices/virtual/block/{name}");
        tree.file(&format!("sys/{sysfs}/dev"), format!("{number}\n"));
        tree.file(&format!("sys/{sysfs}/size"), "2048\n");
        tree.file(&format!("sys/{sysfs}/dm/name"), format!("{mapped}\n"));
        tree.file(&format!("sys/{sysfs}/dm/uuid"), format!("LVM-{name}\n"));
        symlink(format!("../../{sysfs}"), tree.path().join(format!("sys/class/block/{name}")))
            .unwrap();
    }
    let seen = tree.scan();
    assert_eq!(seen.devices.into_keys().collect::<Vec<_>>(), ["dm-0"]);
    assert_eq!(
        seen.check_devices.into_iter().collect::<Vec<_>>(),
        ["dm-1"],
        "and what the kernel says of it is nobody's either"
    );
}

#[test]
fn a_member_of_a_btrfs_that_was_pulled_keeps_its_link_and_is_missing() {
    let tree = Tree::new();
    let dir = "sys/fs/btrfs/0a0b0c0d-0000-4000-8000-000000000001";
    tree.disk(1, "sda", None, Some("A"));
    for (id, name) in [(1, "sda"), (2, "sdb")] {
        tree.file(&format!("{dir}/devinfo/{id}/missing"), "0\n");
        tree.file(&format!("{dir}/devices/{name}/size"), "0\n");
    }
    let seen = tree.scan();
    let fs = &seen.btrfs[0];
    let pulled: Vec<&str> = fs.pulled.iter().map(|it| it.name.as_str()).collect();
    assert_eq!((fs.devices.as_slice(), pulled), (&["sda".to_owned()][..], vec!["sdb"]));
    assert_eq!((fs.missing_devices, &fs.missing_ids[..]), (1, &[][..]));
}

#[test]
fn the_profiles_of_a_btrfs_are_those_with_chunks() {
    let tree = Tree::new();
    let uuid = "0a0b0c0d-0000-4000-8000-000000000001";
    for (kind, profile, bytes) in [
        ("data", "single", 0),
        ("data", "raid1", 1 << 30),
        ("metadata", "raid1", 1 << 28),
        ("system", "dup", 1 << 23),
    ] {
        let path = format!("sys/fs/btrfs/{uuid}/allocation/{kind}/{profile}/total_bytes");
        tree.file(&path, format!("{bytes}\n"));
    }
    let seen = tree.scan();
    let fs = &seen.btrfs[0];
    assert_eq!(fs.data_profiles, ["raid1"], "a conversion has emptied the other");
    assert_eq!(fs.metadata_profiles, ["dup", "raid1"]);
}
