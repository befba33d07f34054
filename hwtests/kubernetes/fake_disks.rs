//! Simulated SATA disks: loop devices that sysfs shows as SATA disks, in the cluster's own mount
//! namespace, so that the daemon queries them with smartctl.
//!
//! In: loop devices. Out: sysfs with `sdv`, `sdw`, … instead of them. The rest of sysfs is
//! unchanged.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};

use crate::smartctl::Ata;
use crate::support::Disk;

const CLASS: &str = "/sys/class/block";
/// A directory of sysfs that contains no hardware: the disks' own directories are mounted there.
const COVERED: &str = "/sys/devices/tracepoint";
/// Loop devices that may be created later have their links already, because the covering mount
/// shows nothing that sysfs adds.
const LOOPS: usize = 256;

#[derive(Clone, Debug)]
pub struct FakeDisks {
    pub disk: Disk,
    /// `/dev/sdv`: smartctl's argument. No such node is needed.
    pub name: String,
    /// Its ATA attributes while it is healthy.
    pub ata: Ata,
}

/// The directory of its attributes; a path like that of an AHCI controller's port.
fn folder(port: usize) -> PathBuf {
    Path::new(COVERED).join(format!("ata{port}/host{port}/target{port}:0:0/{port}:0:0:0"))
}

fn put(at: &Path, text: &str) {
    std::fs::create_dir_all(at.parent().expect("a folder")).expect("a folder");
    std::fs::write(at, format!("{text}\n"))
        .unwrap_or_else(|error| panic!("{}: {error}", at.display()));
}

/// All disks at once, before the daemon starts.
pub fn create(disks: Vec<Disk>) -> Vec<FakeDisks> {
    cover_sysfs(&disks);
    disks.into_iter().enumerate().map(|(at, disk)| show(at, disk)).collect()
}

/// A RAID 0 array on the disks, as sysfs shows it (without redundancy, a failure of one disk
/// concerns all of it). Its content is that of `array`.
pub fn create_striped(array: Disk, disks: Vec<Disk>) -> (Disk, Vec<FakeDisks>) {
    let all: Vec<Disk> = disks.iter().cloned().chain([array.clone()]).collect();
    cover_sysfs(&all);
    let disks_on_sysfs: Vec<FakeDisks> =
        disks.into_iter().enumerate().map(|(at, disk)| show(at, disk)).collect();
    let block = Path::new(COVERED).join("virtual/block").join(ARRAY);
    as_block(&block, &array);
    for (file, text) in [
        ("level", "raid0"),
        ("raid_disks", &disks_on_sysfs.len().to_string()),
        ("array_state", "clean"),
        ("sync_action", "idle"),
    ] {
        put(&block.join("md").join(file), text);
    }
    for (slot, below) in disks_on_sysfs.iter().enumerate() {
        let name = below.name.trim_start_matches("/dev/");
        let of_disk = Path::new(CLASS).join(name);
        let member = block.join("md").join(format!("dev-{name}"));
        for (file, text) in [("state", "in_sync"), ("slot", &slot.to_string()), ("errors", "0")] {
            put(&member.join(file), text);
        }
        let directory = of_disk.canonicalize().expect("its folder");
        symlink(&directory, member.join("block")).expect("a link");
        symlink(&directory, block.join("slaves").join(name)).expect("a link");
        symlink(&block, directory.join("holders").join(ARRAY)).expect("a link");
    }
    in_class(ARRAY, &block);
    (array, disks_on_sysfs)
}

const ARRAY: &str = "md127";

fn cover_sysfs(disks: &[Disk]) {
    let real: Vec<(String, PathBuf)> = std::fs::read_dir(CLASS)
        .expect("all block devices")
        .flatten()
        .map(|entry| {
            (
                entry.file_name().to_string_lossy().into_owned(),
                std::fs::read_link(entry.path()).expect("a link"),
            )
        })
        .collect();
    let cover = |at: &str| {
        mount(Some("lab"), at, Some("tmpfs"), MsFlags::empty(), Some("size=16m,mode=0755"))
            .expect("a tmpfs")
    };
    cover(CLASS);
    cover(COVERED);
    let hidden: Vec<&str> = disks.iter().map(Disk::name).collect();
    let link = |name: &str, target: &Path| {
        if !hidden.contains(&name) {
            symlink(target, Path::new(CLASS).join(name)).expect("a link");
        }
    };
    for (name, target) in real.iter().filter(|(name, _)| !name.starts_with("loop")) {
        link(name, target);
    }
    for number in 0..LOOPS {
        let name = format!("loop{number}");
        link(&name, Path::new(&format!("../../devices/virtual/block/{name}")));
    }
}

fn show(at: usize, disk: Disk) -> FakeDisks {
    let name = format!("sd{}", char::from(b"mnopqrstuvwxyz"[at]));
    let device = folder(at + 1);
    let serial = format!("WX{at:06}");
    let ata = Ata::new(&serial, 0x5_0000_0000 + at as u64);
    for (file, text) in [
        ("vendor", "ATA     "),
        ("model", "WDC WD40EFRX-68N"),
        ("rev", "0A82"),
        ("state", "running"),
        ("type", "0"),
        ("scsi_level", "7"),
        ("wwid", &format!("naa.5000c50{:09x}", ata.wwn)),
        ("power/runtime_status", "active"),
        ("queue_depth", "32"),
    ] {
        put(&device.join(file), text);
    }
    let mut page = vec![0, 0x80, 0, u8::try_from(serial.len()).expect("a short number")];
    page.extend_from_slice(serial.as_bytes());
    std::fs::write(device.join("vpd_pg80"), page).expect("its serial number");
    in_enclosure(&device, &slot(at));
    let block = device.join("block").join(&name);
    as_block(&block, &disk);
    symlink("../..", block.join("device")).expect("a link");
    in_class(&name, &block);
    FakeDisks { disk, name: format!("/dev/{name}"), ata }
}

/// The name of the slot of this disk.
pub fn slot(at: usize) -> String {
    format!("Slot {at:02}")
}

/// As the kernel's enclosure driver shows a disk in a slot.
fn in_enclosure(device: &Path, slot: &str) {
    let component = Path::new(COVERED).join("enclosure/lab").join(slot);
    std::fs::create_dir_all(&component).expect("a folder");
    put(&component.parent().expect("the enclosure").join("id"), "0x5000ccab02000f7f");
    let target = Path::new("../../../../enclosure/lab").join(slot);
    symlink(target, device.join(format!("enclosure_device:{slot}"))).expect("a link");
}

impl FakeDisks {
    /// State of the SCSI device: `running`, `offline`.
    pub fn set_state(&self, state: &str) {
        let block = Path::new(CLASS).join(self.name.trim_start_matches("/dev/"));
        put(&block.join("device/state"), state);
    }
}

/// The attributes of every block device, with the loop device's own numbers.
fn as_block(block: &Path, disk: &Disk) {
    let loops = Path::new("/sys/devices/virtual/block").join(disk.name());
    for file in [
        "dev",
        "size",
        "ro",
        "removable",
        "range",
        "queue/logical_block_size",
        "queue/physical_block_size",
        "queue/iostats",
    ] {
        put(
            &block.join(file),
            std::fs::read_to_string(loops.join(file)).expect("the loop's own").trim_end(),
        );
    }
    for (file, text) in [
        ("queue/rotational", "1"),
        ("queue/write_cache", "write back"),
        ("queue/scheduler", "[none]"),
        ("uevent", "DEVTYPE=disk"),
    ] {
        put(&block.join(file), text);
    }
    for empty in ["holders", "slaves"] {
        std::fs::create_dir_all(block.join(empty)).expect("a folder");
    }
}

fn in_class(name: &str, block: &Path) {
    let below = block.strip_prefix("/sys/devices").expect("below");
    symlink(Path::new("../../devices").join(below), Path::new(CLASS).join(name)).expect("a link");
}

/// Restores sysfs.
pub fn end() {
    for at in [CLASS, COVERED] {
        // Without a mount there is no simulated disk to remove.
        while nix::mount::umount2(at, nix::mount::MntFlags::MNT_DETACH).is_ok() {}
    }
}
