use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;

const ATA: &str = "/sys/devices/pci0000:00/0000:00:17.0/ata3/host2";
const PORT: &str = "/sys/devices/pci0000:00/0000:00:1d.0";
const VMD: &str = "/sys/devices/pci0000:5d/0000:5d:05.5";

/// A tree of sysfs with links, as the kernel makes them: relative.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Tree {
        Tree(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> HostRoot {
        HostRoot::new(self.0.path())
    }

    fn file(&self, path: &str, text: &str) {
        let at = self.root().at(path);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::fs::write(at, text).unwrap();
    }

    fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.root().at(path)).unwrap()
    }

    fn link(&self, path: &str, target: &str) {
        let at = self.root().at(path);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        let up = "../".repeat(Path::new(path).components().count() - 2);
        symlink(format!("{up}{}", target.trim_start_matches('/')), at).unwrap();
    }

    fn block(&self, name: &str, sysfs: &str) {
        self.file(&format!("{sysfs}/dev"), "8:0");
        self.link(&format!("/sys/class/block/{name}"), sysfs);
    }

    fn find(&self, devices: &[&str], controllers: &[&str]) -> Option<LampPlace> {
        let owned = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        find(&self.root(), &owned(devices), &owned(controllers)).unwrap()
    }
}

/// sda in the slot `Slot 03` of an enclosure with SES.
fn in_an_enclosure() -> Tree {
    let tree = Tree::new();
    let drive = "/sys/devices/pci0000:00/0000:00:02.0/host0/target0:0:4/0:0:4:0";
    let enclosure =
        "/sys/devices/pci0000:00/0000:00:02.0/host0/target0:0:9/0:0:9:0/enclosure/0:0:9:0";
    tree.block("sda", &format!("{drive}/block/sda"));
    tree.file(&format!("{enclosure}/id"), "0x500304801a2b3c7f\n");
    tree.file(&format!("{enclosure}/Slot 03/locate"), "0\n");
    tree.file(&format!("{enclosure}/Slot 03/fault"), "0\n");
    tree.link(&format!("{enclosure}/Slot 03/device"), drive);
    tree.link(&format!("{drive}/enclosure_device:Slot 03"), &format!("{enclosure}/Slot 03"));
    tree.link("/sys/class/enclosure/0:0:9:0", enclosure);
    tree
}

fn slot_3() -> LampPlace {
    LampPlace::Ses { enclosure: "0x500304801a2b3c7f".into(), component: "Slot 03".into() }
}

#[test]
fn a_drive_in_an_enclosure_has_the_lamp_of_its_slot_and_the_fault_lamp_stays() {
    let tree = in_an_enclosure();
    assert_eq!(tree.find(&["sda"], &[]), Some(slot_3()));
    let file = "/sys/class/enclosure/0:0:9:0/Slot 03";
    switch(&tree.root(), &slot_3(), true).unwrap();
    assert_eq!(tree.text(&format!("{file}/locate")), "1");
    switch(&tree.root(), &slot_3(), false).unwrap();
    assert_eq!(tree.text(&format!("{file}/locate")), "0");
    assert_eq!(tree.text(&format!("{file}/fault")), "0\n");
}

#[test]
fn a_link_to_a_slot_that_holds_another_drive_is_not_its_lamp() {
    let tree = in_an_enclosure();
    let slot = tree.root().at("/sys/class/enclosure/0:0:9:0/Slot 03/device");
    std::fs::remove_file(&slot).unwrap();
    symlink("../elsewhere", slot).unwrap();
    assert_eq!(tree.find(&["sda"], &[]), None);
}

#[test]
fn an_nvme_drive_has_the_npem_lamp_of_itself_or_of_its_port_and_of_nothing_above() {
    for (lamp, is_found) in
        [("0000:00:1d.0", true), ("0000:03:00.0", true), ("0000:00:00.0", false)]
    {
        let tree = Tree::new();
        tree.file(&format!("{PORT}/0000:03:00.0/nvme/nvme0/state"), "live");
        tree.link("/sys/class/nvme/nvme0", &format!("{PORT}/0000:03:00.0/nvme/nvme0"));
        let file = format!("/sys/class/leds/{lamp}:enclosure:locate/brightness");
        tree.file(&file, "0\n");
        let place = LampPlace::Npem { pci: lamp.to_owned() };
        assert_eq!(tree.find(&[], &["nvme0"]), is_found.then(|| place.clone()), "{lamp}");
        switch(&tree.root(), &place, true).unwrap();
        assert_eq!(tree.text(&file), "1");
    }
}

fn below_vmd(attention: &str, driver: &str) -> Tree {
    let tree = Tree::new();
    let controller = format!("{VMD}/pci10000:00/10000:00:02.0/10000:01:00.0/nvme/nvme0");
    tree.file(&format!("{controller}/state"), "live");
    tree.link("/sys/class/nvme/nvme0", &controller);
    tree.link(&format!("{VMD}/driver"), &format!("/sys/bus/pci/drivers/{driver}"));
    tree.file("/sys/bus/pci/slots/1-2/address", "0000:81:00\n");
    tree.file("/sys/bus/pci/slots/1-2/attention", "15\n");
    tree.file("/sys/bus/pci/slots/1/address", "10000:01:00\n");
    tree.file("/sys/bus/pci/slots/1/attention", attention);
    tree
}

#[test]
fn the_attention_lamp_of_a_slot_is_used_below_vmd_only_and_not_while_it_shows_a_fault() {
    let slot = || LampPlace::Vmd { slot: "1".to_owned() };
    let tree = below_vmd("15\n", "vmd");
    assert_eq!(tree.find(&[], &["nvme0"]), Some(slot()));
    switch(&tree.root(), &slot(), true).unwrap();
    assert_eq!(tree.text("/sys/bus/pci/slots/1/attention"), "7");
    switch(&tree.root(), &slot(), false).unwrap();
    assert_eq!(tree.text("/sys/bus/pci/slots/1/attention"), "15");
    assert_eq!(below_vmd("15\n", "other").find(&[], &["nvme0"]), None);
    for fault in ["13\n", "5\n", "0\n"] {
        let tree = below_vmd(fault, "vmd");
        let refused = switch(&tree.root(), &slot(), true).unwrap_err();
        assert!(matches!(refused, LampError::InUse { .. }), "{refused}");
        assert_eq!(tree.text("/sys/bus/pci/slots/1/attention"), fault);
    }
}

fn on_ahci(types: &str, state: &str) -> Tree {
    let tree = Tree::new();
    tree.block("sda", &format!("{ATA}/target2:0:0/2:0:0:0/block/sda"));
    tree.file(&format!("{ATA}/scsi_host/host2/em_message_supported"), types);
    tree.file(&format!("{ATA}/scsi_host/host2/em_message"), state);
    tree
}

#[test]
fn an_ahci_port_has_a_lamp_if_the_kernel_sends_its_messages_and_no_multiplier_is_below() {
    let place = LampPlace::Ahci { host: format!("{ATA}/scsi_host/host2") };
    assert_eq!(on_ahci("led\n", "0\n").find(&["sda"], &[]), Some(place));
    for (types, state) in
        [("sgpio\n", "0\n"), ("\n", "0\n"), ("led sgpio\n", "0\n0\n"), ("led\n", "")]
    {
        assert_eq!(on_ahci(types, state).find(&["sda"], &[]), None, "{types} {state}");
    }
}

#[test]
fn an_ahci_lamp_that_shows_a_fault_is_left_alone_and_activity_does_not_matter() {
    let place = LampPlace::Ahci { host: format!("{ATA}/scsi_host/host2") };
    let file = format!("{ATA}/scsi_host/host2/em_message");
    let tree = on_ahci("led\n", "10000\n");
    // A file does not show what was written in the kernel's form.
    let shown = switch(&tree.root(), &place, true).unwrap_err();
    assert!(matches!(shown, LampError::NotFollowed { .. }), "{shown}");
    assert!(tree.text(&file).starts_with("0x80000"));
    let tree = on_ahci("led\n", "400000\n");
    assert!(matches!(switch(&tree.root(), &place, true), Err(LampError::InUse { .. })));
    assert_eq!(tree.text(&file), "400000\n");
    assert_eq!(of_ahci("80000"), Some(true));
    assert_eq!(of_ahci("90002"), Some(true));
    assert_eq!(of_ahci("junk"), None);
}

#[test]
fn a_lamp_that_is_gone_is_an_error_and_no_file_is_made() {
    let tree = in_an_enclosure();
    let gone = LampPlace::Ses { enclosure: "0x1".into(), component: "Slot 03".into() };
    assert!(matches!(switch(&tree.root(), &gone, false), Err(LampError::NoLamp(_))));
    let gone = LampPlace::Vmd { slot: "9".into() };
    assert!(matches!(switch(&tree.root(), &gone, false), Err(LampError::NoLamp(_))));
    assert!(!tree.root().at("/sys/bus/pci/slots/9").exists());
}
