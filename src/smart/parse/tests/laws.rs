//! What holds for any input.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Names that `parse` looks for.
const KEYS: &[&str] = &[
    "smartctl",
    "version",
    "exit_status",
    "messages",
    "string",
    "severity",
    "device",
    "devices",
    "name",
    "type",
    "protocol",
    "model_name",
    "serial_number",
    "wwn",
    "naa",
    "oui",
    "id",
    "logical_unit_id",
    "user_capacity",
    "bytes",
    "smart_status",
    "passed",
    "scsi",
    "nvme",
    "asc",
    "value",
    "smart_support",
    "available",
    "enabled",
    "temperature",
    "current",
    "power_on_time",
    "hours",
    "ata_smart_attributes",
    "table",
    "thresh",
    "when_failed",
    "flags",
    "raw",
    "ata_smart_data",
    "self_test",
    "status",
    "remaining_percent",
    "polling_minutes",
    "short",
    "ata_smart_self_test_log",
    "extended",
    "standard",
    "count",
    "ata_smart_error_log",
    "summary",
    "completion_registers",
    "error",
    "ata_device_statistics",
    "pages",
    "number",
    "offset",
    "nvme_smart_health_information_log",
    "critical_warning",
    "media_errors",
    "media_errors_s",
    "nvme_self_test_log",
    "self_test_result",
    "nvme_error_information_log",
    "status_field",
    "nvme_namespaces",
    "eui64",
    "ext_id",
    "scsi_grown_defect_list",
    "scsi_error_counter_log",
    "read",
    "scsi_self_test_0",
    "code",
    "result",
    "scsi_background_scan",
    "result_1",
    "sense_key",
    "output",
    "endurance_used",
    "current_percent",
];

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0_u64..300).prop_map(Value::from),
        prop_oneof![
            Just("ATA"),
            Just("NVMe"),
            Just("SCSI"),
            Just("now"),
            Just("0x5000"),
            Just("Device is in X mode")
        ]
        .prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 96, 8, |inner| {
        let key = proptest::sample::select(KEYS).prop_map(str::to_owned);
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            btree_map(key, inner, 0..8).prop_map(Value::from_iter)
        ]
    })
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..400)) {
        if let Ok(answer) = parse(&bytes) {
            prop_assert!(!matches!(answer, SmartResponse::Report(_)));
        }
    }

    #[test]
    fn any_document_of_smartctls_names_is_read(more in any_value(), proper in any::<bool>()) {
        let mut whole = document([7, 3], 0, json!({}));
        if proper && more.is_object() {
            merge(&mut whole, more);
            merge(&mut whole, json!({"smartctl": {"version": [7, 3]}}));
        } else {
            whole = more;
        }
        // Whatever comes of it, it ends; what is told says something.
        if let Ok(SmartResponse::Report(report)) = read(&whole) {
            prop_assert!(report.self_tests.log.len() <= 24);
            prop_assert!(report.messages.len() <= 32);
            prop_assert!(report.messages.iter().all(|message| !message.text.is_empty()));
        }
    }

    #[test]
    fn a_truncated_document_is_an_error(cut in 0_usize..4000, kind in 0_usize..3) {
        let whole = [ata([7, 3], 0, json!({"smart_status": {"passed": true}})), nvme([7, 4], 0, json!({})), scsi([7, 1], 0, json!({}))];
        let text = whole[kind].to_string();
        let cut = cut % text.len();
        let early = parse(&text.as_bytes()[..cut]);
        prop_assert!(matches!(early, Err(ParseError::Json(_))));
    }
}
