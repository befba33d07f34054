//! When a drive's own statements stand, and how they go with the kernel's log.

use crate::model::drive::{DriveKind, Transport};
use crate::model::fixture::*;
use crate::model::ids::DriveId;
use crate::model::kernel::event::{Batch, Blame, Class, Cursor, Event};
use crate::model::observation::Observation;
use crate::model::reason::Reason;
use crate::model::report::{HiddenDrive, Report, SmartStuck, Source, SourceStatus};
use crate::model::smart::Answer;
use crate::model::smart::report::{self, Ata, Attribute, Body, Identity, WhenFailed};

use super::plain;

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

fn attribute(id: u8, name: &str, raw: u64) -> Attribute {
    Attribute {
        id,
        name: name.into(),
        value: 100,
        worst: 100,
        threshold: Some(10),
        when_failed: WhenFailed::Never,
        prefailure: true,
        raw,
        raw_text: raw.to_string(),
    }
}

fn report(serial: &str, reallocated: u64, pending: u64) -> report::Report {
    let attributes = vec![
        attribute(5, "Reallocated_Sector_Ct", reallocated),
        attribute(197, "Current_Pending_Sector", pending),
        attribute(199, "UDMA_CRC_Error_Count", 0),
    ];
    report::Report {
        smartctl: [7, 3],
        identity: Identity {
            device: "/dev/sda".into(),
            protocol: "ATA".into(),
            model: Some("Test Disk".into()),
            serial: Some(serial.into()),
            rotation_rate: Some(7200),
            in_database: Some(true),
            ..Identity::default()
        },
        passed: Some(true),
        body: Body::Ata(Ata {
            attributes,
            ..Ata::default()
        }),
        ..report::Report::default()
    }
}

fn answer(world: &mut World, answer: Answer, second: i64) {
    world.tell(
        Report::Smart {
            drive: DriveId::new("A"),
            at: at(second),
            answer: Box::new(answer),
            took: std::time::Duration::ZERO,
        },
        second,
    );
}

fn told(world: &mut World, report: report::Report, second: i64) {
    answer(world, Answer::Told(Box::new(report)), second);
}

fn failing(serial: &str) -> report::Report {
    report::Report {
        passed: Some(false),
        exit_status: 8,
        ..report(serial, 0, 0)
    }
}

#[test]
fn a_drive_that_says_it_is_failing_is_bad_and_so_is_what_stands_on_it_alone() {
    let mut world = plain();
    told(&mut world, failing("A"), 10);
    assert_eq!(
        world.raised(10),
        [
            "A SmartFailing Bad Degraded",
            "fs:u DriveFailing Bad Degraded"
        ]
    );
    let raised = world.one(Reason::SmartFailing, 11).unwrap();
    assert!(
        raised.message.starts_with("drive A (sda): "),
        "{}",
        raised.message
    );
    assert!(
        raised
            .evidence
            .iter()
            .all(|proof| proof.source == "smartctl 7.3 of /dev/sda" && proof.time == at(10))
    );
    told(&mut world, report("A", 0, 0), 700);
    assert!(world.raised(700).is_empty() && world.active.is_empty());
}

#[test]
fn a_question_that_fails_raises_nothing_and_clears_nothing() {
    let mut world = plain();
    told(&mut world, failing("A"), 10);
    world.judge(10);
    for outcome in [
        Answer::Failed {
            why: "smartctl ended by signal 11".into(),
        },
        Answer::NotApplicable {
            why: "SMART is switched off".into(),
            hint: None,
        },
    ] {
        answer(&mut world, outcome, 600);
        world.judge(600);
        assert!(
            world
                .active
                .keys()
                .any(|(_, reason)| *reason == Reason::SmartFailing)
        );
    }
    let mut healthy = plain();
    answer(
        &mut healthy,
        Answer::Failed {
            why: "half an answer".into(),
        },
        10,
    );
    assert!(healthy.raised(10).is_empty());
    let subject = crate::model::finding::Subject::Drive(DriveId::new("A"));
    let why = crate::model::assess::health_unknown(&healthy.facts, &subject);
    assert_eq!(
        why.as_deref(),
        Some("SMART: half an answer"),
        "and never reads as good"
    );
    told(&mut healthy, report("A", 0, 0), 20);
    assert_eq!(
        crate::model::assess::health_unknown(&healthy.facts, &subject),
        None
    );
}

#[test]
fn of_a_sleeping_drive_the_last_answer_stands_with_its_time_and_its_message_does_not_move() {
    let mut world = plain();
    told(&mut world, failing("A"), 10);
    answer(
        &mut world,
        Answer::Asleep {
            mode: "STANDBY".into(),
        },
        2 * HOUR,
    );
    let first = world.one(Reason::SmartFailing, 2 * HOUR).unwrap();
    assert!(
        first.message.contains(&format!("as of {}", at(10))),
        "{}",
        first.message
    );
    answer(
        &mut world,
        Answer::Asleep {
            mode: "STANDBY".into(),
        },
        DAY,
    );
    assert_eq!(
        world.one(Reason::SmartFailing, DAY).unwrap().message,
        first.message
    );
    let asleep = world.facts.smart[&DriveId::new("A")].memory.asleep_since;
    assert_eq!(asleep, Some(at(2 * HOUR)));
}

#[test]
fn no_smart_is_information_on_a_disk_and_nothing_on_what_is_none() {
    let without = || Answer::NotApplicable {
        why: "unknown USB bridge".into(),
        hint: Some("give a device type".into()),
    };
    let mut disk = plain();
    answer(&mut disk, without(), 10);
    assert_eq!(disk.raised(10), ["A SmartUnavailable Info Information"]);
    assert!(
        disk.one(Reason::SmartUnavailable, 11)
            .unwrap()
            .message
            .ends_with("unknown USB bridge; give a device type")
    );
    let mut virtual_disk = World::default().disk("sda", "8:0", "A");
    virtual_disk.inventory.drives[0].kind = DriveKind::Virtual;
    virtual_disk.read_all(0);
    answer(&mut virtual_disk, without(), 10);
    assert!(virtual_disk.raised(10).is_empty());
}

#[test]
fn a_question_that_does_not_come_back_is_a_finding_until_it_does() {
    let mut world = plain();
    let stuck = |world: &mut World, stuck, second| {
        world.tell(
            Report::SmartStuck {
                drive: DriveId::new("A"),
                stuck,
            },
            second,
        )
    };
    stuck(
        &mut world,
        Some(SmartStuck {
            since: at(5),
            waiting_in: Some("blk_execute_rq".into()),
        }),
        65,
    );
    assert_eq!(
        world.raised(65),
        [
            "A ProbeTimeout Suspect Degraded",
            "fs:u DriveFailing Suspect Degraded"
        ]
    );
    assert!(
        world
            .one(Reason::ProbeTimeout, 66)
            .unwrap()
            .message
            .contains("waiting in blk_execute_rq")
    );
    // The answer of the one that was stuck came too late for anybody; the next one counts.
    stuck(&mut world, None, 500);
    told(&mut world, report("A", 0, 0), 510);
    assert!(world.raised(510).is_empty() && world.active.is_empty());
}

#[test]
fn that_its_process_has_gone_is_no_answer_and_neither_is_a_failure() {
    let mut world = plain();
    told(&mut world, report("A", 0, 0), 1);
    let stuck = |world: &mut World, stuck, second| {
        world.tell(
            Report::SmartStuck {
                drive: DriveId::new("A"),
                stuck,
            },
            second,
        )
    };
    stuck(
        &mut world,
        Some(SmartStuck {
            since: at(5),
            waiting_in: None,
        }),
        65,
    );
    world.judge(65);
    stuck(&mut world, None, 100);
    assert_eq!(world.raised(100)[0], "A ProbeTimeout Suspect Degraded");
    answer(
        &mut world,
        Answer::Failed {
            why: "the device is offline".into(),
        },
        200,
    );
    world.judge(200);
    assert!(
        world
            .active
            .keys()
            .any(|(_, reason)| *reason == Reason::ProbeTimeout)
    );
    told(&mut world, report("A", 0, 0), 300);
    assert!(world.raised(300).is_empty() && world.active.is_empty());
}

#[test]
fn a_drive_that_is_not_to_be_asked_has_no_say_any_more() {
    let mut world = plain();
    told(&mut world, failing("A"), 10);
    world.judge(10);
    world.tell(Report::SmartIgnored(vec![DriveId::new("A")]), 20);
    assert!(world.raised(20).is_empty() && world.active.is_empty());
    world.tell(Report::SmartIgnored(Vec::new()), 30);
    assert!(world.facts.smart.is_empty());
    told(&mut world, failing("A"), 40);
    assert_eq!(world.raised(40)[0], "A SmartFailing Bad Degraded");
}

#[test]
fn damaged_transfers_say_cable_and_not_drive() {
    let mut world = plain();
    let crc = |count| {
        let mut report = report("A", 0, 0);
        if let Body::Ata(ata) = &mut report.body {
            ata.attributes.retain(|attribute| attribute.id != 199);
            ata.attributes
                .push(attribute(199, "UDMA_CRC_Error_Count", count));
        }
        report
    };
    for episode in 0..5 {
        log_says(
            &mut world,
            Event {
                seq: episode + 1,
                ..event(Class::Timeout, "sda", at(episode as i64 * HOUR), &[])
            },
            episode as i64 * HOUR,
        );
    }
    assert_eq!(world.raised(5 * HOUR)[0], "A IoTimeouts Bad Degraded");
    told(&mut world, crc(2), 5 * HOUR);
    told(&mut world, crc(40), 6 * HOUR);
    told(&mut world, crc(90), 8 * HOUR);
    let raised = world.raised(8 * HOUR);
    assert!(
        raised.contains(&"A LinkErrors Suspect Degraded".to_owned())
            && raised.contains(&"A IoTimeouts Suspect Degraded".to_owned()),
        "{raised:?}"
    );
}

#[test]
fn every_reason_that_a_report_can_give_is_judged() {
    for rule in crate::model::smart::rules::RULES {
        assert!(
            crate::model::assess::smart::REASONS.contains(&rule.reason),
            "{:?}",
            rule.reason
        );
    }
}

#[test]
fn so_is_one_that_had_to_be_killed_and_it_stays_until_an_answer_comes() {
    let mut world = plain();
    answer(
        &mut world,
        Answer::TimedOut {
            why: "smartctl has not ended after 60s and was killed".into(),
        },
        60,
    );
    assert_eq!(world.raised(60)[0], "A ProbeTimeout Suspect Degraded");
    answer(
        &mut world,
        Answer::TimedOut {
            why: "smartctl has not ended after 60s and was killed".into(),
        },
        600,
    );
    assert_eq!(world.raised(600)[0], "A ProbeTimeout Suspect Degraded");
    answer(
        &mut world,
        Answer::Asleep {
            mode: "STANDBY".into(),
        },
        700,
    );
    assert!(world.raised(700).is_empty());
}

fn log_says(world: &mut World, event: Event, second: i64) {
    let cursor = Cursor {
        boot_id: "b".into(),
        counted_to: Some(event.seq),
        reread_from: 0,
        lost: 0,
    };
    world.tell(
        Report::KernelLog(Batch {
            cursor,
            events: vec![event],
            attached: Vec::new(),
            refused: Vec::new(),
            history: false,
        }),
        second,
    );
}

#[test]
fn the_log_and_the_drive_are_two_witnesses_of_one_thing() {
    let mut world = plain();
    log_says(
        &mut world,
        Event {
            blame: Blame::Yes,
            ..event(Class::Medium, "sda", at(10), &[5000])
        },
        10,
    );
    let mut uncorrected = report("A", 0, 0);
    if let Body::Ata(ata) = &mut uncorrected.body {
        ata.attributes.push(attribute(187, "Reported_Uncorrect", 3));
    }
    told(&mut world, uncorrected, 20);
    let both = world.one(Reason::MediaErrors, 20).unwrap();
    let sources: Vec<&str> = both
        .evidence
        .iter()
        .map(|proof| proof.source.as_str())
        .collect();
    assert!(
        sources.contains(&"kernel log") && sources.contains(&"smartctl 7.3 of /dev/sda"),
        "{sources:?}"
    );
    assert!(both.clears_when.contains("; and "), "{}", both.clears_when);
    // A day of quiet in the log does not take back what the drive goes on saying.
    world.tell(
        Report::Source {
            source: Source::KernelLog,
            status: SourceStatus::Active(String::new()),
        },
        DAY,
    );
    let drives = world.one(Reason::MediaErrors, 2 * DAY).unwrap();
    assert!(
        drives
            .evidence
            .iter()
            .all(|proof| proof.source != "kernel log")
    );
}

#[test]
fn a_failed_question_does_not_keep_alive_what_only_the_log_has_said() {
    let mut world = plain();
    told(&mut world, report("A", 0, 0), 5);
    log_says(
        &mut world,
        Event {
            blame: Blame::Yes,
            ..event(Class::Medium, "sda", at(10), &[5000])
        },
        10,
    );
    answer(
        &mut world,
        Answer::Failed {
            why: "no answer".into(),
        },
        20,
    );
    assert!(world.one(Reason::MediaErrors, 20).is_some());
    world.tell(
        Report::Source {
            source: Source::KernelLog,
            status: SourceStatus::Active(String::new()),
        },
        DAY,
    );
    assert!(world.one(Reason::MediaErrors, 2 * DAY).is_none());
    assert!(world.active.is_empty(), "{:?}", world.active);
}

fn hidden(slot: &str, serial: &str) -> HiddenDrive {
    let mut facts = drive(&format!("{slot}@host0"), "0:0", serial);
    facts.devices.clear();
    facts.transport = Transport::Sas;
    facts.location.slot = Some(slot.into());
    HiddenDrive {
        facts,
        device: "/dev/bus/0".into(),
        device_type: slot.into(),
    }
}

fn list(world: &mut World, drives: Observation<Vec<HiddenDrive>>, second: i64) {
    world.tell(
        Report::Hidden {
            controller: "megaraid host0".into(),
            drives,
        },
        second,
    );
}

/// A volume on a logical disk of a controller.
fn raid() -> World {
    let mut world = plain();
    world.inventory.drives[0].transport = Transport::Raid;
    world.inventory.drives[0].location.hctl = Some("0:2:0:0".into());
    world.scan(2);
    world
}

#[test]
fn each_disk_behind_a_controller_is_a_drive_that_is_asked_in_its_own_way() {
    let mut world = raid();
    list(
        &mut world,
        Observation::ok(
            at(3),
            vec![hidden("megaraid,0", "H0"), hidden("megaraid,1", "H1")],
        ),
        3,
    );
    let targets = world.facts.smart_targets(&|_| false);
    let asked: Vec<(String, String, Option<&str>)> = targets
        .iter()
        .map(|target| {
            (
                target.drive.to_string(),
                target.device.to_string(),
                target.device_type.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        asked,
        [
            ("H0".into(), "/dev/bus/0".into(), Some("megaraid,0")),
            ("H1".into(), "/dev/bus/0".into(), Some("megaraid,1"))
        ],
        "the logical disk itself is not asked"
    );
    let answer = Box::new(Answer::Told(Box::new(failing("H1"))));
    world.tell(
        Report::Smart {
            drive: DriveId::new("H1"),
            at: at(4),
            answer,
            took: std::time::Duration::ZERO,
        },
        4,
    );
    assert_eq!(
        world.raised(4),
        [
            "H1 SmartFailing Bad Degraded",
            "fs:u DriveFailing Suspect Degraded"
        ],
        "its redundancy is the controller's"
    );
    assert!(
        world
            .one(Reason::DriveFailing, 5)
            .unwrap()
            .message
            .contains("behind megaraid host0")
    );
}

#[test]
fn a_disk_that_the_controller_passes_through_is_one_drive() {
    let mut world = plain();
    let mut same = hidden("megaraid,0", "A");
    same.facts.id = DriveId::new("other-name");
    let mut louder = hidden("megaraid,1", "B");
    louder.facts.model = Some("ATA Test Disk".into());
    world.plug("sdb", "8:16", "B");
    world.scan(2);
    list(
        &mut world,
        Observation::ok(
            at(3),
            vec![
                same,
                louder,
                hidden("megaraid,2", "C"),
                hidden("megaraid,3", "C"),
            ],
        ),
        3,
    );
    let ids: Vec<String> = world.facts.drives.keys().map(ToString::to_string).collect();
    assert_eq!(ids, ["A", "B", "C"]);
}

#[test]
fn a_hidden_drive_is_missing_when_its_controller_says_so_and_not_before_it_is_asked() {
    let mut world = raid();
    list(
        &mut world,
        Observation::ok(
            at(3),
            vec![hidden("megaraid,0", "H0"), hidden("megaraid,1", "H1")],
        ),
        3,
    );
    list(&mut world, Observation::failed(at(5), "no answer"), 5);
    world.scan(6);
    assert!(
        world.raised(6).is_empty(),
        "a list that failed takes nothing out"
    );
    let subject = crate::model::finding::Subject::Drive(DriveId::new("H0"));
    let why = crate::model::assess::health_unknown(&world.facts, &subject);
    assert_eq!(
        why.as_deref(),
        Some("megaraid host0 does not list its drives: no answer")
    );
    // After a restart the store remembers the drives, and the controller has not been asked yet.
    let mut again = raid();
    again.facts.drives.extend(world.facts.drives.clone());
    again.plug("sdz", "8:240", "Z");
    again.scan(7);
    assert!(again.raised(7).is_empty());
    again.tell(Report::Controllers(Vec::new()), 8);
    assert_eq!(
        again.raised(8).len(),
        3,
        "the controller itself is gone: {:?}",
        again.raised(8)
    );
    list(
        &mut world,
        Observation::ok(at(8), vec![hidden("megaraid,0", "H0")]),
        8,
    );
    assert_eq!(
        world.raised(8)[0],
        "H1 DriveMissing Suspect Degraded",
        "a member or a spare: the controller knows"
    );
    list(
        &mut world,
        Observation::ok(
            at(9),
            vec![hidden("megaraid,0", "H0"), hidden("megaraid,1", "NEW")],
        ),
        9,
    );
    assert_eq!(
        world.raised(9),
        ["H1 DriveMissing Info Information"],
        "another drive in its place is its replacement"
    );
}

#[test]
fn what_stands_behind_a_network_or_a_hypervisors_bus_is_never_asked() {
    for (transport, asked) in [
        (Transport::Sata, true),
        (Transport::Sas, true),
        (Transport::Nvme, true),
        (Transport::Usb, true),
        (Transport::Virtio, false),
        (Transport::Iscsi, false),
        (Transport::NvmeFabrics, false),
        (Transport::Loop, false),
        (Transport::Raid, false),
        (Transport::Mmc, false),
    ] {
        let mut world = World::default().disk("sda", "8:0", "A");
        world.inventory.drives[0].transport = transport;
        world.read_all(0);
        assert_eq!(
            !world.facts.smart_targets(&|_| false).is_empty(),
            asked,
            "{transport:?}"
        );
    }
}

#[test]
fn an_answer_as_before_is_no_news_though_it_is_warmer() {
    use crate::model::facts::Change;
    let mut world = plain();
    let mut tell = |report: report::Report, second| {
        let answer = Box::new(Answer::Told(Box::new(report)));
        world.tell(
            Report::Smart {
                drive: DriveId::new("A"),
                at: at(second),
                answer,
                took: std::time::Duration::ZERO,
            },
            second,
        )
    };
    let warm = |celsius| report::Report {
        temperature: Some(celsius),
        power_on_hours: Some(celsius as u64),
        ..report("A", 4, 0)
    };
    assert_eq!(tell(warm(30), 10), Change::Material);
    assert_eq!(tell(warm(31), 700), Change::Figures);
    assert_eq!(
        tell(
            report::Report {
                temperature: Some(31),
                ..report("A", 5, 0)
            },
            1400
        ),
        Change::Material
    );
}

#[test]
fn an_nvme_drive_is_asked_through_its_controller_and_errors_make_it_urgent() {
    let mut world = World::default().disk("nvme0n1", "259:0", "A");
    world.inventory.drives[0].transport = Transport::Nvme;
    world.inventory.drives[0].location.controllers = vec!["nvme0".into()];
    world.read_all(0);
    let target = |world: &World| world.facts.smart_targets(&|_| true).remove(0);
    assert_eq!(
        (
            target(&world).device.to_string(),
            target(&world).errors,
            target(&world).suspect
        ),
        ("/dev/nvme0".into(), 0, true)
    );
    log_says(&mut world, event(Class::Timeout, "nvme0n1", at(1), &[]), 1);
    assert_eq!(target(&world).errors, 1);
    world.pull("nvme0n1");
    world.scan(2);
    assert!(
        world.facts.smart_targets(&|_| false).is_empty(),
        "a missing drive is not asked"
    );
}
