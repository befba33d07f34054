//! Recorded answers, as one line each.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::*;

fn analyzed(document: &Value) -> Value {
    let answer =
        smart_from(document.to_string().as_bytes(), "x.json".to_owned(), &SmartPolicy::default())
            .unwrap();
    serde_json::to_value(answer).unwrap()
}

fn healthy() -> Value {
    json!({
        "smartctl": {"version": [7, 3], "exit_status": 0},
        "device": {"name": "/dev/nvme0", "type": "nvme", "protocol": "NVMe"},
        "model_name": "ZETA NV1", "serial_number": "ZN42", "firmware_version": "1.0", "nvme_total_capacity": 1_000_204_886_016_u64,
        "smart_status": {"passed": true, "nvme": {"value": 0}}, "temperature": {"current": 38}, "power_on_time": {"hours": 1000},
        "nvme_smart_health_information_log": {"critical_warning": 0, "available_spare": 100, "available_spare_threshold": 10, "percentage_used": 3,
            "media_errors": 0},
    })
}

#[test]
fn a_healthy_drive_is_good_and_named() {
    let answer = analyzed(&healthy());
    assert_eq!(answer["health"], "HEALTH_GOOD");
    assert_eq!(answer["findings"], json!([]));
    let drive = json!({"model": "ZETA NV1", "serial": "ZN42", "firmware": "1.0", "protocol": "NVMe", "sizeBytes": 1_000_204_886_016_u64,
        "temperatureCelsius": 38, "powerOnHours": 1000});
    assert_eq!(answer["drive"], drive);
}

#[test]
fn a_drive_whose_medium_is_read_only_is_bad_and_says_why() {
    let mut document = healthy();
    document["nvme_smart_health_information_log"]["critical_warning"] = json!(8);
    document["smart_status"] = json!({"passed": false, "nvme": {"value": 8}});
    let answer = analyzed(&document);
    assert_eq!(answer["health"], "HEALTH_BAD");
    let finding = &answer["findings"][0];
    assert_eq!(finding["severity"], "SEVERITY_BAD");
    for name in ["status", "reason", "message"] {
        assert!(finding[name].as_str().is_some_and(|text| !text.is_empty()), "{name}: {finding}");
    }
    assert!(finding["evidence"].as_array().is_some_and(|lines| !lines.is_empty()), "{finding}");
}

#[test]
fn output_without_health_is_unknown_with_a_reason() {
    let asleep = json!({"smartctl": {"version": [7, 3], "exit_status": 2,
        "messages": [{"string": "Device is in STANDBY mode, exit(2)", "severity": "information"}]}});
    let identity = json!({"smartctl": {"version": [7, 3], "exit_status": 0}, "device": {"protocol": "ATA"}, "model_name": "ACME"});
    let log_only = json!({"smartctl": {"version": [7, 3], "exit_status": 0}, "device": {"protocol": "ATA"}, "model_name": "ACME",
        "ata_smart_self_test_log": {"standard": {"count": 1, "table": [
            {"type": {"value": 1, "string": "Short offline"}, "status": {"value": 0, "string": "Completed without error", "passed": true}}]}}});
    for (document, kind) in [(asleep, "asleep"), (identity, "failed"), (log_only, "told")] {
        let answer = analyzed(&document);
        assert_eq!(
            (&answer["health"], &answer["answer"]),
            (&json!("HEALTH_UNKNOWN"), &json!(kind))
        );
        assert!(answer["why"].is_string(), "{answer}");
    }
}

#[test]
fn a_gzip_file_is_read_and_an_oversized_one_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let packed = dir.path().join("nvme.json.gz");
    let mut gz = GzEncoder::new(std::fs::File::create(&packed).unwrap(), Compression::default());
    gz.write_all(healthy().to_string().as_bytes()).unwrap();
    gz.finish().unwrap();
    let answer = smart(&InputSource::File(packed), &SmartPolicy::default()).unwrap();
    assert_eq!(answer.health, Health::Good);
    let endless = InputSource::File("/dev/zero".into());
    assert!(matches!(smart(&endless, &SmartPolicy::default()), Err(SmartError::TooLong)));
}

#[test]
fn text_output_of_smartctl_is_an_error_with_advice() {
    let text = b"smartctl 7.3 2022-02-28 r5338 [x86_64-linux-6.1.0]\n\n=== START OF INFORMATION SECTION ===\n";
    let error = smart_from(text, String::new(), &SmartPolicy::default()).unwrap_err();
    assert!(error.to_string().contains("-j"), "{error}");
}

#[test]
fn the_exit_status_says_whether_there_is_an_answer() {
    let of = |bytes: &[u8]| {
        let answer = smart_from(bytes, String::new(), &SmartPolicy::default());
        exit_status(&answer.map_err(SmartError::from))
    };
    assert_eq!(of(healthy().to_string().as_bytes()), 0);
    let asleep = json!({"smartctl": {"version": [7, 3], "exit_status": 2,
        "messages": [{"string": "Device is in STANDBY mode, exit(2)", "severity": "information"}]}});
    for nothing in ["", "NAME=linux", &asleep.to_string(), "{\"a\": 1}"] {
        assert_eq!(of(nothing.as_bytes()), 3, "{nothing}");
    }
    let missing = InputSource::File("/nonexistent/sda.json".into());
    assert_eq!(exit_status(&smart(&missing, &SmartPolicy::default())), 1);
}

#[test]
fn what_was_left_out_is_noted_and_an_invalid_page_is_unknown() {
    let mut document = healthy();
    document["nvme_smart_health_information_log"]["available_spare_threshold"] = json!(255);
    let answer = analyzed(&document);
    assert_eq!(answer["health"], "HEALTH_GOOD");
    assert!(answer["notes"][0].as_str().is_some_and(|note| note.contains("255")), "{answer}");
    document["nvme_smart_health_information_log"]["percentage_used"] = json!(255);
    let answer = analyzed(&document);
    assert_eq!(answer["health"], "HEALTH_UNKNOWN");
    assert!(answer["why"].as_str().is_some_and(|why| why.contains("255")), "{answer}");
    assert_eq!(answer["drive"]["serial"], "ZN42");
}
