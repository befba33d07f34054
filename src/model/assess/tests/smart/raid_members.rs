//! Drives behind RAID controllers, and which drives smartctl queries.

use super::*;

fn raid_member(slot: &str, serial: &str) -> RaidMemberDrive {
    let mut facts = drive(&format!("{slot}@host0"), "0:0", serial);
    facts.devices.clear();
    facts.transport = Transport::Sas;
    facts.location.slot = Some(slot.into());
    RaidMemberDrive { facts, device: "/dev/bus/0".into(), device_type: slot.into() }
}

fn list_raid_members(host: &mut TestHost, drives: Observation<Vec<RaidMemberDrive>>, second: i64) {
    host.apply(SourceUpdate::RaidMembers { controller: "megaraid host0".into(), drives }, second);
}

/// A volume on a logical disk of a controller.
fn raid() -> TestHost {
    let mut host = plain();
    host.inventory.drives[0].transport = Transport::Raid;
    host.inventory.drives[0].location.hctl = Some("0:2:0:0".into());
    host.scan(2);
    host
}

#[test]
fn each_raid_member_is_a_drive_with_its_own_smartctl_device_type() {
    let mut host = raid();
    list_raid_members(
        &mut host,
        Observation::ok(
            at(3),
            vec![raid_member("megaraid,0", "H0"), raid_member("megaraid,1", "H1")],
        ),
        3,
    );
    let targets = host.facts.smart_targets(&|_| false);
    let asked: Vec<(String, String, Option<&str>)> = targets
        .iter()
        .map(|target| {
            (target.drive.to_string(), target.device.to_string(), target.device_type.as_deref())
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
    let answer = Box::new(SmartResponse::Report(Box::new(failing("H1"))));
    host.apply(
        SourceUpdate::Smart {
            drive: DriveId::new("H1"),
            at: at(4),
            response: answer,
            duration: std::time::Duration::ZERO,
        },
        4,
    );
    assert_eq!(
        host.raised(4),
        ["H1 SmartFailing Bad Degraded", "fs:u DriveFailing Suspect Degraded"],
        "its redundancy is the controller's"
    );
    assert!(
        host.raised_for(Reason::DriveFailing, 5).unwrap().message.contains("behind megaraid host0")
    );
}

#[test]
fn a_disk_that_the_controller_passes_through_is_one_drive() {
    let mut host = plain();
    let mut same = raid_member("megaraid,0", "A");
    same.facts.id = DriveId::new("other-name");
    let mut louder = raid_member("megaraid,1", "B");
    louder.facts.model = Some("ATA Test Disk".into());
    host.plug("sdb", "8:16", "B");
    host.scan(2);
    list_raid_members(
        &mut host,
        Observation::ok(at(3), vec![same, louder, raid_member("megaraid,2", "C")]),
        3,
    );
    let ids = |host: &TestHost| -> Vec<String> {
        let ids = host.facts.drives.keys();
        ids.map(ToString::to_string).collect()
    };
    assert_eq!(ids(&host), ["A", "B", "C"]);
    // A second disk that calls itself as the first does, in another slot of the controller.
    let both = ["megaraid,2", "megaraid,3"].map(|slot| raid_member(slot, "C"));
    list_raid_members(&mut host, Observation::ok(at(4), both.into()), 4);
    assert_eq!(ids(&host), ["A", "B", "C", "path:megaraid_x2c3_x40host0"]);
    let raised = host.raised(5);
    assert_eq!(raised, ["path:megaraid_x2c3_x40host0 DuplicateIdentity Info Information"]);
}

#[test]
fn a_raid_member_is_missing_only_after_its_controller_was_listed() {
    let mut host = raid();
    list_raid_members(
        &mut host,
        Observation::ok(
            at(3),
            vec![raid_member("megaraid,0", "H0"), raid_member("megaraid,1", "H1")],
        ),
        3,
    );
    list_raid_members(&mut host, Observation::failed(at(5), "no answer"), 5);
    host.scan(6);
    assert!(host.raised(6).is_empty(), "a list that failed takes nothing out");
    let subject = diskvitals_finding::Subject::Drive(DriveId::new("H0"));
    let why = unknown_at(0, &host.facts, &subject);
    assert_eq!(
        why,
        Some(UnknownHealth::failed("megaraid host0 does not list its drives: no answer"))
    );
    // After a restart the store remembers the drives, and the controller has not been asked yet.
    let mut again = raid();
    again.facts.drives.extend(host.facts.drives.clone());
    again.plug("sdz", "8:240", "Z");
    again.scan(7);
    assert!(again.raised(7).is_empty());
    again.apply(SourceUpdate::RaidControllers(Vec::new()), 8);
    assert_eq!(again.raised(8).len(), 3, "the controller itself is gone: {:?}", again.raised(8));
    list_raid_members(&mut host, Observation::ok(at(8), vec![raid_member("megaraid,0", "H0")]), 8);
    assert_eq!(
        host.raised(8)[0],
        "H1 DriveMissing Suspect Degraded",
        "a member or a spare: the controller knows"
    );
    list_raid_members(
        &mut host,
        Observation::ok(
            at(9),
            vec![raid_member("megaraid,0", "H0"), raid_member("megaraid,1", "NEW")],
        ),
        9,
    );
    assert_eq!(
        host.raised(9),
        ["H1 DriveMissing Info Information"],
        "another drive in its place is its replacement"
    );
}

#[test]
fn network_and_virtual_drives_are_never_smart_targets() {
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
        let mut host = TestHost::default().disk("sda", "8:0", "A");
        host.inventory.drives[0].transport = transport;
        host.read_all(0);
        assert_eq!(!host.facts.smart_targets(&|_| false).is_empty(), asked, "{transport:?}");
    }
}

#[test]
fn an_unchanged_smart_report_is_no_change_despite_temperature() {
    use crate::facts::Urgency;
    let mut host = plain();
    let mut tell = |report: report::SmartReport, second| {
        let answer = Box::new(SmartResponse::Report(Box::new(report)));
        host.apply(
            SourceUpdate::Smart {
                drive: DriveId::new("A"),
                at: at(second),
                response: answer,
                duration: std::time::Duration::ZERO,
            },
            second,
        )
    };
    let warm = |celsius| report::SmartReport {
        temperature: Some(celsius),
        power_on_hours: Some(celsius as u64),
        ..report("A", 4, 0)
    };
    assert_eq!(tell(warm(30), 10), Urgency::Immediate);
    assert_eq!(tell(warm(31), 700), Urgency::Coalesce);
    assert_eq!(
        tell(report::SmartReport { temperature: Some(31), ..report("A", 5, 0) }, 1400),
        Urgency::Immediate
    );
}

#[test]
fn an_nvme_drive_is_asked_through_its_controller_and_errors_make_it_urgent() {
    let mut host = TestHost::default().disk("nvme0n1", "259:0", "A");
    host.inventory.drives[0].transport = Transport::Nvme;
    host.inventory.drives[0].location.controllers = vec!["nvme0".into()];
    host.read_all(0);
    let target = |host: &TestHost| host.facts.smart_targets(&|_| true).remove(0);
    assert_eq!(
        (target(&host).device.to_string(), target(&host).kernel_error_count, target(&host).suspect),
        ("/dev/nvme0".into(), 0, true)
    );
    log(&mut host, event(Class::Timeout, "nvme0n1", at(1), &[]), 1);
    assert_eq!(target(&host).kernel_error_count, 1);
    host.pull("nvme0n1");
    host.scan(2);
    assert!(host.facts.smart_targets(&|_| false).is_empty(), "a missing drive is not asked");
}
