//! SCSI: informational exceptions, defects, error counters, wear, the background scan
//! (scsiprint.cpp; SPC-6, SBC-4).

use crate::model::smart::parse::fields::{Field, endurance_used};
use crate::model::smart::report::{ErrorCounter, InformationalException, Scsi};

/// The first version that counts grown defects in elements.
const FIRST_VERSION_COUNTING_ELEMENTS: [u32; 2] = [7, 2];
const SENSE_KEY_MEDIUM_ERROR: u64 = 3;

pub(crate) fn body(root: Field<'_>, smartctl: [u32; 2]) -> Scsi {
    let exception = root.get("smart_status").get("scsi");
    let counters = root.get("scsi_error_counter_log");
    let counter = |name: &str| counter(counters.get(name));
    let scan = root.get("scsi_background_scan");
    let endurance = root
        .get("scsi_percentage_used_endurance_indicator")
        .as_unsigned();
    Scsi {
        exception: exception
            .get("asc")
            .as_unsigned()
            .map(|asc| InformationalException {
                asc,
                ascq: exception.get("ascq").as_unsigned().unwrap_or_default(),
                text: exception.get("ie_string").as_text().unwrap_or_default(),
            }),
        grown_defects: root
            .get_u64("scsi_grown_defect_list")
            .map(|reported| grown_defect_elements(reported, smartctl)),
        pending_defects: root.get("scsi_pending_defects").get_u64("count"),
        read: counter("read"),
        write: counter("write"),
        verify: counter("verify"),
        percentage_used: endurance.or_else(|| endurance_used(root)),
        background_scan: scan.get("status").get("string").as_text(),
        background_errors: scan.is_object().then(|| {
            scan.entries()
                .filter(|(key, result)| is_open_error(key, *result))
                .count() as u64
        }),
    }
}

/// 7.0 and 7.1 report the list's length in bytes. An element has 8 bytes in the format that
/// smartctl requests (4, bytes from index) and in all others except the short block format, which
/// has 4; the format that the drive chose is not reported. 8 is used if the length is divisible by
/// it: the smaller count, and never 0 when there are elements.
fn grown_defect_elements(reported: u64, smartctl: [u32; 2]) -> u64 {
    if smartctl >= FIRST_VERSION_COUNTING_ELEMENTS {
        reported
    } else if reported.is_multiple_of(8) {
        reported / 8
    } else {
        reported.div_ceil(4)
    }
}

fn counter(row: Field<'_>) -> Option<ErrorCounter> {
    let counter = ErrorCounter {
        corrected: row.get_u64("total_errors_corrected"),
        uncorrected: row.get_u64("total_uncorrected_errors"),
        gigabytes: row.get("gigabytes_processed").as_text(),
    };
    (counter.corrected.is_some() || counter.uncorrected.is_some()).then_some(counter)
}

/// `result_1` and so on. Reassign status (SBC-4, Background Scan log page): 2 reassigned, 5
/// recovered by rewriting, 6 reassigned with valid data; these are not open.
fn is_open_error(key: &str, result: Field<'_>) -> bool {
    let settled = matches!(
        result.get("reassign_status").get_u64("value"),
        Some(2 | 5 | 6)
    );
    key.starts_with("result_")
        && result.get("sense_key").get_u64("value") == Some(SENSE_KEY_MEDIUM_ERROR)
        && !settled
}
