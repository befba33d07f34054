//! SATA disks that are not there: loop devices which sysfs shows as such, in the cluster's own
//! mount namespace, so that the daemon asks smartctl about them.
//!
//! In: loop devices. Out: sysfs with `sdv`, `sdw`, … in their places. Everything else of sysfs
//! stays as it is.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};

use crate::smartctl::Ata;
use crate::support::Disk;

const CLASS: &str = "/sys/class/block";
/// A folder of sysfs that says nothing about hardware: the disks' own folders are mounted there.
const PLACE: &str = "/sys/devices/tracepoint";
/// Loop devices that may yet come have their links already; sysfs cannot add to what covers it.
const LOOPS: usize = 256;

#[derive(Clone, Debug)]
pub struct FakeDisks {
    pub disk: Disk,
    /// `/dev/sdv`: what smartctl is asked for. No such node is needed.
    pub name: String,
    /// How it is, when it is well.
    pub ata: Ata,
}

/// Where its attributes are; as every path of an AHCI controller's port.
fn folder(port: usize) -> PathBuf {
    Path::new(PLACE).join(format!(
        "ata{port}/host{port}/target{port}:0:0/{port}:0:0:0"
    ))
}

fn put(at: &Path, text: &str) {
    std::fs::create_dir_all(at.parent().expect("a folder")).expect("a folder");
    std::fs::write(at, format!("{text}\n"))
        .unwrap_or_else(|error| panic!("{}: {error}", at.display()));
}

/// All disks at once, before the daemon starts.
pub fn play(disks: Vec<Disk>) -> Vec<FakeDisks> {
    cover_sysfs(&disks);
    disks
        .into_iter()
        .enumerate()
        .map(|(at, disk)| show(at, disk))
        .collect()
}

/// An array without redundancy (what concerns one of its disks concerns all of it) that lies on the
/// disks, as sysfs shows it: its bytes are those of `array`.
pub fn play_striped(array: Disk, disks: Vec<Disk>) -> (Disk, Vec<FakeDisks>) {
    let all: Vec<Disk> = disks.iter().cloned().chain([array.clone()]).collect();
    cover_sysfs(&all);
    let played: Vec<FakeDisks> = disks
        .into_iter()
        .enumerate()
        .map(|(at, disk)| show(at, disk))
        .collect();
    let block = Path::new(PLACE).join("virtual/block").join(ARRAY);
    as_block(&block, &array);
    for (file, text) in [
        ("level", "raid0"),
        ("raid_disks", &played.len().to_string()),
        ("array_state", "clean"),
        ("sync_action", "idle"),
    ] {
        put(&block.join("md").join(file), text);
    }
    for (slot, below) in played.iter().enumerate() {
        let name = below.name.trim_start_matches("/dev/");
        let of_disk = Path::new(CLASS).join(name);
        let member = block.join("md").join(format!("dev-{name}"));
        for (file, text) in [
            ("state", "in_sync"),
            ("slot", &slot.to_string()),
            ("errors", "0"),
        ] {
            put(&member.join(file), text);
        }
        let place = of_disk.canonicalize().expect("its folder");
        symlink(&place, member.join("block")).expect("a link");
        symlink(&place, block.join("slaves").join(name)).expect("a link");
        symlink(&block, place.join("holders").join(ARRAY)).expect("a link");
    }
    in_class(ARRAY, &block);
    (array, played)
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
        mount(
            Some("lab"),
            at,
            Some("tmpfs"),
            MsFlags::empty(),
            Some("size=16m,mode=0755"),
        )
        .expect("a tmpfs")
    };
    cover(CLASS);
    cover(PLACE);
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
        link(
            &name,
            Path::new(&format!("../../devices/virtual/block/{name}")),
        );
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
    let mut page = vec![
        0,
        0x80,
        0,
        u8::try_from(serial.len()).expect("a short number"),
    ];
    page.extend_from_slice(serial.as_bytes());
    std::fs::write(device.join("vpd_pg80"), page).expect("its serial number");
    let block = device.join("block").join(&name);
    as_block(&block, &disk);
    symlink("../..", block.join("device")).expect("a link");
    in_class(&name, &block);
    FakeDisks {
        disk,
        name: format!("/dev/{name}"),
        ata,
    }
}

/// What every block device has; its numbers are the loop device's own.
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
            std::fs::read_to_string(loops.join(file))
                .expect("the loop's own")
                .trim_end(),
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
    symlink(
        Path::new("../../devices").join(below),
        Path::new(CLASS).join(name),
    )
    .expect("a link");
}

/// Sysfs as it is.
pub fn end() {
    for at in [CLASS, PLACE] {
        // Nobody played here where nothing is mounted.
        while nix::mount::umount2(at, nix::mount::MntFlags::MNT_DETACH).is_ok() {}
    }
}
