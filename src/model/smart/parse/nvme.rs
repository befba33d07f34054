//! NVMe: the SMART / Health Information log and the error log (nvmeprint.cpp; NVM Express Base 2.0
//! §5.16.1.2, §5.16.1.3).

use crate::model::smart::parse::fields::Field;
use crate::model::smart::report::{LoggedError, Nvme};

const MOST_ERRORS: usize = 8;
/// Status Code Type of media and data integrity errors (NVM Express Base 2.0 §3.3.3.2).
const OF_THE_MEDIUM: u64 = 2;

pub fn body(root: Field<'_>) -> Nvme {
    let log = root.get("nvme_smart_health_information_log");
    let spare = root.get("spare_available");
    Nvme {
        critical_warning: log
            .get("critical_warning")
            .amount()
            .or_else(|| root.get("smart_status").get("nvme").get("value").amount()),
        available_spare: log
            .get("available_spare")
            .amount()
            .or_else(|| spare.get("current_percent").amount()),
        available_spare_threshold: log
            .get("available_spare_threshold")
            .amount()
            .or_else(|| spare.get("threshold_percent").amount()),
        percentage_used: log
            .get("percentage_used")
            .amount()
            .or_else(|| root.get("endurance_used").get("current_percent").amount()),
        media_errors: log.number("media_errors"),
        error_log_entries: log.number("num_err_log_entries"),
        unsafe_shutdowns: log.number("unsafe_shutdowns"),
        data_units_written: log.number("data_units_written"),
        data_units_read: log.number("data_units_read"),
        warning_temperature_minutes: log.number("warning_temp_time"),
        critical_temperature_minutes: log.number("critical_comp_time"),
        last_errors: root
            .get("nvme_error_information_log")
            .get("table")
            .items()
            .filter_map(error)
            .take(MOST_ERRORS)
            .collect(),
    }
}

/// Most entries are commands that the drive does not know; those are no news.
fn error(entry: Field<'_>) -> Option<LoggedError> {
    let status = entry.get("status_field");
    let kind = status
        .number("status_code_type")
        .or_else(|| status.number("value").map(|field| field >> 8 & 7))?;
    if kind != OF_THE_MEDIUM {
        return None;
    }
    let words = status
        .get("string")
        .text()
        .unwrap_or_else(|| "media or data integrity error".to_owned());
    let place = entry
        .get("lba")
        .number("value")
        .or_else(|| entry.number("lba"));
    Some(LoggedError {
        hours: None,
        text: place.map_or_else(|| words.clone(), |lba| format!("{words} at LBA {lba}")),
    })
}
