//! Disks behind RAID controllers.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::fake::{DriveBehavior, FakeState, Lab, healthy, lab_with, settings, target};
use crate::smart::controllers::{Controller, ControllerKind};
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::path::HostPath;
use diskvitals_model::drive::{DriveKind, Transport};
use diskvitals_model::raid_report::RaidFamily;
use diskvitals_model::source_update::{
    RaidMemberDrive, SmartTarget, SourceRequest, SourceStatus, SourceUpdate,
};

fn controller(kind: ControllerKind, host: u32, device: &str, places: u32) -> Controller {
    Controller {
        kind,
        host,
        device: Some(HostPath::new(device)),
        device_error: None,
        pci: Some(format!("0000:0{host}:00.0")),
        slot_groups: vec![(0..places).map(|id| format!("{},{id}", kind.name())).collect()],
        devices: Vec::new(),
    }
}

fn disk(id: u32) -> DriveBehavior {
    let mut answer = healthy(&format!("PD{id}"));
    answer["wwn"] = json!({"naa": 5, "oui": 3152, "id": 7_000_000 + id});
    DriveBehavior::Json(answer, 0)
}

/// A controller with disks 0 to 7.
fn eight(state: &mut FakeState) {
    state.controllers = vec![controller(ControllerKind::Megaraid, 0, "/dev/bus/0", 128)];
    for id in 0..8 {
        state.drives.insert(format!("/dev/bus/0 megaraid,{id}"), disk(id));
    }
}

fn hidden(lab: &mut Lab, controller: &str) -> Vec<Observation<Vec<RaidMemberDrive>>> {
    let of = |report| match report {
        SourceUpdate::RaidMembers { controller: name, drives } if name == controller => {
            Some(drives)
        }
        _ => None,
    };
    lab.reported().into_iter().filter_map(of).collect()
}

fn places(drives: &Observation<Vec<RaidMemberDrive>>) -> Vec<&str> {
    let mut places: Vec<&str> =
        drives.value().expect("a list").iter().map(|drive| drive.device_type.as_str()).collect();
    places.sort_unstable();
    places
}

fn lab(prepare: impl FnOnce(&mut FakeState)) -> Lab {
    lab_with(&[], Vec::new(), settings(), prepare)
}

#[tokio::test(start_paused = true)]
async fn each_disk_is_a_drive_with_its_slot_and_identity() {
    let mut lab = lab(eight);
    lab.pass(5).await;
    let told = hidden(&mut lab, "megaraid host0");
    let drives = told[0].value().expect("a list");
    assert_eq!(drives.len(), 8);
    let third = drives.iter().find(|drive| drive.device_type == "megaraid,3").expect("there");
    assert_eq!(third.device, HostPath::new("/dev/bus/0"));
    assert_eq!(third.facts.id, DriveId::known("naa.5000c500006acfc3"));
    assert_eq!(
        (third.facts.name.as_str(), third.facts.location.slot.as_deref()),
        ("megaraid,3@host0", Some("megaraid,3"))
    );
    assert_eq!(
        (third.facts.transport, third.facts.kind, third.facts.size_bytes),
        (Transport::Sata, DriveKind::Hdd, 4096)
    );
    assert!(third.facts.id_stable && third.facts.devices.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_times_out_keeps_its_disk_and_does_not_affect_others() {
    let mut lab = lab(|state| {
        eight(state);
        state.drives.insert("/dev/bus/0 megaraid,5".into(), DriveBehavior::Hangs);
    });
    lab.pass(30).await;
    let told = hidden(&mut lab, "megaraid host0");
    assert_eq!(
        places(&told[0]),
        [
            "megaraid,0",
            "megaraid,1",
            "megaraid,2",
            "megaraid,3",
            "megaraid,4",
            "megaraid,6",
            "megaraid,7"
        ]
    );
    lab.set("bus/0 megaraid,5", disk(5));
    lab.pass(86500).await;
    assert_eq!(places(&hidden(&mut lab, "megaraid host0")[0]).len(), 8);
    lab.set("bus/0 megaraid,5", DriveBehavior::Unkillable);
    lab.pass(86500).await;
    assert_eq!(places(&hidden(&mut lab, "megaraid host0")[0]).len(), 8);
    // It is left alone for as long as that hangs.
    lab.pass(86500).await;
    assert_eq!(places(&hidden(&mut lab, "megaraid host0")[0]).len(), 8);
    assert_eq!(lab.state(|state| state.held.len()), 1);
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_hangs_stalls_itself_only_and_nothing_of_it_is_lost() {
    let mut lab = lab(|state| {
        eight(state);
        state.controllers.push(controller(ControllerKind::Cciss, 1, "/dev/sg4", 128));
        state.drives.insert("/dev/sg4".into(), DriveBehavior::Hangs);
    });
    lab.pass(1).await;
    assert_eq!(places(&hidden(&mut lab, "megaraid host0")[0]).len(), 8);
    lab.pass(100).await;
    let reports = lab.reported();
    let failed = |report: &SourceUpdate| matches!(report, SourceUpdate::RaidMembers { controller, drives: Observation::Failed { .. } } if controller == "cciss host1");
    assert!(reports.iter().any(failed));
    let limited = |report: &SourceUpdate| matches!(report, SourceUpdate::Source { status: SourceStatus::Limited(why), .. } if why.contains("cciss host1: 3 places have not answered within 20 s"));
    assert!(reports.iter().any(limited));
}

#[tokio::test(start_paused = true)]
async fn an_unopenable_controller_is_a_failure_not_an_empty_list() {
    let closed = json!({
        "json_format_version": [1, 0],
        "smartctl": {"version": [7, 3], "exit_status": 2, "messages": [
            {"string": "Smartctl open device: /dev/bus/0 [megaraid_disk_00] failed: cannot open /dev/megaraid_sas_ioctl_node or /dev/megadev0", "severity": "error"}]},
    });
    let mut lab = lab(|state| {
        eight(state);
        state.drives.clear();
        state.drives.insert("/dev/bus/0".into(), DriveBehavior::Json(closed, 2));
    });
    lab.pass(5).await;
    let told = hidden(&mut lab, "megaraid host0");
    assert!(
        told[0].error().is_some_and(|why| why.contains("cannot open /dev/megaraid_sas_ioctl_node")),
        "{told:?}"
    );
    assert_eq!(lab.state(|state| state.runs.len()), 1);
}

#[tokio::test(start_paused = true)]
async fn one_removed_disk_is_reported_but_all_at_once_are_not_believed() {
    let mut lab = lab(eight);
    lab.pass(5).await;
    lab.state(|state| state.drives.remove("/dev/bus/0 megaraid,2"));
    lab.pass(86400 + 200).await;
    assert_eq!(places(hidden(&mut lab, "megaraid host0").last().expect("told")).len(), 7);
    lab.state(|state| state.drives.clear());
    lab.pass(86400).await;
    assert!(
        hidden(&mut lab, "megaraid host0")
            .last()
            .expect("told")
            .error()
            .is_some_and(|why| why.contains("none of its 7 disks answers"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_hosts_scsi_devices_triggers_enumeration() {
    let mut lab = lab(eight);
    lab.pass(5).await;
    let runs = lab.state(|state| state.runs.len());
    lab.ask(SourceRequest::Inventory);
    lab.pass(5).await;
    assert_eq!(lab.state(|state| state.runs.len()), runs);
    lab.state(|state| {
        state.drives.insert("/dev/bus/0 megaraid,40".into(), disk(40));
        state.controllers[0].devices.push("0:2:1:0".into());
    });
    lab.ask(SourceRequest::Inventory);
    lab.pass(5).await;
    assert_eq!(places(hidden(&mut lab, "megaraid host0").last().expect("told")).len(), 9);
    lab.state(|state| state.controllers.clear());
    lab.ask(SourceRequest::Inventory);
    lab.pass(5).await;
    assert_eq!(
        hidden(&mut lab, "megaraid host0").last().and_then(Observation::value),
        Some(&Vec::new())
    );
}

#[tokio::test(start_paused = true)]
async fn dense_numbers_are_not_asked_to_their_end() {
    let mut lab = lab(|state| {
        state.controllers = vec![controller(ControllerKind::Cciss, 1, "/dev/sg4", 128)];
        for id in [0, 1, 2, 5] {
            state.drives.insert(format!("/dev/sg4 cciss,{id}"), disk(id));
        }
    });
    lab.pass(5).await;
    assert_eq!(
        places(&hidden(&mut lab, "cciss host1")[0]),
        ["cciss,0", "cciss,1", "cciss,2", "cciss,5"]
    );
    assert_eq!(lab.state(|state| state.runs.len()), 6 + 8);
}

#[tokio::test(start_paused = true)]
async fn a_raid_member_is_queried_by_slot_and_a_failure_triggers_enumeration() {
    let third = SmartTarget {
        device: HostPath::new("/dev/bus/0"),
        device_type: Some("megaraid,3".into()),
        serial: Some("PD3".into()),
        ..target("pd3")
    };
    let mut lab = lab_with(&[], vec![third], settings(), eight);
    lab.pass(5).await;
    let asked = |lab: &Lab| {
        lab.arguments("bus/0")
            .iter()
            .filter(|arguments| arguments.contains("-x -d megaraid,3 /dev/bus/0"))
            .count()
    };
    assert_eq!(asked(&lab), 1);
    lab.state(|state| state.drives.remove("/dev/bus/0 megaraid,3"));
    lab.pass(1300).await;
    assert_eq!(places(hidden(&mut lab, "megaraid host0").last().expect("told")).len(), 7);
}

#[tokio::test(start_paused = true)]
async fn areca_disks_are_queried_sequentially() {
    let slow =
        |id: u32| DriveBehavior::Delayed(Duration::from_secs(2), healthy(&format!("PD{id}")));
    let target_of = |id: u32| SmartTarget {
        device: HostPath::new("/dev/sg2"),
        device_type: Some(format!("areca,{id}")),
        serial: None,
        ..target(&format!("pd{id}"))
    };
    let lab = lab_with(&[], vec![target_of(1), target_of(2)], settings(), |state| {
        for id in 1..3 {
            state.drives.insert(format!("/dev/sg2 areca,{id}"), slow(id));
        }
    });
    lab.pass(10).await;
    assert_eq!(lab.state(|state| state.most_running), 1);
    assert_eq!(lab.starts("sg2"), [0, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_slot_reported_empty_up_to_three_times_keeps_its_disk_and_a_removal_is_verified() {
    let mut lab = lab(eight);
    lab.pass(5).await;
    lab.reported();
    lab.state(|state| state.drives.remove("/dev/bus/0 megaraid,2"));
    lab.ask(SourceRequest::All);
    lab.pass(30).await;
    lab.set("bus/0 megaraid,2", disk(2));
    lab.pass(300).await;
    let told = hidden(&mut lab, "megaraid host0");
    assert!(told.iter().all(|told| places(told).len() == 8), "{told:?}");
    let asked = |lab: &Lab| {
        lab.arguments("bus/0")
            .iter()
            .filter(|arguments| arguments.ends_with("megaraid,2 /dev/bus/0"))
            .count()
    };
    let before = asked(&lab);
    // Now it has gone.
    lab.state(|state| state.drives.remove("/dev/bus/0 megaraid,2"));
    lab.ask(SourceRequest::All);
    lab.pass(170).await;
    assert!(hidden(&mut lab, "megaraid host0").iter().all(|told| places(told).len() == 8));
    lab.pass(20).await;
    assert_eq!(places(hidden(&mut lab, "megaraid host0").last().expect("told")).len(), 7);
    assert_eq!(asked(&lab), before + 4);
    // And was only slow to come back.
    lab.set("bus/0 megaraid,2", disk(2));
    lab.pass(610).await;
    assert_eq!(places(hidden(&mut lab, "megaraid host0").last().expect("told")).len(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_slot_with_a_running_or_stuck_query_is_not_enumerated() {
    let third = SmartTarget {
        device: HostPath::new("/dev/bus/0"),
        device_type: Some("megaraid,3".into()),
        serial: Some("PD3".into()),
        ..target("pd3")
    };
    let mut lab = lab_with(&[], vec![third], settings(), eight);
    lab.pass(5).await;
    lab.reported();
    lab.set("bus/0 megaraid,3", DriveBehavior::Unkillable);
    lab.pass(800).await;
    let at_third = |lab: &Lab| {
        lab.arguments("bus/0")
            .iter()
            .filter(|arguments| arguments.ends_with("megaraid,3 /dev/bus/0"))
            .count()
    };
    let before = at_third(&lab);
    for _ in 0..5 {
        lab.ask(SourceRequest::All);
        lab.pass(60).await;
    }
    assert_eq!((at_third(&lab), lab.state(|state| state.held.len())), (before, 1));
    let told = hidden(&mut lab, "megaraid host0");
    assert!(told.len() >= 5 && told.iter().all(|told| places(told).len() == 8), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_known_disk_stuck_during_enumeration_is_not_queried_until_the_process_exits() {
    let third = SmartTarget {
        device: HostPath::new("/dev/bus/0"),
        device_type: Some("megaraid,3".into()),
        serial: Some("PD3".into()),
        ..target("pd3")
    };
    let mut lab = lab_with(&[], vec![third], settings(), eight);
    lab.pass(100).await;
    lab.reported();
    lab.set("bus/0 megaraid,3", DriveBehavior::Unkillable);
    // The controller has a new device: who is there?
    lab.state(|state| state.controllers[0].devices.push("0:2:1:0".into()));
    lab.ask(SourceRequest::Inventory);
    lab.pass(3600).await;
    let stuck = |reports: Vec<SourceUpdate>| -> Vec<bool> {
        let of = |report| match report {
            SourceUpdate::SmartStuck { stuck, .. } => Some(stuck.is_some()),
            _ => None,
        };
        reports.into_iter().filter_map(of).collect()
    };
    assert_eq!(stuck(lab.reported()), [true]);
    assert_eq!(lab.state(|state| state.held.len()), 1);
    lab.set("bus/0 megaraid,3", disk(3));
    lab.state(|state| state.held.clear());
    lab.pass(1300).await;
    let reports = lab.reported();
    assert!(
        reports
            .iter()
            .any(|report| matches!(report, SourceUpdate::Smart { response, .. } if matches!(**response, diskvitals_smart::SmartResponse::Report(_))))
    );
    assert_eq!(stuck(reports), [false]);
}

#[tokio::test(start_paused = true)]
async fn the_controller_list_is_reported_at_start_and_when_it_changes() {
    let controllers = |lab: &mut Lab| -> Vec<Vec<String>> {
        let of = |report| match report {
            SourceUpdate::RaidControllers(names) => Some(names),
            _ => None,
        };
        lab.reported().into_iter().filter_map(of).collect()
    };
    let mut none = lab(|_| {});
    none.pass(3600).await;
    assert_eq!(controllers(&mut none), [Vec::<String>::new()]);
    let mut lab = lab(eight);
    lab.pass(3600).await;
    assert_eq!(controllers(&mut lab), [["megaraid host0"]]);
    lab.state(|state| state.controllers.clear());
    lab.pass(3600).await;
    assert_eq!(controllers(&mut lab), [Vec::<String>::new()]);
}

#[tokio::test(start_paused = true)]
async fn a_controllers_tool_is_tried_where_the_owner_wants_it_and_drives_are_asked_again_after_it()
{
    let mut lab = lab(eight);
    let answers = |lab: &mut Lab| {
        let is_its = |report: &SourceUpdate| matches!(report, SourceUpdate::RaidReports { .. });
        lab.reported().into_iter().filter(is_its).collect::<Vec<_>>()
    };
    lab.pass(3600).await;
    assert!(answers(&mut lab).is_empty());
    lab.raid_tools.send_replace(Arc::new([(RaidFamily::MegaRaid, None)].into()));
    lab.pass(10).await;
    // Its directory cannot be created here.
    let answers = answers(&mut lab);
    assert!(matches!(
        answers[..],
        [SourceUpdate::RaidReports { reports: Observation::Failed { .. }, .. }]
    ));
    lab.pass(1200).await;
    let is_query = |report: &SourceUpdate| matches!(report, SourceUpdate::RaidMembers { .. });
    lab.requests.send(SourceRequest::All).unwrap();
    lab.pass(100).await;
    assert!(lab.reported().iter().any(is_query));
}
