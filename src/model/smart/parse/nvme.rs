//! NVMe: the SMART / Health Information log and the error log (nvmeprint.cpp; NVM Express Base 2.0
//! §5.16.1.2, §5.16.1.3).

use crate::model::smart::parse::fields::{Field, endurance_used};
use crate::model::smart::report::{LoggedError, Nvme};

const MAX_ERRORS: usize = 8;
/// Status Code Type of media and data integrity errors (NVM Express Base 2.0 §3.3.3.2).
const MEDIA_ERROR_STATUS_TYPE: u64 = 2;

pub(crate) fn body(root: Field<'_>) -> Nvme {
    let log = root.get("nvme_smart_health_information_log");
    let spare = root.get("spare_available");
    Nvme {
        critical_warning: log.get("critical_warning").as_unsigned().or_else(|| {
            root.get("smart_status")
                .get("nvme")
                .get("value")
                .as_unsigned()
        }),
        available_spare: log
            .get("available_spare")
            .as_unsigned()
            .or_else(|| spare.get("current_percent").as_unsigned()),
        available_spare_threshold: log
            .get("available_spare_threshold")
            .as_unsigned()
            .or_else(|| spare.get("threshold_percent").as_unsigned()),
        percentage_used: log
            .get("percentage_used")
            .as_unsigned()
            .or_else(|| endurance_used(root)),
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
    let place = entry
        .get("lba")
        .get_u64("value")
        .or_else(|| entry.get_u64("lba"));
    Some(LoggedError {
        hours: None,
        text: place.map_or_else(|| words.clone(), |lba| format!("{words} at LBA {lba}")),
    })
}
