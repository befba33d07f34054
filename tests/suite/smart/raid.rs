//! Drives that only a RAID controller can list: each is listed once with its slot, even if several
//! device paths reach it.

use serde_json::Value;

use super::host::{Daemon, Host, OFTEN, SOON, controller, evidence, sas, state};
use crate::smartctl::{Ata, Scsi};

/// The firmware's numbers of the disks; a backplane's numbers have gaps.
const PLACES: [u32; 8] = [0, 1, 2, 3, 8, 9, 10, 11];
/// The disk that the controller also passes through: `sdb`.
const PASSED_THROUGH: u32 = 11;
const FAILING: u32 = 9;

fn disk(place: u32) -> Scsi {
    match place {
        PASSED_THROUGH => sas(),
        _ => Scsi::new(&format!("MR7{place:05}"), 0x5000_c500_b000_0000 + u64::from(place)),
    }
}

fn device(place: u32) -> String {
    format!("/dev/bus/9.megaraid,{place}")
}

fn host() -> Host {
    let host = Host::new(OFTEN);
    controller(&host.root(), 9, "megaraid_sas");
    for place in PLACES {
        host.smartctl.set_response(&device(place), &disk(place).response()).expect("written");
    }
    // One of the disks is a SATA disk behind the controller.
    host.smartctl
        .set_response(
            &device(2),
            &Ata { model: "RECORDED SATA".into(), ..Ata::new("MR700002", 0xb000_0002) }.response(),
        )
        .expect("written");
    host
}

fn behind(daemon: &Daemon) -> Vec<Value> {
    let drives = daemon.ask(&["drives"]).unwrap_or_default()["drives"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    drives
        .into_iter()
        .filter(|drive| drive["serial"].as_str().is_some_and(|serial| serial.starts_with("MR7")))
        .collect()
}

#[test]
fn every_disk_behind_a_controller_is_a_drive_with_its_slot_and_is_judged() {
    let host = host();
    host.smartctl
        .set_response(
            &device(FAILING),
            &Scsi { exception: Some((0x5d, 0x10)), ..disk(FAILING) }.response(),
        )
        .expect("written");
    let daemon = host.started();
    let drives = daemon.until("seven disks have answered behind the controller", |daemon| {
        let drives = behind(daemon);
        (drives.len() == 7 && drives.iter().all(|drive| state(drive, "STATE_ANSWERED").is_some()))
            .then_some(drives)
    });
    for place in PLACES.into_iter().filter(|place| *place != PASSED_THROUGH) {
        let slot = format!("megaraid,{place}");
        let drive = drives
            .iter()
            .find(|drive| drive["location"]["slot"] == slot.as_str())
            .unwrap_or_else(|| panic!("no {slot}: {drives:#?}"));
        let health = if place == FAILING { "HEALTH_BAD" } else { "HEALTH_GOOD" };
        assert_eq!(drive["health"], health, "{drive:#}");
        assert_eq!(drive["presence"], "PRESENCE_PRESENT");
    }
    let failing = daemon.until("the failing one is told", |daemon| {
        daemon.finding(&format!("MR7{FAILING:05}"), "SmartFailing")
    });
    assert!(evidence(&failing).contains("5d"), "{failing:#}");

    // The passed-through disk is the same drive as the kernel's device.
    let all =
        daemon.ask(&["drives"]).expect("drives")["drives"].as_array().cloned().expect("a list");
    assert_eq!(
        all.iter().filter(|drive| drive["serial"] == "ZL200001").count(),
        1,
        "one drive, two ways to it"
    );
    assert_eq!(all.len(), 10, "three of the host's and seven behind the controller");
}

fn wait_for_seven_answers(daemon: &Daemon) {
    daemon.until("seven disks have answered", |daemon| {
        let drives = behind(daemon);
        let answered = drives.iter().filter(|drive| state(drive, "STATE_ANSWERED").is_some());
        answered.count() == 7
    });
}

#[test]
fn a_hung_disk_behind_a_controller_delays_no_other() {
    let host = host();
    let daemon = host.started();
    wait_for_seven_answers(&daemon);
    host.smartctl.set_behavior(&device(FAILING), "hang").expect("written");
    for place in [0, 1, 3, 8, 10] {
        host.smartctl
            .set_response(&device(place), &Scsi { temperature: 44, ..disk(place) }.response())
            .expect("written");
    }
    daemon.until("the others have answered", |daemon| {
        behind(daemon).iter().filter(|drive| drive["smart"]["temperatureCelsius"] == 44).count()
            == 5
    });
    let drives = behind(&daemon);
    assert_eq!(drives.len(), 7, "a disk that hangs is not gone");
    assert!(
        drives.iter().all(|drive| drive["findings"].as_array().is_some_and(Vec::is_empty)),
        "{drives:#?}"
    );
}

#[test]
fn a_disk_that_is_pulled_from_behind_a_controller_is_missing() {
    let host = host();
    let daemon = host.started();
    wait_for_seven_answers(&daemon);
    let folder = host.smartctl.program().parent().expect("a folder").join("dev/bus");
    std::fs::remove_file(folder.join("9.megaraid,8.json")).expect("removed");
    daemon.ask(&["refresh"]).expect("asked");
    daemon.within(4 * SOON, "it is missed, and the others are there", |daemon| {
        let drives = behind(daemon);
        let missing = |drive: &&Value| drive["presence"] == "PRESENCE_MISSING";
        let gone: Vec<&Value> = drives.iter().filter(missing).collect();
        gone.len() == 1 && gone[0]["serial"] == "MR700008" && drives.len() == 7
    });
}
