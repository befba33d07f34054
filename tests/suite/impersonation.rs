//! Attacks of devices that call themselves as another drive does, on a recorded host.

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::Value;

use crate::hosts::Daemon;

const DISK: &str = "sys/devices/pci0000:00/0000:00:03.0/0000:03:00.0/host0/port-0:0/expander-0:0/port-0:0:0/end_device-0:0:0/target0:0:0/0:0:0:0";
const STICK: &str =
    "sys/devices/pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/host9/target9:0:0/9:0:0:0";

/// Files and links, without the folder `except`.
fn copy(from: &Path, to: &Path, except: &str) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("readable") {
        let (path, name) = entry.map(|it| (it.path(), it.file_name())).expect("entry");
        let target = to.join(&name);
        if path.is_symlink() {
            symlink(path.read_link().expect("a link"), target).expect("linked");
        } else if path.is_dir() && name != except {
            copy(&path, &target, except);
        } else if path.is_file() {
            std::fs::copy(&path, target).expect("copied");
        }
    }
}

/// A USB stick with the model, serial number, WWN and size of sda, and good SMART values.
fn plug_stick(tree: &Path) {
    let (disk, stick) = (tree.join(DISK), tree.join(STICK));
    copy(&disk, &stick, "block");
    let block = stick.join("block/sdz");
    copy(&disk.join("block/sda/queue"), &block.join("queue"), "");
    for file in ["size", "ro", "removable"] {
        std::fs::copy(disk.join("block/sda").join(file), block.join(file)).expect("copied");
    }
    std::fs::write(block.join("dev"), "65:144\n").expect("written");
    symlink("../..", block.join("device")).expect("linked");
    let link = format!("../../{}/block/sdz", STICK.trim_start_matches("sys/"));
    symlink(link, tree.join("sys/class/block/sdz")).expect("linked");
    let record = std::fs::read_to_string(tree.join("run/udev/data/b8:0")).expect("text");
    let path = "pci-0000:03:00.0-sas-exp0x500304801a2b3c7f-phy0-lun-0";
    assert!(record.contains(path));
    let record = record.replace(path, "pci-0000:00:14.0-usb-0:1:1.0-scsi-0:0:0:0");
    std::fs::write(tree.join("run/udev/data/b65:144"), record).expect("written");
    let answers = tree.join("exec/smartctl/dev");
    let answer = std::fs::read(answers.join("sda.json")).expect("an answer");
    let mut answer: Value = serde_json::from_slice(&answer).expect("JSON");
    answer["smart_status"]["passed"] = true.into();
    for row in answer["ata_smart_attributes"]["table"].as_array_mut().expect("a table") {
        if [5, 187, 197].map(Value::from).contains(&row["id"]) {
            row["raw"] = serde_json::json!({"value": 0, "string": "0"});
            (row["value"], row["worst"], row["when_failed"]) = (100.into(), 100.into(), "".into());
        }
    }
    std::fs::write(answers.join("sdz.json"), answer.to_string()).expect("written");
    std::fs::write(answers.join("sdz.exit"), "0").expect("written");
}

fn unplug(tree: &Path, name: &str) {
    std::fs::remove_file(tree.join("sys/class/block").join(name)).expect("unlinked");
}

/// The drive's entry without its times and findings' ids, and its findings.
fn drive<'a>(all: &'a Value, id: &str) -> &'a Value {
    let mut drives = all["drives"].as_array().expect("a list").iter();
    drives.find(|it| it["id"] == id).unwrap_or_else(|| panic!("no {id}: {all:#}"))
}

fn findings(all: &Value, id: &str) -> Vec<String> {
    let findings = all["findings"].as_array().expect("a list").iter();
    let of = findings.filter(|it| it["subject"]["id"] == id);
    let mut names: Vec<String> =
        of.map(|it| format!("{} {}", it["reason"], it["severity"]).replace('"', "")).collect();
    names.sort();
    names
}

#[test]
fn a_stick_with_a_disks_serial_number_and_wwn_takes_nothing_of_it_and_clears_nothing() {
    let dir = tempfile::tempdir().expect("dir");
    let (tree, state) = (dir.path().join("host"), dir.path().join("daemon"));
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hosts/two-dying-disks");
    copy(&recorded, &tree, "");
    let look = || {
        let _ = std::fs::remove_dir_all(state.join("smartctl"));
        std::fs::create_dir_all(&state).expect("a folder");
        Daemon::start_in(&tree, &state).answer()
    };
    let (disk, stick) = ("naa.5000c500a1d00000", "path:pci-0000:00:14.0-usb-0:1:1.0-scsi-0:0:0:0");
    let before = look();
    let of_disk = findings(&before, disk);
    assert!(of_disk.contains(&"PendingSectors SEVERITY_SUSPECT".into()), "{of_disk:?}");

    plug_stick(&tree);
    let both = look();
    assert_eq!(
        both["drives"].as_array().map(Vec::len),
        before["drives"].as_array().map(|it| it.len() + 1)
    );
    assert_eq!(findings(&both, disk), of_disk);
    assert_eq!(drive(&both, disk)["name"], "sda");
    assert_eq!(drive(&both, stick)["name"], "sdz");
    assert_eq!(drive(&both, stick)["health"], "HEALTH_GOOD");
    assert_eq!(findings(&both, stick), ["DuplicateIdentity SEVERITY_INFO"]);
    let ids = |all: &Value| {
        all["volumes"].as_array().map(|it| it.iter().map(|it| it["id"].clone()).collect::<Vec<_>>())
    };
    assert_eq!(ids(&both), ids(&before));

    // The disk is found later than the stick.
    let link = tree.join("sys/class/block/sda").read_link().expect("a link");
    unplug(&tree, "sda");
    let alone = look();
    assert_eq!(drive(&alone, stick)["name"], "sdz");
    assert!(findings(&alone, disk).contains(&"DriveMissing SEVERITY_BAD".into()));
    assert!(findings(&alone, disk).contains(&"PendingSectors SEVERITY_SUSPECT".into()));
    symlink(link, tree.join("sys/class/block/sda")).expect("linked");
    assert_eq!(findings(&look(), disk), of_disk);

    unplug(&tree, "sdz");
    let after = look();
    assert_eq!(findings(&after, disk), of_disk);
    assert_eq!(findings(&after, stick), ["DriveMissing SEVERITY_INFO"]);
}
