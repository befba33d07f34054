//! Members of a btrfs that were away and came back.

use crate::counters::{CounterDevice, CounterReading};
use crate::facts::Facts;
use crate::fixture::*;
use crate::source_update::SourceUpdate;
use crate::stack::{BtrfsFs, PulledMember};
use diskvitals_finding::ids::VolumeId;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_kernel_log::event::{Batch, Cursor, NameAssignment};

/// A btrfs of three devices without those that are missing, under the mount with this mark.
fn host(profile: &str, missing: &[u64], mark: &str) -> TestHost {
    let mut node = TestHost::default()
        .disk("sda", "8:0", "A")
        .disk("sdb", "8:16", "B")
        .disk("sdc", "8:32", "C")
        .uuid("sda", "b-1")
        .uuid("sdb", "b-1")
        .uuid("sdc", "b-1")
        .mounted("0:40", "/", "/data", "btrfs", "/dev/sda");
    let fs = btrfs("b-1", &["sda", "sdb", "sdc"], profile);
    node.inventory.btrfs.push(fs);
    set(&mut node, missing, mark);
    node.read_all(0);
    node
}

fn set(node: &mut TestHost, missing: &[u64], mark: &str) {
    let fs = &mut node.inventory.btrfs[0];
    let devices = [(1, "sda"), (2, "sdb"), (3, "sdc")].into_iter();
    let present = devices.filter(|(id, _)| fs.member_ids.contains(id) && !missing.contains(id));
    fs.devices = present.map(|(_, name)| name.to_owned()).collect();
    fs.missing_ids = missing.to_vec();
    fs.missing_devices = missing.len() as u32;
    fs.mount_mark = Some(mark.into());
}

fn scanned(mut node: TestHost, missing: &[u64], mark: &str, second: i64) -> TestHost {
    set(&mut node, missing, mark);
    node.scan(second);
    node
}

fn is_lost(node: &mut TestHost, second: i64) -> bool {
    node.raised_for(Reason::RedundancyLost, second).is_some()
}

fn scrub(node: &mut TestHost, ids: &[u64], started: i64, errors: u64, second: i64) {
    let values = [
        ("started", at(started).as_second() as u64),
        ("finished", 1),
        ("canceled", 0),
        ("errors", errors),
    ];
    let of_member = |id: &u64| CounterReading {
        device: CounterDevice::Block("sda".into()),
        source: "btrfs-scrub".into(),
        file: format!("device {id}"),
        values: values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        details: [("devid".to_owned(), id.to_string())].into(),
    };
    let readings = ids.iter().map(of_member).collect();
    let update = SourceUpdate::Counters(Observation::ok(at(second), readings));
    node.apply(update, second);
    node.scan(second + 1);
}

#[test]
fn a_member_that_was_away_is_no_copy_until_a_scrub_has_read_it() {
    let mut node = scanned(host("raid1", &[2], "boot 1"), &[], "boot 2", 100);
    let found = node.raised_for(Reason::RedundancyLost, 101).expect("raised");
    assert_eq!(
        found.message,
        "no redundancy left: the btrfs b-1 (raid1) runs with 2 of 3 devices; present, without what was written \
         meanwhile: device 2 (was away from 2027-01-15T08:00:00Z to 2027-01-15T08:01:40Z)"
    );
    let advice = found.advice.expect("an advice");
    assert!(advice.contains("`btrfs scrub start -B /data`"), "{advice}");
    assert!(found.evidence.iter().any(|it| it.text.contains("was away")));
    let needed = |node: &TestHost| node.facts.probe_targets()[0].awaited_scrub.clone();
    assert_eq!(needed(&node), Some("b-1".to_owned()));
    // An unmount, another mount and another start of the daemon bring nothing up to date.
    node.umount("/data");
    let fs = std::mem::take(&mut node.inventory.btrfs);
    node.read_all(150);
    node.inventory.btrfs = fs;
    node = node.mounted("0:41", "/", "/data", "btrfs", "/dev/sda");
    node.read_all(160);
    let node = scanned(node, &[], "boot 3", 170);
    let stored = node.facts.counters.iter();
    let stored = stored.map(|(key, history)| (key.clone(), (**history).clone()));
    let mut restarted = TestHost { facts: Facts::default(), ..node.clone() };
    restarted.facts.counters.restore(stored.collect());
    restarted.read_all(200);
    for mut node in [node, restarted] {
        assert!(is_lost(&mut node, 210));
        for (ids, started, errors, over) in [
            (&[1, 2, 3][..], 50, 0, false),
            (&[1, 3], 220, 0, false),
            // A read-only scrub corrects none of them, and its record does not say that it was one.
            (&[1, 2, 3], 230, 9, false),
            (&[1, 2, 3], 240, 0, true),
        ] {
            scrub(&mut node, ids, started, errors, started + 2);
            assert_eq!(is_lost(&mut node, started + 4), !over, "{started}");
        }
        assert_eq!(needed(&node), None);
        let mut node = scanned(node, &[], "boot 4", 300);
        assert_eq!(node.raised(301), [""; 0]);
    }
}

#[test]
fn only_a_member_that_lacks_data_is_one_that_was_away() {
    let away = || host("raid1", &[2], "boot 1");
    // Replaced, under the same mount.
    let mut node = scanned(away(), &[], "boot 1", 100);
    assert_eq!(node.raised(101), [""; 0]);
    let mut node = scanned(node, &[], "boot 2", 200);
    assert_eq!(node.raised(201), [""; 0]);
    // Removed from the filesystem.
    let mut node = away();
    node.inventory.btrfs[0].member_ids = vec![1, 3];
    let node = scanned(node, &[], "boot 1", 100);
    let mut node = scanned(node, &[], "boot 1", 400);
    assert_eq!(node.raised(401), [""; 0]);
    // Another device got its id.
    node.inventory.btrfs[0].member_ids = vec![1, 2, 3];
    let mut node = scanned(node, &[], "boot 1", 500);
    assert_eq!(node.raised(501), [""; 0]);
    // Nothing was written.
    let mut node = host("raid1", &[], "boot 1");
    node.mount_mut("/data").super_options = vec!["ro".into()].into();
    node.read_mounts(40);
    let node = scanned(node, &[2], "boot 2", 50);
    let mut node = scanned(node, &[], "boot 3", 100);
    assert!(!is_lost(&mut node, 101));
}

#[test]
fn a_scan_during_a_mount_forgets_no_member() {
    for listed in [&[][..], &[1], &[1, 3]] {
        let mut node = host("raid1", &[2], "boot 1");
        node.inventory.btrfs[0].member_ids = listed.to_vec();
        let mut node = scanned(node, &[], "boot 2", 100);
        node.inventory.btrfs[0].member_ids = vec![1, 2, 3];
        let mut node = scanned(node, &[], "boot 2", 101);
        assert!(is_lost(&mut node, 102), "{listed:?}");
    }
}

#[test]
fn a_device_scan_does_not_bring_a_member_back_before_the_next_mount() {
    let mut node = host("raid1", &[2], "boot 1");
    // The kernel clears the mark of the member, and does not use it.
    node.inventory.btrfs[0] =
        BtrfsFs { missing_ids: Vec::new(), ..node.inventory.btrfs[0].clone() };
    node.scan(50);
    assert!(is_lost(&mut node, 51));
    let mut node = scanned(node, &[], "boot 2", 100);
    assert!(is_lost(&mut node, 101));
}

/// The drive of this device is pulled while the filesystem is mounted.
fn without(mut node: TestHost, device: &str, second: i64) -> TestHost {
    let fs = &mut node.inventory.btrfs[0];
    fs.devices.retain(|name| name != device);
    let name = device.to_owned();
    fs.pulled.push(PulledMember { name, drive: None });
    fs.missing_devices += 1;
    node.pull(device);
    node.scan(second);
    node
}

fn pulled(node: TestHost, second: i64) -> TestHost {
    without(node, "sdb", second)
}

/// The kernel's record of a mount.
fn mount_recorded(node: &mut TestHost, name: &str, second: i64) {
    let mounted = NameAssignment {
        seq: 1,
        name: name.into(),
        at: at(second),
        is_filesystem: true,
        is_remount: false,
    };
    let batch = Batch {
        cursor: Cursor { boot_id: "boot".into(), counted_to: Some(1), reread_from: 0, lost: 0 },
        events: Vec::new(),
        name_assignments: vec![mounted],
        full_reads: Vec::new(),
        is_backlog: false,
    };
    node.apply(SourceUpdate::KernelLog(batch), second);
}

/// It is back under another name, and the filesystem was mounted again.
fn mounted_again(mut node: TestHost, missing: &[u64], second: i64) -> TestHost {
    node.inventory.btrfs[0].pulled.clear();
    scanned(node, missing, "boot 2", second)
}

/// The mount table goes on naming a device that is gone, by its name or a link of udev's.
#[test]
fn a_btrfs_is_the_same_volume_whichever_of_its_members_is_pulled() {
    let cases = ["sda", "sdb", "sdc"].map(|name| (name, format!("/dev/{name}")));
    let links = [("sda", "/dev/disk/by-id/A".to_owned()), ("sdb", "/dev/disk/by-id/A".to_owned())];
    for (name, source) in cases.into_iter().chain(links) {
        let node = mounted_by(host("raid1", &[], "boot 1"), &source);
        let mut node = without(node, name, 100);
        is_one_volume_without(&mut node, name, 101);
        // The drive has its link again, and is no member.
        node.plug("sdd", "8:48", "A");
        let back = node.inventory.devices.get_mut("sdd").expect("plugged");
        back.fs_uuid = Some("b-1".into());
        back.links = vec!["/dev/disk/by-id/A".into()];
        node.scan(150);
        is_one_volume_without(&mut node, name, 151);
    }
    // None of them is left.
    let mut node = ["sda", "sdb", "sdc"]
        .into_iter()
        .zip(100..)
        .fold(host("raid1c3", &[], "boot 1"), |node, (name, at)| without(node, name, at));
    assert!(node.raised_for(Reason::DeviceMissing, 200).is_some());
}

/// Which of them a link was about that is gone cannot be known.
#[test]
fn of_two_btrfs_without_a_member_none_is_taken_for_the_other() {
    let mut node = mounted_by(host("raid1", &[], "boot 1"), "/dev/disk/by-id/A")
        .disk("sde", "8:64", "E")
        .disk("sdf", "8:80", "F")
        .uuid("sde", "b-2")
        .uuid("sdf", "b-2")
        .mounted("0:41", "/", "/other", "btrfs", "/dev/sdf");
    node.inventory.btrfs.push(btrfs("b-2", &["sde", "sdf"], "raid1"));
    node.read_all(10);
    // The second one is named by its mount: it cannot be the first.
    let fs = &mut node.inventory.btrfs[1];
    fs.devices.retain(|name| name != "sde");
    let name = "sde".to_owned();
    fs.pulled.push(PulledMember { name, drive: None });
    fs.missing_devices = 1;
    node.pull("sde");
    let mut node = without(node, "sda", 100);
    assert!(node.raised_for(Reason::DeviceMissing, 101).is_none());
    let volumes: Vec<&str> = node.facts.volumes.keys().map(VolumeId::as_str).collect();
    assert_eq!(volumes, ["fs:b-1", "fs:b-2"]);
    for mount in &mut node.mounts.mounts {
        mount.source = format!("/dev/disk/by-id/{}", mount.dev).as_str().into();
    }
    node.read_all(110);
    assert!(node.raised_for(Reason::DeviceMissing, 111).is_some());
}

fn mounted_by(mut node: TestHost, source: &str) -> TestHost {
    node.mounts.mounts[0].source = source.into();
    let link = "/dev/disk/by-id/A";
    let first = node.inventory.devices.get_mut("sda").expect("there");
    first.links = vec![link.into()];
    node.read_all(0);
    node
}

fn is_one_volume_without(node: &mut TestHost, member: &str, second: i64) {
    let found = node.raised_for(Reason::RedundancyLost, second);
    let message = found.expect("raised").message;
    let missing = format!("missing: {member}, ");
    assert!(message.contains(&missing), "{message}");
    assert!(node.raised_for(Reason::DeviceMissing, second).is_none());
    let volumes: Vec<&str> = node.facts.volumes.keys().map(VolumeId::as_str).collect();
    assert_eq!(volumes, ["fs:b-1"]);
}

#[test]
fn a_member_that_is_pulled_is_missing_and_no_copy_until_a_scrub_has_read_it() {
    let mut node = pulled(host("raid1", &[], "boot 1"), 100);
    let found = node.raised_for(Reason::RedundancyLost, 101).expect("raised");
    assert_eq!(
        found.message,
        "no redundancy left: the only copy of the btrfs b-1 (raid1) is on sda, sdc; it runs with 2 of 3 devices; \
         missing: sdb, serial B, last seen 2027-01-15T08:00:00Z"
    );
    let texts: Vec<&str> = found.evidence.iter().map(|it| it.text.as_str()).collect();
    assert_eq!(texts, ["the block device sdb is gone"]);
    // The kernel does not use the drive that is back before the next mount.
    node.plug("sdd", "8:48", "B");
    node.scan(150);
    let found = node.raised_for(Reason::RedundancyLost, 151).expect("raised");
    assert!(found.message.ends_with("missing: sdb, serial B (back as sdd)"), "{}", found.message);
    let advice = found.advice.expect("an advice");
    assert!(
        advice.starts_with("Unmount /data, run `btrfs device scan`, and mount it again"),
        "{advice}"
    );
    assert!(!node.facts.take_scan_request());
    mount_recorded(&mut node, "sda", 190);
    assert!(node.facts.take_scan_request(), "no uevent tells of it");
    // A scan during the unmount has found nothing of it.
    let mut unmounted = node.clone();
    unmounted.umount("/data");
    let fs = &mut unmounted.inventory.btrfs[0];
    (fs.devices, fs.member_ids) = (Vec::new(), Vec::new());
    (fs.pulled, fs.missing_devices) = (Vec::new(), 0);
    unmounted.scan(191);
    unmounted.read_mounts(192);
    assert!(!unmounted.facts.take_scan_request());
    let mut seen = unmounted.mounted("0:41", "/", "/data", "btrfs", "/dev/sda");
    seen.read_mounts(193);
    assert!(seen.facts.take_scan_request());
    seen.inventory.btrfs[0].member_ids = vec![1, 2, 3];
    let back = node.clone();
    for node in [seen, node] {
        let mut node = mounted_again(node, &[], 194);
        assert!(is_lost(&mut node, 195));
        assert!(!node.facts.take_scan_request());
    }
    let mut back = mounted_again(back, &[], 200);
    let found = back.raised_for(Reason::RedundancyLost, 201).expect("raised");
    assert!(found.message.contains("the device that was sdb (was away"), "{}", found.message);
    scrub(&mut back, &[1, 2, 3], 210, 0, 212);
    assert!(!is_lost(&mut back, 214));
}

#[test]
fn a_member_that_was_pulled_counts_once() {
    // The next mount is without it: the kernel says its id.
    let node = pulled(host("raid1", &[], "boot 1"), 100);
    let mut node = mounted_again(node, &[2], 200);
    let found = node.raised_for(Reason::RedundancyLost, 201);
    assert!(found.is_some_and(|it| it.severity == Severity::Suspect));
    let mut node = scanned(node, &[], "boot 3", 300);
    let found = node.raised_for(Reason::RedundancyLost, 301).expect("raised");
    assert!(found.message.contains("device 2 (was away"), "{}", found.message);
    // Replaced under the same mount. A scan during an unmount is no proof of it.
    let mut node = pulled(host("raid1", &[], "boot 1"), 100);
    node.inventory.btrfs[0].pulled.clear();
    for (last, expected) in [(202, true), (300, false)] {
        let node = scanned(node.clone(), &[], "boot 1", 200);
        let mut node = scanned(node, &[], "boot 1", last);
        assert!(!is_lost(&mut node, last));
        let mut node = scanned(node, &[], "boot 2", 400);
        assert_eq!(is_lost(&mut node, 401), expected, "{last}");
    }
}

#[test]
fn what_is_left_is_counted_without_the_member_that_was_away() {
    let mut node = scanned(host("raid1c3", &[2], "boot 1"), &[], "boot 2", 100);
    assert!(node.raised_for(Reason::RaidDegraded, 101).is_some());
    // Its copies of what was written meanwhile are on the one that is missing now.
    let mut node = scanned(host("raid1", &[2], "boot 1"), &[3], "boot 2", 100);
    let found = node.raised_for(Reason::RaidDegraded, 101).expect("raised");
    assert_eq!(found.severity, Severity::Bad, "{}", found.message);
}
