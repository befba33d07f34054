//! SCSI: informational exceptions, defects, error counters, wear, the background scan
//! (scsiprint.cpp; SPC-6, SBC-4).

use crate::parse::Verdict;
use crate::parse::fields::{Field, endurance_used, is_all_ones};
use crate::report::{ErrorCounter, InformationalException, Scsi};

/// The first version that counts grown defects in elements.
const FIRST_VERSION_COUNTING_ELEMENTS: [u32; 2] = [7, 2];
const SENSE_KEY_MEDIUM_ERROR: u64 = 3;

/// The value that the endurance indicator has from 255 % on.
const USED_CEILING: u8 = 255;

/// The pages without the fields that are no evidence. Each page is read by its own command: what is
/// wrong with one says nothing of another.
pub(crate) fn body(
    root: Field<'_>,
    smartctl: [u32; 2],
    verdict: &mut Verdict,
    notes: &mut Vec<String>,
) -> Scsi {
    let mut pages = read(root, smartctl);
    let mut invalid = Vec::new();
    // ASC FFh with ASCQ FFh is a sense block with all bits set.
    let exception =
        pages.exception.take_if(|exception| (exception.asc, exception.ascq) == (0xff, 0xff));
    if exception.is_some() {
        invalid.push("additional sense code ffh/ffh".to_owned());
        verdict.drop();
    }
    // READ DEFECT DATA counts bytes, in 32 bits.
    let all_bytes = |elements: u64| {
        is_all_ones(elements)
            || matches!(elements, 0x1fff_ffff | 0x2000_0000 | 0x3fff_ffff | 0x4000_0000)
    };
    for (name, count) in [
        ("grown defects", &mut pages.grown_defects),
        ("pending defects", &mut pages.pending_defects),
    ] {
        invalid.extend(
            count.take_if(|count| all_bytes(*count)).map(|_| format!("{name} with all bits set")),
        );
    }
    for (name, row) in
        [("read", &mut pages.read), ("write", &mut pages.write), ("verify", &mut pages.verify)]
    {
        let of_ones = |count: Option<u64>| count.is_some_and(is_all_ones);
        if row.take_if(|row| of_ones(row.uncorrected)).is_some() {
            invalid.push(format!("{name} error counters with all bits set"));
        }
    }
    if !invalid.is_empty() {
        let used = pages.percentage_used.take_if(|used| *used == USED_CEILING);
        invalid.extend(used.map(|used| format!("endurance indicator {used} %")));
        notes.push(format!(
            "of the log pages these values are invalid and do not count: {}",
            invalid.join(", ")
        ));
    }
    if is_all_zero(root, &pages) {
        notes.push(
            "the log pages are all zero, as those of no drive that has run: nothing of them counts"
                .to_owned(),
        );
        pages = Scsi::default();
    }
    pages
}

/// Zero defects, errors and bytes, and neither a temperature nor hours.
fn is_all_zero(root: Field<'_>, pages: &Scsi) -> bool {
    let rows = [&pages.read, &pages.write, &pages.verify];
    let zero = |count: Option<u64>| count.unwrap_or(0) == 0;
    let unused = |row: &ErrorCounter| {
        let bytes = row.gigabytes.as_deref().unwrap_or("0");
        zero(row.corrected)
            && zero(row.uncorrected)
            && bytes.parse::<f64>().is_ok_and(|bytes| bytes == 0.0)
    };
    let celsius = root.get("temperature").get("current").as_i64();
    let hours = root.get("power_on_time").get_u64("hours");
    let used = zero(pages.percentage_used.map(u64::from))
        && pages.background_scan.is_none()
        && pages.exception.is_none();
    rows.into_iter().flatten().count() + usize::from(pages.grown_defects.is_some()) > 0
        && rows.into_iter().flatten().all(unused)
        && zero(pages.grown_defects)
        && zero(pages.pending_defects)
        && zero(pages.background_errors)
        && used
        && celsius.unwrap_or(0) == 0
        && zero(hours)
}

fn read(root: Field<'_>, smartctl: [u32; 2]) -> Scsi {
    let exception = root.get("smart_status").get("scsi");
    let counters = root.get("scsi_error_counter_log");
    let counter = |name: &str| counter(counters.get(name));
    let scan = root.get("scsi_background_scan");
    let endurance = root.get("scsi_percentage_used_endurance_indicator").as_unsigned();
    Scsi {
        exception: exception.get("asc").as_unsigned().map(|asc| InformationalException {
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
            scan.entries().filter(|(key, result)| is_open_error(key, *result)).count() as u64
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
    let settled = matches!(result.get("reassign_status").get_u64("value"), Some(2 | 5 | 6));
    key.starts_with("result_")
        && result.get("sense_key").get_u64("value") == Some(SENSE_KEY_MEDIUM_ERROR)
        && !settled
}
