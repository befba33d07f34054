//! Values that no drive reports: they are left out with a note, and prove neither health nor
//! failure.

use serde_json::json;

use super::*;
use crate::policy::SmartPolicy;
use crate::report::{Body, SelfTestOutcome};
use crate::rules::evaluate;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;

const ONES_128: &str = "340282366920938463463374607431768211455";

fn findings(report: &SmartReport) -> Vec<(Reason, Severity)> {
    let hits = evaluate(report, None, &SmartPolicy::default());
    hits.iter().map(|hit| (hit.reason, hit.severity)).collect()
}

fn no_answer(document: &Value) -> String {
    match read(document) {
        Ok(SmartResponse::Failed { why }) => why,
        other => panic!("not failed: {other:?}"),
    }
}

fn health_log(fields: Value) -> Value {
    let mut document = nvme([7, 4], 0, json!({"nvme_smart_health_information_log": fields}));
    let log = &document["nvme_smart_health_information_log"];
    let warning = log["critical_warning"].clone();
    document["smart_status"] = json!({"passed": warning == json!(0), "nvme": {"value": warning}});
    document["smartctl"]["exit_status"] = json!(if warning == json!(0) { 0 } else { 8 });
    document
}

#[test]
fn the_ceiling_of_the_used_percent_alone_is_wear() {
    let report = parse_report(&health_log(json!({"percentage_used": 255})));
    assert_eq!(report.notes, Vec::<String>::new());
    assert_eq!(findings(&report), [(Reason::WornOut, Severity::Suspect)]);
}

#[test]
fn one_invalid_field_of_the_health_log_is_left_out_alone() {
    for (fields, named) in [
        (json!({"available_spare_threshold": 255}), "spare threshold 255 %"),
        (json!({"available_spare": 200}), "available spare 200 %"),
        (json!({"media_errors": u64::MAX}), "media errors"),
        (json!({"media_errors": 0xffff_ffff_u64}), "media errors"),
        (json!({"temperature": 65262}), "temperature"),
    ] {
        let report = parse_report(&health_log(fields));
        assert_eq!(findings(&report), [], "{named}");
        assert!(report.has_health_data());
        let [note] = report.notes.as_slice() else { panic!("{:?}", report.notes) };
        assert!(note.contains(named), "{note}");
    }
}

#[test]
fn a_health_log_with_several_invalid_fields_proves_nothing() {
    for fields in [
        json!({"available_spare": 64, "available_spare_threshold": 255, "percentage_used": 255}),
        json!({"available_spare": 255, "available_spare_threshold": 255}),
        json!({"percentage_used": 255, "media_errors": u64::MAX}),
        // Without the warnings no verdict is left.
        json!({"critical_warning": 255}),
        json!({"critical_warning": 0x84}),
        json!({"critical_warning": 255, "temperature": 65262, "available_spare": 255, "available_spare_threshold": 255, "percentage_used": 255,
            "media_errors": ONES_128, "data_units_read": ONES_128, "data_units_written": ONES_128, "power_on_hours": ONES_128, "power_cycles": ONES_128}),
    ] {
        let why = no_answer(&health_log(fields));
        assert!(why.contains("no drive reports"), "{why}");
    }
    // A warning with defined bits still counts.
    let warned = health_log(
        json!({"critical_warning": 8, "available_spare_threshold": 255, "percentage_used": 255}),
    );
    assert_eq!(findings(&parse_report(&warned)), [(Reason::DriveReadOnly, Severity::Bad)]);
}

#[test]
fn a_health_log_of_zeros_proves_nothing() {
    let zeros = json!({"critical_warning": 0, "temperature": -273, "available_spare": 0, "available_spare_threshold": 0, "percentage_used": 0,
        "data_units_read": 0, "data_units_written": 0, "power_cycles": 0, "power_on_hours": 0, "unsafe_shutdowns": 0, "media_errors": 0, "num_err_log_entries": 0});
    let log = health_log(zeros.clone());
    assert!(no_answer(&log).contains("all zero"));
    // Passed self-tests are no verdict; a failed one is.
    let test = |result: u8| {
        json!({"nvme_self_test_log": {"current_self_test_operation": {"value": 0}, "table": [
        {"self_test_code": {"value": 2, "string": "Extended"}, "self_test_result": {"value": result, "string": "text"}, "power_on_hours": 7}]}})
    };
    no_answer(&merged(log.clone(), test(0)));
    let report = parse_report(&merged(log, test(7)));
    assert_eq!(findings(&report), [(Reason::SelfTestFailed, Severity::Bad)]);
    // A drive that counts no spare blocks reports other things.
    let counts_nothing = merged(zeros, json!({"temperature": 50, "power_on_hours": 3}));
    assert_eq!(findings(&parse_report(&health_log(counts_nothing))), []);
}

fn row(id: u8, value: u8, threshold: u8, raw: u64) -> Value {
    let failed = if value <= threshold && threshold > 0 { "now" } else { "" };
    json!({"id": id, "name": "Reallocated_Sector_Ct", "value": value, "worst": value, "thresh": threshold, "when_failed": failed,
        "flags": {"prefailure": true}, "raw": {"value": raw, "string": raw.to_string()}})
}

fn attributes(passed: bool, rows: Vec<Value>) -> Value {
    let status = if passed { 0 } else { 8 };
    ata(
        [7, 3],
        status,
        json!({"smart_status": {"passed": passed}, "ata_smart_attributes": {"table": rows}}),
    )
}

#[test]
fn attributes_of_zeros_or_ones_prove_nothing() {
    const ONES: u64 = 0xffff_ffff_ffff;
    let ones = || vec![row(255, 255, 255, ONES), row(255, 255, 255, ONES), row(5, 255, 255, ONES)];
    assert!(no_answer(&attributes(true, ones())).contains("all bits set"));
    assert!(
        no_answer(&attributes(true, vec![row(1, 0, 0, 0), row(5, 0, 0, 0)])).contains("all zero")
    );
    // smartctl derived the verdict from them.
    let check = json!({"smartctl": {"messages": [{"string": "Warning: This result is based on an Attribute check.", "severity": "warning"}]}});
    no_answer(&merged(attributes(false, ones()), check));
    // Beside valid rows, they only do not count.
    let report =
        parse_report(&attributes(true, vec![row(5, 100, 36, 0), row(255, 255, 255, ONES)]));
    assert_eq!((findings(&report), report.notes.len()), (vec![], 1));
    let counted = parse_report(&attributes(true, vec![row(5, 100, 36, 0xffff_ffff)]));
    assert_eq!(findings(&counted), []);
}

#[test]
fn scsi_pages_of_zeros_or_ones_prove_nothing() {
    let counters = |count: u64| json!({"total_errors_corrected": count, "total_uncorrected_errors": count, "gigabytes_processed": "0.000"});
    let pages = |count: u64, defects: u64| json!({"scsi_grown_defect_list": defects, "scsi_error_counter_log": {"read": counters(count), "write": counters(count)}});
    for page in [pages(0, 0), pages(u64::MAX, 0xffff_ffff), pages(0xffff_ffff, 0x1fff_ffff)] {
        let why = no_answer(&scsi([7, 3], 0, page));
        assert!(why.contains("-d"), "{why}");
    }
    // The other pages of a drive still count.
    let warm = json!({"temperature": {"current": 30}, "power_on_time": {"hours": 900}});
    for page in [pages(0, 0), pages(u64::MAX, 0)] {
        let report = parse_report(&scsi([7, 3], 0, merged(page, warm.clone())));
        assert_eq!(findings(&report), []);
        assert_eq!(report.passed, Some(true));
    }
    let sense = json!({"smart_status": {"passed": false, "scsi": {"asc": 255, "ascq": 255, "ie_string": "?"}}});
    no_answer(&scsi([7, 3], 8, sense));
}

fn nvme_test(code: u8, result: u8, hours: u64) -> Value {
    json!({"self_test_code": {"value": code, "string": "code"}, "self_test_result": {"value": result, "string": "result"}, "power_on_hours": hours})
}

fn nvme_log(table: Value) -> Value {
    nvme(
        [7, 5],
        0,
        json!({"power_on_time": {"hours": 1000}, "nvme_self_test_log": {"current_self_test_operation": {"value": 0}, "table": table}}),
    )
}

#[test]
fn entries_behind_unused_ones_and_reserved_codes_are_no_tests() {
    for table in [
        json!([nvme_test(1, 0, 900), null, nvme_test(2, 7, 5)]),
        json!([nvme_test(1, 0, 900), nvme_test(1, 15, 0), nvme_test(2, 6, 5)]),
        json!([null, null, nvme_test(2, 5, 77_777_777)]),
        json!([nvme_test(1, 0, 900), nvme_test(9, 7, 5)]),
        json!([nvme_test(1, 0, 900), nvme_test(2, 12, 5)]),
    ] {
        let report = parse_report(&nvme_log(table));
        assert_eq!(findings(&report), [], "{report:?}");
        assert!(report.notes[0].contains("self-test log has 1 entry"), "{:?}", report.notes);
    }
    let test = |code: u8, status: u8, hours: u64| {
        json!({"type": {"value": code, "string": if code == 2 { "Extended offline" } else { "Short offline" }},
        "status": {"value": status, "string": "Completed: read failure", "passed": false}, "lifetime_hours": hours})
    };
    let log = |table: Value| {
        parse_report(&ata(
            [7, 3],
            0,
            json!({"smart_status": {"passed": true}, "power_on_time": {"hours": 9000},
        "ata_smart_self_test_log": {"standard": {"count": 2, "table": table}}}),
        ))
    };
    for table in [
        json!([test(1, 0, 8000), test(0, 0, 0), test(2, 0x70, 100)]),
        json!([test(1, 0, 8000), null, test(2, 0x70, 100)]),
        json!([test(1, 0, 8000), test(0x2a, 0x70, 100)]),
        json!([test(1, 0, 8000), test(2, 0x7c, 100)]),
        json!([test(1, 0, 8000), test(2, 0xb0, 100)]),
    ] {
        let report = log(table);
        assert_eq!(findings(&report), [], "{report:?}");
        assert_eq!(report.notes.len(), 1);
    }
    assert_eq!(
        findings(&log(json!([test(1, 0, 8000), test(2, 0x70, 100)]))),
        [(Reason::SelfTestFailed, Severity::Bad)]
    );
    let scsi_test = |code: u8, result: u8| json!({"code": {"value": code, "string": "code"}, "result": {"value": result, "string": "text"}, "power_on_time": {"hours": 3}});
    let report = parse_report(&scsi(
        [7, 4],
        0,
        json!({"temperature": {"current": 30}, "scsi_self_test_0": scsi_test(1, 0), "scsi_self_test_1": scsi_test(7, 5),
        "scsi_self_test_2": scsi_test(2, 9), "scsi_self_test_5": scsi_test(2, 7)}),
    ));
    assert_eq!(
        (findings(&report), report.self_tests.log.len(), report.notes.len()),
        (vec![], 1, 2)
    );
}

#[test]
fn hours_later_than_the_drives_own_make_only_the_age_unknown() {
    let report = parse_report(&nvme_log(json!([nvme_test(2, 7, 65_500), nvme_test(1, 7, 40)])));
    let tests = &report.self_tests.log;
    assert_eq!((tests[0].outcome, tests[0].hours), (SelfTestOutcome::Failed, None));
    assert_eq!(tests[1].hours, Some(40));
    assert_eq!(findings(&report), [(Reason::SelfTestFailed, Severity::Bad)]);
    assert!(
        report.notes[0].contains("65500") && report.notes[0].contains("1000"),
        "{:?}",
        report.notes
    );
}

#[test]
fn a_status_with_all_bits_set_is_no_running_test() {
    let status = json!({"smart_status": {"passed": true}, "ata_smart_data": {"self_test": {"status": {"value": 255, "string": "was in progress"}}}});
    let report = parse_report(&ata([7, 3], 0, status));
    assert_eq!((report.self_tests.running, report.self_tests.last), (None, None));
    assert!(matches!(report.body, Body::Ata(_)));
}
