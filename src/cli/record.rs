//! `diskvitals record io`: the drives' I/O counters, once a minute, as the kernel prints them.
//! `diskvitals_analyze::io` reads the lines. Needs no rights, and reads no drive.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::error::Error;
use diskvitals_analyze::io::HEADER;
use diskvitals_host::clock;
use diskvitals_host::root::HostRoot;
use diskvitals_model::drive::is_emulated;
use diskvitals_terminal::output::write_document;

const INTERVAL: Duration = Duration::from_secs(60);
const DISKSTATS: &str = "/proc/diskstats";
const KERNEL: &str = "/proc/sys/kernel/osrelease";

/// Writes to standard output until the time has passed or somebody ends it; what is written is whole.
pub(crate) async fn io(length: Duration) -> Result<(), Error> {
    let root = HostRoot::new("/");
    let kernel = read(&root, KERNEL)?;
    write_document(format!("{HEADER}{}\n", kernel.trim()).as_bytes()).map_err(Error::Output)?;
    let mut known = BTreeMap::new();
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let end = Instant::now() + length;
    while ticks.tick().await <= end {
        let text = reading(&root, clock::wall_now(), &mut known)?;
        write_document(text.as_bytes()).map_err(Error::Output)?;
    }
    Ok(())
}

fn read(root: &HostRoot, path: &'static str) -> Result<String, Error> {
    std::fs::read_to_string(root.at(path)).map_err(|source| Error::Record { path, source })
}

/// One reading; before it the drives that are new, or others than before.
fn reading(
    root: &HostRoot,
    at: Timestamp,
    known: &mut BTreeMap<String, String>,
) -> Result<String, Error> {
    let stats = read(root, DISKSTATS)?;
    let (mut drives, mut counters) = (String::new(), format!("time {at:.3}\n"));
    for line in stats.lines() {
        let Some(name) = line.split_ascii_whitespace().nth(2) else {
            continue;
        };
        let Some(drive) = drive(root, name) else {
            continue;
        };
        if known.get(name) != Some(&drive) {
            drives.push_str(&drive);
            known.insert(name.to_owned(), drive);
        }
        counters.push_str(line);
        counters.push('\n');
    }
    Ok(drives + &counters)
}

/// `drive NAME MEDIUM MODEL`; `None`: a partition, or nothing below which there is a device.
fn drive(root: &HostRoot, name: &str) -> Option<String> {
    let dir = root.at(format!("/sys/block/{name}"));
    if !dir.join("device").exists() {
        return None;
    }
    // An attribute that an older kernel or this kind of drive does not have is empty.
    let attribute = |file: &str| {
        let text = std::fs::read_to_string(dir.join(file)).unwrap_or_default();
        text.trim().replace(char::is_control, " ")
    };
    let [vendor, model] = ["device/vendor", "device/model"].map(attribute);
    let zoned = attribute("queue/zoned");
    let is_judged = is_local(name, &dir)
        && !is_emulated(Some(&vendor), Some(&model))
        && attribute("queue/iostats") != "0";
    let medium = match attribute("queue/rotational").as_str() {
        "1" | "0" if !is_judged => "other",
        "1" if matches!(zoned.as_str(), "" | "none") => "rotating",
        "1" => "shingled",
        "0" => "flash",
        _ => "other",
    };
    let model = format!("{vendor} {model}");
    Some(format!("drive {name} {medium} {}\n", model.trim()))
}

/// A SCSI, SATA or NVMe drive of this machine: not removable, and not behind a network.
fn is_local(name: &str, dir: &Path) -> bool {
    const ELSEWHERE: [&str; 4] = ["/virtual/", "/usb", "/session", "/rport-"];
    let place = std::fs::read_link(dir).unwrap_or_default();
    let place = place.to_string_lossy();
    (name.starts_with("sd") || name.starts_with("nvme"))
        && !ELSEWHERE.iter().any(|part| place.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(root: &Path, name: &str, place: &str, files: &[(&str, &str)]) {
        let dir = root.join("sys/devices").join(place).join(name);
        for (file, text) in files {
            let file = dir.join(file);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("created");
            std::fs::write(file, format!("{text}\n")).expect("written");
        }
        std::fs::create_dir_all(root.join("sys/block")).expect("created");
        let target = format!("../devices/{place}/{name}");
        std::os::unix::fs::symlink(target, root.join("sys/block").join(name)).expect("linked");
    }

    #[test]
    fn a_reading_has_the_lines_of_drives_and_what_the_drives_are() {
        let dir = tempfile::tempdir().expect("a directory");
        let sata = [
            ("device/vendor", "ATA     "),
            ("device/model", "WDC WD80EFAX"),
            ("queue/rotational", "1"),
        ];
        block(dir.path(), "sda", "pci0000:00/ata1/block", &sata);
        block(dir.path(), "sdb", "pci0000:00/usb1/block", &sata);
        let zoned = [sata[1], sata[2], ("queue/zoned", "host-aware")];
        block(dir.path(), "sdc", "pci0000:00/ata2/block", &zoned);
        let flash =
            [("device/model", "SAMSUNG MZ"), ("queue/rotational", "0"), ("queue/zoned", "none")];
        block(dir.path(), "nvme0n1", "pci0000:00/nvme/nvme0", &flash);
        let emulated =
            [("device/vendor", "QEMU"), ("device/model", "HARDDISK"), ("queue/rotational", "1")];
        block(dir.path(), "sdd", "pci0000:00/host1/block", &emulated);
        let uncounted = [sata[1], sata[2], ("queue/iostats", "0")];
        block(dir.path(), "sde", "pci0000:00/ata3/block", &uncounted);
        block(dir.path(), "loop0", "virtual/block", &[("queue/rotational", "0")]);
        let names = ["sda", "sda1", "sdb", "sdc", "sdd", "sde", "nvme0n1", "loop0"];
        let stats: String = names.map(|name| format!("   8 0 {name} 1 2 3 4\n")).concat();
        std::fs::create_dir_all(dir.path().join("proc")).expect("created");
        std::fs::write(dir.path().join("proc/diskstats"), stats).expect("written");
        let root = HostRoot::new(dir.path());
        let mut known = BTreeMap::new();
        let at = Timestamp::from_second(1_764_000_000).expect("a time");
        let counters = "time 2025-11-24T16:00:00.000Z\n   8 0 sda 1 2 3 4\n   8 0 sdb 1 2 3 4\n   8 0 sdc 1 2 3 4\n   \
            8 0 sdd 1 2 3 4\n   8 0 sde 1 2 3 4\n   8 0 nvme0n1 1 2 3 4\n";
        let drives = "drive sda rotating ATA WDC WD80EFAX\ndrive sdb other ATA WDC WD80EFAX\n\
            drive sdc shingled WDC WD80EFAX\ndrive sdd other QEMU HARDDISK\n\
            drive sde other WDC WD80EFAX\ndrive nvme0n1 flash SAMSUNG MZ\n";
        assert_eq!(reading(&root, at, &mut known).expect("read"), format!("{drives}{counters}"));
        assert_eq!(reading(&root, at, &mut known).expect("read"), counters, "told once");
        std::fs::write(dir.path().join("sys/block/sda/device/model"), "ST8000\n").expect("written");
        let changed = reading(&root, at, &mut known).expect("read");
        assert!(changed.starts_with("drive sda rotating ATA ST8000\ntime "), "{changed}");
    }
}
