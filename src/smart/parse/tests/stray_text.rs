//! What stands around the drive's answer: text beside the JSON, and a bridge that answers itself.

use serde_json::json;

use super::*;
use crate::report::Body;

fn report_of(text: &str) -> SmartReport {
    match parse(text.as_bytes()) {
        Ok(SmartResponse::Report(report)) => *report,
        other => panic!("no report: {other:?}"),
    }
}

fn failure(document: &Value) -> String {
    match read(document) {
        Ok(SmartResponse::Failed { why }) => why,
        other => panic!("not failed: {other:?}"),
    }
}

#[test]
fn text_around_the_json_is_left_out_and_quoted() {
    let predicts = json!({"smart_status": {"passed": false, "scsi": {"asc": 0x5d, "ascq": 0x10, "ie_string": "FAILURE PREDICTION"}}});
    let document = scsi([7, 1], 8, predicts).to_string();
    for (before, after) in [
        ("  Pending defect count:", ""),
        ("  Pending defect count: 0 Pending Defects\n", "\n"),
        ("warning {odd} text {\n", ""),
        ("root@node:~# smartctl -x -j /dev/sdb\n", "\nroot@node:~# "),
        ("smartctl 7.1 2019-12-30 r5022 [x86_64-linux]\n", ""),
        ("", "\nsmartctl: {a} line on standard error\n"),
        ("=== START OF READ SMART DATA SECTION ===\n", ""),
    ] {
        let report = report_of(&format!("{before}{document}{after}"));
        assert_eq!(report.passed, Some(false), "{before}");
        let Body::Scsi(pages) = &report.body else { panic!("{:?}", report.body) };
        assert!(pages.exception.is_some());
        let [note] = report.notes.as_slice() else { panic!("{before}: {:?}", report.notes) };
        assert!(note.contains("update smartmontools"), "{note}");
    }
    assert!(report_of(&format!("\u{feff}\n {document}\n")).notes.is_empty());
    let newer = nvme([7, 4], 0, json!({})).to_string();
    let note = &report_of(&format!("$ cat nvme.json\n{newer}")).notes[0];
    assert!(note.contains("$ cat nvme.json") && !note.contains("update"), "{note}");
}

#[test]
fn two_outputs_in_one_file_are_refused() {
    let (good, bad) =
        (nvme([7, 4], 0, json!({})), ata([7, 4], 8, json!({"smart_status": {"passed": false}})));
    for text in [format!("{good}{bad}"), format!("{good}\n--\n{bad}\n"), format!("[{good},{bad}]")]
    {
        assert!(matches!(parse(text.as_bytes()), Err(ParseError::SeveralOutputs)), "{text}");
    }
}

#[test]
fn passed_alone_from_a_bridge_is_no_answer_and_names_the_types_to_try() {
    let bridge = |more: Value| {
        let mut document = scsi([7, 4], 0, more);
        document.as_object_mut().expect("an object").remove("logical_unit_id");
        document
    };
    for (serial, vendor, product, types) in [
        (json!(null), "ASMT", "2115", "sntasmedia"),
        (json!("000000000000"), "JMicron", "Tech", "sntjmicron"),
        (json!("0123456789ABCDEF"), "Realtek", "RTL9210B-CG", "sntrealtek"),
        (json!("DB98765432100"), "Generic", "External", "megaraid,N"),
        (json!("A1"), "HP", "LOGICAL VOLUME", "cciss,N"),
        (json!(""), "DELL", "PERC H740P", "megaraid,N"),
    ] {
        let more = json!({"serial_number": serial, "scsi_vendor": vendor, "scsi_product": product, "temperature": {"current": 0, "drive_trip": 0}});
        let why = failure(&bridge(more));
        assert!(why.contains(types) && why.contains("-d"), "{why}");
    }
    // With anything that only a drive knows, it is one.
    let nobody = json!({"serial_number": null});
    for more in [
        json!({"serial_number": "WFK0A1BC"}),
        json!({"temperature": {"current": 31}}),
        json!({"power_on_time": {"hours": 4, "minutes": 1}}),
        json!({"scsi_grown_defect_list": 3}),
        json!({"scsi_start_stop_cycle_counter": {"accumulated_start_stop_cycles": 12}}),
        json!({"scsi_error_counter_log": {"read": {"total_errors_corrected": 5, "total_uncorrected_errors": 0, "gigabytes_processed": "46.2"}}}),
    ] {
        let document = bridge(merged(nobody.clone(), more));
        assert_eq!(parse_report(&document).passed, Some(true), "{document}");
    }
    // Its bad word is not ignored.
    let failing = json!({"serial_number": null, "smart_status": {"passed": false, "scsi": {"asc": 0x5d, "ascq": 0, "ie_string": "FAILURE PREDICTION"}}});
    assert_eq!(parse_report(&bridge(failing)).passed, Some(false));
}
