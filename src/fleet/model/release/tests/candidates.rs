use super::*;
use crate::model::pin::Pin;
use crate::model::release::candidate::{Timers, find, volume_health};
use crate::model::{Node, Report, View, Volume};
use diskvitals_cluster::node_storage::{
    DAEMON_REACHABLE, DriveEntry, NodeStorageStatus, VolumeCondition, VolumeEntry, VolumeStatus,
};
use diskvitals_cluster::storage_action::StorageActionSpec;

fn at(seconds: u64) -> Elapsed {
    Duration::from_secs(seconds)
}

fn status(node: &str) -> NodeStorageStatus {
    NodeStorageStatus {
        node_uid: format!("uid-of-{node}"),
        machine_id: "machine".into(),
        boot_id: "boot".into(),
        daemon_version: "1".into(),
        drive_ids: vec!["sdz".into()],
        conditions: vec![condition(DAEMON_REACHABLE, wall(0))],
        ..NodeStorageStatus::default()
    }
}

/// The drive of `pv1` on node a is offline.
fn broken() -> NodeStorageStatus {
    NodeStorageStatus {
        drive_ids: vec![DRIVE.into()],
        drives: vec![DriveEntry {
            id: DRIVE.into(),
            health: Health::Bad,
            reason: "DriveOffline".into(),
            since: Some(Time(wall(-3000))),
            ..DriveEntry::default()
        }],
        volumes: vec![VolumeEntry {
            driver: "csi.example.com".into(),
            handle: "h1".into(),
            health: Health::Bad,
            health_conditions: vec![VolumeCondition {
                status: VolumeStatus::Inaccessible,
                reason: "DriveFailing".into(),
                ..VolumeCondition::default()
            }],
            drive_ids: vec![DRIVE.into()],
            ..VolumeEntry::default()
        }],
        ..status("a")
    }
}

fn report(view: &mut View, node: &str, status: NodeStorageStatus) {
    let report = Report { status: Some(status), ..Report::default() };
    view.reports.insert(node.into(), report);
}

pub(crate) fn view() -> View {
    let mut view = View::default();
    for name in ["a", "b"] {
        let node = Node {
            uid: format!("uid-of-{name}"),
            hostname: name.into(),
            is_ready: true,
            is_unschedulable: false,
            ..Node::default()
        };
        view.nodes.insert(name.into(), node);
        report(&mut view, name, status(name));
    }
    report(&mut view, "a", broken());
    let volume = Volume {
        csi: Some(("csi.example.com".into(), "h1".into())),
        claim: Some(claim()),
        pins: vec![Pin::Name("a".into())],
    };
    view.volumes.insert("pv1".into(), volume);
    view
}

fn broken_mut(view: &mut View) -> &mut NodeStorageStatus {
    let report = view.reports.get_mut("a").expect("a");
    report.status.as_mut().expect("reported")
}

/// The spec of an action for the candidate of `view()`.
fn action() -> StorageActionSpec {
    let candidate = Timers::default().observe(&view(), at(0)).remove(0);
    proposal("default", &candidate, &evidence()).expect("all is known").spec
}

#[test]
fn a_volume_on_an_offline_drive_of_its_own_node_makes_its_claim_a_candidate() {
    let candidates = Timers::default().observe(&view(), at(5));
    let [candidate] = candidates.as_slice() else {
        panic!("{candidates:?}");
    };
    assert_eq!((candidate.volume.as_str(), candidate.reason.as_str()), ("pv1", "DriveOffline"));
    assert_eq!((&candidate.claim, candidate.node.as_str()), (&claim(), "a"));
    assert!(candidate.is_inaccessible && !candidate.is_truncated);
    assert_eq!(candidate.since, Some(wall(-3000)));
    assert_eq!(candidate.held_since, Some(at(5)));
}

#[test]
fn of_two_dead_drives_below_a_volume_the_same_one_makes_the_case_each_time() {
    let mut view = view();
    let status = broken_mut(&mut view);
    let mut second = status.drives[0].clone();
    second.id = "naa.0000000000000001".into();
    second.reason = "DriveMissing".into();
    status.volumes[0].drive_ids.push(second.id.clone());
    status.drives.push(second);
    let mut timers = Timers::default();
    let first = timers.observe(&view, at(0)).remove(0);
    assert_eq!(first.drive.id, "naa.0000000000000001");
    broken_mut(&mut view).drives.reverse();
    let after = timers.observe(&view, at(60)).remove(0);
    assert_eq!(after.drive.id, first.drive.id);
    assert_eq!(after.held_since, Some(at(0)));
}

#[test]
fn nothing_else_makes_one() {
    type Change = fn(&mut View);
    let changes: &[Change] = &[
        // Another node says so.
        |view| {
            let mut of_b = broken();
            of_b.node_uid = "uid-of-b".into();
            report(view, "b", of_b);
            report(view, "a", status("a"));
        },
        // The drive has another problem, or is not below the volume.
        |view| broken_mut(view).drives[0].reason = "MediaErrors".into(),
        |view| broken_mut(view).volumes[0].drive_ids.clear(),
        // The volume is tied to no node, or has no claim.
        |view| view.volumes.get_mut("pv1").expect("pv1").pins.clear(),
        |view| view.volumes.get_mut("pv1").expect("pv1").claim = None,
        // The report is not current.
        |view| broken_mut(view).conditions[0].status = "False".into(),
        |view| broken_mut(view).node_uid = "older".into(),
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut view = view();
        change(&mut view);
        let candidates = Timers::default().observe(&view, at(0));
        assert_eq!(candidates, [], "change {number}");
    }
}

#[test]
fn the_hold_time_begins_anew_after_any_interruption_another_boot_or_another_daemon() {
    type Change = fn(&mut View);
    let changes: &[Change] = &[
        |view| broken_mut(view).conditions[0].status = "Unknown".into(),
        |view| broken_mut(view).boot_id = "later".into(),
        |view| broken_mut(view).daemon_version = "2".into(),
        |view| broken_mut(view).drives[0].reason = "DriveMissing".into(),
        |view| {
            view.reports.remove("a");
        },
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut timers = Timers::default();
        timers.observe(&view(), at(0));
        assert_eq!(timers.observe(&view(), at(60))[0].held_since, Some(at(0)));
        let mut changed = view();
        change(&mut changed);
        timers.observe(&changed, at(61));
        let after = timers.observe(&view(), at(62));
        assert_eq!(after[0].held_since, Some(at(62)), "change {number}");
    }
}

#[test]
fn a_node_is_ready_and_a_daemon_has_its_version_since_the_controller_saw_it() {
    let mut timers = Timers::default();
    timers.observe(&view(), at(0));
    let mut unready = view();
    unready.nodes.get_mut("a").expect("a").is_ready = false;
    assert_eq!(timers.observe(&unready, at(10))[0].node_ready_since, None);
    let mut newer = view();
    broken_mut(&mut newer).daemon_version = "2".into();
    let after = timers.observe(&newer, at(20)).remove(0);
    assert_eq!(after.node_ready_since, Some(at(20)));
    assert_eq!(after.daemon_since, Some(at(20)));
}

#[test]
fn a_drive_that_another_node_lists_even_in_an_old_report_is_elsewhere() {
    let mut view = view();
    let mut of_b = status("b");
    of_b.drive_ids = vec![DRIVE.into()];
    of_b.conditions[0].status = "False".into();
    report(&mut view, "b", of_b.clone());
    let elsewhere = |view: &View| Timers::default().observe(view, at(0))[0].elsewhere.clone();
    assert_eq!(elsewhere(&view), BTreeSet::from(["b".to_owned()]));
    // An emulator's serial number is on every machine.
    let serial = "QEMU_HARDDISK_QM00001";
    of_b.drive_ids = vec![serial.into()];
    report(&mut view, "b", of_b);
    let of_a = broken_mut(&mut view);
    of_a.drives[0].id = serial.into();
    of_a.volumes[0].drive_ids = vec![serial.into()];
    assert_eq!(elsewhere(&view), BTreeSet::new());
}

#[test]
fn a_case_is_gone_by_a_complete_report_only() {
    let sighting = |view: &View| {
        let candidates = Timers::default().observe(view, at(0));
        find(view, &candidates, &action())
    };
    assert!(matches!(sighting(&view()), Sighting::Listed(_)));
    let mut well = view();
    report(&mut well, "a", status("a"));
    assert_eq!(sighting(&well), Sighting::Gone);
    let mut cut = well.clone();
    broken_mut(&mut cut).truncated.volumes = true;
    let mut silent = well.clone();
    broken_mut(&mut silent).conditions[0].status = "False".into();
    let mut absent = well.clone();
    absent.reports.remove("a");
    for view in [cut, silent, absent] {
        assert_eq!(sighting(&view), Sighting::Unknown);
    }
}

#[test]
fn a_volume_is_good_when_a_current_complete_report_of_its_node_does_not_list_it() {
    assert_eq!(volume_health(&view(), "pv1"), Health::Bad);
    let mut well = view();
    report(&mut well, "a", status("a"));
    assert_eq!(volume_health(&well, "pv1"), Health::Good);
    let mut cut = well.clone();
    broken_mut(&mut cut).truncated.drives = true;
    let mut silent = well.clone();
    broken_mut(&mut silent).conditions[0].status = "False".into();
    let mut movable = well.clone();
    movable.volumes.get_mut("pv1").expect("pv1").pins.clear();
    for view in [cut, silent, movable] {
        assert_eq!(volume_health(&view, "pv1"), Health::Unknown);
    }
    assert_eq!(volume_health(&well, "pv9"), Health::Unknown);
}
