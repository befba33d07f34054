//! Which controllers there are, from a tree like sysfs.

use std::path::Path;

use super::*;

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(path, text).expect("written");
}

fn link(root: &Path, path: &str, target: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::os::unix::fs::symlink(target, path).expect("linked");
}

fn host(root: &Path, number: u32, driver: &str) {
    let dir = format!("sys/devices/pci0000:00/0000:0{number}:00.0/host{number}");
    put(root, &format!("{dir}/scsi_host/host{number}/proc_name"), &format!("{driver}\n"));
    link(
        root,
        &format!("sys/class/scsi_host/host{number}"),
        &format!(
            "../../devices/pci0000:00/0000:0{number}:00.0/host{number}/scsi_host/host{number}"
        ),
    );
}

fn scsi_device(root: &Path, hctl: &str, kind: u32, generic: Option<&str>, block: Option<&str>) {
    let host = hctl.split(':').next().expect("a host");
    let dir = format!("devices/pci0000:00/0000:0{host}:00.0/host{host}/{hctl}");
    put(root, &format!("sys/{dir}/type"), &format!("{kind}\n"));
    put(root, &format!("sys/{dir}/scsi_device/{hctl}/uevent"), "");
    link(root, &format!("sys/{dir}/scsi_device/{hctl}/device"), &format!("../../../{hctl}"));
    link(
        root,
        &format!("sys/class/scsi_device/{hctl}"),
        &format!("../../{dir}/scsi_device/{hctl}"),
    );
    if let Some(node) = generic {
        put(root, &format!("sys/{dir}/scsi_generic/{node}/dev"), "21:0\n");
        link(root, &format!("sys/{dir}/scsi_generic/{node}/device"), &format!("../../../{hctl}"));
        link(
            root,
            &format!("sys/class/scsi_generic/{node}"),
            &format!("../../{dir}/scsi_generic/{node}"),
        );
    }
    if let Some(name) = block {
        put(root, &format!("sys/{dir}/block/{name}/size"), "8\n");
    }
}

#[test]
fn each_driver_uses_its_own_device_node_and_slots() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for (number, driver) in [
        (0, "megaraid_sas"),
        (1, "smartpqi"),
        (2, "3w-9xxx"),
        (3, "aacraid"),
        (4, "ahci"),
        (5, "3w-9xxx"),
        (6, "arcmsr"),
    ] {
        host(root, number, driver);
    }
    put(root, "sys/devices/pci0000:00/0000:03:00.0/host3/scsi_host/host3/unique_id", "0\n");
    scsi_device(root, "0:2:0:0", 0, Some("sg0"), Some("sda"));
    scsi_device(root, "1:0:0:0", 0, Some("sg1"), Some("sdb"));
    scsi_device(root, "1:2:0:0", 12, Some("sg2"), None);
    scsi_device(root, "3:0:0:0", 0, Some("sg3"), Some("sdc"));
    scsi_device(root, "3:1:4:0", 0, Some("sg4"), None);
    scsi_device(root, "3:1:5:0", 0, Some("sg5"), None);
    scsi_device(root, "3:3:0:0", 13, Some("sg6"), None);
    let found = find(&HostRoot::new(root)).unwrap();
    let told: Vec<(String, Option<String>, usize)> = found
        .iter()
        .map(|controller| {
            (
                controller.name(),
                controller.device.as_ref().map(HostPath::to_string),
                controller.slot_groups.iter().map(Vec::len).sum(),
            )
        })
        .collect();
    let expected = [
        ("megaraid host0", Some("/dev/bus/0"), 128),
        ("cciss host1", Some("/dev/sg2"), 128),
        ("3ware host2", Some("/dev/twa0"), 128),
        ("aacraid host3", Some("/dev/aac0"), 2),
        ("3ware host5", Some("/dev/twa1"), 128),
        ("areca host6", None, 8 * 128),
    ];
    assert_eq!(
        told,
        expected.map(|(name, device, places)| (name.to_owned(), device.map(str::to_owned), places))
    );
    assert_eq!(found[0].pci.as_deref(), Some("0000:00:00.0"));
    assert_eq!(found[3].slot_groups, [["aacraid,0,0,4", "aacraid,0,0,5"]]);
    assert!(found[5].device_error.as_ref().is_some_and(|why| why.contains("load the module sg")));
    assert_eq!(
        (found[5].slot_groups[0][0].as_str(), found[5].slot_groups[1][2].as_str()),
        ("areca,1", "areca,3/2")
    );
}

#[test]
fn without_scsi_there_is_no_controller_and_an_unreadable_class_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(find(&HostRoot::new(dir.path())).unwrap(), []);
    put(dir.path(), "sys/class/scsi_host", "a file, where a folder should be");
    assert!(find(&HostRoot::new(dir.path())).is_err());
}
