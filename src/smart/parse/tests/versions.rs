//! What differs between versions of smartctl, and between drives.

use serde_json::json;

use super::*;
use crate::report::{SelfTestOutcome, WhenFailed};

#[test]
fn grown_defects_are_bytes_up_to_7_1_and_elements_from_7_2() {
    let defects = |version, told: u64| {
        let pages = json!({"scsi_grown_defect_list": told, "temperature": {"current": 30}});
        parse_scsi(&scsi(version, 0, pages)).grown_defects
    };
    assert_eq!(defects([7, 0], 24), Some(3));
    assert_eq!(defects([7, 1], 8), Some(1));
    assert_eq!(defects([7, 1], 12), Some(3), "not a multiple of eight: elements of four bytes");
    assert_eq!(defects([7, 1], 0), Some(0));
    assert_eq!(defects([7, 1], 1), Some(1), "some are never none");
    assert_eq!(defects([7, 2], 24), Some(24));
}

#[test]
fn scsi_names_have_a_prefix_from_7_3() {
    let old = json!({"vendor": "ACME", "product": "SAS9000  ", "model_name": "ACME SAS9000", "revision": "R1"});
    let new = json!({"scsi_vendor": "ACME", "scsi_product": "SAS9000", "scsi_model_name": "ACME SAS9000", "scsi_revision": "R1"});
    for document in [scsi([7, 2], 0, old), scsi([7, 3], 0, new)] {
        let identity = parse_report(&document).identity;
        assert_eq!(identity.vendor.as_deref(), Some("ACME"));
        assert_eq!(identity.model.as_deref(), Some("SAS9000"));
        assert_eq!(identity.firmware.as_deref(), Some("R1"));
        assert_eq!(identity.wwn.as_deref(), Some("naa.5000abc123456789"));
    }
}

#[test]
fn the_trip_temperature_moved_in_7_3() {
    let old = json!({"temperature": {"current": 31, "drive_trip": 65}});
    let new = json!({"temperature": {"current": 31}, "scsi_temperature": {"drive_trip": 65}});
    for document in [scsi([7, 1], 0, old), scsi([7, 4], 0, new)] {
        let report = parse_report(&document);
        assert_eq!((report.temperature, report.temperature_limit), (Some(31), Some(65)));
    }
    let none = parse_report(&scsi(
        [7, 4],
        0,
        json!({"temperature": {"current": 0}, "scsi_temperature": {"drive_trip": 0}}),
    ));
    assert_eq!((none.temperature, none.temperature_limit), (None, None));
}

#[test]
fn scsi_self_tests_are_reported_from_7_3() {
    let document = scsi(
        [7, 3],
        0,
        json!({
            "scsi_self_test_0": {"code": {"value": 1, "string": "Background short"}, "result": {"value": 15, "string": "Self test in progress ..."},
                "self_test_in_progress": true},
            "scsi_self_test_1": {"code": {"value": 2, "string": "Background long"}, "result": {"value": 7, "string": "Failed in segment -->"},
                "power_on_time": {"hours": 1200}, "lba_first_failure": {"value": 77}},
            "scsi_self_test_2": {"code": {"value": 1, "string": "Background short"}, "result": {"value": 0, "string": "Completed"},
                "power_on_time": {"hours": 1100}},
            "scsi_self_test_3": {"code": {"value": 1, "string": "Background short"}, "result": {"value": 2, "string": "Aborted (device reset ?)"},
                "power_on_time": {"hours": 1000}},
            "scsi_extended_self_test_seconds": 3601,
        }),
    );
    let tests = parse_report(&document).self_tests;
    let outcomes: Vec<_> =
        tests.log.iter().map(|test| (test.outcome, test.extended, test.hours)).collect();
    let expected = [
        (SelfTestOutcome::Running, false, None),
        (SelfTestOutcome::Failed, true, Some(1200)),
        (SelfTestOutcome::Passed, false, Some(1100)),
        (SelfTestOutcome::Other, false, Some(1000)),
    ];
    assert_eq!(outcomes, expected);
    assert_eq!((tests.log[1].lba, tests.long_minutes), (Some(77), Some(61)));
}

#[test]
fn nvme_logs_are_reported_from_7_4() {
    let document = nvme(
        [7, 4],
        0,
        json!({
            "nvme_self_test_log": {"nsid": -1, "current_self_test_operation": {"value": 2, "string": "Extended self-test in progress"},
                "current_self_test_completion_percent": 30,
                "table": [
                    {"self_test_code": {"value": 2, "string": "Extended"}, "self_test_result": {"value": 7, "string": "Completed: failed segments"},
                     "power_on_hours": 900, "lba": 4096, "segment": 3},
                    {"self_test_code": {"value": 1, "string": "Short"}, "self_test_result": {"value": 1, "string": "Aborted: Self-test command"},
                     "power_on_hours": 800}]},
            "nvme_error_information_log": {"size": 64, "read": 16, "unread": 0, "table": [
                {"error_count": 9, "status_field": {"value": 0x2002, "status_code_type": 0, "status_code": 2, "string": "Invalid Field in Command"}},
                {"error_count": 8, "status_field": {"value": 0x281, "status_code_type": 2, "status_code": 129, "string": "Unrecovered Read Error"},
                 "lba": {"value": 4242}}]},
        }),
    );
    let report = parse_report(&document);
    assert_eq!(report.self_tests.running, Some(70));
    let outcomes: Vec<_> =
        report.self_tests.log.iter().map(|test| (test.outcome, test.extended, test.lba)).collect();
    assert_eq!(
        outcomes,
        [(SelfTestOutcome::Failed, true, Some(4096)), (SelfTestOutcome::Other, false, None)]
    );
    let errors: Vec<_> =
        parse_nvme(&document).last_errors.into_iter().map(|error| error.text).collect();
    assert_eq!(
        errors,
        ["Unrecovered Read Error at LBA 4242"],
        "a refused command is no error of the medium"
    );
}

#[test]
fn an_nvme_health_log_is_read_in_every_version() {
    for version in [[7, 0], [7, 2], [7, 5]] {
        let report = parse_report(&nvme(version, 0, json!({})));
        assert_eq!(
            (report.power_on_hours, report.power_cycles, report.temperature),
            (Some(1000), Some(7), Some(38))
        );
        let log = parse_nvme(&nvme(version, 0, json!({})));
        assert_eq!(
            (log.critical_warning, log.available_spare, log.available_spare_threshold),
            (Some(0), Some(100), Some(10))
        );
        assert_eq!(
            (log.percentage_used, log.media_errors, log.error_log_entries),
            (Some(3), Some(0), Some(55))
        );
    }
}

#[test]
fn counters_of_128_bits_are_read_unless_all_bits_are_set() {
    let text = nvme(
        [7, 5],
        0,
        json!({"nvme_smart_health_information_log": {"media_errors": "MARK", "unsafe_shutdowns": "x", "unsafe_shutdowns_s": "18446744073709551614"}}),
    );
    let text = text.to_string().replace("\"MARK\"", "340282366920938463463374607431768211455");
    let Ok(SmartResponse::Report(report)) = parse(text.as_bytes()) else { panic!("not told") };
    let crate::report::Body::Nvme(log) = report.body else { panic!("not NVMe") };
    assert_eq!((log.media_errors, log.unsafe_shutdowns), (None, Some(u64::MAX - 1)));
}

#[test]
fn spare_and_endurance_of_7_5_stand_in_where_a_log_lacks_them() {
    let more = json!({"spare_available": {"current_percent": 98, "threshold_percent": 5}, "endurance_used": {"current_percent": 12}});
    let ata = parse_ata(&ata(
        [7, 5],
        0,
        super::merged(json!({"smart_status": {"passed": true}}), more.clone()),
    ));
    assert_eq!((ata.spare_available, ata.endurance_used), (Some(98), Some(12)));
    let scsi = parse_scsi(&scsi([7, 5], 0, more.clone()));
    assert_eq!(scsi.percentage_used, Some(12));
    let mut document = nvme([7, 5], 0, more);
    document["nvme_smart_health_information_log"] = json!({});
    let nvme = parse_nvme(&document);
    assert_eq!(
        (nvme.available_spare, nvme.available_spare_threshold, nvme.percentage_used),
        (Some(98), Some(5), Some(12))
    );
}

#[test]
fn an_attribute_without_a_threshold_has_none() {
    let document = ata(
        [7, 2],
        0,
        json!({"ata_smart_attributes": {"revision": 4, "table": [
            {"id": 5, "name": "Reallocated_Sector_Ct", "value": 100, "worst": 100, "thresh": 10, "when_failed": "",
             "flags": {"value": 51, "prefailure": true}, "raw": {"value": 7, "string": "7"}},
            {"id": 230, "name": "Media_Wearout", "value": 98, "worst": 98, "flags": {"value": 50, "prefailure": false}, "raw": {"value": 5, "string": "5"}},
            {"id": 190, "name": "Airflow_Temperature_Cel", "value": 44, "worst": 40, "thresh": 45, "when_failed": "now",
             "flags": {"value": 34}, "raw": {"value": 1_013_841_976_u64, "string": "56 (Min/Max 20/60)"}},
            {"id": 3, "name": "Spin_Up_Time", "value": 100, "worst": 20, "thresh": 25, "when_failed": "past", "flags": {"value": 39}, "raw": {"value": 0}},
            {"name": "no number", "value": 1}]}}),
    );
    let attributes = parse_ata(&document).attributes;
    let read: Vec<_> = attributes
        .iter()
        .map(|row| (row.id, row.threshold, row.when_failed, row.prefailure, row.raw_text.as_str()))
        .collect();
    let expected = [
        (5, Some(10), WhenFailed::Never, true, "7"),
        (230, None, WhenFailed::Unknown, false, "5"),
        (190, Some(45), WhenFailed::Now, false, "56 (Min/Max 20/60)"),
        (3, Some(25), WhenFailed::Past, true, "0"),
    ];
    assert_eq!(read, expected);
}

#[test]
fn the_extended_logs_are_preferred() {
    let test = |value: u8, words: &str, hours: u64, kind: u8| {
        json!({"type": {"value": kind, "string": if kind == 2 { "Extended offline" } else { "Short offline" }},
               "status": {"value": value, "string": words, "passed": value >> 4 == 0}, "lifetime_hours": hours})
    };
    let document = ata(
        [7, 3],
        64,
        json!({
            "ata_smart_error_log": {
                "summary": {"revision": 1, "count": 3, "table": [{"error_number": 3, "lifetime_hours": 10, "error_description": "of the summary"}]},
                "extended": {"revision": 1, "sectors": 1, "count": 5, "table": [
                    {"error_number": 5, "lifetime_hours": 20, "completion_registers": {"error": 64, "status": 65, "lba": 999},
                     "error_description": "Error: UNC at LBA = 0x000003e7 = 999"},
                    {"error_number": 4, "lifetime_hours": 19, "completion_registers": {"error": 132, "status": 81, "lba": 1}}]}},
            "ata_smart_self_test_log": {
                "standard": {"revision": 1, "count": 1, "table": [test(0, "Completed without error", 1, 1)]},
                "extended": {"revision": 1, "sectors": 1, "count": 5, "table": [
                    test(0x79, "Completed: read failure", 30, 2), test(0x10, "Aborted by host", 29, 1), test(0x20, "Interrupted (host reset)", 28, 1),
                    test(0, "Completed without error", 27, 1), test(0x30, "Fatal or unknown error", 26, 1)]}},
            "ata_smart_data": {"self_test": {"status": {"value": 0xf9, "string": "in progress, 90% remaining", "remaining_percent": 90},
                "polling_minutes": {"short": 2, "extended": 480}}},
        }),
    );
    let report = parse_report(&document);
    let ata = parse_ata(&document);
    assert_eq!(ata.error_count, Some(5));
    let errors: Vec<_> =
        ata.last_errors.iter().map(|error| (error.hours, error.text.as_str())).collect();
    assert_eq!(
        errors,
        [
            (Some(20), "Error: UNC at LBA = 0x000003e7 = 999"),
            (Some(19), "Error: ICRC, ABRT at LBA = 1")
        ]
    );
    let outcomes: Vec<_> =
        report.self_tests.log.iter().map(|test| (test.outcome, test.extended)).collect();
    let expected = [
        (SelfTestOutcome::Failed, true),
        (SelfTestOutcome::Other, false),
        (SelfTestOutcome::Other, false),
        (SelfTestOutcome::Passed, false),
        (SelfTestOutcome::Failed, false),
    ];
    assert_eq!(outcomes, expected);
    assert_eq!(
        (
            report.self_tests.running,
            report.self_tests.short_minutes,
            report.self_tests.long_minutes
        ),
        (Some(90), Some(2), Some(480))
    );
}

#[test]
fn a_failed_last_test_counts_where_no_log_was_read() {
    let status = json!({"value": 0x79, "string": "completed having the read element of the test failed", "passed": false});
    let alone =
        parse_report(&ata([7, 0], 0, json!({"ata_smart_data": {"self_test": {"status": status}}})));
    assert_eq!(alone.self_tests.log.len(), 1);
    assert_eq!(alone.self_tests.log[0].outcome, SelfTestOutcome::Failed);
    assert_eq!(alone.self_tests.running, None);
    let logged = json!({"smart_status": {"passed": true}, "ata_smart_data": {"self_test": {"status": status}}, "ata_smart_self_test_log": {"standard": {"count": 0}}});
    let logged = parse_report(&ata([7, 0], 0, logged)).self_tests;
    assert!(logged.log.is_empty());
    assert_eq!(
        (alone.self_tests.log_read, alone.self_tests.last),
        (false, Some(SelfTestOutcome::Failed))
    );
    assert_eq!((logged.log_read, logged.last), (true, None), "an empty log that was read is empty");
}

#[test]
fn log_read_says_whether_the_self_test_log_was_read() {
    let passed = || json!({"smart_status": {"passed": true}});
    let is_told = |document: Value| parse_report(&document).self_tests.log_read;
    assert!(!is_told(ata([7, 3], 4, passed())));
    assert!(!is_told(nvme([7, 3], 0, json!({}))));
    assert!(is_told(nvme(
        [7, 4],
        0,
        json!({"nvme_self_test_log": {"nsid": -1, "current_self_test_operation": {"value": 0}}})
    )));
    assert!(!is_told(scsi([7, 3], 0, passed())));
    let result = json!({"code": {"value": 1, "string": "Background short"}, "result": {"value": 0, "string": "Completed"}});
    assert!(is_told(scsi([7, 3], 0, json!({"scsi_self_test_0": result}))));
}

#[test]
fn a_warning_of_drivedb_is_taken_from_the_text() {
    let output = json!([
        "=== START OF INFORMATION SECTION ===",
        "Device Model:     ACME SPIN4000-A",
        "",
        "==> WARNING: This firmware may forget what it wrote,",
        "see the following page:",
        "https://acme.example/firmware",
        "",
        "SMART support is: Enabled",
        "==> WARNING: It is loud, too.",
        ""
    ]);
    let mut document = ata([7, 3], 0, json!({"smart_status": {"passed": true}}));
    assert!(!parse_report(&document).with_text);
    document["smartctl"]["output"] = output;
    document["smartctl"]["messages"] =
        json!([{"string": "==> WARNING: It is loud, too.", "severity": "warning"}]);
    let report = parse_report(&document);
    assert!(report.with_text);
    let texts: Vec<(&str, &str)> = report
        .messages
        .iter()
        .map(|message| (message.severity.as_str(), message.text.as_str()))
        .collect();
    let long = "==> WARNING: This firmware may forget what it wrote, see the following page: https://acme.example/firmware";
    assert_eq!(texts, [("warning", "==> WARNING: It is loud, too."), ("warning", long)]);
}

#[test]
fn only_valid_statistics_are_read() {
    let row = |offset: u32, valid: bool, value: i64| json!({"offset": offset, "name": "Row", "size": 1, "value": value, "flags": {"value": 0xa0, "valid": valid, "normalized": true}});
    let pages = json!([{"number": 7, "name": "Solid State Device Statistics", "table": [row(8, true, 3), row(16, false, 9)]}]);
    let statistics =
        parse_ata(&ata([7, 1], 0, json!({"ata_device_statistics": {"pages": pages}}))).statistics;
    let read: Vec<_> =
        statistics.iter().map(|row| (row.page, row.offset, row.value, row.normalized)).collect();
    assert_eq!(read, [(7, 8, 3, true)]);
}

#[test]
fn scsi_counters_exceptions_and_scans_are_read() {
    let document = scsi(
        [7, 3],
        8,
        json!({
            "smart_status": {"passed": false, "scsi": {"asc": 0x5d, "ascq": 0x10, "ie_string": "HARDWARE IMPENDING FAILURE GENERAL HARD DRIVE FAILURE"}},
            "scsi_error_counter_log": {
                "read": {"total_errors_corrected": 5, "gigabytes_processed": "12.345", "total_uncorrected_errors": 2},
                "write": {"gigabytes_processed": "1.0"}},
            "scsi_pending_defects": {"count": 4},
            "scsi_percentage_used_endurance_indicator": 9,
            "scsi_background_scan": {"status": {"value": 8, "string": "waiting until BMS interval timer expires", "number_scans_performed": 4},
                "result_1": {"sense_key": {"value": 3}, "asc": 17, "ascq": 0, "lba": 1, "reassign_status": {"value": 1}},
                "result_2": {"sense_key": {"value": 3}, "asc": 17, "ascq": 0, "lba": 2, "reassign_status": {"value": 5}},
                "result_3": {"sense_key": {"value": 1}, "asc": 24, "ascq": 0, "lba": 3, "reassign_status": {"value": 5}}},
        }),
    );
    let body = parse_scsi(&document);
    assert_eq!(
        body.exception.as_ref().map(|exception| (exception.asc, exception.ascq)),
        Some((0x5d, 0x10))
    );
    let read = body.read.expect("a row");
    assert_eq!(
        (read.corrected, read.uncorrected, read.gigabytes.as_deref()),
        (Some(5), Some(2), Some("12.345"))
    );
    assert_eq!((body.write, body.verify), (None, None), "a row without counts is none");
    assert_eq!(
        (body.pending_defects, body.percentage_used, body.background_errors),
        (Some(4), Some(9), Some(1))
    );
    assert_eq!(body.background_scan.as_deref(), Some("waiting until BMS interval timer expires"));
}

#[test]
fn names_are_as_sysfs_writes_them() {
    let wwn = |document: &serde_json::Value| parse_report(document).identity.wwn;
    let health = json!({"smart_status": {"passed": true}});
    assert_eq!(wwn(&ata([7, 3], 0, health)).as_deref(), Some("naa.5000abc123456789"));
    let eui = json!({"nvme_namespaces": [{"id": 1, "eui64": {"oui": 0xacde48, "ext_id": 0x23_4567_89ab_u64}}]});
    assert_eq!(wwn(&nvme([7, 3], 0, eui)).as_deref(), Some("eui.acde4823456789ab"));
    let zero = json!({"nvme_namespaces": [{"id": 1, "eui64": {"oui": 0, "ext_id": 0}}]});
    assert_eq!(wwn(&nvme([7, 3], 0, zero)), None);
    let two = json!({"nvme_namespaces": [{"id": 1, "eui64": {"oui": 1, "ext_id": 1}}, {"id": 2, "eui64": {"oui": 1, "ext_id": 2}}]});
    assert_eq!(wwn(&nvme([7, 3], 0, two)), None, "no namespace is the controller");
}

#[test]
fn texts_are_trimmed_and_empty_ones_absent() {
    let more = json!({"smart_status": {"passed": true}, "model_family": "  ", "serial_number": "--", "firmware_version": " A1\u{0} "});
    let identity = parse_report(&ata([7, 3], 0, more)).identity;
    assert_eq!(
        (identity.family, identity.serial, identity.firmware.as_deref()),
        (None, None, Some("A1"))
    );
}
