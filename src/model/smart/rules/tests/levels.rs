//! What one report says, rule by rule.

use crate::model::finding::Severity::{Bad, Info, Suspect};
use crate::model::reason::Reason::*;
use crate::model::smart::fixture::*;
use crate::model::smart::report::{Body, Exception, Message, Outcome, WhenFailed};
use crate::model::smart::rules::tests::said;

// The drive as a whole.

#[test]
fn a_drive_that_says_that_it_fails_is_bad() {
    for mut report in [disk(), ssd(), nvme(), sas()] {
        report.passed = Some(false);
        assert_eq!(said(&report), [(SmartFailing, Bad)]);
    }
}

#[test]
fn exit_status_bit_3_stands_for_a_verdict_that_is_not_told() {
    let mut report = disk();
    (report.passed, report.exit_status) = (None, 8);
    assert_eq!(said(&report), [(SmartFailing, Bad)]);
    report.exit_status = !8;
    assert_eq!(said(&report), []);
    (report.passed, report.exit_status) = (Some(true), 8);
    assert_eq!(said(&report), []);
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
        (
            0b1110,
            vec![
                (SmartFailing, Bad),
                (DriveReadOnly, Bad),
                (Overheating, Suspect),
            ],
        ),
    ] {
        let mut report = nvme().nvme(|log| log.critical_warning = Some(bits));
        (report.passed, report.exit_status) = (Some(false), 8);
        assert_eq!(said(&report), expected, "{bits:#b}");
    }
}

#[test]
fn an_nvme_drive_that_fails_without_saying_why_fails() {
    let mut report = nvme().nvme(|log| log.critical_warning = None);
    report.passed = Some(false);
    assert_eq!(said(&report), [(SmartFailing, Bad)]);
}

#[test]
fn entries_in_nvmes_error_log_are_no_fault() {
    assert_eq!(
        said(&nvme().nvme(|log| log.error_log_entries = Some(4871))),
        []
    );
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
            pages.exception = Some(Exception {
                asc,
                ascq,
                text: "what the drive says".into(),
            })
        });
        (report.passed, report.exit_status) = (Some(false), 8);
        assert_eq!(said(&report), expected, "{asc:x}/{ascq:x}");
    }
}

// Attributes at their thresholds.

#[test]
fn a_pre_failure_attribute_at_its_threshold_is_bad_now_and_suspect_in_the_past() {
    let helium = |when| {
        attribute(22, "Helium_Level", 25, 25, "100")
            .prefailure()
            .failed(when)
    };
    assert_eq!(
        said(&disk().with(helium(WhenFailed::Now))),
        [(SmartAttributeFailing, Bad)]
    );
    assert_eq!(
        said(&disk().with(helium(WhenFailed::Past))),
        [(SmartAttributeFailing, Suspect)]
    );
    assert_eq!(said(&disk().with(helium(WhenFailed::Never))), []);
    assert_eq!(said(&disk().with(helium(WhenFailed::Untold))), []);
}

#[test]
fn any_other_attribute_at_its_threshold_is_suspect() {
    let high_fly = |when| attribute(189, "High_Fly_Writes", 1, 1, "900").failed(when);
    assert_eq!(
        said(&disk().with(high_fly(WhenFailed::Now))),
        [(SmartAttributeSuspect, Suspect)]
    );
    assert_eq!(
        said(&disk().with(high_fly(WhenFailed::Past))),
        [(SmartAttributeSuspect, Suspect)]
    );
}

#[test]
fn a_threshold_that_a_new_drive_has_reached_is_none() {
    let meaningless =
        attribute(183, "Unknown_Attribute", 100, 100, "8519780").failed(WhenFailed::Now);
    assert_eq!(said(&ssd().with(meaningless.clone())), []);
    assert_eq!(said(&ssd().with(meaningless.clone().prefailure())), []);
    let (mut beyond_all, mut has_left) = (meaningless.clone(), meaningless);
    (beyond_all.value, beyond_all.threshold) = (60, Some(255));
    assert_eq!(said(&ssd().with(beyond_all)), []);
    has_left.worst = 99;
    assert_eq!(
        said(&ssd().with(has_left)),
        [(SmartAttributeSuspect, Suspect)]
    );
}

#[test]
fn an_attribute_of_the_temperature_never_fails_a_drive() {
    let airflow = |value| attribute(190, "Airflow_Temperature_Cel", value, 45, "59").prefailure();
    assert_eq!(
        said(
            &disk()
                .celsius(59, None)
                .with(airflow(41).failed(WhenFailed::Now))
        ),
        [(Overheating, Suspect)]
    );
    assert_eq!(said(&disk().with(airflow(65).failed(WhenFailed::Past))), []);
}

#[test]
fn an_attribute_of_the_temperature_that_the_drive_itself_belies_is_information() {
    let upside_down = attribute(190, "Airflow_Temperature_Cel", 18, 69, "18")
        .prefailure()
        .failed(WhenFailed::Now);
    let mut report = ssd().celsius(18, None).with(upside_down);
    assert_eq!(said(&report), [(Overheating, Info)]);
    // A bridge, so that smartctl's verdict is made of the same attribute.
    report.passed = Some(false);
    assert_eq!(said(&report), [(SmartFailing, Bad), (Overheating, Info)]);
    report.messages = vec![Message {
        text: "Warning: This result is based on an Attribute check.".into(),
        severity: "warning".into(),
    }];
    assert_eq!(said(&report), [(Overheating, Info)]);
}

#[test]
fn attributes_without_thresholds_say_nothing() {
    let mut untold = attribute(9, "Power_On_Hours", 1, 0, "70000").failed(WhenFailed::Untold);
    untold.threshold = None;
    assert_eq!(said(&disk().with(untold)), []);
}

// Sectors and errors.

#[test]
fn pending_sectors_are_suspect_from_one_and_bad_from_a_hundred() {
    for id in [197, 198] {
        assert_eq!(said(&disk().raw(id, "0")), []);
        assert_eq!(said(&disk().raw(id, "1")), [(PendingSectors, Suspect)]);
        assert_eq!(said(&disk().raw(id, "99")), [(PendingSectors, Suspect)]);
        assert_eq!(said(&disk().raw(id, "100")), [(PendingSectors, Bad)]);
    }
    assert_eq!(
        said(&sas().scsi(|pages| pages.pending_defects = Some(3))),
        [(PendingSectors, Suspect)]
    );
}

#[test]
fn what_the_background_scan_met_is_suspect() {
    assert_eq!(
        said(&sas().scsi(|pages| pages.background_errors = Some(0))),
        []
    );
    assert_eq!(
        said(&sas().scsi(|pages| pages.background_errors = Some(2000))),
        [(PendingSectors, Suspect)]
    );
}

#[test]
fn reallocated_sectors_are_suspect_from_one_and_bad_from_a_thousand() {
    assert_eq!(said(&disk().raw(5, "1")), [(ReallocatedSectors, Suspect)]);
    assert_eq!(said(&disk().raw(5, "999")), [(ReallocatedSectors, Suspect)]);
    assert_eq!(said(&disk().raw(5, "1000")), [(ReallocatedSectors, Bad)]);
    assert_eq!(
        said(&sas().scsi(|pages| pages.grown_defects = Some(999))),
        [(ReallocatedSectors, Suspect)]
    );
    assert_eq!(
        said(&sas().scsi(|pages| pages.grown_defects = Some(1000))),
        [(ReallocatedSectors, Bad)]
    );
}

#[test]
fn many_reallocated_blocks_of_an_ssd_are_bad_only_when_its_own_scale_has_fallen() {
    let blocks =
        |value| ssd().with(attribute(5, "Reallocated_Sector_Ct", value, 10, "1500").prefailure());
    assert_eq!(said(&blocks(95)), [(ReallocatedSectors, Suspect)]);
    assert_eq!(said(&blocks(60)), [(ReallocatedSectors, Bad)]);
}

#[test]
fn attempts_to_reallocate_accuse_nobody() {
    assert_eq!(
        said(&disk().with(attribute(196, "Reallocated_Event_Count", 97, 0, "13496"))),
        []
    );
}

#[test]
fn uncorrectable_errors_are_suspect_however_many_but_for_scsi() {
    assert_eq!(said(&disk().raw(187, "1")), [(MediaErrors, Suspect)]);
    assert_eq!(said(&disk().raw(187, "5000")), [(MediaErrors, Suspect)]);
    assert_eq!(
        said(&nvme().nvme(|log| log.media_errors = Some(142))),
        [(MediaErrors, Suspect)]
    );
    let writes =
        |count| sas().scsi(|pages| pages.write.as_mut().unwrap().uncorrected = Some(count));
    assert_eq!(said(&writes(99)), [(MediaErrors, Suspect)]);
    assert_eq!(said(&writes(100)), [(MediaErrors, Bad)]);
}

#[test]
fn end_to_end_errors_and_spin_retries_are_suspect_from_one() {
    assert_eq!(
        said(&disk().with(attribute(184, "End-to-End_Error", 99, 97, "1"))),
        [(SmartAttributeSuspect, Suspect)]
    );
    assert_eq!(
        said(&disk().raw(10, "1")),
        [(SmartAttributeSuspect, Suspect)]
    );
}

#[test]
fn old_counts_of_crc_errors_time_outs_and_logged_errors_are_nothing() {
    let report = disk()
        .raw(199, "644")
        .with(attribute(188, "Command_Timeout", 100, 0, "33"))
        .with(attribute(201, "Soft_Read_Error_Rate", 100, 0, "9"))
        .ata(|ata| ata.error_count = Some(131));
    assert_eq!(said(&report), []);
}

// Self-tests, newest first.

#[test]
fn a_failed_self_test_is_bad_until_an_extended_one_has_passed() {
    let (passed, failed) = (
        self_test(true, Outcome::Passed),
        self_test(true, Outcome::Failed),
    );
    assert_eq!(
        said(&disk().tests(std::slice::from_ref(&failed))),
        [(SelfTestFailed, Bad)]
    );
    assert_eq!(
        said(&disk().tests(&[failed.clone(), passed.clone()])),
        [(SelfTestFailed, Bad)]
    );
    assert_eq!(said(&disk().tests(&[passed, failed])), []);
}

#[test]
fn a_short_test_that_passed_outdates_no_failure_of_an_extended_one() {
    let (short, failed) = (
        self_test(false, Outcome::Passed),
        self_test(true, Outcome::Failed),
    );
    assert_eq!(
        said(&disk().tests(&[short.clone(), short.clone(), failed])),
        [(SelfTestFailed, Bad)]
    );
    assert_eq!(
        said(&disk().tests(&[short, self_test(false, Outcome::Failed)])),
        [(SelfTestFailed, Suspect)]
    );
}

#[test]
fn tests_that_were_broken_off_or_still_run_are_no_failures() {
    assert_eq!(
        said(&disk().tests(&[
            self_test(true, Outcome::Running),
            self_test(true, Outcome::Other)
        ])),
        []
    );
}

// Wear and reserve.

#[test]
fn wear_is_suspect_from_eighty_percent_and_never_bad() {
    let used = |percent| nvme().nvme(|log| log.percentage_used = Some(percent));
    assert_eq!(said(&used(79)), []);
    assert_eq!(said(&used(80)), [(WornOut, Suspect)]);
    assert_eq!(said(&used(255)), [(WornOut, Suspect)]);
    assert_eq!(
        said(&ssd().with(attribute(233, "Media_Wearout_Indicator", 20, 0, "0"))),
        [(WornOut, Suspect)]
    );
    assert_eq!(
        said(&ssd().with(attribute(233, "Media_Wearout_Indicator", 21, 0, "0"))),
        []
    );
    assert_eq!(
        said(&sas().scsi(|pages| pages.percentage_used = Some(100))),
        [(WornOut, Suspect)]
    );
}

#[test]
fn wear_at_its_makers_threshold_is_suspect_as_wear() {
    let worn = attribute(202, "Percent_Lifetime_Remain", 0, 1, "100").failed(WhenFailed::Now);
    assert_eq!(said(&ssd().with(worn)), [(WornOut, Suspect)]);
}

#[test]
fn spare_blocks_are_low_on_the_way_to_the_limit_and_used_up_beyond_it() {
    let spare = |left| nvme().nvme(|log| log.available_spare = Some(left));
    assert_eq!(said(&spare(29)), []);
    assert_eq!(said(&spare(28)), [(SpareLow, Suspect)]);
    assert_eq!(said(&spare(10)), [(SpareLow, Suspect)]);
    assert_eq!(said(&spare(9)), [(SpareLow, Bad)]);
}

#[test]
fn a_limit_just_below_a_hundred_is_no_low_spare() {
    assert_eq!(
        said(&nvme().nvme(|log| log.available_spare_threshold = Some(99))),
        []
    );
}

#[test]
fn a_spare_or_limit_that_is_not_told_says_nothing() {
    assert_eq!(said(&nvme().nvme(|log| log.available_spare = None)), []);
    assert_eq!(
        said(
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
    assert_eq!(said(&reserve(29)), []);
    assert_eq!(said(&reserve(28)), [(SpareLow, Suspect)]);
}

// Heat.

#[test]
fn what_smartctl_says_of_wear_and_spare_blocks_of_an_unknown_ssd_counts() {
    let unknown = |used, spare, threshold| {
        let report = ssd().identity(|identity| identity.in_database = Some(false));
        report.ata(|ata| {
            (ata.endurance_used, ata.spare_available, ata.spare_threshold) =
                (used, spare, threshold)
        })
    };
    assert_eq!(said(&unknown(Some(79), Some(100), Some(10))), []);
    assert_eq!(said(&unknown(Some(99), None, None)), [(WornOut, Suspect)]);
    assert_eq!(
        said(&unknown(None, Some(3), Some(10))),
        [(SpareLow, Suspect)]
    );
    assert_eq!(
        said(&unknown(None, Some(3), None)),
        [],
        "without a threshold nothing says how many there were to be"
    );
}

#[test]
fn a_drive_is_too_warm_above_its_own_limit() {
    assert_eq!(said(&disk().celsius(55, Some(55))), []);
    assert_eq!(
        said(&disk().celsius(56, Some(55))),
        [(Overheating, Suspect)]
    );
    assert_eq!(said(&nvme().celsius(84, Some(84))), []);
    assert_eq!(
        said(&nvme().celsius(85, Some(84))),
        [(Overheating, Suspect)]
    );
    assert_eq!(said(&sas().celsius(66, Some(65))), [(Overheating, Suspect)]);
}

#[test]
fn without_a_limit_of_its_own_its_kind_decides() {
    assert_eq!(
        (
            said(&disk().celsius(60, None)),
            said(&disk().celsius(61, None))
        ),
        (vec![], vec![(Overheating, Suspect)])
    );
    assert_eq!(
        (
            said(&ssd().celsius(70, None)),
            said(&ssd().celsius(71, None))
        ),
        (vec![], vec![(Overheating, Suspect)])
    );
    assert_eq!(said(&nvme().celsius(95, None)), []);
}

#[test]
fn limits_and_readings_of_drives_that_do_not_know_are_none() {
    assert_eq!(said(&sas().celsius(38, Some(0))), []);
    assert_eq!(said(&disk().celsius(255, None)), []);
    assert_eq!(said(&disk().celsius(-60, None)), []);
}

#[test]
fn a_report_of_nothing_says_nothing() {
    let mut report = disk();
    report.body = Body::None;
    report.temperature = None;
    report.passed = None;
    assert_eq!(said(&report), []);
}
