use std::time::Duration;

use super::*;
use crate::block::Layer;
use crate::fixture::*;
use crate::source_update::{SourceStatus, SourceUpdate};
use diskvitals_finding::observation::Observation;
use diskvitals_finding::source::Source;

fn plain() -> TestHost {
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .uuid("sda", "u")
        .mounted("8:0", "/", "/data", "ext4", "/dev/sda");
    host.read_all(0);
    host
}

#[test]
fn the_same_answer_again_changes_nothing() {
    let mut host = plain();
    assert_eq!(host.scan(1), Urgency::Nothing);
    assert_eq!(host.read_mounts(1), Urgency::Nothing);
    assert_eq!(host.read_kubelet(1), Urgency::Nothing);
    assert_eq!(host.probe("/data", healthy_probe(usage(GIB, 1)), 1), Urgency::Immediate);
    assert_eq!(host.probe("/data", healthy_probe(usage(GIB, 1)), 2), Urgency::Nothing);
    assert_eq!(host.probe("/data", healthy_probe(usage(GIB, 2)), 3), Urgency::UsageOnly);
    assert_eq!(host.probe("/data", failing_probe(5), 4), Urgency::Immediate);
    assert_eq!(
        host.facts
            .probes
            .get(&HostPath::from("/data"))
            .unwrap()
            .usage
            .map(|(usage, time)| (usage.available_bytes, time)),
        Some((2, at(3)))
    );
}

/// The pace of the only target.
fn pace(host: &TestHost) -> ProbePace {
    host.facts.probe_targets()[0].pace
}

#[test]
fn an_idle_rotating_drive_and_a_server_are_not_probed_more_often() {
    let mut host = plain();
    assert_eq!(pace(&host), ProbePace::Local);
    host.inventory.drives[0].rotational = Some(true);
    host.scan(1);
    assert_eq!(pace(&host), ProbePace::Idle, "no I/O has been seen");
    host.io("8:0", "sda", 10, 0, 10);
    assert_eq!(pace(&host), ProbePace::Idle);
    host.io("8:0", "sda", 11, 0, 20);
    assert_eq!(pace(&host), ProbePace::Local);
    host.io("8:0", "sda", 11, 0, 70);
    assert_eq!(pace(&host), ProbePace::Local);
    host.io("8:0", "sda", 11, 0, 90);
    assert_eq!(pace(&host), ProbePace::Idle);
    let mut host = TestHost::default().mounted("0:50", "/", "/net", "nfs4", "server:/export");
    host.read_all(0);
    assert_eq!(pace(&host), ProbePace::Network);
}

#[test]
fn facts_are_settled_when_every_source_has_reported() {
    let mut host = TestHost::default();
    assert!(!host.facts.settled());
    host.scan(0);
    host.apply(SourceUpdate::Mounts(Observation::failed(at(1), "no")), 1);
    assert!(!host.facts.settled());
    let absent = SourceUpdate::Source {
        source: Source::Kubelet,
        status: SourceStatus::Absent("no kubelet".into()),
    };
    assert_eq!(host.apply(absent.clone(), 2), Urgency::Immediate);
    assert!(host.facts.settled());
    assert_eq!(host.apply(absent, 3), Urgency::Nothing);
}

#[test]
fn every_visible_mount_is_probed_once_without_raw_block_and_standby_drives_are_marked() {
    let mut host = plain()
        .mounted("8:0", "/x", "/bind", "ext4", "/dev/sda")
        .mounted("0:5", "/sda", "/block", "devtmpfs", "devtmpfs")
        .csi("d", "raw", None, &[("u1", "/block")]);
    host.kubelet.volumes[0].block = true;
    host.inventory.drives[0].asleep = true;
    host.read_all(1);
    let targets: Vec<(String, bool)> = host
        .facts
        .probe_targets()
        .into_iter()
        .map(|target| (target.path.to_string(), target.asleep))
        .collect();
    assert_eq!(targets, [("/bind".to_owned(), true), ("/data".to_owned(), true)]);
}

#[test]
fn a_hidden_mount_is_not_probed() {
    let mut host =
        plain().disk("sdb", "8:16", "B").mounted("8:16", "/", "/data", "xfs", "/dev/sdb");
    host.read_all(1);
    let targets = host.facts.probe_targets();
    assert_eq!(targets.len(), 1);
    assert_eq!((targets[0].dev, targets[0].filesystem.as_str()), (DevNo::new(8, 16), "xfs"));
}

#[test]
fn a_users_mount_is_not_probed() {
    let mut host = plain().user_mounted(4001, "0:40", "/home/u/far", "fuse.s3fs");
    host.read_all(1);
    let targets = host.facts.probe_targets();
    let paths: Vec<String> = targets.iter().map(|it| it.path.to_string()).collect();
    assert_eq!(paths, ["/data"]);
}

#[test]
fn a_new_filesystem_on_a_path_discards_the_old_probe_result() {
    let mut host = plain().disk("sdb", "8:16", "B");
    host.read_all(1);
    host.probe("/data", failing_probe(5), 2);
    host.umount("/data");
    let mut host = host.mounted("8:16", "/", "/data", "xfs", "/dev/sdb");
    host.read_mounts(3);
    assert!(host.facts.probes.get(&HostPath::from("/data")).is_none());
}

/// As at the start of a daemon whose store remembers these drives.
fn with_stored_drives(drives: impl IntoIterator<Item = KnownDrive>) -> Facts {
    Facts {
        drives: drives.into_iter().map(|drive| (drive.facts.id.clone(), drive)).collect(),
        ..Facts::default()
    }
}

#[test]
fn restored_drives_are_unchanged_until_the_first_scan() {
    let mut host = plain();
    host.pull("sda");
    host.scan(10);
    let stored: Vec<KnownDrive> = host.facts.drives.values().cloned().collect();
    let mut next = TestHost { facts: with_stored_drives(stored.clone()), ..TestHost::default() };
    next.apply(SourceUpdate::Inventory(Observation::failed(at(20), "no")), 20);
    assert_eq!(next.facts.drives.values().cloned().collect::<Vec<_>>(), stored);
    next.scan(30);
    assert_eq!(next.facts.drives[&DriveId::new("A")].missing_since, Some(at(10)));
    assert!(next.facts.drives[&DriveId::new("A")].in_use);
    next.plug("sdk", "8:160", "A");
    next.scan(40);
    let drive = &next.facts.drives[&DriveId::new("A")];
    assert_eq!(
        (drive.missing_since, drive.first_seen, drive.facts.name.as_str()),
        (None, at(0), "sdk")
    );
}

#[test]
fn an_array_member_is_in_use_without_a_mount_and_a_partition_is_not() {
    let partition = device("sda1", "8:1", Layer::Partition { number: 1, start_bytes: 0 }, &["sda"]);
    let mut host = TestHost::default().disk("sda", "8:0", "A").with(partition);
    host.scan(0);
    assert!(!host.facts.drives[&DriveId::new("A")].in_use);
    let mut host = host.with(device("md0", "9:0", Layer::Md { level: None }, &["sda1"]));
    host.scan(1);
    assert!(host.facts.drives[&DriveId::new("A")].in_use);
}

#[test]
fn a_probe_result_costs_one_lookup_among_a_thousand_volumes() {
    let mut host = TestHost::default().disk("sda", "8:0", "A");
    for number in 0..1000 {
        host = host.mounted(
            &format!("0:{}", number + 100),
            "/",
            &format!("/v{number}"),
            "nfs4",
            &format!("s:/{number}"),
        );
    }
    host.read_all(0);
    assert_eq!((host.facts.volumes.len(), host.facts.probe_targets().len()), (1000, 1000));
    assert_eq!(host.probe("/v500", healthy_probe(usage(GIB, 1)), 1), Urgency::Immediate);
    assert_eq!(host.probe("/v500", healthy_probe(usage(GIB, 1)), 2), Urgency::Nothing);
}

#[test]
fn elapsed_is_zero_when_the_clock_went_back() {
    assert_eq!(elapsed(at(10), at(0)), Duration::ZERO);
    assert_eq!(elapsed(at(0), at(10)), Duration::from_secs(10));
}

#[test]
fn a_volume_whose_drive_was_removed_during_a_restart_keeps_its_id_and_drives() {
    let mut before = plain();
    let (drives, volumes) = (before.facts.drives.clone(), before.facts.stored_volumes());
    before.pull("sda");
    let mut after = before.clone();
    after.facts = with_stored_drives(drives.into_values());
    after.restore_volumes(volumes.into_values().collect(), 5);
    after.read_all(10);
    let ids: Vec<&VolumeId> = after.facts.volumes.keys().collect();
    assert_eq!(ids, [&volume("fs:u")]);
    let known = &after.facts.volumes[&volume("fs:u")];
    assert!(known.facts.device_gone && known.facts.drive_ids == [DriveId::new("A")], "{known:#?}");
    // One that was unmounted meanwhile is no longer a volume.
    let mut unmounted = plain();
    let stored = unmounted.facts.stored_volumes();
    unmounted.umount("/data");
    unmounted.facts = Facts::default();
    unmounted.restore_volumes(stored.into_values().collect(), 5);
    unmounted.read_all(10);
    assert!(unmounted.facts.volumes.is_empty());
}

#[test]
fn a_state_that_is_read_late_gives_a_volume_its_id_and_drives_back() {
    let mut before = plain();
    let stored = before.facts.stored_volumes();
    let drives = before.facts.drives.clone();
    before.pull("sda");
    let mut after = before.clone();
    after.facts = with_stored_drives(drives.into_values());
    // A slow disk: devices and mounts are read first.
    after.read_all(10);
    assert!(!after.facts.volumes.contains_key(&volume("fs:u")));
    after.restore_volumes(stored.into_values().collect(), 12);
    let ids: Vec<&VolumeId> = after.facts.volumes.keys().collect();
    assert_eq!(ids, [&volume("fs:u")]);
    let known = &after.facts.volumes[&volume("fs:u")];
    assert_eq!(known.first_seen, at(0));
    assert!(known.facts.device_gone && known.facts.drive_ids == [DriveId::new("A")], "{known:#?}");
}

#[test]
fn a_state_that_is_read_late_keeps_what_was_observed_since() {
    let mut before = plain();
    let stored = before.facts.stored_volumes();
    let mut after = plain();
    after.facts = Facts::default();
    after.read_all(10);
    after.restore_volumes(stored.clone().into_values().collect(), 12);
    assert_eq!(after.facts.volumes[&volume("fs:u")].first_seen, at(0));
    // Another filesystem is mounted on the path now.
    before.umount("/data");
    let mut other = before
        .disk("sdb", "8:16", "B")
        .uuid("sdb", "v")
        .mounted("8:16", "/", "/data", "ext4", "/dev/sdb");
    other.facts = Facts::default();
    other.read_all(10);
    other.restore_volumes(stored.into_values().collect(), 12);
    let ids: Vec<&VolumeId> = other.facts.volumes.keys().collect();
    assert_eq!(ids, [&volume("fs:v")]);
}

/// Everything that grows with mounts and drives.
fn sizes(facts: &Facts) -> [usize; 6] {
    [
        facts.volumes.len(),
        facts.probe_targets().len(),
        facts.attachments.len(),
        facts.recent_removals.volumes.len(),
        facts.recent_removals.drive_volumes.len(),
        facts.drives.len(),
    ]
}

#[test]
fn ten_thousand_bind_mounts_that_came_and_went_leave_nothing() {
    let mut host = plain();
    let before = (sizes(&host.facts), host.facts.volumes.clone());
    let paths: Vec<String> = (0..10_000).map(|number| format!("/b/{number}")).collect();
    let mut crowded = host.clone();
    for path in &paths {
        crowded = crowded.mounted("8:0", "/", path, "ext4", "/dev/sda");
    }
    host.mounts = crowded.mounts;
    host.read_mounts(1);
    assert_eq!(host.facts.probe_targets().len(), 10_001);
    for path in &paths {
        host.probe(path, healthy_probe(usage(GIB, GIB)), 2);
    }
    host.mounts.mounts.truncate(1);
    host.read_mounts(3);
    assert_eq!((sizes(&host.facts), host.facts.volumes.clone()), before);
}

/// The cycle of `mount -o loop` and `umount`, which detaches the loop device.
#[test]
fn loop_devices_that_came_and_went_leave_no_loss_and_a_bounded_number_of_drives() {
    for mounts_first in [true, false] {
        let mut host = plain();
        let before = sizes(&host.facts);
        for number in 0..200 {
            let (name, second) = (format!("loop{number}"), number * 10);
            host.plug(&name, "7:0", &format!("loop:{name}"));
            for drive in &mut host.inventory.drives {
                if drive.name == name {
                    drive.transport = Transport::Loop;
                }
            }
            host = host.mounted("7:0", "/", "/mnt", "ext4", "/dev/loop0");
            host.read_all(second);
            host.umount("/mnt");
            host.pull(&name);
            match mounts_first {
                true => (host.read_mounts(second + 1), host.scan(second + 1)),
                false => (host.scan(second + 1), host.read_mounts(second + 1)),
            };
            assert!(
                host.raised(second + 1).iter().all(|line| line.ends_with("Info Information")),
                "nothing was lost"
            );
            let after = host.policy.forget_missing_after;
            host.facts.forget_missing_drives(after, at(second + 2));
        }
        host.scan(3000);
        host.read_mounts(3000);
        host.facts.update_volumes(&host.settings, at(3000));
        let mut after = sizes(&host.facts);
        assert_eq!(after[5], before[5] + MAX_UNUSED_MISSING);
        after[5] = before[5];
        assert_eq!(after, before);
    }
}

#[test]
fn a_detached_loop_device_is_a_loss_while_a_record_requires_its_volume() {
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .mounted("8:0", "/", "/pod", "ext4", "/dev/sda")
        .csi("d", "h", None, &[("u1", "/pod")]);
    host.inventory.drives[0].transport = Transport::Loop;
    host.read_all(1);
    host.mounts.mounts.clear();
    host.read_mounts(2);
    host.pull("sda");
    host.scan(3);
    assert!(host.facts.drives[&DriveId::new("A")].in_use);
    host.kubelet.volumes.clear();
    host.read_kubelet(4);
    assert!(!host.facts.drives[&DriveId::new("A")].in_use);
    assert!(host.facts.volumes.is_empty());
}
