//! A drive that suits its array badly: it tries longer than the kernel waits, or has drive-managed SMR.

use super::mirror;
use super::pool::tank;
use super::redundancy::{array, state};
use super::risk::answer;
use super::smart::{report, respond};
use crate::block::LayerState;
use crate::drive::DriveKind;
use crate::fixture::*;
use diskvitals_finding::FindingDetails;
use diskvitals_finding::reason::{Cover, Reason};
use diskvitals_finding::severity::Severity;
use diskvitals_smart::SmartResponse;
use diskvitals_smart::policy::SmartOverride;
use diskvitals_smart::report::ErrorRecovery::{self, Deciseconds, Off, Unsupported};
use diskvitals_smart::report::{Body, SmartReport};

/// Its drives rotate, and the kernel waits so many seconds for them.
fn rotating(mut host: TestHost, timeout: Option<u64>) -> TestHost {
    for drive in &mut host.inventory.drives {
        (drive.kind, drive.command_timeout) = (DriveKind::Hdd, timeout);
    }
    host.scan(1);
    host
}

fn with(limit: Option<ErrorRecovery>) -> SmartReport {
    let mut report = report("A", 0, 0);
    let Body::Ata(ata) = &mut report.body else { panic!("no ATA drive") };
    ata.error_recovery = limit;
    report
}

fn mismatch(host: &mut TestHost, limit: Option<ErrorRecovery>) -> Option<FindingDetails> {
    answer(host, "A", with(limit), 10);
    host.raised_for(Reason::TimeoutMismatch, 11)
}

#[test]
fn a_member_that_tries_longer_than_the_kernel_waits_does_not_suit_its_array() {
    let cases = [
        (Some(Off), Some(30), true),
        (Some(Unsupported), Some(30), true),
        (Some(Deciseconds(240)), Some(30), false),
        (Some(Deciseconds(241)), Some(30), true),
        (Some(Deciseconds(70)), Some(30), false),
        (Some(Deciseconds(70)), Some(8), true),
        (Some(Off), Some(31), false),
        (Some(Off), Some(180), false),
        // What was not read.
        (None, Some(30), false),
        (Some(Off), None, false),
    ];
    for (limit, timeout, expected) in cases {
        let mut host = rotating(mirror(), timeout);
        let raised = mismatch(&mut host, limit);
        assert_eq!(raised.is_some(), expected, "{limit:?} {timeout:?}");
    }
    let mut host = rotating(mirror(), Some(30));
    let raised = mismatch(&mut host, Some(Off)).unwrap();
    assert_eq!(
        raised.message,
        "drive A (sda) may try to read a weak sector for minutes (SCT ERC is off), and the kernel resets it after 30 s: raid1 md0 may lose it then"
    );
    let proof: Vec<(&str, &str)> =
        raised.evidence.iter().map(|it| (it.source.as_str(), it.text.as_str())).collect();
    assert_eq!(
        proof,
        [
            ("smartctl 7.3 of /dev/sda", "SCT Error Recovery Control: Disabled"),
            ("/sys/block/sda/device/timeout", "30")
        ]
    );
    assert_eq!(host.raised(12), ["A TimeoutMismatch Info Information"], "and nothing follows it");
}

#[test]
fn a_single_disk_a_stripe_a_solid_state_drive_and_a_bridge_are_left_alone() {
    let single = TestHost::default()
        .disk("sda", "8:0", "A")
        .mounted("8:0", "/", "/data", "ext4", "/dev/sda");
    let mut striped = array("raid0", 2);
    striped.layer("md0", LayerState::Md(state("raid0", "++")), 0);
    for mut host in [single, striped] {
        host.read_all(0);
        let mut host = rotating(host, Some(30));
        assert_eq!(mismatch(&mut host, Some(Off)), None);
    }
    let mut solid = mirror();
    assert_eq!(mismatch(&mut solid, Some(Off)), None);
    let mut bridged = mirror();
    for drive in &mut bridged.inventory.drives {
        drive.kind = DriveKind::Usb;
    }
    bridged.scan(1);
    assert_eq!(mismatch(&mut bridged, Some(Off)), None);
}

#[test]
fn what_is_not_known_neither_raises_nor_clears_a_mismatch() {
    let mut host = rotating(mirror(), Some(30));
    assert!(mismatch(&mut host, Some(Off)).is_some());
    let failed = SmartResponse::Failed { why: "smartctl ended by signal 11".into() };
    respond(&mut host, failed, 20);
    assert_eq!(host.raised_for(Reason::TimeoutMismatch, 21), None);
    assert_eq!(host.active.len(), 1, "it stays");
    answer(&mut host, "A", with(Some(Deciseconds(70))), 30);
    assert_eq!(host.raised(31), [""; 0]);
    assert!(host.active.is_empty());
    // An exception in the configuration.
    let mut host = rotating(mirror(), Some(30));
    host.policy.smart.overrides.push(SmartOverride {
        serial: Some("A".into()),
        ignore_reasons: vec![Reason::TimeoutMismatch],
        ..SmartOverride::default()
    });
    assert_eq!(mismatch(&mut host, Some(Off)), None);
    // A pool of which `zpool status` has not said what its members hold.
    let mut pool = rotating(tank(), Some(30));
    assert_eq!(mismatch(&mut pool, Some(Off)), None);
}

#[test]
fn a_drive_without_another_copy_is_never_told_to_give_up_early() {
    let reason = Reason::TimeoutMismatch;
    for cover in [Cover::Unknown, Cover::Covered, Cover::Last] {
        assert!(reason.action_for(Severity::Info, cover).contains("scterc"), "{cover:?}");
    }
    let exposed = reason.action_for(Severity::Info, Cover::Exposed);
    assert!(!exposed.contains("scterc") && exposed.contains("device/timeout"), "{exposed}");
}

fn overlapping(family: &str) -> SmartReport {
    let mut report = report("A", 0, 0);
    report.identity.family = Some(family.into());
    report
}

#[test]
fn drive_managed_smr_does_not_suit_parity() {
    let raised = |mut host: TestHost, report: SmartReport| {
        answer(&mut host, "A", report, 10);
        host.raised_for(Reason::SmrInArray, 11).map(|raised| raised.message)
    };
    let raid = |level: &str| {
        let mut host = array(level, 3);
        host.layer("md0", LayerState::Md(state(level, "+++")), 0);
        host
    };
    let smr = || overlapping("Western Digital Red (SMR)");
    assert_eq!(
        raised(raid("raid5"), smr()).as_deref(),
        Some(
            "drive A (sda) has drive-managed SMR: a rebuild or resilver of raid5 md0 onto it may take days, or fail"
        )
    );
    assert_eq!(raised(raid("raid1"), smr()), None, "a mirror is copied in one run");
    assert_eq!(raised(raid("raid5"), overlapping("Western Digital Red")), None);
    let zoned = |kind: &str| {
        let mut report = report("A", 0, 0);
        let Body::Ata(ata) = &mut report.body else { panic!("no ATA drive") };
        ata.zoned = Some(kind.into());
        report
    };
    assert!(raised(raid("raid6"), zoned("device_managed")).is_some());
    assert_eq!(raised(raid("raid6"), zoned("host_aware")), None);
}
