//! Drives that were pulled while something other than a mount may have used them.

use super::plain;
use crate::block::{BlockDevice, DiskStat, Layer};
use crate::drive::Transport;
use crate::facts::drive_use;
use crate::fixture::*;
use crate::signature::{LabelState, Signature, ZfsLabel};
use crate::source_update::SourceUpdate;
use diskvitals_finding::ids::DriveId;
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
    let mut host = plain().disk("sdb", "8:16", "B").with(part);
    host.scan(2);
    host
}

fn io(host: &mut TestHost, sectors_read: u64, sectors_written: u64, seconds: i64) {
    let stat = DiskStat {
        dev: "8:16".parse().unwrap(),
        name: "sdb".into(),
        completed: sectors_read + sectors_written,
        sectors_written,
        in_flight: 0,
        transfers: Default::default(),
        line: format!("8 16 sdb {sectors_read} {sectors_written}").into(),
    };
    host.apply(SourceUpdate::DiskStats(Observation::ok(at(seconds), vec![stat])), seconds);
}

fn pulled(host: &mut TestHost, seconds: i64) -> Vec<String> {
    host.pull("sdb");
    host.scan(seconds);
    host.raised(seconds + 1)
}

const INFO: [&str; 1] = ["B DriveMissing Info Information"];
const SUSPECT: [&str; 1] = ["B DriveMissing Suspect Degraded"];
const BAD: [&str; 1] = ["B DriveMissing Bad Inaccessible"];

#[test]
fn a_signature_alone_is_a_suspicion_that_names_its_owner() {
    for (fs_type, usage, owner) in MEMBERS {
        let mut host = with_content(Some(fs_type), Some(usage));
        assert_eq!(pulled(&mut host, 100), SUSPECT, "{fs_type}");
        let finding = host.raised_for(Reason::DriveMissing, 102).unwrap();
        let named = format!("the signature of {owner},");
        assert!(finding.message.contains(&named), "{}", finding.message);
        let text = format!("ID_FS_TYPE={fs_type}");
        assert!(finding.evidence.iter().any(|record| record.text == text), "{finding:?}");
    }
    for content in [None, Some("ext4"), Some("vfat"), Some("btrfs")] {
        let mut host = with_content(content, content.map(|_| "filesystem"));
        assert_eq!(pulled(&mut host, 100), INFO, "{content:?}");
    }
}

#[test]
fn active_swap_on_a_pulled_drive_is_a_loss() {
    let mut host = with_content(Some("swap"), Some("other"));
    let swaps = &mut host.inventory.swaps;
    swaps.insert("sdb1".into(), "/dev/sdb1".into());
    host.scan(10);
    host.inventory.swaps.insert("sdb1".into(), "/dev/sdb1\\040(deleted)".into());
    assert_eq!(pulled(&mut host, 20), BAD);
    let finding = host.raised_for(Reason::DriveMissing, 22).unwrap();
    assert!(finding.message.contains("active swap"), "{}", finding.message);
    assert!(finding.evidence.iter().any(|record| {
        (record.source.as_str(), record.text.as_str()) == ("/proc/swaps", "/dev/sdb1\\040(deleted)")
    }));
    host.plug("sdb", "8:16", "B");
    host.scan(30);
    assert_eq!(host.raised(31), [""; 0]);
}

#[test]
fn swap_that_was_turned_off_before_the_drive_was_pulled_is_a_signature() {
    let mut host = with_content(Some("swap"), Some("other"));
    host.inventory.swaps.insert("sdb1".into(), "/dev/sdb1".into());
    host.scan(10);
    host.inventory.swaps.clear();
    assert_eq!(pulled(&mut host, 20), SUSPECT);
}

#[test]
fn writes_of_the_last_hour_show_a_use_and_reads_do_not() {
    let zfs = || with_content(Some("zfs_member"), Some("filesystem"));
    for (written, read, pulled_at, expected) in
        [(8, 0, 100, BAD), (8, 0, 3500, BAD), (8, 0, 3700, SUSPECT), (0, 800, 100, SUSPECT)]
    {
        let mut host = zfs();
        io(&mut host, 100, 100, 10);
        io(&mut host, 100 + read, 100 + written, 20);
        assert_eq!(pulled(&mut host, pulled_at), expected, "{written} {read} {pulled_at}");
    }
    let mut host = with_content(None, None);
    io(&mut host, 0, 100, 10);
    io(&mut host, 0, 108, 20);
    assert_eq!(pulled(&mut host, 30), BAD, "without any signature");
    let finding = host.raised_for(Reason::DriveMissing, 32).unwrap();
    assert!(finding.message.contains("by an unknown user"), "{}", finding.message);
}

#[test]
fn the_writes_of_an_unmounted_filesystem_and_of_a_stick_are_no_use() {
    let mut host = with_content(Some("ext4"), Some("filesystem")).uuid("sdb1", "b").mounted(
        "8:17",
        "/",
        "/b",
        "ext4",
        "/dev/sdb1",
    );
    host.read_all(5);
    io(&mut host, 0, 100, 10);
    io(&mut host, 0, 108, 20);
    host.umount("/b");
    host.read_mounts(21);
    io(&mut host, 0, 116, 25);
    assert_eq!(pulled(&mut host, 60), INFO);

    let mut host = with_content(Some("vfat"), Some("filesystem"));
    let stick = host.inventory.drives.iter_mut().find(|drive| drive.name == "sdb").unwrap();
    stick.transport = Transport::Usb;
    host.scan(5);
    io(&mut host, 0, 100, 10);
    io(&mut host, 0, 108, 20);
    assert_eq!(pulled(&mut host, 30), INFO);
}

#[test]
fn a_member_that_was_taken_out_of_its_array_first_is_no_loss() {
    let md = Layer::Md { level: Some("raid1".into()) };
    let mut host = with_content(Some("linux_raid_member"), Some("raid")).with(device(
        "md0",
        "9:0",
        md,
        &["sdb1"],
    ));
    host.scan(5);
    host.inventory.devices.remove("md0");
    host.scan(10);
    assert_eq!(pulled(&mut host, 100), INFO);
}

/// sdb1 with a ZFS label in this state, and a scan after our own reading of it.
fn with_label(state: LabelState) -> TestHost {
    let mut host = with_content(Some("zfs_member"), Some("filesystem"));
    let zfs = ZfsLabel { pool: Some("tank".into()), state };
    let signature = Signature { fs_type: "zfs_member".into(), osd: None, zfs: Some(zfs) };
    host.inventory.signatures.insert("sdb1".into(), vec![signature]);
    host.scan(5);
    host
}

#[test]
fn the_state_of_a_zfs_label_shows_when_no_pool_needs_the_drive_and_never_that_one_does() {
    for (state, expected) in [
        (LabelState::Active, SUSPECT),
        (LabelState::Exported, INFO),
        (LabelState::Destroyed, INFO),
        (LabelState::Spare, INFO),
        (LabelState::L2cache, INFO),
    ] {
        assert_eq!(pulled(&mut with_label(state), 100), expected, "{state:?}");
    }
}

#[test]
fn the_writes_of_l2arc_are_no_loss_and_those_to_an_exported_label_are() {
    for (state, expected) in [(LabelState::L2cache, INFO), (LabelState::Exported, BAD)] {
        let mut host = with_label(state);
        io(&mut host, 0, 100, 10);
        io(&mut host, 0, 108, 20);
        assert_eq!(pulled(&mut host, 30), expected, "{state:?}");
    }
}

#[test]
fn a_pulled_member_of_an_imported_pool_is_a_loss_that_names_the_pool() {
    let pool = Layer::ZfsPool { name: "tank".into() };
    let mut host = with_label(LabelState::Active).with(device("zfs:tank", "0:0", pool, &["sdb1"]));
    host.scan(10);
    assert_eq!(pulled(&mut host, 100), BAD);
    let finding = host.raised_for(Reason::DriveMissing, 102).unwrap();
    assert!(finding.message.contains("a member of ZFS pool tank"), "{}", finding.message);
}

#[test]
fn a_backing_device_of_drbd_9_is_in_use() {
    let mut host = with_content(Some("drbd"), Some("raid"));
    let drbd = device("drbd0", "147:0", Layer::Other, &["sdb1"]);
    host.inventory.devices.insert("drbd0".into(), drbd);
    host.scan(10);
    assert_eq!(pulled(&mut host, 100), BAD);
}

#[test]
fn one_of_two_signatures_that_udev_does_not_name_is_a_suspicion() {
    let mut host = with_content(None, None);
    let found =
        ["LVM2_member", "xfs"].map(|kind| Signature { fs_type: kind.into(), osd: None, zfs: None });
    host.inventory.signatures.insert("sdb1".into(), found.into());
    host.scan(5);
    assert_eq!(pulled(&mut host, 100), SUSPECT);
    let finding = host.raised_for(Reason::DriveMissing, 102).unwrap();
    assert!(finding.message.contains("the signature of LVM,"), "{}", finding.message);
}

#[test]
fn a_disk_that_something_writes_to_and_nothing_here_uses_is_the_raw_disk_of_someone() {
    let is_written = |host: &TestHost| {
        let known = &host.facts.drives[&DriveId::new("B")];
        drive_use::is_written_raw(&host.facts, known)
    };
    let mut host = with_content(None, None);
    io(&mut host, 0, 100, 10);
    assert!(!is_written(&host), "what was written before is not known");
    io(&mut host, 0, 108, 20);
    assert!(is_written(&host));
    io(&mut host, 800, 108, 3700);
    assert!(!is_written(&host), "an hour ago");
    let mut unmounted = with_content(Some("ext4"), Some("filesystem")).uuid("sdb1", "b").mounted(
        "8:17",
        "/",
        "/b",
        "ext4",
        "/dev/sdb1",
    );
    unmounted.read_all(5);
    io(&mut unmounted, 0, 100, 10);
    io(&mut unmounted, 0, 108, 20);
    unmounted.umount("/b");
    unmounted.read_mounts(21);
    assert!(!is_written(&unmounted), "by the filesystem that was mounted");
    // What has a signature is named by that.
    let mut member = with_content(Some("ceph_bluestore"), Some("other"));
    io(&mut member, 0, 100, 10);
    io(&mut member, 0, 108, 20);
    assert!(!is_written(&member));
}
