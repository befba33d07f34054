//! What one report says, rule by rule.

use crate::fixture::*;
use crate::report::{
    Body, InformationalException, Message, SelfTest, SelfTestOutcome, SmartReport, WhenFailed,
};
use crate::rules::tests::hits;
use diskvitals_finding::reason::Reason::*;
use diskvitals_finding::severity::Severity::{Bad, Info, Suspect};

// The drive as a whole.

#[test]
fn a_failed_self_assessment_is_bad() {
    for mut report in [disk(), ssd(), nvme(), sas()] {
        report.passed = Some(false);
        assert_eq!(hits(&report), [(SmartFailing, Bad)]);
    }
}

#[test]
fn exit_status_bit_3_replaces_a_missing_self_assessment() {
    let mut report = disk();
    (report.passed, report.exit_status) = (None, 8);
    assert_eq!(hits(&report), [(SmartFailing, Bad)]);
    report.exit_status = !8;
    assert_eq!(hits(&report), []);
    (report.passed, report.exit_status) = (Some(true), 8);
    assert_eq!(hits(&report), []);
}

#[test]
fn each_critical_warning_of_nvme_has_its_own_meaning() {
    for (bits, expected) in [
        (0b1, vec![(SpareLow, Bad)]),
        (0b10, vec![(Overheating, Suspect)]),
        (0b100, vec![(SmartFailing, Bad)]),
        (0b1000, vec![(DriveReadOnly, Bad)]),
        (0b1_0000, vec![(SmartFailing, Bad)]),
        (0b10_0000, vec![(SmartAttributeSuspect, Suspect)]),
        (0b1000_0000, vec![(SmartAttributeSuspect, Suspect)]),
        (0b1110, vec![(SmartFailing, Bad), (DriveReadOnly, Bad), (Overheating, Suspect)]),
    ] {
        let mut report = nvme().nvme(|log| log.critical_warning = Some(bits));
        (report.passed, report.exit_status) = (Some(false), 8);
        assert_eq!(hits(&report), expected, "{bits:#b}");
    }
}

#[test]
fn an_nvme_failure_without_warning_bits_is_bad() {
    let mut report = nvme().nvme(|log| log.critical_warning = None);
    report.passed = Some(false);
    assert_eq!(hits(&report), [(SmartFailing, Bad)]);
}

#[test]
fn entries_in_nvmes_error_log_are_no_fault() {
    assert_eq!(hits(&nvme().nvme(|log| log.error_log_entries = Some(4871))), []);
}

#[test]
fn scsi_predicts_failure_by_5d_only() {
    for (asc, ascq, expected) in [
        (0x5d, 0x10, vec![(SmartFailing, Bad)]),
        (0x5d, 0xff, vec![(SmartFailing, Info)]),
        (0x0b, 0x01, vec![(Overheating, Suspect)]),
        (0x0b, 0x05, vec![(SmartAttributeSuspect, Suspect)]),
    ] {
        let mut report = sas().scsi(|pages| {
            pages.exception =
                Some(InformationalException { asc, ascq, text: "what the drive says".into() })
        });
        (report.passed, report.exit_status) = (Some(false), 8);
        assert_eq!(hits(&report), expected, "{asc:x}/{ascq:x}");
    }
}

// Attributes at their thresholds.

#[test]
fn a_pre_failure_attribute_at_its_threshold_is_bad_now_and_suspect_in_the_past() {
    let helium = |when| attribute(22, "Helium_Level", 25, 25, "100").prefailure().failed(when);
    assert_eq!(hits(&disk().with(helium(WhenFailed::Now))), [(SmartAttributeFailing, Bad)]);
    assert_eq!(hits(&disk().with(helium(WhenFailed::Past))), [(SmartAttributeFailing, Suspect)]);
    assert_eq!(hits(&disk().with(helium(WhenFailed::Never))), []);
    assert_eq!(hits(&disk().with(helium(WhenFailed::Unknown))), []);
}

#[test]
fn any_other_attribute_at_its_threshold_is_suspect() {
    let high_fly = |when| attribute(189, "High_Fly_Writes", 1, 1, "900").failed(when);
    assert_eq!(hits(&disk().with(high_fly(WhenFailed::Now))), [(SmartAttributeSuspect, Suspect)]);
    assert_eq!(hits(&disk().with(high_fly(WhenFailed::Past))), [(SmartAttributeSuspect, Suspect)]);
}

#[test]
fn a_threshold_that_a_new_drive_reaches_is_ignored() {
    let meaningless =
        attribute(183, "Unknown_Attribute", 100, 100, "8519780").failed(WhenFailed::Now);
    assert_eq!(hits(&ssd().with(meaningless.clone())), []);
    assert_eq!(hits(&ssd().with(meaningless.clone().prefailure())), []);
    let (mut beyond_all, mut has_left) = (meaningless.clone(), meaningless);
    (beyond_all.value, beyond_all.threshold) = (60, Some(255));
    assert_eq!(hits(&ssd().with(beyond_all)), []);
    has_left.worst = 99;
    assert_eq!(hits(&ssd().with(has_left)), [(SmartAttributeSuspect, Suspect)]);
}

#[test]
fn an_attribute_of_the_temperature_never_fails_a_drive() {
    let airflow = |value| attribute(190, "Airflow_Temperature_Cel", value, 45, "59").prefailure();
    assert_eq!(
        hits(&disk().celsius(59, None).with(airflow(41).failed(WhenFailed::Now))),
        [(Overheating, Suspect)]
    );
    assert_eq!(hits(&disk().with(airflow(65).failed(WhenFailed::Past))), []);
}

#[test]
fn a_temperature_attribute_contradicted_by_the_temperature_is_information() {
    let upside_down = attribute(190, "Airflow_Temperature_Cel", 18, 69, "18")
        .prefailure()
        .failed(WhenFailed::Now);
    let mut report = ssd().celsius(18, None).with(upside_down);
    assert_eq!(hits(&report), [(Overheating, Info)]);
    // A bridge, so that smartctl's verdict is made of the same attribute.
    report.passed = Some(false);
    assert_eq!(hits(&report), [(SmartFailing, Bad), (Overheating, Info)]);
    report.messages = vec![Message {
        text: "Warning: This result is based on an Attribute check.".into(),
        severity: "warning".into(),
    }];
    assert_eq!(hits(&report), [(Overheating, Info)]);
}

#[test]
fn attributes_without_thresholds_raise_no_finding() {
    let mut untold = attribute(9, "Power_On_Hours", 1, 0, "70000").failed(WhenFailed::Unknown);
    untold.threshold = None;
    assert_eq!(hits(&disk().with(untold)), []);
}

// Sectors and errors.

#[test]
fn pending_sectors_are_suspect_from_one_and_bad_from_a_hundred() {
    for id in [197, 198] {
        assert_eq!(hits(&disk().raw(id, "0")), []);
        assert_eq!(hits(&disk().raw(id, "1")), [(PendingSectors, Suspect)]);
        assert_eq!(hits(&disk().raw(id, "99")), [(PendingSectors, Suspect)]);
        assert_eq!(hits(&disk().raw(id, "100")), [(PendingSectors, Bad)]);
    }
    assert_eq!(
        hits(&sas().scsi(|pages| pages.pending_defects = Some(3))),
        [(PendingSectors, Suspect)]
    );
}

#[test]
fn background_scan_errors_are_suspect() {
    assert_eq!(hits(&sas().scsi(|pages| pages.background_errors = Some(0))), []);
    assert_eq!(
        hits(&sas().scsi(|pages| pages.background_errors = Some(2000))),
        [(PendingSectors, Suspect)]
    );
}

#[test]
fn reallocated_sectors_are_suspect_from_one_and_bad_from_a_thousand() {
    assert_eq!(hits(&disk().raw(5, "1")), [(ReallocatedSectors, Suspect)]);
    assert_eq!(hits(&disk().raw(5, "999")), [(ReallocatedSectors, Suspect)]);
    assert_eq!(hits(&disk().raw(5, "1000")), [(ReallocatedSectors, Bad)]);
    assert_eq!(
        hits(&sas().scsi(|pages| pages.grown_defects = Some(999))),
        [(ReallocatedSectors, Suspect)]
    );
    assert_eq!(
        hits(&sas().scsi(|pages| pages.grown_defects = Some(1000))),
        [(ReallocatedSectors, Bad)]
    );
}

#[test]
fn many_reallocated_blocks_of_an_ssd_are_bad_only_when_its_own_scale_has_fallen() {
    let blocks =
        |value| ssd().with(attribute(5, "Reallocated_Sector_Ct", value, 10, "1500").prefailure());
    assert_eq!(hits(&blocks(95)), [(ReallocatedSectors, Suspect)]);
    assert_eq!(hits(&blocks(60)), [(ReallocatedSectors, Bad)]);
}

#[test]
fn reallocation_events_alone_raise_no_finding() {
    assert_eq!(hits(&disk().with(attribute(196, "Reallocated_Event_Count", 97, 0, "13496"))), []);
}

#[test]
fn uncorrectable_errors_are_suspect_however_many_but_for_scsi() {
    assert_eq!(hits(&disk().raw(187, "1")), [(MediaErrors, Suspect)]);
    assert_eq!(hits(&disk().raw(187, "5000")), [(MediaErrors, Suspect)]);
    assert_eq!(hits(&nvme().nvme(|log| log.media_errors = Some(142))), [(MediaErrors, Suspect)]);
    let writes =
        |count| sas().scsi(|pages| pages.write.as_mut().unwrap().uncorrected = Some(count));
    assert_eq!(hits(&writes(99)), [(MediaErrors, Suspect)]);
    assert_eq!(hits(&writes(100)), [(MediaErrors, Bad)]);
}

#[test]
fn end_to_end_errors_and_spin_retries_are_suspect_from_one() {
    assert_eq!(
        hits(&disk().with(attribute(184, "End-to-End_Error", 99, 97, "1"))),
        [(SmartAttributeSuspect, Suspect)]
    );
    assert_eq!(hits(&disk().raw(10, "1")), [(SmartAttributeSuspect, Suspect)]);
}

#[test]
fn old_counts_of_crc_errors_time_outs_and_logged_errors_are_nothing() {
    let report = disk()
        .raw(199, "644")
        .with(attribute(188, "Command_Timeout", 100, 0, "33"))
        .with(attribute(201, "Soft_Read_Error_Rate", 100, 0, "9"))
        .ata(|ata| ata.error_count = Some(131));
    assert_eq!(hits(&report), []);
}

// Self-tests, newest first.

#[test]
fn a_failed_self_test_is_bad_until_an_extended_one_has_passed() {
    let (passed, failed) =
        (self_test(true, SelfTestOutcome::Passed), self_test(true, SelfTestOutcome::Failed));
    assert_eq!(hits(&disk().tests(std::slice::from_ref(&failed))), [(SelfTestFailed, Bad)]);
    assert_eq!(hits(&disk().tests(&[failed.clone(), passed.clone()])), [(SelfTestFailed, Bad)]);
    assert_eq!(hits(&disk().tests(&[passed, failed])), []);
}

#[test]
fn a_short_test_that_passed_outdates_no_failure_of_an_extended_one() {
    let (short, failed) =
        (self_test(false, SelfTestOutcome::Passed), self_test(true, SelfTestOutcome::Failed));
    assert_eq!(
        hits(&disk().tests(&[short.clone(), short.clone(), failed])),
        [(SelfTestFailed, Bad)]
    );
    assert_eq!(
        hits(&disk().tests(&[short, self_test(false, SelfTestOutcome::Failed)])),
        [(SelfTestFailed, Suspect)]
    );
}

/// Tests that passed at these hours of operation, the newest first, on a drive at hour `own`.
fn tested_at(report: SmartReport, own: u64, hours: &[u64]) -> SmartReport {
    let passed =
        |hours: &u64| SelfTest { hours: Some(*hours), ..self_test(false, SelfTestOutcome::Passed) };
    let tests: Vec<SelfTest> = hours.iter().map(passed).collect();
    SmartReport { power_on_hours: Some(own), ..report.tests(&tests) }
}

#[test]
fn a_drive_that_was_tested_before_is_to_be_tested_every_45_days_of_operation() {
    let day = 24;
    assert_eq!(hits(&tested_at(disk(), 1_045 * day, &[1_000 * day])), []);
    assert_eq!(hits(&tested_at(disk(), 1_046 * day, &[1_000 * day])), [(SelfTestOverdue, Info)]);
    // Where nobody tests, nothing is missed; what the factory tested is no schedule, and a drive that
    // logs the hour 0 for each test has none of them.
    assert_eq!(hits(&tested_at(disk(), 9_000 * day, &[])), []);
    assert_eq!(hits(&tested_at(disk(), 9_000 * day, &[1, 0])), []);
    // A test each quarter is not overdue before half a quarter more.
    let quarterly = [1_000, 910, 820].map(|at| at * day);
    assert_eq!(hits(&tested_at(disk(), 1_130 * day, &quarterly)), []);
    assert_eq!(hits(&tested_at(disk(), 1_136 * day, &quarterly)), [(SelfTestOverdue, Info)]);
}

#[test]
fn the_hours_of_tests_have_16_bits_except_in_nvme() {
    let (own, lately) = (70_000, 70_000 - 100 - (1 << 16));
    assert_eq!(hits(&tested_at(disk(), own, &[lately])), []);
    let nvme = tested_at(nvme(), own, &[lately]);
    assert_eq!(hits(&nvme), [(SelfTestOverdue, Info)]);
}

#[test]
fn a_test_that_was_aborted_or_runs_is_none_that_ended() {
    let at = |hours, outcome| SelfTest { hours: Some(hours), ..self_test(true, outcome) };
    let report = |newest| SmartReport {
        power_on_hours: Some(20_000),
        ..disk().tests(&[at(19_999, newest), at(10_000, SelfTestOutcome::Passed)])
    };
    assert_eq!(hits(&report(SelfTestOutcome::Other)), [(SelfTestOverdue, Info)]);
    assert_eq!(hits(&report(SelfTestOutcome::Running)), [(SelfTestOverdue, Info)]);
    assert_eq!(hits(&report(SelfTestOutcome::Passed)), []);
}

#[test]
fn aborted_and_running_self_tests_are_no_failures() {
    assert_eq!(
        hits(&disk().tests(&[
            self_test(true, SelfTestOutcome::Running),
            self_test(true, SelfTestOutcome::Other)
        ])),
        []
    );
}

// Wear and reserve.

#[test]
fn wear_is_suspect_from_eighty_percent_and_never_bad() {
    let used = |percent| nvme().nvme(|log| log.percentage_used = Some(percent));
    assert_eq!(hits(&used(79)), []);
    assert_eq!(hits(&used(80)), [(WornOut, Suspect)]);
    assert_eq!(hits(&used(255)), [(WornOut, Suspect)]);
    assert_eq!(
        hits(&ssd().with(attribute(233, "Media_Wearout_Indicator", 20, 0, "0"))),
        [(WornOut, Suspect)]
    );
    assert_eq!(hits(&ssd().with(attribute(233, "Media_Wearout_Indicator", 21, 0, "0"))), []);
    assert_eq!(hits(&sas().scsi(|pages| pages.percentage_used = Some(100))), [(WornOut, Suspect)]);
}

#[test]
fn wear_at_its_makers_threshold_is_suspect_as_wear() {
    let worn = attribute(202, "Percent_Lifetime_Remain", 0, 1, "100").failed(WhenFailed::Now);
    assert_eq!(hits(&ssd().with(worn)), [(WornOut, Suspect)]);
}

#[test]
fn spare_blocks_are_low_on_the_way_to_the_limit_and_used_up_beyond_it() {
    let spare = |left| nvme().nvme(|log| log.available_spare = Some(left));
    assert_eq!(hits(&spare(29)), []);
    assert_eq!(hits(&spare(28)), [(SpareLow, Suspect)]);
    assert_eq!(hits(&spare(10)), [(SpareLow, Suspect)]);
    assert_eq!(hits(&spare(9)), [(SpareLow, Bad)]);
}

#[test]
fn a_spare_threshold_just_below_100_percent_is_not_low_spare() {
    assert_eq!(hits(&nvme().nvme(|log| log.available_spare_threshold = Some(99))), []);
}

#[test]
fn a_missing_spare_or_threshold_raises_no_finding() {
    assert_eq!(hits(&nvme().nvme(|log| log.available_spare = None)), []);
    assert_eq!(
        hits(
            &nvme()
                .nvme(|log| (log.available_spare, log.available_spare_threshold) = (Some(1), None))
        ),
        []
    );
}

#[test]
fn the_reserve_of_a_sata_ssd_is_low_on_the_way_to_its_threshold() {
    let reserve =
        |left| ssd().with(attribute(232, "Available_Reservd_Space", left, 10, "0").prefailure());
    assert_eq!(hits(&reserve(29)), []);
    assert_eq!(hits(&reserve(28)), [(SpareLow, Suspect)]);
}

// Heat.

#[test]
fn smartctls_own_wear_and_spare_values_apply_to_an_unknown_ssd() {
    let unknown = |used, spare, threshold| {
        let report = ssd().identity(|identity| identity.in_database = Some(false));
        report.ata(|ata| {
            (ata.endurance_used, ata.spare_available, ata.spare_threshold) =
                (used, spare, threshold)
        })
    };
    assert_eq!(hits(&unknown(Some(79), Some(100), Some(10))), []);
    assert_eq!(hits(&unknown(Some(99), None, None)), [(WornOut, Suspect)]);
    assert_eq!(hits(&unknown(None, Some(3), Some(10))), [(SpareLow, Suspect)]);
    assert_eq!(
        hits(&unknown(None, Some(3), None)),
        [],
        "without a threshold nothing says how many there were to be"
    );
}

#[test]
fn a_drive_is_too_warm_above_its_own_limit() {
    assert_eq!(hits(&disk().celsius(55, Some(55))), []);
    assert_eq!(hits(&disk().celsius(56, Some(55))), [(Overheating, Suspect)]);
    assert_eq!(hits(&nvme().celsius(84, Some(84))), []);
    assert_eq!(hits(&nvme().celsius(85, Some(84))), [(Overheating, Suspect)]);
    assert_eq!(hits(&sas().celsius(66, Some(65))), [(Overheating, Suspect)]);
}

#[test]
fn without_a_drive_limit_the_default_for_its_kind_applies() {
    assert_eq!(
        (hits(&disk().celsius(60, None)), hits(&disk().celsius(61, None))),
        (vec![], vec![(Overheating, Suspect)])
    );
    assert_eq!(
        (hits(&ssd().celsius(70, None)), hits(&ssd().celsius(71, None))),
        (vec![], vec![(Overheating, Suspect)])
    );
    assert_eq!(hits(&nvme().celsius(95, None)), []);
}

#[test]
fn implausible_temperatures_and_limits_are_ignored() {
    assert_eq!(hits(&sas().celsius(38, Some(0))), []);
    assert_eq!(hits(&disk().celsius(255, None)), []);
    assert_eq!(hits(&disk().celsius(-60, None)), []);
}

#[test]
fn an_empty_report_raises_no_finding() {
    let mut report = disk();
    report.body = Body::None;
    report.temperature = None;
    report.passed = None;
    assert_eq!(hits(&report), []);
}
