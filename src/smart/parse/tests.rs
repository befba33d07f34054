//! Documents as each version of smartctl writes them; the drives in them are invented.

mod invalid_values;
mod laws;
mod responses;
mod stray_text;
mod versions;

use serde_json::{Value, json};

use crate::SmartResponse;
use crate::parse::{ParseError, parse};
use crate::report::{Ata, Nvme, Scsi, SmartReport};

/// What every answer has, with `more` beside it.
pub(crate) fn document(version: [u32; 2], exit_status: u8, more: Value) -> Value {
    let mut document = json!({
        "json_format_version": [1, 0],
        "smartctl": {"version": version, "platform_info": "x86_64-linux-6.1.0", "argv": ["smartctl", "-j", "-a", "/dev/sdx"], "exit_status": exit_status},
    });
    merge(&mut document, more);
    document
}

pub(crate) fn ata(version: [u32; 2], exit_status: u8, more: Value) -> Value {
    let mut drive = json!({
        "device": {"name": "/dev/sdx", "info_name": "/dev/sdx [SAT]", "type": "sat", "protocol": "ATA"},
        "model_family": "Acme Spinner", "model_name": "ACME SPIN4000-A", "serial_number": "AC0001", "firmware_version": "A1.0",
        "wwn": {"naa": 5, "oui": 0xabc, "id": 0x1_2345_6789_u64}, "rotation_rate": 7200, "in_smartctl_database": true,
        "user_capacity": {"blocks": 7814037168_u64, "bytes": 4000787030016_u64}, "logical_block_size": 512,
    });
    merge(&mut drive, more);
    document(version, exit_status, drive)
}

pub(crate) fn nvme(version: [u32; 2], exit_status: u8, more: Value) -> Value {
    let mut drive = json!({
        "device": {"name": "/dev/nvme7", "info_name": "/dev/nvme7", "type": "nvme", "protocol": "NVMe"},
        "model_name": "ZETA NV1 1TB", "serial_number": "ZN42", "firmware_version": "1.2.3", "nvme_total_capacity": 1000204886016_u64,
        "smart_status": {"passed": true, "nvme": {"value": 0}},
        "nvme_smart_health_information_log": {"critical_warning": 0, "temperature": 38, "available_spare": 100, "available_spare_threshold": 10,
            "percentage_used": 3, "data_units_read": 10, "data_units_written": 20, "power_cycles": 7, "power_on_hours": 1000,
            "unsafe_shutdowns": 2, "media_errors": 0, "num_err_log_entries": 55, "warning_temp_time": 0, "critical_comp_time": 0},
    });
    merge(&mut drive, more);
    document(version, exit_status, drive)
}

pub(crate) fn scsi(version: [u32; 2], exit_status: u8, more: Value) -> Value {
    let mut drive = json!({
        "device": {"name": "/dev/sdy", "info_name": "/dev/sdy", "type": "scsi", "protocol": "SCSI"},
        "serial_number": "SC90A7Q1", "logical_unit_id": "0x5000ABC123456789", "smart_status": {"passed": true},
    });
    merge(&mut drive, more);
    document(version, exit_status, drive)
}

/// Members of `more` are added, those of objects too.
pub(crate) fn merge(to: &mut Value, more: Value) {
    match (to, more) {
        (Value::Object(to), Value::Object(more)) => more
            .into_iter()
            .for_each(|(key, value)| merge(to.entry(key).or_insert(Value::Null), value)),
        (to, more) => *to = more,
    }
}

pub(crate) fn read(document: &Value) -> Result<SmartResponse, ParseError> {
    parse(document.to_string().as_bytes())
}

pub(crate) fn parse_report(document: &Value) -> SmartReport {
    match read(document) {
        Ok(SmartResponse::Report(report)) => *report,
        other => panic!("not told: {other:?}"),
    }
}

pub(crate) fn parse_ata(document: &Value) -> Ata {
    match parse_report(document).body {
        crate::report::Body::Ata(ata) => ata,
        other => panic!("not ATA: {other:?}"),
    }
}

pub(crate) fn parse_nvme(document: &Value) -> Nvme {
    match parse_report(document).body {
        crate::report::Body::Nvme(nvme) => nvme,
        other => panic!("not NVMe: {other:?}"),
    }
}

pub(crate) fn parse_scsi(document: &Value) -> Scsi {
    match parse_report(document).body {
        crate::report::Body::Scsi(scsi) => scsi,
        other => panic!("not SCSI: {other:?}"),
    }
}

pub(crate) fn merged(mut to: Value, more: Value) -> Value {
    merge(&mut to, more);
    to
}
