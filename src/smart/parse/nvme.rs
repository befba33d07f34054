//! NVMe: the SMART / Health Information log and the error log (nvmeprint.cpp; NVM Express Base 2.0
//! §5.16.1.2, §5.16.1.3).

use crate::parse::Verdict;
use crate::parse::fields::{Field, endurance_used, is_all_ones};
use crate::report::{LoggedError, Nvme};

const MAX_ERRORS: usize = 8;
/// Status Code Type of media and data integrity errors (NVM Express Base 2.0 §3.3.3.2).
const MEDIA_ERROR_STATUS_TYPE: u64 = 2;

/// 0 kelvin in smartctl's degrees, and all bits set.
const TEMPERATURE_OF_ZEROS: i64 = -273;
const TEMPERATURE_OF_ONES: i64 = 0xffff - 273;
/// Critical Warning: no revision of the specification has defined this bit.
const RESERVED_WARNING: u8 = 0x80;
/// The value that Percentage Used has from 255 % on.
const USED_CEILING: u8 = 255;
/// A page with fewer fields is no page of smartctl's, but a shortened document.
const MIN_FIELDS: usize = 6;

/// The log without the fields that are no evidence.
pub(crate) fn body(root: Field<'_>, verdict: &mut Verdict, notes: &mut Vec<String>) -> Nvme {
    let mut log = read(root);
    if is_all_zero(root.get("nvme_smart_health_information_log")) {
        notes.push(
            "the health log is all zero, as no drive reports: nothing of it counts".to_owned(),
        );
        verdict.drop();
        return errors_only(log);
    }
    let mut invalid = Vec::new();
    let warning = take_if(&mut log.critical_warning, |bits| bits & RESERVED_WARNING != 0);
    invalid.extend(warning.map(|bits| format!("critical warning {bits:#04x}")));
    for (name, percent) in [
        ("available spare", &mut log.available_spare),
        ("spare threshold", &mut log.available_spare_threshold),
    ] {
        invalid.extend(
            take_if(percent, |percent| percent > 100).map(|value| format!("{name} {value} %")),
        );
    }
    for (name, count) in [
        ("media errors", &mut log.media_errors),
        ("unsafe shutdowns", &mut log.unsafe_shutdowns),
        ("data units read", &mut log.data_units_read),
        ("data units written", &mut log.data_units_written),
        ("error log entries", &mut log.error_log_entries),
        ("minutes of warning temperature", &mut log.warning_temperature_minutes),
        ("minutes of critical temperature", &mut log.critical_temperature_minutes),
    ] {
        invalid.extend(take_if(count, is_all_ones).map(|_| format!("{name} with all bits set")));
    }
    if temperature(root) == Some(TEMPERATURE_OF_ONES) {
        invalid.push("temperature with all bits set".to_owned());
    }
    // 255 % is the ceiling of a drive that is worn far beyond its design, and beside other invalid
    // fields one more byte with all bits set.
    if !invalid.is_empty() {
        let used = take_if(&mut log.percentage_used, |used| used == USED_CEILING);
        invalid.extend(used.map(|used| format!("percentage used {used} %")));
    }
    if invalid.is_empty() {
        return log;
    }
    let fields = invalid.join(", ");
    // One field that no drive reports may be a fault of the firmware; with several of them, or
    // without the warnings, what is left of the page proves no health. A warning still counts.
    let warned = log.critical_warning.is_some_and(|bits| bits != 0);
    if warning.is_none() && (invalid.len() == 1 || warned) {
        notes
            .push(format!("of the health log these values are invalid and do not count: {fields}"));
        return log;
    }
    notes.push(format!(
        "the health log has values that no drive reports, so nothing of it counts: {fields}"
    ));
    verdict.drop();
    errors_only(log)
}

fn errors_only(log: Nvme) -> Nvme {
    Nvme { last_errors: log.last_errors, ..Nvme::default() }
}

fn take_if<T: Copy>(field: &mut Option<T>, is_invalid: impl Fn(T) -> bool) -> Option<T> {
    field.take_if(|value| is_invalid(*value))
}

fn temperature(root: Field<'_>) -> Option<i64> {
    root.get("nvme_smart_health_information_log")
        .get("temperature")
        .as_i64()
        .or_else(|| root.get("temperature").get("current").as_i64())
}

/// The page as a bridge without the log, or an unfinished controller, fills it.
fn is_all_zero(log: Field<'_>) -> bool {
    let values: Vec<i64> = log
        .entries()
        .filter(|(name, _)| *name != "nsid")
        .filter_map(|(_, value)| value.as_i64())
        .collect();
    values.len() >= MIN_FIELDS
        && values.iter().all(|value| matches!(*value, 0 | TEMPERATURE_OF_ZEROS))
}

fn read(root: Field<'_>) -> Nvme {
    let log = root.get("nvme_smart_health_information_log");
    let spare = root.get("spare_available");
    Nvme {
        critical_warning: log
            .get("critical_warning")
            .as_unsigned()
            .or_else(|| root.get("smart_status").get("nvme").get("value").as_unsigned()),
        available_spare: log
            .get("available_spare")
            .as_unsigned()
            .or_else(|| spare.get("current_percent").as_unsigned()),
        available_spare_threshold: log
            .get("available_spare_threshold")
            .as_unsigned()
            .or_else(|| spare.get("threshold_percent").as_unsigned()),
        percentage_used: log.get("percentage_used").as_unsigned().or_else(|| endurance_used(root)),
        media_errors: log.get_u64("media_errors"),
        error_log_entries: log.get_u64("num_err_log_entries"),
        unsafe_shutdowns: log.get_u64("unsafe_shutdowns"),
        data_units_written: log.get_u64("data_units_written"),
        data_units_read: log.get_u64("data_units_read"),
        warning_temperature_minutes: log.get_u64("warning_temp_time"),
        critical_temperature_minutes: log.get_u64("critical_comp_time"),
        last_errors: root
            .get("nvme_error_information_log")
            .get("table")
            .items()
            .filter_map(logged_error)
            .take(MAX_ERRORS)
            .collect(),
    }
}

/// Most entries are commands that the drive does not support; they are dropped.
fn logged_error(entry: Field<'_>) -> Option<LoggedError> {
    let status = entry.get("status_field");
    let kind = status
        .get_u64("status_code_type")
        .or_else(|| status.get_u64("value").map(|field| field >> 8 & 7))?;
    if kind != MEDIA_ERROR_STATUS_TYPE {
        return None;
    }
    let words = status
        .get("string")
        .as_text()
        .unwrap_or_else(|| "media or data integrity error".to_owned());
    let place = entry.get("lba").get_u64("value").or_else(|| entry.get_u64("lba"));
    Some(LoggedError {
        hours: None,
        text: place.map_or_else(|| words.clone(), |lba| format!("{words} at LBA {lba}")),
    })
}
