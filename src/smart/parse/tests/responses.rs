//! What counts as an answer.

use serde_json::json;

use super::*;
use crate::parse::version;
use crate::report::ErrorRecovery::{Deciseconds, Off, Unsupported};

fn message(version: [u32; 2], exit_status: u8, text: &str, severity: &str) -> Value {
    document(
        version,
        exit_status,
        json!({"smartctl": {"messages": [{"string": text, "severity": severity}]}}),
    )
}

fn failed(document: &Value) -> String {
    match read(document) {
        Ok(SmartResponse::Failed { why }) => why,
        other => panic!("not failed: {other:?}"),
    }
}

fn not_applicable(document: &Value) -> (String, String) {
    match read(document) {
        Ok(SmartResponse::NotApplicable { why, hint, .. }) => (why, hint.unwrap_or_default()),
        other => panic!("not inapplicable: {other:?}"),
    }
}

fn said_so(document: &Value) -> bool {
    match read(document) {
        Ok(SmartResponse::NotApplicable { said_so, .. }) => said_so,
        other => panic!("not inapplicable: {other:?}"),
    }
}

#[test]
fn a_drive_that_could_not_be_asked_has_not_said_that_it_has_no_smart() {
    let unknown = "/dev/sdb: Unknown USB bridge [0x1234:0x5678 (0x100)]";
    let refused = "Read Device Identity failed: scsi error unsupported scsi opcode";
    for text in [unknown, "/dev/sdb: Unable to detect device type", refused] {
        assert!(!said_so(&message([7, 3], 2, text, "error")), "{text}");
    }
    let without = "SMART support is: Unavailable - device lacks SMART capability.";
    assert!(said_so(&message([7, 3], 4, without, "error")));
}

#[test]
fn a_failed_command_is_ignored_when_health_is_reported() {
    let report = parse_report(&ata([7, 3], 4, json!({"smart_status": {"passed": true}})));
    assert_eq!((report.exit_status, report.passed), (4, Some(true)));
}

#[test]
fn error_recovery_is_off_unsupported_limited_or_unknown() {
    let timer = |enabled: bool, limit: Value| json!({"enabled": enabled, "deciseconds": limit});
    let supported = |it: bool| json!({"value": 61, "error_recovery_control_supported": it});
    let timers = |read: Value, write: Value| json!({"ata_sct_capabilities": supported(true), "ata_sct_erc": {"read": read, "write": write}});
    let read = |mut more: Value| {
        more["smart_status"] = json!({"passed": true});
        parse_ata(&ata([7, 3], 0, more)).error_recovery
    };
    for (document, expected) in [
        (timers(timer(true, json!(70)), timer(true, json!(100))), Some(Deciseconds(100))),
        (timers(json!({"enabled": false}), timer(true, json!(70))), Some(Off)),
        (json!({"ata_sct_capabilities": supported(false)}), Some(Unsupported)),
        (json!({"ata_sct_capabilities": supported(true)}), None),
        (json!({}), None),
    ] {
        assert_eq!(read(document.clone()), expected, "{document}");
    }
}

#[test]
fn a_missing_self_assessment_is_unknown_and_attributes_still_count() {
    let table = json!([{"id": 9, "name": "Power_On_Hours", "value": 90, "worst": 90, "thresh": 0, "when_failed": "", "raw": {"value": 5, "string": "5"}}]);
    let report = parse_report(&ata([7, 3], 4, json!({"ata_smart_attributes": {"table": table}})));
    assert_eq!(report.passed, None);
    assert!(report.has_health_data());
}

#[test]
fn identity_alone_is_no_health_data() {
    assert!(failed(&ata([7, 1], 0, json!({}))).contains("smartctl -a"));
    let supported = json!({"smart_support": {"available": true, "enabled": true}, "smartctl": {"messages": [{"string": "Read SMART Data failed: scsi error aborted command", "severity": "error"}]}});
    assert_eq!(
        failed(&ata([7, 4], 4, supported)),
        "Read SMART Data failed: scsi error aborted command"
    );
    let mut temperature_only = scsi(
        [7, 3],
        4,
        json!({"temperature": {"current": 30}, "smart_support": {"available": true, "enabled": true}}),
    );
    temperature_only["smart_status"] = Value::Null;
    assert!(failed(&temperature_only).contains("exit status bit 2"));
}

#[test]
fn a_drive_in_standby_is_standby() {
    for (words, mode) in [
        ("Device is in STANDBY mode, exit(2)", "STANDBY"),
        ("Device is in STANDBY (OS) mode, exit(2)", "STANDBY (OS)"),
        ("Device is in IDLE_B mode, exit(2)", "IDLE_B"),
    ] {
        for exit_status in [2, 0] {
            let mut document = message([7, 3], exit_status, words, "information");
            merge(
                &mut document,
                json!({"device": {"name": "/dev/sdx", "type": "sat", "protocol": "ATA"}, "power_mode": {"ata_value": 0, "name": "STANDBY"}}),
            );
            assert_eq!(
                read(&document).expect("an answer"),
                SmartResponse::Standby { mode: mode.to_owned() }
            );
        }
    }
}

#[test]
fn a_failed_check_power_mode_is_not_standby() {
    let mut document = message([7, 3], 2, "Device is in SLEEP mode, exit(2)", "information");
    merge(&mut document, json!({"device": {"name": "/dev/sdx", "type": "sat", "protocol": "ATA"}}));
    assert!(
        matches!(read(&document).expect("an answer"), SmartResponse::Failed { why } if why.contains("CHECK POWER MODE"))
    );
}

#[test]
fn devices_without_smart_are_no_fault() {
    let (_, hint) = not_applicable(&message(
        [7, 2],
        1,
        "/dev/sdx: Unknown USB bridge [0xabcd:0x0001 (0x100)]",
        "error",
    ));
    assert!(hint.contains("device_type"));
    let (_, hint) =
        not_applicable(&message([7, 0], 1, "/dev/loop0: Unable to detect device type", "error"));
    assert!(hint.contains("megaraid"));
    let mut volume = scsi(
        [7, 3],
        4,
        json!({"scsi_vendor": "ACME", "scsi_product": "RAID 5 Volume", "smart_support": {"available": false}, "temperature": {"current": 0}}),
    );
    volume["smart_status"] = Value::Null;
    assert!(not_applicable(&volume).0.contains("no SMART"));
    let mut old = scsi(
        [7, 0],
        4,
        json!({"vendor": "ACME", "product": "RAID 1 Volume", "temperature": {"current": 0, "drive_trip": 0}}),
    );
    old["smart_status"] = Value::Null;
    assert!(not_applicable(&old).0.contains("no SMART"), "up to 7.2 the JSON has no smart_support");
    let (_, hint) = not_applicable(&ata(
        [7, 3],
        4,
        json!({"smart_support": {"available": true, "enabled": false}}),
    ));
    assert!(hint.contains("smartctl -s on"));
    parse_report(&ata(
        [7, 3],
        0,
        json!({"smart_support": {"available": true, "enabled": false}, "smart_status": {"passed": true}}),
    ));
    let reader = json!({"device": {"name": "/dev/sdx", "type": "scsi", "protocol": "SCSI"}, "smartctl": {"output": ["NO MEDIUM present in device"]}});
    assert!(not_applicable(&document([7, 4], 2, reader)).0.contains("no medium"));
}

#[test]
fn a_refused_command_means_no_smart_and_an_unanswered_one_means_failure() {
    let bridge = |why: &str| {
        let more = json!({"device": {"name": "/dev/sdx", "type": "sat", "protocol": "ATA"}});
        merged(
            message([7, 5], 2, &format!("Read Device Identity failed: scsi error {why}"), "error"),
            more,
        )
    };
    assert!(not_applicable(&bridge("unsupported scsi opcode")).1.contains("device_type"));
    not_applicable(&bridge("unsupported field in scsi command"));
    assert!(failed(&bridge("aborted command")).contains("aborted command"));
    assert!(failed(&bridge("hardware or medium error")).contains("medium error"));
    let log = |why: &str| {
        let text = format!("Read NVMe SMART/Health Information failed: {why}");
        let more = json!({"device": {"name": "/dev/nvme9", "type": "nvme", "protocol": "NVMe"}, "model_name": "CLOUD BLOCK STORE"});
        merged(message([7, 3], 4, &text, "error"), more)
    };
    for why in [
        "NVMe Status 0x02",
        "NVMe Status 0x2002",
        "NVMe Status 0x4109",
        "Invalid Field in Command (0x002)",
    ] {
        assert!(not_applicable(&log(why)).0.contains("virtual"), "{why}");
    }
    for why in [
        "NVMe Status 0x06",
        "Internal Error (0x006)",
        "NVME_IOCTL_ADMIN_CMD: Permission denied",
        "Input/output error",
    ] {
        assert!(failed(&log(why)).contains(why));
    }
}

#[test]
fn a_failed_query_states_its_reason() {
    let denied =
        message([7, 2], 2, "Smartctl open device: /dev/sdx failed: Permission denied", "error");
    assert!(failed(&denied).contains("Permission denied"));
    let refused = message(
        [7, 3],
        1,
        "/dev/sdx: Option -d areca,N/E requires device name /dev/arcmsrX",
        "error",
    );
    assert!(failed(&refused).starts_with("smartctl refused to ask: "));
    let silent = document(
        [7, 2],
        2,
        json!({"device": {"name": "/dev/sdx", "type": "scsi", "protocol": "SCSI"}}),
    );
    assert!(failed(&silent).contains("bit 1"));
}

#[test]
fn what_is_not_about_a_drive_is_an_error() {
    let scan = document(
        [7, 4],
        0,
        json!({"devices": [{"name": "/dev/sdx", "type": "sat", "protocol": "ATA"}]}),
    );
    assert!(matches!(read(&scan), Err(ParseError::NoDrive)));
    assert!(matches!(read(&document([7, 4], 0, json!({}))), Err(ParseError::NoDrive)));
    assert!(matches!(parse(br#"{"temperature": {"current": 30}}"#), Err(ParseError::NotSmartctl)));
    assert!(matches!(parse(b"[1, 2]"), Err(ParseError::NotSmartctl)));
    assert!(matches!(parse(b"\x00\xffjunk"), Err(ParseError::Json(_))));
    assert!(matches!(parse(b""), Err(ParseError::Json(_))));
}

#[test]
fn smartctl_text_is_distinguished_from_junk() {
    let text =
        b"smartctl 7.3 2022-02-28 r5338 [x86_64-linux-6.1.0] (local build)\n=== START OF INFORMATION SECTION ===\nDevice Model: ACME\n";
    assert!(matches!(parse(text), Err(ParseError::TextOutput)));
    assert!(matches!(
        parse(b"=== START OF READ SMART DATA SECTION ===\n"),
        Err(ParseError::TextOutput)
    ));
    assert!(matches!(
        parse(b"smartctl 6.6 2017-11-05 r4594 [x86_64-linux]\n"),
        Err(ParseError::TooOld([6, 6]))
    ));
}

#[test]
fn old_versions_and_none_are_refused() {
    let passed = || json!({"smart_status": {"passed": true}});
    assert!(matches!(read(&ata([6, 6], 0, passed())), Err(ParseError::TooOld([6, 6]))));
    parse_report(&ata([6, 7], 0, passed()));
    let asked = version(ata([6, 7], 0, passed()).to_string().as_bytes());
    assert!(
        matches!(asked, Err(ParseError::TooOld([6, 7]))),
        "a development version is read where it was recorded, and not asked"
    );
    let mut document = ata([7, 3], 0, json!({"smart_status": {"passed": true}}));
    document["smartctl"]["version"] = json!("seven");
    assert!(matches!(read(&document), Err(ParseError::NoVersion)));
}

#[test]
fn the_version_is_read_from_json_and_from_text() {
    assert_eq!(
        version(document([7, 5], 0, json!({})).to_string().as_bytes()).expect("a version"),
        [7, 5]
    );
    assert_eq!(
        version(b"smartctl 7.1 2019-12-30 r5022 [x86_64-linux]\n").expect("a version"),
        [7, 1]
    );
    assert!(matches!(version(b"smartctl 6.2 2013-07-26 r3841\n"), Err(ParseError::TooOld([6, 2]))));
    assert!(matches!(version(b"bash: smartctl: command not found"), Err(ParseError::Json(_))));
}

#[test]
fn invalid_utf8_loses_no_field() {
    let text = ata([7, 3], 0, json!({"smart_status": {"passed": false}}))
        .to_string()
        .replace("ACME SPIN", "ACME@SPIN");
    let bytes: Vec<u8> = text.bytes().map(|byte| if byte == b'@' { 0xe9 } else { byte }).collect();
    let Ok(SmartResponse::Report(report)) = parse(&bytes) else { panic!("not told") };
    assert_eq!(report.passed, Some(false));
}

#[test]
fn a_field_of_the_wrong_type_is_skipped_alone() {
    let odd = json!({"smart_status": {"passed": false}, "temperature": "warm", "power_on_time": [1], "model_name": {"a": 1}, "user_capacity": {"bytes": "4000"},
        "ata_smart_attributes": {"table": {"no": "table"}}, "ata_smart_error_log": 7});
    let report = parse_report(&ata([7, 3], 8, odd));
    assert_eq!(
        (report.passed, report.temperature, report.power_on_hours),
        (Some(false), None, None)
    );
    assert_eq!(report.identity.size_bytes, Some(4000));
}
