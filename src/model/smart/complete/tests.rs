//! What an answer does not tell neither clears nor raises anything.

use proptest::prelude::*;

use crate::model::finding::Severity;
use crate::model::policy::smart::SmartPolicy;
use crate::model::reason::Reason;
use crate::model::smart::fixture::*;
use crate::model::smart::memory::{Memory, Metric};
use crate::model::smart::report::{
    Ata, Body, Exception, LoggedError, Message, Outcome, Report, WhenFailed,
};
use crate::model::smart::rules::judge;

fn said(memory: &Memory) -> Vec<(Reason, Severity)> {
    let (_, last) = memory.last.as_ref().expect("an answer");
    judge(last, Some(memory), &SmartPolicy::default())
        .iter()
        .map(|said| (said.reason, said.severity))
        .collect()
}

fn after(reports: &[Report]) -> Memory {
    let mut memory = Memory::default();
    for (hours, report) in (0..).zip(reports) {
        memory.take(report, hour(hours));
    }
    memory
}

fn completed(mut now: Report, before: &Report) -> Report {
    now.complete(before);
    now
}

fn warning(text: &str) -> Message {
    Message {
        text: text.into(),
        severity: "warning".into(),
    }
}

/// A drive of each kind, with something wrong in every part.
fn troubled() -> Vec<Report> {
    let logged = |text: &str| {
        vec![LoggedError {
            hours: Some(7),
            text: text.into(),
        }]
    };
    let mut rotating = disk()
        .raw(5, "12")
        .raw(197, "269")
        .raw(187, "3")
        .with(
            attribute(22, "Helium_Level", 25, 25, "100")
                .prefailure()
                .failed(WhenFailed::Now),
        )
        .with(attribute(189, "High_Fly_Writes", 1, 1, "900").failed(WhenFailed::Past))
        .ata(|ata| {
            (ata.error_count, ata.last_errors) = (Some(9), logged("Error: UNC at LBA = 7"));
            ata.pending_defects = Some(300);
        })
        .tests(&[self_test(true, Outcome::Failed)])
        .celsius(70, Some(60));
    (rotating.passed, rotating.exit_status) = (Some(false), 8);
    rotating.messages = vec![warning(
        "==> WARNING: A firmware update for this drive may be available",
    )];
    let mut flash = ssd()
        .with(attribute(232, "Available_Reservd_Space", 14, 10, "0"))
        .ata(|ata| {
            ata.statistics = vec![
                statistic(7, 8, "Percentage Used Endurance Indicator", 104),
                statistic(4, 8, "Reported", 3),
            ];
            ata.attributes.retain(|attribute| attribute.id != 187);
        });
    flash.identity.family = Some("Test Flash".into());
    let mut fast = nvme().nvme(|log| {
        (
            log.critical_warning,
            log.available_spare,
            log.percentage_used,
        ) = (Some(0b1010), Some(11), Some(120));
        (log.media_errors, log.last_errors) = (Some(7), logged("Unrecovered Read Error"));
    });
    (fast.passed, fast.exit_status) = (Some(false), 8);
    let mut big = sas()
        .scsi(|pages| {
            (
                pages.grown_defects,
                pages.pending_defects,
                pages.percentage_used,
            ) = (Some(40), Some(5), Some(101));
            pages.read.as_mut().unwrap().uncorrected = Some(6);
            pages.exception = Some(Exception {
                asc: 0x5d,
                ascq: 0x10,
                text: "FAILURE PREDICTION THRESHOLD EXCEEDED".into(),
            });
            (pages.background_scan, pages.background_errors) = (Some("waiting".into()), Some(3));
        })
        .tests(&[self_test(false, Outcome::Failed)]);
    (big.passed, big.exit_status) = (Some(false), 8);
    let mut bridged = disk().celsius(58, None).with(
        attribute(190, "Airflow_Temperature_Cel", 41, 45, "59")
            .prefailure()
            .failed(WhenFailed::Now),
    );
    (bridged.passed, bridged.messages) = (
        Some(false),
        vec![warning(
            "Warning: This result is based on an Attribute check.",
        )],
    );
    let mut hot = nvme().nvme(|log| log.critical_warning = Some(0b10));
    (hot.passed, hot.exit_status) = (Some(false), 8);
    let mut by_status = disk();
    (by_status.passed, by_status.exit_status) = (None, 8);
    vec![
        rotating,
        flash,
        fast,
        big,
        bridged,
        hot,
        by_status,
        disk(),
        ssd(),
        nvme(),
        sas(),
    ]
}

/// How many parts `without` knows.
const PARTS: u32 = 22;

/// The same answer, with the commands that tell these parts failed.
fn without(mut report: Report, parts: u32) -> Report {
    let lost = |part: u32| parts >> part & 1 != 0;
    if lost(0) {
        // One command tells them: the bit of the exit status, the reason of a SCSI drive, and whose
        // verdict it is.
        (report.passed, report.exit_status) = (None, 4);
        report
            .messages
            .retain(|message| !message.text.contains("Attribute check"));
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
        (report.self_tests.told, report.self_tests.log) = (false, Vec::new());
    }
    if lost(4) {
        report
            .messages
            .retain(|message| !message.text.contains("==> WARNING"));
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
                    (attribute.threshold, attribute.when_failed) = (None, WhenFailed::Untold);
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
                pages
                    .read
                    .iter_mut()
                    .for_each(|counter| counter.uncorrected = None);
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
    fn a_partial_answer_neither_clears_nor_raises(drive in 0_usize..11, parts in proptest::collection::vec(0_u32..1 << PARTS, 1..4)) {
        let whole = troubled().remove(drive);
        let mut memory = after(std::slice::from_ref(&whole));
        let before = said(&memory);
        for (minutes, parts) in (1..).zip(parts) {
            memory.take(&without(whole.clone(), parts), hour(0) + jiff::SignedDuration::from_mins(minutes));
            prop_assert_eq!(said(&memory), before.clone());
            for (metric, series) in &memory.series {
                prop_assert!(series.reset.is_none() && series.points.iter().all(|point| point.value == series.points[0].value), "{:?}", metric);
            }
        }
        memory.take(&whole, hour(1));
        prop_assert_eq!(said(&memory), before);
    }

    #[test]
    fn what_is_complete_is_not_completed_further(drive in 0_usize..11, parts in 0_u32..1 << PARTS) {
        let whole = troubled().remove(drive);
        let once = completed(without(whole.clone(), parts), &whole);
        prop_assert_eq!(completed(once.clone(), &whole), once.clone());
        prop_assert_eq!(completed(without(whole, parts), &once), once);
    }

    #[test]
    fn an_answer_that_tells_everything_is_what_it_is(drive in 0_usize..11, parts in 0_u32..1 << PARTS) {
        let whole = troubled().remove(drive);
        let mut healed = whole.clone();
        healed.passed = healed.verdict();
        prop_assert_eq!(completed(whole.clone(), &without(whole, parts)), healed);
    }
}

#[test]
fn what_is_told_anew_counts() {
    let sick = troubled().remove(0);
    let mut healed = disk()
        .celsius(35, Some(60))
        .tests(&[])
        .ata(|ata| (ata.error_count, ata.pending_defects) = (Some(0), Some(0)));
    healed.with_text = true;
    assert_eq!(said(&after(&[sick, healed])), []);
    let mut predicted = troubled().remove(3);
    assert_eq!(
        said(&after(std::slice::from_ref(&predicted)))[0].0,
        Reason::SmartFailing
    );
    let Body::Scsi(pages) = &mut predicted.body else {
        panic!("no SCSI drive")
    };
    pages.exception = None;
    (predicted.passed, predicted.exit_status) = (Some(true), 0);
    let both = [troubled().remove(3), predicted];
    assert!(
        said(&after(&both))
            .iter()
            .all(|(reason, _)| *reason != Reason::SmartFailing),
        "a good verdict has no reason"
    );
}

#[test]
fn a_value_that_comes_to_a_threshold_which_is_not_told_this_time_has_come_to_it() {
    let reserve = |value, threshold| {
        let mut attribute = attribute(22, "Helium_Level", value, 25, "100").prefailure();
        if threshold {
            attribute.when_failed = WhenFailed::Never;
        } else {
            (attribute.threshold, attribute.when_failed) = (None, WhenFailed::Untold);
        }
        disk().with(attribute)
    };
    assert_eq!(said(&after(&[reserve(100, true), reserve(60, false)])), []);
    assert_eq!(
        said(&after(&[reserve(100, true), reserve(25, false)])),
        [(Reason::SmartAttributeFailing, Severity::Bad)]
    );
    assert_eq!(
        said(&after(&[
            reserve(100, true),
            reserve(25, false),
            reserve(30, false)
        ])),
        [(Reason::SmartAttributeFailing, Severity::Suspect)]
    );
}

#[test]
fn other_warnings_of_nvme_make_an_old_verdict_void() {
    let mut failing = nvme().nvme(|log| log.critical_warning = Some(0b10));
    (failing.passed, failing.exit_status) = (Some(false), 8);
    let mut cool = nvme();
    (cool.passed, cool.exit_status) = (None, 4);
    assert_eq!(said(&after(&[failing, cool])), []);
}

#[test]
fn a_notice_of_firmware_stands_until_the_text_is_read_again_or_the_firmware_is_another() {
    let mut noticed = disk();
    (noticed.messages, noticed.with_text) =
        (vec![warning("==> WARNING: This firmware loses data")], true);
    let reasons = |reports: &[Report]| {
        said(&after(reports))
            .iter()
            .map(|(reason, _)| *reason)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        reasons(&[noticed.clone(), disk(), disk()]),
        [Reason::FirmwareNotice]
    );
    let read_again = Report {
        with_text: true,
        ..disk()
    };
    assert_eq!(reasons(&[noticed.clone(), disk(), read_again]), []);
    assert_eq!(
        reasons(&[
            noticed,
            disk().identity(|identity| identity.firmware = Some("2.0".into()))
        ]),
        []
    );
}

#[test]
fn a_self_test_log_that_was_not_read_is_as_it_was_and_the_drives_word_on_the_last_test_comes_before_it()
 {
    let read = disk().tests(&[self_test(true, Outcome::Passed)]);
    let mut unread = disk();
    unread.self_tests = Default::default();
    assert_eq!(
        completed(unread.clone(), &read).self_tests.log,
        read.self_tests.log
    );
    unread.self_tests.last = Some(Outcome::Failed);
    unread.self_tests.log = vec![crate::model::smart::report::SelfTest {
        kind: "The last".into(),
        ..self_test(false, Outcome::Failed)
    }];
    let memory = after(&[read.clone(), unread.clone(), unread.clone()]);
    let (_, last) = memory.last.as_ref().unwrap();
    assert_eq!(
        last.self_tests
            .log
            .iter()
            .map(|test| test.outcome)
            .collect::<Vec<_>>(),
        [Outcome::Failed, Outcome::Passed]
    );
    assert_eq!(said(&memory), [(Reason::SelfTestFailed, Severity::Bad)]);
    assert_eq!(said(&after(&[read.clone(), unread.clone(), read])), []);
    let mut passed = disk();
    passed.self_tests.last = Some(Outcome::Passed);
    assert_eq!(
        said(&after(&[unread, passed])),
        [],
        "of a drive whose log is never read, its word is all there is"
    );
}

#[test]
fn one_of_several_counters_that_is_not_told_once_is_no_reset_and_no_growth() {
    let verify = |count| {
        sas().scsi(|pages| {
            pages
                .verify
                .iter_mut()
                .for_each(|counter| counter.uncorrected = count)
        })
    };
    let memory = after(&[
        verify(Some(500)),
        verify(None),
        verify(Some(500)),
        verify(None),
        verify(Some(500)),
    ]);
    let series = &memory.series[&Metric::UncorrectedErrors];
    assert_eq!(
        (
            series.reset,
            series.growth(jiff::SignedDuration::from_hours(99))
        ),
        (None, None)
    );
}

#[test]
fn what_was_not_told_is_no_reading() {
    let mut silent = disk().ata(|ata| *ata = Ata::default());
    silent.temperature = None;
    let memory = after(&[disk(), silent]);
    assert_eq!(
        memory.series[&Metric::Pending]
            .points
            .iter()
            .map(|point| point.at)
            .collect::<Vec<_>>(),
        [hour(0)]
    );
    assert_eq!(memory.last.unwrap().0, hour(1));
}

#[test]
fn nothing_is_taken_over_from_another_drive_or_another_kind_of_drive() {
    let another = disk()
        .ata(|ata| *ata = Ata::default())
        .identity(|identity| identity.serial = Some("TEST0002".into()));
    let memory = after(&[troubled().remove(0), another.clone()]);
    assert_eq!(*memory.last.unwrap().1, another);
    let as_scsi = Report {
        body: sas().body,
        identity: disk().identity,
        ..disk()
    };
    assert_eq!(completed(as_scsi.clone(), &troubled().remove(0)), as_scsi);
}

#[test]
fn what_another_smartctl_counted_before_the_start_is_not_compared_with() {
    let older = after(&[disk().raw(187, "1")]);
    let mut newer = Memory::default();
    newer.take(
        &Report {
            smartctl: [7, 5],
            ..disk().raw(187, "90")
        },
        hour(9),
    );
    newer.take(
        &Report {
            smartctl: [7, 5],
            ..disk().raw(187, "91")
        },
        hour(10),
    );
    newer.join(older);
    let growth = newer.series[&Metric::ReportedUncorrectable]
        .growth(jiff::SignedDuration::from_hours(99))
        .expect("what came since");
    assert_eq!((growth.by, growth.occasions), (1, 1));
}

#[test]
fn what_the_store_remembers_completes_what_was_heard_since() {
    let older = after(&[disk().ata(|ata| ata.pending_defects = Some(3))]);
    let mut newer = Memory::default();
    newer.take(&disk(), hour(9));
    newer.join(older);
    assert_eq!(said(&newer), [(Reason::PendingSectors, Severity::Suspect)]);
}
