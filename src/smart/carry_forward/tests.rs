//! What an answer does not tell neither clears nor raises anything.

use proptest::prelude::*;

use crate::fixture::*;
use crate::history::{Metric, SmartHistory};
use crate::policy::SmartPolicy;
use crate::report::{
    Ata, Body, ErrorRecovery, InformationalException, LoggedError, Message, SelfTestOutcome,
    SmartReport, WhenFailed,
};
use crate::rules::evaluate;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;

fn hits(memory: &SmartHistory) -> Vec<(Reason, Severity)> {
    let (_, last) = memory.last.as_ref().expect("an answer");
    evaluate(last, Some(memory), &SmartPolicy::default())
        .iter()
        .map(|said| (said.reason, said.severity))
        .collect()
}

fn after(reports: &[SmartReport]) -> SmartHistory {
    let mut memory = SmartHistory::default();
    for (hours, report) in (0..).zip(reports) {
        memory.record(report, hour(hours));
    }
    memory
}

fn carried_forward(mut now: SmartReport, before: &SmartReport) -> SmartReport {
    now.carry_forward(before);
    now
}

fn warning(text: &str) -> Message {
    Message { text: text.into(), severity: "warning".into() }
}

/// A drive of each kind, with something wrong in every part.
fn faulty_drives() -> Vec<SmartReport> {
    let logged = |text: &str| vec![LoggedError { hours: Some(7), text: text.into() }];
    let mut rotating = disk()
        .raw(5, "12")
        .raw(197, "269")
        .raw(187, "3")
        .with(attribute(22, "Helium_Level", 25, 25, "100").prefailure().failed(WhenFailed::Now))
        .with(attribute(189, "High_Fly_Writes", 1, 1, "900").failed(WhenFailed::Past))
        .ata(|ata| {
            (ata.error_count, ata.last_errors) = (Some(9), logged("Error: UNC at LBA = 7"));
            ata.pending_defects = Some(300);
        })
        .tests(&[self_test(true, SelfTestOutcome::Failed)])
        .celsius(70, Some(60));
    (rotating.passed, rotating.exit_status) = (Some(false), 8);
    rotating.messages =
        vec![warning("==> WARNING: A firmware update for this drive may be available")];
    let mut flash = ssd().with(attribute(232, "Available_Reservd_Space", 14, 10, "0")).ata(|ata| {
        ata.statistics = vec![
            statistic(7, 8, "Percentage Used Endurance Indicator", 104),
            statistic(4, 8, "Reported", 3),
        ];
        ata.attributes.retain(|attribute| attribute.id != 187);
    });
    flash.identity.family = Some("Test Flash".into());
    let mut fast = nvme().nvme(|log| {
        (log.critical_warning, log.available_spare, log.percentage_used) =
            (Some(0b1010), Some(11), Some(120));
        (log.media_errors, log.last_errors) = (Some(7), logged("Unrecovered Read Error"));
    });
    (fast.passed, fast.exit_status) = (Some(false), 8);
    let mut big = sas()
        .scsi(|pages| {
            (pages.grown_defects, pages.pending_defects, pages.percentage_used) =
                (Some(40), Some(5), Some(101));
            pages.read.as_mut().unwrap().uncorrected = Some(6);
            pages.exception = Some(InformationalException {
                asc: 0x5d,
                ascq: 0x10,
                text: "FAILURE PREDICTION THRESHOLD EXCEEDED".into(),
            });
            (pages.background_scan, pages.background_errors) = (Some("waiting".into()), Some(3));
        })
        .tests(&[self_test(false, SelfTestOutcome::Failed)]);
    (big.passed, big.exit_status) = (Some(false), 8);
    let mut bridged = disk().celsius(58, None).with(
        attribute(190, "Airflow_Temperature_Cel", 41, 45, "59")
            .prefailure()
            .failed(WhenFailed::Now),
    );
    (bridged.passed, bridged.messages) =
        (Some(false), vec![warning("Warning: This result is based on an Attribute check.")]);
    let mut hot = nvme().nvme(|log| log.critical_warning = Some(0b10));
    (hot.passed, hot.exit_status) = (Some(false), 8);
    let mut by_status = disk();
    (by_status.passed, by_status.exit_status) = (None, 8);
    vec![rotating, flash, fast, big, bridged, hot, by_status, disk(), ssd(), nvme(), sas()]
}

/// How many parts `without` knows.
const PARTS: u32 = 22;

/// The same answer, with the commands that tell these parts failed.
fn without(mut report: SmartReport, parts: u32) -> SmartReport {
    let lost = |part: u32| parts >> part & 1 != 0;
    if lost(0) {
        // One command tells them: the bit of the exit status, the reason of a SCSI drive, and whose
        // verdict it is.
        (report.passed, report.exit_status) = (None, 4);
        report.messages.retain(|message| !message.text.contains("Attribute check"));
        if let Body::Scsi(pages) = &mut report.body {
            pages.exception = None;
        }
    }
    if lost(1) {
        report.temperature = None;
    }
    if lost(2) {
        report.temperature_limit = None;
    }
    if lost(3) {
        (report.self_tests.log_read, report.self_tests.log) = (false, Vec::new());
    }
    if lost(4) {
        report.messages.retain(|message| !message.text.contains("==> WARNING"));
    }
    if lost(5) {
        report.identity.rotation_rate = None;
    }
    if lost(6) {
        (report.identity.in_database, report.identity.family) = (None, None);
    }
    if lost(7) {
        (report.identity.firmware, report.identity.model) = (None, None);
    }
    match &mut report.body {
        Body::Ata(ata) => {
            if lost(8) {
                ata.attributes.clear();
            }
            if lost(9) {
                for attribute in &mut ata.attributes {
                    (attribute.threshold, attribute.when_failed) = (None, WhenFailed::Unknown);
                }
            }
            if lost(10) {
                (ata.error_count, ata.last_errors) = (None, Vec::new());
            }
            if lost(11) {
                ata.pending_defects = None;
            }
            if lost(12) {
                ata.statistics.clear();
            }
            if lost(13) {
                ata.statistics.retain(|statistic| statistic.page != 7);
            }
        }
        Body::Nvme(log) => {
            if lost(8) {
                *log = Default::default();
            }
            if lost(9) {
                log.critical_warning = None;
            }
            if lost(10) {
                (log.available_spare, log.percentage_used) = (None, None);
            }
            if lost(11) {
                log.available_spare_threshold = None;
            }
            if lost(12) {
                (log.media_errors, log.last_errors) = (None, Vec::new());
            }
        }
        Body::Scsi(pages) => {
            if lost(14) {
                pages.grown_defects = None;
            }
            if lost(15) {
                pages.pending_defects = None;
            }
            if lost(16) {
                pages.read = None;
            }
            if lost(17) {
                (pages.write, pages.verify) = (None, None);
            }
            if lost(18) {
                pages.percentage_used = None;
            }
            if lost(19) {
                (pages.background_scan, pages.background_errors) = (None, None);
            }
            if lost(20) {
                pages.read.iter_mut().for_each(|counter| counter.uncorrected = None);
            }
        }
        Body::None => {}
    }
    if lost(21) && lost(8) {
        report.body = Body::None;
    }
    report
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_partial_response_neither_clears_nor_raises_findings(drive in 0_usize..11, parts in proptest::collection::vec(0_u32..1 << PARTS, 1..4)) {
        let whole = faulty_drives().remove(drive);
        let mut memory = after(std::slice::from_ref(&whole));
        let before = hits(&memory);
        for (minutes, parts) in (1..).zip(parts) {
            memory.record(&without(whole.clone(), parts), hour(0) + jiff::SignedDuration::from_mins(minutes));
            prop_assert_eq!(hits(&memory), before.clone());
            for (metric, series) in &memory.series {
                prop_assert!(series.reset.is_none() && series.points.iter().all(|point| point.value == series.points[0].value), "{:?}", metric);
            }
        }
        memory.record(&whole, hour(1));
        prop_assert_eq!(hits(&memory), before);
    }

    #[test]
    fn carrying_forward_twice_changes_nothing(drive in 0_usize..11, parts in 0_u32..1 << PARTS) {
        let whole = faulty_drives().remove(drive);
        let once = carried_forward(without(whole.clone(), parts), &whole);
        prop_assert_eq!(carried_forward(once.clone(), &whole), once.clone());
        prop_assert_eq!(carried_forward(without(whole, parts), &once), once);
    }

    #[test]
    fn a_complete_response_is_unchanged(drive in 0_usize..11, parts in 0_u32..1 << PARTS) {
        let whole = faulty_drives().remove(drive);
        let mut healed = whole.clone();
        healed.passed = healed.overall_passed();
        prop_assert_eq!(carried_forward(whole.clone(), &without(whole, parts)), healed);
    }
}

#[test]
fn a_newly_reported_value_replaces_the_old_one() {
    let sick = faulty_drives().remove(0);
    let mut healed = disk()
        .celsius(35, Some(60))
        .tests(&[])
        .ata(|ata| (ata.error_count, ata.pending_defects) = (Some(0), Some(0)));
    healed.with_text = true;
    assert_eq!(hits(&after(&[sick, healed])), []);
    let mut predicted = faulty_drives().remove(3);
    assert_eq!(hits(&after(std::slice::from_ref(&predicted)))[0].0, Reason::SmartFailing);
    let Body::Scsi(pages) = &mut predicted.body else { panic!("no SCSI drive") };
    pages.exception = None;
    (predicted.passed, predicted.exit_status) = (Some(true), 0);
    let both = [faulty_drives().remove(3), predicted];
    assert!(
        hits(&after(&both)).iter().all(|(reason, _)| *reason != Reason::SmartFailing),
        "a good verdict has no reason"
    );
}

#[test]
fn a_value_is_compared_with_the_threshold_carried_forward() {
    let reserve = |value, threshold| {
        let mut attribute = attribute(22, "Helium_Level", value, 25, "100").prefailure();
        if threshold {
            attribute.when_failed = WhenFailed::Never;
        } else {
            (attribute.threshold, attribute.when_failed) = (None, WhenFailed::Unknown);
        }
        disk().with(attribute)
    };
    assert_eq!(hits(&after(&[reserve(100, true), reserve(60, false)])), []);
    assert_eq!(
        hits(&after(&[reserve(100, true), reserve(25, false)])),
        [(Reason::SmartAttributeFailing, Severity::Bad)]
    );
    assert_eq!(
        hits(&after(&[reserve(100, true), reserve(25, false), reserve(30, false)])),
        [(Reason::SmartAttributeFailing, Severity::Suspect)]
    );
}

#[test]
fn changed_nvme_warnings_discard_the_previous_overall_health() {
    let mut failing = nvme().nvme(|log| log.critical_warning = Some(0b10));
    (failing.passed, failing.exit_status) = (Some(false), 8);
    let mut cool = nvme();
    (cool.passed, cool.exit_status) = (None, 4);
    assert_eq!(hits(&after(&[failing, cool])), []);
}

#[test]
fn a_firmware_notice_is_kept_until_the_text_is_read_again_or_the_firmware_changes() {
    let mut noticed = disk();
    (noticed.messages, noticed.with_text) =
        (vec![warning("==> WARNING: This firmware loses data")], true);
    let reasons = |reports: &[SmartReport]| {
        hits(&after(reports)).iter().map(|(reason, _)| *reason).collect::<Vec<_>>()
    };
    assert_eq!(reasons(&[noticed.clone(), disk(), disk()]), [Reason::FirmwareNotice]);
    let read_again = SmartReport { with_text: true, ..disk() };
    assert_eq!(reasons(&[noticed.clone(), disk(), read_again]), []);
    assert_eq!(
        reasons(&[noticed, disk().identity(|identity| identity.firmware = Some("2.0".into()))]),
        []
    );
}

#[test]
fn an_unread_self_test_log_is_carried_forward_behind_the_last_test_status() {
    let read = disk().tests(&[self_test(true, SelfTestOutcome::Passed)]);
    let mut unread = disk();
    unread.self_tests = Default::default();
    assert_eq!(carried_forward(unread.clone(), &read).self_tests.log, read.self_tests.log);
    unread.self_tests.last = Some(SelfTestOutcome::Failed);
    unread.self_tests.log = vec![crate::report::SelfTest {
        kind: "The last".into(),
        ..self_test(false, SelfTestOutcome::Failed)
    }];
    let memory = after(&[read.clone(), unread.clone(), unread.clone()]);
    let (_, last) = memory.last.as_ref().unwrap();
    assert_eq!(
        last.self_tests.log.iter().map(|test| test.outcome).collect::<Vec<_>>(),
        [SelfTestOutcome::Failed, SelfTestOutcome::Passed]
    );
    assert_eq!(hits(&memory), [(Reason::SelfTestFailed, Severity::Bad)]);
    assert_eq!(hits(&after(&[read.clone(), unread.clone(), read])), []);
    let mut passed = disk();
    passed.self_tests.last = Some(SelfTestOutcome::Passed);
    assert_eq!(
        hits(&after(&[unread, passed])),
        [],
        "of a drive whose log is never read, its word is all there is"
    );
}

#[test]
fn one_missing_counter_of_several_is_neither_reset_nor_growth() {
    let verify = |count| {
        sas().scsi(|pages| pages.verify.iter_mut().for_each(|counter| counter.uncorrected = count))
    };
    let memory = after(&[
        verify(Some(500)),
        verify(None),
        verify(Some(500)),
        verify(None),
        verify(Some(500)),
    ]);
    let series = &memory.series[&Metric::UncorrectedErrors];
    assert_eq!((series.reset, series.growth(jiff::SignedDuration::from_hours(99))), (None, None));
}

#[test]
fn a_missing_value_adds_no_reading() {
    let mut silent = disk().ata(|ata| *ata = Ata::default());
    silent.temperature = None;
    let memory = after(&[disk(), silent]);
    assert_eq!(
        memory.series[&Metric::Pending].points.iter().map(|point| point.at).collect::<Vec<_>>(),
        [hour(0)]
    );
    assert_eq!(memory.last.unwrap().0, hour(1));
}

#[test]
fn nothing_is_carried_forward_from_another_drive_or_protocol() {
    let another = disk()
        .ata(|ata| *ata = Ata::default())
        .identity(|identity| identity.serial = Some("TEST0002".into()));
    let memory = after(&[faulty_drives().remove(0), another.clone()]);
    assert_eq!(*memory.last.unwrap().1, another);
    let as_scsi = SmartReport { body: sas().body, identity: disk().identity, ..disk() };
    assert_eq!(carried_forward(as_scsi.clone(), &faulty_drives().remove(0)), as_scsi);
}

#[test]
fn a_limit_of_error_recovery_does_not_outlast_a_loss_of_power() {
    let of = |limit: Option<ErrorRecovery>, cycles: Option<u64>| {
        let mut report = disk().ata(|ata| ata.error_recovery = limit);
        report.power_cycles = cycles;
        report
    };
    let limit = Some(ErrorRecovery::Deciseconds(70));
    for (cycles, kept) in [(Some(12), limit), (Some(13), None), (None, None)] {
        let report = carried_forward(of(None, cycles), &of(limit, Some(12)));
        let Body::Ata(ata) = report.body else { panic!("no ATA drive") };
        assert_eq!(ata.error_recovery, kept, "{cycles:?}");
    }
}

#[test]
fn readings_of_another_smartctl_version_before_a_restart_are_not_compared() {
    let older = after(&[disk().raw(187, "1")]);
    let mut newer = SmartHistory::default();
    newer.record(&SmartReport { smartctl: [7, 5], ..disk().raw(187, "90") }, hour(9));
    newer.record(&SmartReport { smartctl: [7, 5], ..disk().raw(187, "91") }, hour(10));
    newer.prepend(older);
    let growth = newer.series[&Metric::ReportedUncorrectable]
        .growth(jiff::SignedDuration::from_hours(99))
        .expect("what came since");
    assert_eq!((growth.by, growth.occasions), (1, 1));
}

#[test]
fn stored_history_completes_responses_received_before_it_was_loaded() {
    let older = after(&[disk().ata(|ata| ata.pending_defects = Some(3))]);
    let mut newer = SmartHistory::default();
    newer.record(&disk(), hour(9));
    newer.prepend(older);
    assert_eq!(hits(&newer), [(Reason::PendingSectors, Severity::Suspect)]);
}
