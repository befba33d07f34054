use proptest::prelude::*;

use crate::model::assess::{MAX_MESSAGE, assess, health, health_unknown};
use crate::model::block::{Layer, LayerState, MdMember, MdState, Multipath, MultipathPath, ThinPool};
use crate::model::dev::DevNo;
use crate::model::facts::Change;
use crate::model::finding::{Health, Severity, Status, Subject, Verdict};
use crate::model::fixture::*;
use crate::model::ids::DriveId;
use crate::model::mount::FstabEntry;
use crate::model::observation::Observation;
use crate::model::probe::Usage;
use crate::model::reason::Reason;
use crate::model::report::Report;

const T: &str = "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pv-h/mount";

/// sda with ext4 on /data, told and probed.
fn plain() -> World {
    let mut world = World::default().disk("sda", "8:0", "A").uuid("sda", "u").mounted("8:0", "/", "/data", "ext4", "/dev/sda");
    world.read_all(0);
    world.probe("/data", healthy(usage(100 * GIB, 50 * GIB)), 1);
    world
}

/// A mirror of sda and sdb on /data.
fn mirror() -> World {
    let md = device("md0", "9:0", Layer::Md { level: Some("raid1".into()) }, &["sda", "sdb"]);
    let mut world = World::default()
        .disk("sda", "8:0", "A")
        .disk("sdb", "8:16", "B")
        .with(md)
        .uuid("md0", "m")
        .mounted("9:0", "/", "/data", "ext4", "/dev/md0");
    world.read_all(0);
    world.layer("md0", md_state(0, &["sda", "sdb"]), 0);
    world
}

fn md_state(degraded: u32, members: &[&str]) -> LayerState {
    let member =
        |(slot, name): (usize, &&str)| MdMember { device: (*name).into(), state: "in_sync".into(), slot: Some(slot as u32), errors: 0 };
    LayerState::Md(MdState {
        level: "raid1".into(),
        raid_disks: 2,
        degraded,
        array_state: "clean".into(),
        members: members.iter().enumerate().map(member).collect(),
        ..MdState::default()
    })
}

fn csi() -> World {
    let mut world = World::default()
        .disk("sda", "8:0", "A")
        .mounted("8:0", "/", "/staging", "ext4", "/dev/sda")
        .mounted("8:0", "/", T, "ext4", "/dev/sda")
        .csi("d", "h", Some("/staging"), &[("u1", T)]);
    world.read_all(0);
    world
}

#[test]
fn a_healthy_world_raises_nothing() {
    assert_eq!(plain().raised(10), [""; 0]);
    assert_eq!(mirror().raised(10), [""; 0]);
    assert_eq!(csi().raised(100), [""; 0]);
}

#[test]
fn a_drive_that_carried_nothing_and_went_is_worth_a_note_only() {
    let mut world = World::default().disk("sda", "8:0", "A");
    world.read_all(0);
    world.pull("sda");
    world.scan(10);
    assert_eq!(world.raised(11), ["A DriveMissing Info Information"]);
    world.plug("sdz", "65:0", "A");
    world.scan(20);
    assert_eq!(world.raised(21), [""; 0]);
    assert!(world.active.is_empty());
}

#[test]
fn a_missing_drive_takes_its_volume_along_and_both_return_under_another_name() {
    let mut world = plain();
    world.pull("sda");
    world.scan(10);
    assert_eq!(
        world.raised(11),
        ["A DriveMissing Bad Inaccessible", "fs:u DeviceMissing Bad Inaccessible", "fs:u DriveFailing Bad Inaccessible"]
    );
    let missing = world.one(Reason::DriveMissing, 12).unwrap();
    assert_eq!(missing.since, Some(at(10)));
    assert!(missing.message.contains("fs:u"), "{}", missing.message);
    // Unmounted while the drive is away: still known.
    world.umount("/data");
    world.read_mounts(20);
    assert_eq!(world.raised(60).len(), 3);
    assert!(world.facts.volumes[&volume("fs:u")].retained);
    world.plug("sdq", "65:0", "A");
    world.scan(70);
    assert_eq!(world.raised(71), [""; 0]);
    assert!(world.active.is_empty() && world.facts.volumes.is_empty());
}

#[test]
fn mounts_that_leave_just_before_their_drive_were_its_load() {
    let mut world = plain();
    world.umount("/data");
    world.read_mounts(10);
    world.pull("sda");
    world.scan(11);
    assert!(world.raised(12).contains(&"A DriveMissing Bad Inaccessible".to_owned()));
    assert!(world.facts.volumes[&volume("fs:u")].retained);

    let mut world = plain();
    world.umount("/data");
    world.read_mounts(10);
    world.pull("sda");
    world.scan(40);
    assert_eq!(world.raised(41), ["A DriveMissing Info Information"], "unmounted in peace, then pulled");
}

#[test]
fn a_removed_drive_without_a_load_is_forgotten_after_a_time() {
    let mut world = World::default().disk("sda", "8:0", "A");
    world.read_all(0);
    world.pull("sda");
    world.scan(10);
    world.raised(11);
    let month = 31 * 24 * 3600;
    world.scan(month);
    assert_eq!(world.raised(month), [""; 0]);
    assert!(world.active.is_empty());
    assert_eq!(world.facts.forget(world.policy.forget_missing_after, at(month)), [DriveId::new("A")]);
}

#[test]
fn one_leg_of_a_mirror_is_degraded_and_two_are_inaccessible() {
    let mut world = mirror();
    world.pull("sdb");
    world.inventory.devices.get_mut("md0").unwrap().below = vec!["sda".into()];
    world.scan(10);
    world.layer("md0", md_state(1, &["sda"]), 11);
    assert_eq!(
        world.raised(12),
        ["B DriveMissing Bad Inaccessible", "fs:m RaidDegraded Suspect Degraded", "fs:m DriveFailing Suspect Degraded"]
    );
    let failing = world.one(Reason::DriveFailing, 13).unwrap();
    assert!(failing.message.contains("covered by raid1 md0"), "{}", failing.message);
    world.pull("sda");
    world.inventory.devices.get_mut("md0").unwrap().below = vec![];
    world.scan(20);
    assert!(world.raised(21).contains(&"fs:m DriveFailing Bad Inaccessible".to_owned()));
}

#[test]
fn an_array_that_is_whole_again_without_the_lost_drive_forgives_it() {
    let mut world = mirror();
    world.pull("sdb");
    world.inventory.devices.get_mut("md0").unwrap().below = vec!["sda".into()];
    world.scan(10);
    world.layer("md0", md_state(1, &["sda"]), 11);
    world.raised(12);
    world.plug("sdc", "8:32", "C");
    world.inventory.devices.get_mut("md0").unwrap().below = vec!["sda".into(), "sdc".into()];
    world.scan(100);
    world.layer("md0", md_state(0, &["sda", "sdc"]), 200);
    assert_eq!(world.raised(201), ["B DriveMissing Info Information"]);
}

#[test]
fn a_drive_is_offline_at_once_or_after_its_recovery_has_had_its_time() {
    for (state, after, expected) in [
        ("offline", 1, true),
        ("transport-offline", 1, true),
        ("dead", 1, true),
        ("blocked", 30, false),
        ("blocked", 61, true),
        ("running", 99, false),
    ] {
        let mut world = plain();
        world.inventory.drives[0].devices[0].state = Some(state.into());
        world.scan(10);
        let raised = world.raised(10 + after);
        assert_eq!(raised.contains(&"A DriveOffline Bad Inaccessible".to_owned()), expected, "{state} {after}");
    }
}

#[test]
fn a_drive_with_a_working_path_is_not_offline() {
    let mut world = plain();
    let mut second = world.inventory.drives[0].devices[0].clone();
    second.name = "sdb".into();
    second.state = Some("offline".into());
    world.inventory.drives[0].devices.push(second);
    world.scan(10);
    assert_eq!(world.raised(100), [""; 0]);
    world.inventory.drives[0].devices[0].state = Some("transport-offline".into());
    world.scan(20);
    assert_eq!(world.raised(21), ["A DriveOffline Bad Inaccessible", "fs:u DriveFailing Bad Inaccessible"]);
}

#[test]
fn a_device_mounted_before_it_was_scanned_is_given_time() {
    let mut world = World::default();
    world.read_all(0);
    let mut world = world.mounted("8:0", "/", "/data", "ext4", "/dev/sda");
    world.read_mounts(10);
    assert_eq!(world.raised(11), [""; 0]);
    assert_eq!(world.raised(20), ["mnt:/data DeviceMissing Bad Inaccessible"]);
}

#[test]
fn a_vanished_target_is_not_mounted_and_mounting_clears_it() {
    let mut world = csi();
    world.umount(T);
    world.read_mounts(10);
    assert_eq!(world.raised(12), [""; 0], "the kubelet may be unpublishing it");
    let found = world.one(Reason::NotMounted, 16).unwrap();
    assert_eq!((found.severity, found.status, found.since), (Severity::Bad, Status::Inaccessible, Some(at(10))));
    assert!(found.evidence.iter().any(|evidence| evidence.source.ends_with("vol_data.json")));
    let mut world = world.mounted("8:0", "/", T, "ext4", "/dev/sda");
    world.read_mounts(20);
    assert_eq!(world.raised(21), [""; 0]);
    assert!(world.active.is_empty());
}

#[test]
fn a_vanished_staging_mount_is_suspect_while_a_pod_is_served_and_bad_otherwise() {
    let mut world = csi();
    world.umount("/staging");
    world.read_mounts(10);
    assert_eq!(world.raised(16), ["csi:d/h StagingNotMounted Suspect Degraded"]);
    world.umount(T);
    world.read_mounts(20);
    assert_eq!(world.raised(26), ["csi:d/h StagingNotMounted Bad Inaccessible", "csi:d/h NotMounted Bad Inaccessible"]);
}

#[test]
fn what_was_never_mounted_may_be_on_its_way() {
    let mut world = World::default().csi("d", "h", Some("/staging"), &[]);
    world.read_all(0);
    assert_eq!(world.raised(29), [""; 0]);
    assert_eq!(world.raised(30), ["csi:d/h StagingNotMounted Bad Inaccessible"]);
    world.kubelet.volumes.clear();
    world.read_kubelet(40);
    assert_eq!(world.raised(41), [""; 0]);
    assert!(world.active.is_empty(), "the record is gone");
}

#[test]
fn errors_of_the_volume_are_faults_and_refusals_are_not() {
    for (errno, expected) in
        [(5, true), (107, true), (116, true), (117, true), (108, true), (19, true), (13, false), (1, false), (40, false), (2, false)]
    {
        let mut world = plain();
        world.probe("/data", answers(errno), 10);
        assert_eq!(world.raised(11) == ["fs:u NotAccessible Bad Inaccessible"], expected, "errno {errno}");
        world.probe("/data", answers(13), 20);
        world.judge(21);
        assert_eq!(is_active(&world.active, &Subject::Volume(volume("fs:u")), Reason::NotAccessible), expected, "a refusal clears nothing");
        world.probe("/data", healthy(usage(100 * GIB, 50 * GIB)), 30);
        world.judge(31);
        assert!(world.active.is_empty());
    }
}

#[test]
fn the_kernels_read_only_is_told_and_the_admins_is_not() {
    let ro = || vec!["ro".to_owned()];
    // errors=remount-ro: the superblock only.
    let mut world = plain();
    world.mount_mut("/data").super_options = ro();
    world.read_mounts(10);
    assert_eq!(world.raised(11), ["fs:u ReadOnly Bad Degraded"]);
    world.mount_mut("/data").super_options = vec!["rw".into()];
    world.read_mounts(20);
    assert_eq!(world.raised(21), [""; 0]);
    assert!(world.active.is_empty());
    // mount -o remount,ro: both.
    world.mount_mut("/data").super_options = ro();
    world.mount_mut("/data").options = ro();
    world.read_mounts(30);
    assert_eq!(world.raised(31), [""; 0]);
}

#[test]
fn a_read_only_bind_mount_excuses_nothing_and_a_read_only_mount_is_no_error() {
    let ro = || vec!["ro".to_owned()];
    let mut world = plain().mounted("8:0", "/sub", "/bind", "ext4", "/dev/sda");
    world.mount_mut("/bind").options = ro();
    world.read_mounts(5);
    assert_eq!(world.raised(6), [""; 0]);
    world.mount_mut("/data").super_options = ro();
    world.mount_mut("/bind").super_options = ro();
    world.read_mounts(10);
    assert_eq!(world.raised(11), ["fs:u ReadOnly Bad Degraded"]);

    let mut world = World::default().disk("sda", "8:0", "A").mounted("8:0", "/", "/iso", "ext4", "/dev/sda");
    world.mount_mut("/iso").super_options = ro();
    world.mount_mut("/iso").options = ro();
    world.read_all(0);
    assert_eq!(world.raised(1), [""; 0]);
}

#[test]
fn a_remount_through_one_of_two_mounts_is_still_the_admins() {
    let mut world = plain().mounted("8:0", "/sub", "/bind", "ext4", "/dev/sda");
    world.read_mounts(5);
    for path in ["/data", "/bind"] {
        world.mount_mut(path).super_options = vec!["ro".into()];
    }
    world.mount_mut("/bind").options = vec!["ro".into()];
    world.read_mounts(10);
    assert_eq!(world.raised(11), [""; 0]);
}

#[test]
fn read_only_at_first_sight_is_compared_with_fstab() {
    let seen = |fstab: &str| {
        let mut world = World::default().disk("sda", "8:0", "A").mounted("8:0", "/", "/data", "ext4", "/dev/sda");
        world.mount_mut("/data").super_options = vec!["ro".into()];
        world.mounts.fstab.push(FstabEntry {
            source: "/dev/sda".into(),
            mount_point: "/data".into(),
            fs_type: "ext4".into(),
            options: vec![fstab.into()],
        });
        world.read_all(0);
        world.raised(1).len()
    };
    assert_eq!((seen("defaults"), seen("ro")), (1, 0));
}

#[test]
fn emergency_and_shutdown_are_always_the_kernels_word() {
    for (word, status) in [("emergency_ro", "Degraded"), ("shutdown", "Inaccessible")] {
        let mut world = plain();
        world.mount_mut("/data").super_options = vec!["rw".into(), word.into()];
        world.read_mounts(10);
        assert_eq!(world.raised(11), [format!("fs:u ReadOnly Bad {status}")]);
    }
}

#[test]
fn space_is_out_below_both_limits_and_back_above_either_clearing_one() {
    // total and available in GiB; active before; expected severity.
    for (total, left, before, expected) in [
        (20_000.0, 200.0, None, None),
        (100.0, 1.5, None, None),
        (100.0, 0.5, None, Some(Severity::Suspect)),
        (10.0, 0.1, None, Some(Severity::Suspect)),
        (100.0, 0.0, None, Some(Severity::Bad)),
        (100.0, 0.4, Some(Severity::Bad), Some(Severity::Bad)),
        (100.0, 0.6, Some(Severity::Bad), Some(Severity::Suspect)),
        (100.0, 1.5, Some(Severity::Suspect), Some(Severity::Suspect)),
        (100.0, 2.0, Some(Severity::Suspect), None),
        (10.0, 0.39, Some(Severity::Suspect), Some(Severity::Suspect)),
        (10.0, 0.41, Some(Severity::Suspect), None),
    ] {
        let mut world = plain();
        let scale = |gib: f64| (gib * GIB as f64) as u64;
        world.probe("/data", healthy(usage(scale(total), scale(left))), 10);
        if let Some(severity) = before {
            world.active.insert((Subject::Volume(volume("fs:u")), Reason::OutOfSpace), severity);
        }
        assert_eq!(world.one(Reason::OutOfSpace, 11).map(|raised| raised.severity), expected, "{left} of {total} GiB, {before:?}");
    }
}

#[test]
fn inodes_run_out_and_filesystems_without_a_number_are_not_judged() {
    for (total, left, expected) in [(1000, 10, true), (1000, 20, false), (0, 0, false)] {
        let mut world = plain();
        let usage = Usage { total_inodes: total, available_inodes: left, ..usage(100 * GIB, 50 * GIB) };
        world.probe("/data", healthy(usage), 10);
        assert_eq!(world.one(Reason::OutOfInodes, 11).is_some(), expected, "{left} of {total}");
    }
}

#[test]
fn a_read_only_filesystem_may_be_full() {
    let mut world = plain();
    world.mount_mut("/data").super_options = vec!["ro".into()];
    world.mount_mut("/data").options = vec!["ro".into()];
    world.read_mounts(5);
    world.probe("/data", healthy(usage(100 * GIB, 0)), 10);
    assert_eq!(world.raised(11), [""; 0]);
}

#[test]
fn a_stuck_probe_is_a_finding_until_something_comes_back() {
    let mut world = plain();
    assert_eq!(world.stuck("/data", 10), Change::Material);
    assert_eq!(world.stuck("/data", 10), Change::Nothing);
    let found = world.one(Reason::ProbeTimeout, 11).unwrap();
    assert_eq!((found.since, found.evidence[0].text.contains("wait_on_page")), (Some(at(10)), true));
    assert_eq!(world.probe("/data", healthy(usage(100 * GIB, 50 * GIB)), 99), Change::Material);
    assert_eq!(world.raised(100), [""; 0]);
    assert!(world.active.is_empty());
}

#[test]
fn io_is_stalled_after_its_time_without_a_completion() {
    let mut world = plain();
    world.io("8:0", "sda", 5, 1, 0);
    world.io("8:0", "sda", 5, 1, 59);
    assert_eq!(world.raised(59), [""; 0]);
    assert_eq!(world.io("8:0", "sda", 5, 2, 60), Change::Material);
    let found = world.one(Reason::IoStalled, 61).unwrap();
    assert_eq!((found.since, found.evidence.len()), (Some(at(0)), 2));
    world.io("8:0", "sda", 6, 2, 62);
    world.judge(62);
    assert!(world.active.is_empty());
}

#[test]
fn counters_that_go_back_or_are_not_kept_stall_nothing() {
    let mut world = plain();
    world.io("8:0", "sda", 50, 1, 0);
    world.io("8:0", "sda", 5, 1, 59);
    world.io("8:0", "sda", 5, 1, 90);
    assert_eq!(world.raised(91), [""; 0]);
    world.inventory.devices.get_mut("sda").unwrap().iostats = false;
    world.scan(100);
    world.io("8:0", "sda", 5, 1, 200);
    assert_eq!(world.raised(201), [""; 0]);
}

#[test]
fn a_degraded_array_without_a_volume_is_told_by_its_name() {
    let mut world = mirror();
    world.umount("/data");
    world.read_mounts(5);
    world.layer("md0", md_state(1, &["sda"]), 10);
    assert_eq!(world.raised(11), ["dev:md0 RaidDegraded Suspect Degraded"]);
    let mut world = world.mounted("9:0", "/", "/data", "ext4", "/dev/md0");
    world.read_mounts(20);
    assert_eq!(world.raised(21), ["fs:m RaidDegraded Suspect Degraded"]);
    assert_eq!(world.active.len(), 1, "the device's own is cleared");
}

#[test]
fn a_rebuild_tells_its_progress_and_a_dead_array_is_inaccessible() {
    let mut world = mirror();
    let LayerState::Md(mut md) = md_state(1, &["sda"]) else { unreachable!() };
    md.sync_action = Some("recover".into());
    md.sync_completed = Some((43, 100));
    world.layer("md0", LayerState::Md(md.clone()), 10);
    assert!(world.one(Reason::RaidDegraded, 11).unwrap().message.contains("runs with 1 of 2 devices; recover 43 %"));
    md.sync_completed = Some((44, 100));
    assert_eq!(world.layer("md0", LayerState::Md(md.clone()), 12), Change::Figures);
    md.array_state = "inactive".into();
    world.layer("md0", LayerState::Md(md), 20);
    assert_eq!(world.raised(21), ["fs:m RaidDegraded Bad Inaccessible"]);
}

fn pool(data: u64, metadata: u64, mode: &str) -> LayerState {
    LayerState::Thin(ThinPool {
        metadata_used: metadata,
        metadata_total: 100,
        data_used: data,
        data_total: 100,
        mode: mode.into(),
        needs_check: false,
        status_line: "0 8 thin-pool".into(),
    })
}

#[test]
fn a_thin_pool_fills_with_hysteresis() {
    let mut world = World::default().disk("sda", "8:0", "A").with(dm("dm-0", "253:0", "vg-pool", "LVM-x-tpool", &["sda"])).mounted(
        "253:0",
        "/",
        "/d",
        "xfs",
        "/dev/mapper/vg-pool",
    );
    world.read_all(0);
    for (data, metadata, mode, expected) in [
        (50, 50, "rw", None),
        (89, 10, "rw", None),
        (90, 10, "rw", Some((Severity::Suspect, Status::Degraded))),
        (86, 10, "rw", Some((Severity::Suspect, Status::Degraded))),
        (86, 98, "rw", Some((Severity::Bad, Status::Degraded))),
        (91, 10, "rw", Some((Severity::Bad, Status::Degraded))),
        (88, 10, "rw", Some((Severity::Suspect, Status::Degraded))),
        (84, 10, "rw", None),
        (100, 10, "out_of_data_space", Some((Severity::Bad, Status::Inaccessible))),
        (10, 10, "Fail", Some((Severity::Bad, Status::Inaccessible))),
        (10, 10, "rw", None),
    ] {
        world.layer("dm-0", pool(data, metadata, mode), 10);
        let found = world.one(Reason::ThinPoolFull, 11).map(|raised| (raised.severity, raised.status));
        assert_eq!(found, expected, "{data} {metadata} {mode}");
    }
}

#[test]
fn paths_fail_one_by_one() {
    let mut world = World::default().disk("sda", "8:0", "A").with(dm("dm-0", "253:0", "mpatha", "mpath-1", &["sda"])).mounted(
        "253:0",
        "/",
        "/d",
        "xfs",
        "/dev/mapper/mpatha",
    );
    world.read_all(0);
    for (first, second, expected) in [
        (true, true, None),
        (true, false, Some((Severity::Suspect, Status::Degraded))),
        (false, false, Some((Severity::Bad, Status::Inaccessible))),
    ] {
        let path = |minor, active| MultipathPath { dev: DevNo::new(8, minor), active, fail_count: 0 };
        let state = Multipath { paths: vec![path(0, first), path(16, second)], status_line: "0 8 multipath".into() };
        world.layer("dm-0", LayerState::Multipath(state), 10);
        let found = world.one(Reason::PathsDegraded, 11).map(|raised| (raised.severity, raised.status));
        assert_eq!(found, expected);
    }
}

#[test]
fn a_failed_source_makes_its_things_unknown_and_clears_nothing() {
    let mut world = plain();
    world.probe("/data", answers(5), 5);
    world.judge(6);
    let subject = Subject::Volume(volume("fs:u"));
    world.tell(Report::Mounts(Observation::failed(at(10), "reading /proc/1/mountinfo: no")), 10);
    world.judge(11);
    assert!(is_active(&world.active, &subject, Reason::NotAccessible));
    assert!(health_unknown(&world.facts, &subject).unwrap().contains("mountinfo"));
    world.read_mounts(20);
    assert_eq!(health_unknown(&world.facts, &subject), None);
    world.tell(Report::Inventory(Observation::failed(at(30), "scan")), 30);
    let drive = Subject::Drive(DriveId::new("A"));
    assert!(health_unknown(&world.facts, &drive).is_some() && health_unknown(&world.facts, &subject).is_some());
    assert_eq!(world.facts.drives[&DriveId::new("A")].missing_since, None, "a failed scan is not an empty one");
}

#[test]
fn known_badness_outweighs_the_unknown() {
    assert_eq!(health(Some(Severity::Bad), true), Health::Bad);
    assert_eq!(health(Some(Severity::Suspect), true), Health::Suspect);
    assert_eq!(health(Some(Severity::Info), true), Health::Unknown);
    assert_eq!(health(None, false), Health::Good);
}

#[test]
fn a_probe_that_is_refused_leaves_health_unknown_only_when_nothing_answers() {
    let subject = Subject::Volume(volume("fs:u"));
    let mut world = plain();
    let mut refused = healthy(usage(100 * GIB, 50 * GIB));
    refused.readdir = answers(13).readdir;
    world.probe("/data", refused, 10);
    assert_eq!(health_unknown(&world.facts, &subject), None, "a squashed root cannot list, and the server answers");
    world.probe("/data", answers(13), 20);
    assert!(health_unknown(&world.facts, &subject).is_some());
}

#[test]
fn what_is_unmounted_clears_its_findings() {
    let mut world = plain();
    world.probe("/data", answers(5), 5);
    assert_eq!(world.raised(6).len(), 1);
    world.umount("/data");
    world.read_mounts(10);
    assert_eq!(world.raised(11), [""; 0]);
    assert!(world.active.is_empty());
    assert_eq!(world.probe("/data", answers(5), 12), Change::Nothing, "a late answer of a mount that is gone");
}

#[test]
fn before_the_first_full_picture_no_stored_finding_is_cleared_for_want_of_its_subject() {
    let mut world = World::default();
    world.active.insert((Subject::Volume(volume("fs:u")), Reason::ReadOnly), Severity::Bad);
    world.judge(0);
    assert_eq!(world.active.len(), 1);
    world.read_all(1);
    world.judge(2);
    assert!(world.active.is_empty());
}

fn full_world() -> World {
    let mut world = mirror().mounted("8:32", "/", "/plain", "xfs", "/dev/sdc").mounted("8:32", "/", T, "xfs", "/dev/sdc").csi(
        "d",
        "h",
        Some("/staging"),
        &[("u1", T)],
    );
    world.plug("sdc", "8:32", "C");
    world.read_all(0);
    world
}

/// One thing that can be heard, by number.
fn event(world: &mut World, kind: u8, seconds: i64) {
    match kind % 16 {
        0 => world.pull_if("sda"),
        1 => world.pull_if("sdc"),
        2 => world.plug_if("sdx", "8:64", "C"),
        3 => drop(world.scan(seconds)),
        4 => drop(world.read_mounts(seconds)),
        5 => drop(world.read_kubelet(seconds)),
        6 => drop(world.probe("/plain", answers(5), seconds)),
        7 => drop(world.probe(T, healthy(usage(GIB, 0)), seconds)),
        8 => drop(world.stuck("/data", seconds)),
        9 => drop(world.layer("md0", md_state(1, &["sda"]), seconds)),
        10 => drop(world.layer("md0", md_state(0, &["sda", "sdb"]), seconds)),
        11 => drop(world.io("8:32", "sdc", 5, 1, seconds)),
        12 => world.umount("/plain"),
        13 => world.mounts.mounts.iter_mut().for_each(|mount| mount.super_options = vec!["ro".into()]),
        14 => drop(world.probe("/plain", healthy(usage(GIB, GIB)), seconds)),
        _ => drop(world.probe("/data", answers(13), seconds)),
    }
}

/// One failure or silence, by number.
fn failure(world: &mut World, kind: u8, seconds: i64) {
    let took = std::time::Duration::ZERO;
    let report = match kind % 8 {
        0 => Report::Inventory(Observation::failed(at(seconds), "no")),
        1 => Report::Mounts(Observation::failed(at(seconds), "no")),
        2 => Report::Kubelet(Observation::failed(at(seconds), "no")),
        3 => Report::Probe { path: "/data".into(), result: Observation::failed(at(seconds), "no"), took },
        4 => Report::Probe { path: T.into(), result: Observation::failed(at(seconds), "no"), took },
        5 => Report::Layer { device: "md0".into(), state: Observation::failed(at(seconds), "no") },
        6 => Report::DiskStats(Observation::failed(at(seconds), "no")),
        _ => Report::Probe { path: "/plain".into(), result: Observation::Unavailable, took },
    };
    world.tell(report, seconds);
}

impl World {
    fn pull_if(&mut self, name: &str) {
        if self.inventory.devices.contains_key(name) {
            self.pull(name);
        }
    }

    fn plug_if(&mut self, name: &str, dev: &str, serial: &str) {
        if !self.inventory.drives.iter().any(|drive| drive.id == DriveId::new(serial)) {
            self.plug(name, dev, serial);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_failure_makes_a_finding_disappear_or_a_drive_come_back(events in proptest::collection::vec(any::<u8>(), 0..20), failures in proptest::collection::vec(any::<u8>(), 1..12)) {
        let mut world = full_world();
        let mut seconds = 1;
        for kind in events {
            seconds += 7;
            event(&mut world, kind, seconds);
            world.judge(seconds);
        }
        seconds += 100;
        // Time alone may raise more; what is active now must stay.
        world.judge(seconds);
        let before: Vec<_> = world.active.keys().cloned().collect();
        let missing: Vec<_> = world.facts.drives.iter().filter(|(_, drive)| drive.missing_since.is_some()).map(|(id, _)| id.clone()).collect();
        for kind in failures {
            seconds += 7;
            failure(&mut world, kind, seconds);
            world.judge(seconds);
        }
        for key in before {
            prop_assert!(world.active.contains_key(&key), "{key:?} disappeared");
        }
        for id in missing {
            prop_assert!(world.facts.drives[&id].missing_since.is_some());
        }
    }

    #[test]
    fn the_order_of_independent_reports_does_not_change_the_verdict(order in Just((0..8u8).collect::<Vec<_>>()).prop_shuffle()) {
        let tell = |order: &[u8]| {
            let mut world = mirror().mounted("8:32", "/", "/plain", "xfs", "/dev/sdc").csi("d", "h", Some("/staging"), &[("u1", T)]);
            world.plug("sdc", "8:32", "C");
            world.inventory.drives.iter_mut().find(|drive| drive.name == "sdc").unwrap().devices[0].state = Some("offline".into());
            world.mount_mut("/plain").super_options = vec!["emergency_ro".into()];
            for kind in order {
                match kind {
                    0 => drop(world.scan(10)),
                    1 => drop(world.read_mounts(10)),
                    2 => drop(world.read_kubelet(10)),
                    3 => drop(world.layer("md0", md_state(1, &["sda"]), 10)),
                    4 => drop(world.io("8:32", "sdc", 5, 1, 10)),
                    _ => {}
                }
            }
            world.io("8:32", "sdc", 5, 1, 100);
            world.probe("/plain", answers(5), 100);
            world.probe("/data", healthy(usage(100 * GIB, 0)), 100);
            let mut raised = world.raised(200);
            raised.sort();
            raised
        };
        let straight: Vec<u8> = (0..8).collect();
        prop_assert_eq!(tell(&order), tell(&straight));
    }

    #[test]
    fn no_facts_make_judgement_panic_or_a_message_too_long(events in proptest::collection::vec((any::<u8>(), any::<bool>(), -50i64..200), 0..40)) {
        let mut world = full_world();
        let mut seconds = 0;
        for (kind, fails, step) in events {
            seconds += step;
            if fails { failure(&mut world, kind, seconds) } else { event(&mut world, kind, seconds) }
            for judgement in assess(&world.facts, &world.active, &world.policy, at(seconds)) {
                if let Verdict::Raised(raised) = judgement.verdict {
                    prop_assert!(raised.message.len() <= MAX_MESSAGE);
                    prop_assert!(!raised.evidence.is_empty(), "{} without evidence", judgement.reason);
                    prop_assert!(!raised.clears_when.is_empty() && raised.status != Status::DataLoss);
                }
            }
            world.judge(seconds);
        }
    }

    #[test]
    fn a_name_is_nothing(first in "sd[a-z]", second in "sd[a-z]{2}") {
        let verdicts = |one: &str, two: &str| {
            let mut world = World::default().disk(one, "8:0", "A").disk(two, "8:16", "B").uuid(one, "u").uuid(two, "v");
            world = world.mounted("8:0", "/", "/a", "ext4", "/dev/x").mounted("8:16", "/", "/b", "ext4", "/dev/y");
            world.read_all(0);
            world.pull(one);
            world.inventory.drives[0].devices[0].state = Some("offline".into());
            world.scan(10);
            world.raised(11)
        };
        prop_assert_eq!(verdicts(&first, &second), verdicts("sda", "sdb"));
    }
}

#[test]
fn a_thousand_mount_points_make_no_message_too_long() {
    let mut world = World::default().disk("sda", "8:0", "A");
    for number in 0..1000 {
        world = world.mounted("8:0", "/", &format!("/{}/{number}", "x".repeat(400)), "ext4", "/dev/sda");
    }
    world.read_all(0);
    world.pull("sda");
    world.scan(10);
    for judgement in world.judge(11) {
        if let Verdict::Raised(raised) = judgement.verdict {
            assert!(raised.message.len() <= MAX_MESSAGE);
        }
    }
}
