use super::{md_state, mirror};
use crate::model::block::{LayerState, Multipath, MultipathPath, ThinPool};
use crate::model::dev::DevNo;
use crate::model::facts::Urgency;
use crate::model::finding::{Severity, Status};
use crate::model::fixture::*;
use crate::model::reason::Reason;

#[test]
fn a_degraded_array_without_a_volume_is_a_finding_of_the_device() {
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
    let LayerState::Md(mut md) = md_state(1, &["sda"]) else {
        unreachable!()
    };
    md.sync_action = Some("recover".into());
    md.sync_completed = Some((43, 100));
    world.layer("md0", LayerState::Md(md.clone()), 10);
    assert!(
        world
            .raised_for(Reason::RaidDegraded, 11)
            .unwrap()
            .message
            .contains("runs with 1 of 2 devices; recover 43 %")
    );
    md.sync_completed = Some((44, 100));
    assert_eq!(
        world.layer("md0", LayerState::Md(md.clone()), 12),
        Urgency::UsageOnly
    );
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
    let mut world = TestHost::default()
        .disk("sda", "8:0", "A")
        .with(dm("dm-0", "253:0", "vg-pool", "LVM-x-tpool", &["sda"]))
        .mounted("253:0", "/", "/d", "xfs", "/dev/mapper/vg-pool");
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
        (
            100,
            10,
            "out_of_data_space",
            Some((Severity::Bad, Status::Inaccessible)),
        ),
        (10, 10, "Fail", Some((Severity::Bad, Status::Inaccessible))),
        (10, 10, "rw", None),
    ] {
        world.layer("dm-0", pool(data, metadata, mode), 10);
        let found = world
            .raised_for(Reason::ThinPoolFull, 11)
            .map(|raised| (raised.severity, raised.status));
        assert_eq!(found, expected, "{data} {metadata} {mode}");
    }
}

#[test]
fn multipath_degrades_with_each_failed_path() {
    let mut world = TestHost::default()
        .disk("sda", "8:0", "A")
        .with(dm("dm-0", "253:0", "mpatha", "mpath-1", &["sda"]))
        .mounted("253:0", "/", "/d", "xfs", "/dev/mapper/mpatha");
    world.read_all(0);
    for (first, second, expected) in [
        (true, true, None),
        (true, false, Some((Severity::Suspect, Status::Degraded))),
        (false, false, Some((Severity::Bad, Status::Inaccessible))),
    ] {
        let path = |minor, active| MultipathPath {
            dev: DevNo::new(8, minor),
            active,
            fail_count: 0,
        };
        let state = Multipath {
            paths: vec![path(0, first), path(16, second)],
            status_line: "0 8 multipath".into(),
        };
        world.layer("dm-0", LayerState::Multipath(state), 10);
        let found = world
            .raised_for(Reason::PathsDegraded, 11)
            .map(|raised| (raised.severity, raised.status));
        assert_eq!(found, expected);
    }
}
