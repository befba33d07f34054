//! Drives that were pulled while something other than a mount may have used them.

use super::plain;
use crate::block::{BlockDevice, DiskStat, Layer};
use crate::drive::Transport;
use crate::fixture::*;
use crate::source_update::SourceUpdate;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::reason::Reason;

const MEMBERS: [(&str, &str, &str); 7] = [
    ("zfs_member", "filesystem", "ZFS"),
    ("ceph_bluestore", "other", "Ceph"),
    ("bcachefs", "filesystem", "bcachefs"),
    ("swap", "other", "swap"),
    ("LVM2_member", "raid", "LVM"),
    ("drbd", "raid", "drbd"),
    ("linux_raid_member", "raid", "md"),
];

fn part() -> BlockDevice {
    let layer = Layer::Partition { number: 1, start_bytes: 1 << 20 };
    device("sdb1", "8:17", layer, &["sdb"])
}

/// sdb with one partition, which nothing uses.
fn with_content(fs_type: Option<&str>, fs_usage: Option<&str>) -> TestHost {
    let mut part = part();
    part.fs_type = fs_type.map(str::to_owned);
    part.fs_usage = fs_usage.map(str::to_owned);
    let mut world = plain().disk("sdb", "8:16", "B").with(part);
    world.scan(2);
    world
}

fn io(world: &mut TestHost, sectors_read: u64, sectors_written: u64, seconds: i64) {
    let stat = DiskStat {
        dev: "8:16".parse().unwrap(),
        name: "sdb".into(),
        completed: sectors_read + sectors_written,
        sectors_written,
        in_flight: 0,
        transfers: Default::default(),
        line: format!("8 16 sdb {sectors_read} {sectors_written}").into(),
    };
    world.apply(SourceUpdate::DiskStats(Observation::ok(at(seconds), vec![stat])), seconds);
}

fn pulled(world: &mut TestHost, seconds: i64) -> Vec<String> {
    world.pull("sdb");
    world.scan(seconds);
    world.raised(seconds + 1)
}

const INFO: [&str; 1] = ["B DriveMissing Info Information"];
const SUSPECT: [&str; 1] = ["B DriveMissing Suspect Degraded"];
const BAD: [&str; 1] = ["B DriveMissing Bad Inaccessible"];

#[test]
fn a_signature_alone_is_a_suspicion_that_names_its_owner() {
    for (fs_type, usage, owner) in MEMBERS {
        let mut world = with_content(Some(fs_type), Some(usage));
        assert_eq!(pulled(&mut world, 100), SUSPECT, "{fs_type}");
        let finding = world.raised_for(Reason::DriveMissing, 102).unwrap();
        let named = format!("the signature of {owner},");
        assert!(finding.message.contains(&named), "{}", finding.message);
        let text = format!("ID_FS_TYPE={fs_type}");
        assert!(finding.evidence.iter().any(|record| record.text == text), "{finding:?}");
    }
    for content in [None, Some("ext4"), Some("vfat"), Some("btrfs")] {
        let mut world = with_content(content, content.map(|_| "filesystem"));
        assert_eq!(pulled(&mut world, 100), INFO, "{content:?}");
    }
}

#[test]
fn active_swap_on_a_pulled_drive_is_a_loss() {
    let mut world = with_content(Some("swap"), Some("other"));
    let swaps = &mut world.inventory.swaps;
    swaps.insert("sdb1".into(), "/dev/sdb1".into());
    world.scan(10);
    world.inventory.swaps.insert("sdb1".into(), "/dev/sdb1\\040(deleted)".into());
    assert_eq!(pulled(&mut world, 20), BAD);
    let finding = world.raised_for(Reason::DriveMissing, 22).unwrap();
    assert!(finding.message.contains("active swap"), "{}", finding.message);
    assert!(finding.evidence.iter().any(|record| {
        (record.source.as_str(), record.text.as_str()) == ("/proc/swaps", "/dev/sdb1\\040(deleted)")
    }));
    world.plug("sdb", "8:16", "B");
    world.scan(30);
    assert_eq!(world.raised(31), [""; 0]);
}

#[test]
fn swap_that_was_turned_off_before_the_drive_was_pulled_is_a_signature() {
    let mut world = with_content(Some("swap"), Some("other"));
    world.inventory.swaps.insert("sdb1".into(), "/dev/sdb1".into());
    world.scan(10);
    world.inventory.swaps.clear();
    assert_eq!(pulled(&mut world, 20), SUSPECT);
}

#[test]
fn writes_of_the_last_hour_show_a_use_and_reads_do_not() {
    let zfs = || with_content(Some("zfs_member"), Some("filesystem"));
    for (written, read, pulled_at, expected) in
        [(8, 0, 100, BAD), (8, 0, 3500, BAD), (8, 0, 3700, SUSPECT), (0, 800, 100, SUSPECT)]
    {
        let mut world = zfs();
        io(&mut world, 100, 100, 10);
        io(&mut world, 100 + read, 100 + written, 20);
        assert_eq!(pulled(&mut world, pulled_at), expected, "{written} {read} {pulled_at}");
    }
    let mut world = with_content(None, None);
    io(&mut world, 0, 100, 10);
    io(&mut world, 0, 108, 20);
    assert_eq!(pulled(&mut world, 30), BAD, "without any signature");
    let finding = world.raised_for(Reason::DriveMissing, 32).unwrap();
    assert!(finding.message.contains("by an unknown user"), "{}", finding.message);
}

#[test]
fn the_writes_of_an_unmounted_filesystem_and_of_a_stick_are_no_use() {
    let mut world = with_content(Some("ext4"), Some("filesystem")).uuid("sdb1", "b").mounted(
        "8:17",
        "/",
        "/b",
        "ext4",
        "/dev/sdb1",
    );
    world.read_all(5);
    io(&mut world, 0, 100, 10);
    io(&mut world, 0, 108, 20);
    world.umount("/b");
    world.read_mounts(21);
    io(&mut world, 0, 116, 25);
    assert_eq!(pulled(&mut world, 60), INFO);

    let mut world = with_content(Some("vfat"), Some("filesystem"));
    let stick = world.inventory.drives.iter_mut().find(|drive| drive.name == "sdb").unwrap();
    stick.transport = Transport::Usb;
    world.scan(5);
    io(&mut world, 0, 100, 10);
    io(&mut world, 0, 108, 20);
    assert_eq!(pulled(&mut world, 30), INFO);
}

#[test]
fn a_member_that_was_taken_out_of_its_array_first_is_no_loss() {
    let md = Layer::Md { level: Some("raid1".into()) };
    let mut world = with_content(Some("linux_raid_member"), Some("raid")).with(device(
        "md0",
        "9:0",
        md,
        &["sdb1"],
    ));
    world.scan(5);
    world.inventory.devices.remove("md0");
    world.scan(10);
    assert_eq!(pulled(&mut world, 100), INFO);
}
