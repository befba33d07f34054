//! When a drive's own statements stand, and how they go with the kernel's log.

mod raid_members;

use super::plain;
use crate::drive::{DriveKind, Transport};
use crate::fixture::*;
use crate::source_update::{RaidMemberDrive, SourceStatus, SourceUpdate, StuckSmartctl};
use diskvitals_finding::UnknownHealth;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::source::Source;
use diskvitals_kernel_log::event::{Batch, Blame, Class, Cursor, Event};
use diskvitals_smart::SmartResponse;
use diskvitals_smart::report::{self, Ata, Attribute, Body, Identity, WhenFailed};

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

pub(super) fn report(serial: &str, reallocated: u64, pending: u64) -> report::SmartReport {
    let attributes = vec![
        attribute(5, "Reallocated_Sector_Ct", reallocated),
        attribute(197, "Current_Pending_Sector", pending),
        attribute(199, "UDMA_CRC_Error_Count", 0),
    ];
    report::SmartReport {
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
        body: Body::Ata(Ata { attributes, ..Ata::default() }),
        ..report::SmartReport::default()
    }
}

pub(super) fn respond(host: &mut TestHost, answer: SmartResponse, second: i64) {
    host.apply(
        SourceUpdate::Smart {
            drive: DriveId::new("A"),
            at: at(second),
            response: Box::new(answer),
            duration: std::time::Duration::ZERO,
        },
        second,
    );
}

fn report_smart(host: &mut TestHost, report: report::SmartReport, second: i64) {
    respond(host, SmartResponse::Report(Box::new(report)), second);
}

pub(super) fn failing(serial: &str) -> report::SmartReport {
    report::SmartReport { passed: Some(false), exit_status: 8, ..report(serial, 0, 0) }
}

#[test]
fn a_drive_that_says_it_is_failing_is_bad_and_so_is_what_stands_on_it_alone() {
    let mut host = plain();
    report_smart(&mut host, failing("A"), 10);
    assert_eq!(host.raised(10), ["A SmartFailing Bad Degraded", "fs:u DriveFailing Bad Degraded"]);
    let raised = host.raised_for(Reason::SmartFailing, 11).unwrap();
    assert!(raised.message.starts_with("drive A (sda): "), "{}", raised.message);
    assert!(
        raised
            .evidence
            .iter()
            .all(|proof| proof.source == "smartctl 7.3 of /dev/sda" && proof.time == at(10))
    );
    report_smart(&mut host, report("A", 0, 0), 700);
    assert!(host.raised(700).is_empty() && host.active.is_empty());
}

#[test]
fn a_volume_does_not_follow_hints_for_planning() {
    let mut host = plain();
    let mut worn = report("A", 0, 0);
    worn.temperature = Some(75);
    worn.temperature_limit = Some(60);
    worn.identity.rotation_rate = Some(0);
    if let Body::Ata(ata) = &mut worn.body {
        ata.endurance_used = Some(85);
    }
    report_smart(&mut host, worn, 10);
    assert_eq!(host.raised(10), ["A WornOut Suspect Degraded", "A Overheating Suspect Degraded"]);
    // What endangers data now is another matter.
    report_smart(&mut host, report("A", 0, 8), 20);
    assert!(host.raised(20).contains(&"fs:u DriveFailing Suspect Degraded".to_owned()));
}

#[test]
fn a_failed_smart_query_raises_nothing_and_clears_nothing() {
    let mut host = plain();
    report_smart(&mut host, failing("A"), 10);
    host.judge(10);
    for outcome in [
        SmartResponse::Failed { why: "smartctl ended by signal 11".into() },
        SmartResponse::NotApplicable {
            why: "SMART is switched off".into(),
            hint: None,
            said_so: true,
        },
    ] {
        respond(&mut host, outcome, 600);
        host.judge(600);
        assert!(host.active.keys().any(|(_, reason)| *reason == Reason::SmartFailing));
    }
    let mut healthy = plain();
    respond(&mut healthy, SmartResponse::Failed { why: "half an answer".into() }, 10);
    assert!(healthy.raised(10).is_empty());
    let subject = diskvitals_finding::Subject::Drive(DriveId::new("A"));
    let why = unknown_at(0, &healthy.facts, &subject);
    assert_eq!(
        why,
        Some(UnknownHealth::failed("SMART: half an answer")),
        "and never reads as good"
    );
    report_smart(&mut healthy, report("A", 0, 0), 20);
    assert_eq!(unknown_at(0, &healthy.facts, &subject), None);
}

#[test]
fn a_standby_drive_keeps_its_last_report_with_a_stable_message() {
    let mut host = plain();
    report_smart(&mut host, failing("A"), 10);
    respond(&mut host, SmartResponse::Standby { mode: "STANDBY".into() }, 2 * HOUR);
    let first = host.raised_for(Reason::SmartFailing, 2 * HOUR).unwrap();
    assert!(first.message.contains(&format!("as of {}", at(10))), "{}", first.message);
    respond(&mut host, SmartResponse::Standby { mode: "STANDBY".into() }, DAY);
    assert_eq!(host.raised_for(Reason::SmartFailing, DAY).unwrap().message, first.message);
    let asleep = host.facts.smart.get(&DriveId::new("A")).unwrap().history.asleep_since;
    assert_eq!(asleep, Some(at(2 * HOUR)));
}

#[test]
fn missing_smart_is_informational_on_a_physical_drive_only() {
    let without = || SmartResponse::NotApplicable {
        why: "unknown USB bridge".into(),
        hint: Some("give a device type".into()),
        said_so: false,
    };
    let mut disk = plain();
    respond(&mut disk, without(), 10);
    assert_eq!(disk.raised(10), ["A SmartUnavailable Info Information"]);
    assert!(
        disk.raised_for(Reason::SmartUnavailable, 11)
            .unwrap()
            .message
            .ends_with("unknown USB bridge; give a device type")
    );
    let mut virtual_disk = TestHost::default().disk("sda", "8:0", "A");
    virtual_disk.inventory.drives[0].kind = DriveKind::Virtual;
    virtual_disk.read_all(0);
    respond(&mut virtual_disk, without(), 10);
    assert!(virtual_disk.raised(10).is_empty());
}

#[test]
fn a_stuck_smart_query_is_a_finding_until_it_returns() {
    let mut host = plain();
    let stuck = |host: &mut TestHost, stuck, second| {
        host.apply(SourceUpdate::SmartStuck { drive: DriveId::new("A"), stuck }, second)
    };
    stuck(
        &mut host,
        Some(StuckSmartctl { since: at(5), waiting_in: Some("blk_execute_rq".into()) }),
        65,
    );
    assert_eq!(
        host.raised(65),
        ["A ProbeTimeout Suspect Degraded", "fs:u DriveFailing Suspect Degraded"]
    );
    assert!(
        host.raised_for(Reason::ProbeTimeout, 66)
            .unwrap()
            .message
            .contains("waiting in blk_execute_rq")
    );
    // The answer of the one that was stuck came too late for anybody; the next one counts.
    stuck(&mut host, None, 500);
    report_smart(&mut host, report("A", 0, 0), 510);
    assert!(host.raised(510).is_empty() && host.active.is_empty());
}

#[test]
fn neither_a_process_exit_nor_a_failure_ends_a_stuck_smart_query() {
    let mut host = plain();
    report_smart(&mut host, report("A", 0, 0), 1);
    let stuck = |host: &mut TestHost, stuck, second| {
        host.apply(SourceUpdate::SmartStuck { drive: DriveId::new("A"), stuck }, second)
    };
    stuck(&mut host, Some(StuckSmartctl { since: at(5), waiting_in: None }), 65);
    host.judge(65);
    stuck(&mut host, None, 100);
    assert_eq!(host.raised(100)[0], "A ProbeTimeout Suspect Degraded");
    respond(&mut host, SmartResponse::Failed { why: "the device is offline".into() }, 200);
    host.judge(200);
    assert!(host.active.keys().any(|(_, reason)| *reason == Reason::ProbeTimeout));
    report_smart(&mut host, report("A", 0, 0), 300);
    assert!(host.raised(300).is_empty() && host.active.is_empty());
}

#[test]
fn an_ignored_drive_clears_its_smart_findings() {
    let mut host = plain();
    report_smart(&mut host, failing("A"), 10);
    host.judge(10);
    host.apply(SourceUpdate::SmartIgnored(vec![DriveId::new("A")]), 20);
    assert!(host.raised(20).is_empty() && host.active.is_empty());
    host.apply(SourceUpdate::SmartIgnored(Vec::new()), 30);
    assert!(host.facts.smart.iter().next().is_none());
    report_smart(&mut host, failing("A"), 40);
    assert_eq!(host.raised(40)[0], "A SmartFailing Bad Degraded");
}

#[test]
fn interface_crc_errors_indicate_the_link_and_not_the_drive() {
    let mut host = plain();
    let crc = |count| {
        let mut report = report("A", 0, 0);
        if let Body::Ata(ata) = &mut report.body {
            ata.attributes.retain(|attribute| attribute.id != 199);
            ata.attributes.push(attribute(199, "UDMA_CRC_Error_Count", count));
        }
        report
    };
    for episode in 0..5 {
        log(
            &mut host,
            Event {
                seq: episode + 1,
                ..event(Class::Timeout, "sda", at(episode as i64 * HOUR), &[])
            },
            episode as i64 * HOUR,
        );
    }
    assert_eq!(host.raised(5 * HOUR)[0], "A IoTimeouts Bad Degraded");
    report_smart(&mut host, crc(2), 5 * HOUR);
    report_smart(&mut host, crc(40), 6 * HOUR);
    report_smart(&mut host, crc(90), 8 * HOUR);
    let raised = host.raised(8 * HOUR);
    assert!(
        raised.contains(&"A LinkErrors Suspect Degraded".to_owned())
            && raised.contains(&"A IoTimeouts Suspect Degraded".to_owned()),
        "{raised:?}"
    );
}

#[test]
fn a_killed_smart_query_is_a_finding_until_a_response() {
    let mut host = plain();
    respond(
        &mut host,
        SmartResponse::TimedOut { why: "smartctl has not ended after 60s and was killed".into() },
        60,
    );
    assert_eq!(host.raised(60)[0], "A ProbeTimeout Suspect Degraded");
    respond(
        &mut host,
        SmartResponse::TimedOut { why: "smartctl has not ended after 60s and was killed".into() },
        600,
    );
    assert_eq!(host.raised(600)[0], "A ProbeTimeout Suspect Degraded");
    respond(&mut host, SmartResponse::Standby { mode: "STANDBY".into() }, 700);
    assert!(host.raised(700).is_empty());
}

fn log(host: &mut TestHost, event: Event, second: i64) {
    let cursor =
        Cursor { boot_id: "b".into(), counted_to: Some(event.seq), reread_from: 0, lost: 0 };
    host.apply(
        SourceUpdate::KernelLog(Batch {
            cursor,
            events: vec![event],
            name_assignments: Vec::new(),
            full_reads: Vec::new(),
            is_backlog: false,
        }),
        second,
    );
}

#[test]
fn the_kernel_log_and_smart_merge_into_one_finding() {
    let mut host = plain();
    log(&mut host, Event { blame: Blame::Yes, ..event(Class::Medium, "sda", at(10), &[5000]) }, 10);
    let mut uncorrected = report("A", 0, 0);
    if let Body::Ata(ata) = &mut uncorrected.body {
        ata.attributes.push(attribute(187, "Reported_Uncorrect", 3));
    }
    report_smart(&mut host, uncorrected, 20);
    let both = host.raised_for(Reason::MediaErrors, 20).unwrap();
    let sources: Vec<&str> = both.evidence.iter().map(|proof| proof.source.as_str()).collect();
    assert!(
        sources.contains(&"kernel log") && sources.contains(&"smartctl 7.3 of /dev/sda"),
        "{sources:?}"
    );
    assert!(both.clears_when.contains("; and "), "{}", both.clears_when);
    // A day of quiet in the log does not take back what the drive goes on saying.
    host.apply(
        SourceUpdate::Source {
            source: Source::KernelLog,
            status: SourceStatus::Active(String::new()),
        },
        DAY,
    );
    let drives = host.raised_for(Reason::MediaErrors, 2 * DAY).unwrap();
    assert!(drives.evidence.iter().all(|proof| proof.source != "kernel log"));
}

#[test]
fn a_failed_smart_query_does_not_keep_a_finding_of_the_kernel_log() {
    let mut host = plain();
    report_smart(&mut host, report("A", 0, 0), 5);
    log(&mut host, Event { blame: Blame::Yes, ..event(Class::Medium, "sda", at(10), &[5000]) }, 10);
    respond(&mut host, SmartResponse::Failed { why: "no answer".into() }, 20);
    assert!(host.raised_for(Reason::MediaErrors, 20).is_some());
    host.apply(
        SourceUpdate::Source {
            source: Source::KernelLog,
            status: SourceStatus::Active(String::new()),
        },
        DAY,
    );
    assert!(host.raised_for(Reason::MediaErrors, 2 * DAY).is_none());
    assert!(host.active.is_empty(), "{:?}", host.active);
}

fn tested(log: &[(u64, bool, report::SelfTestOutcome)], hours: u64) -> report::SmartReport {
    let entry = |(at, extended, outcome): &(u64, bool, report::SelfTestOutcome)| report::SelfTest {
        kind: match extended {
            true => "Extended offline".into(),
            false => "Short offline".into(),
        },
        extended: *extended,
        outcome: *outcome,
        hours: Some(*at),
        ..report::SelfTest::default()
    };
    report::SmartReport {
        self_tests: report::SelfTests {
            log: log.iter().map(entry).collect(),
            log_read: true,
            long_minutes: Some(600),
            ..report::SelfTests::default()
        },
        power_on_hours: Some(hours),
        ..report("A", 0, 0)
    }
}

#[test]
fn a_failed_self_test_that_has_only_left_the_log_has_not_passed() {
    use report::SelfTestOutcome::{Failed, Passed};
    let mut host = plain();
    report_smart(&mut host, tested(&[(100, false, Failed)], 101), 10);
    let failed = |host: &mut TestHost, second| {
        host.judge(second);
        let mut keys = host.active.keys();
        keys.any(|(_, reason)| *reason == Reason::SelfTestFailed)
    };
    assert!(failed(&mut host, 11));
    let short = [(200, false, Passed), (150, false, Passed)];
    for (log, second) in [(&short[..], 700), (&[][..], 1400)] {
        report_smart(&mut host, tested(log, 300), second);
        assert!(failed(&mut host, second), "{log:?}");
    }
    let mut long = short.to_vec();
    long.insert(0, (400, true, Passed));
    report_smart(&mut host, tested(&long, 401), 2100);
    assert!(!failed(&mut host, 2100));
    // Without a failure nothing is raised.
    report_smart(&mut host, tested(&short, 500), 2800);
    assert!(!failed(&mut host, 2800));
}

#[test]
fn an_extended_self_test_that_began_after_a_media_error_ends_it_and_no_other_error() {
    use report::SelfTestOutcome::Passed;
    let mut host = plain();
    host.facts.booted = Some(at(0));
    for (seq, class) in [(1, Class::Medium), (2, Class::Io)] {
        let event = Event { seq, blame: Blame::Yes, ..event(class, "sda", at(HOUR), &[5000]) };
        log(&mut host, event, HOUR);
    }
    let reasons = |host: &mut TestHost, second| {
        let lines = host.raised(second);
        let of_drive = lines.iter().filter(|line| line.starts_with("A "));
        of_drive.filter_map(|line| line.split(' ').nth(1).map(str::to_owned)).collect::<Vec<_>>()
    };
    // 600 minutes and rounding: a test that ended 8 hours after the error may have begun before it.
    report_smart(&mut host, tested(&[(1008, true, Passed)], 1010), 11 * HOUR);
    assert_eq!(reasons(&mut host, 11 * HOUR), ["MediaErrors", "IoErrors"]);
    report_smart(&mut host, tested(&[(1015, true, Passed)], 1016), 20 * HOUR);
    assert_eq!(reasons(&mut host, 20 * HOUR), ["IoErrors"]);
    // The drive may have been off between the error and the boot.
    host.facts.booted = Some(at(2 * HOUR));
    assert_eq!(reasons(&mut host, 20 * HOUR), ["MediaErrors", "IoErrors"]);
}

#[test]
fn what_never_falls_says_that_only_an_acknowledgement_or_a_new_drive_ends_it() {
    let mut host = plain();
    report_smart(&mut host, report("A", 50, 3), 10);
    let reallocated = host.raised_for(Reason::ReallocatedSectors, 11).unwrap();
    assert_eq!(
        reallocated.clears_when,
        "never by itself, because the count does not fall: acknowledge it, or replace the drive"
    );
    let pending = host.raised_for(Reason::PendingSectors, 12).unwrap();
    assert_eq!(pending.clears_when, "the drive reports no such sector, or the drive is replaced");
}
