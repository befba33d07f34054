//! ATA: attributes, the error log, pending defects, device statistics (ataprint.cpp; ACS-4).

use crate::parse::Verdict;
use crate::parse::fields::{Field, endurance_used, is_all_ones};
use crate::report::{Ata, Attribute, ErrorRecovery, LoggedError, Statistic, WhenFailed};

/// A drive has at most 30 attributes.
const MAX_ATTRIBUTES: usize = 64;
const MAX_ERRORS: usize = 8;
const MAX_STATISTICS: usize = 256;

/// The log without the fields that are no evidence.
pub(crate) fn body(root: Field<'_>, verdict: &mut Verdict, notes: &mut Vec<String>) -> Ata {
    let mut ata = read(root);
    let rows = ata.attributes.len();
    let is_zero = |attribute: &Attribute| {
        (attribute.value, attribute.worst, attribute.raw) == (0, 0, 0)
            && attribute.threshold.unwrap_or(0) == 0
    };
    if rows > 0 && ata.attributes.iter().all(is_zero) {
        ata.attributes.clear();
        notes.push(
            "the attributes are all zero, as no drive reports: none of them counts".to_owned(),
        );
    }
    ata.attributes.retain(|attribute| !has_all_bits_set(attribute));
    let left = ata.attributes.len();
    if 0 < left && left < rows {
        notes.push(format!("{} attributes have all bits set and do not count", rows - left));
    } else if left < rows {
        if notes.is_empty() {
            notes.push("the attributes have all bits set: none of them counts".to_owned());
        }
        // What answers with such a page answers for the drive: its "passed" proves nothing.
        // smartctl derives a bad verdict from the page where the drive's own is missing.
        if verdict.passed != Some(false) || is_attribute_check(root) {
            verdict.drop();
        }
    }
    for (name, count) in [
        ("the pending defects log", &mut ata.pending_defects),
        ("the error log", &mut ata.error_count),
    ] {
        if count.take_if(|count| is_all_ones(*count)).is_some() {
            notes.push(format!("the count of {name} has all bits set and does not count"));
        }
    }
    let statistics = ata.statistics.len();
    let is_valid = |value: i64| !u64::try_from(value).is_ok_and(is_all_ones);
    ata.statistics.retain(|statistic| is_valid(statistic.value));
    let dropped = statistics - ata.statistics.len();
    if dropped > 0 {
        notes.push(format!("{dropped} device statistics have all bits set and do not count"));
    }
    for (name, percent) in [
        ("spare blocks available", &mut ata.spare_available),
        ("threshold of spare blocks", &mut ata.spare_threshold),
    ] {
        let invalid = percent.take_if(|percent| *percent > 100);
        notes.extend(invalid.map(|percent| format!("{name} {percent} %: invalid, does not count")));
    }
    ata
}

/// The row of an erased page.
fn has_all_bits_set(attribute: &Attribute) -> bool {
    (attribute.value, attribute.worst) == (0xff, 0xff)
        && (attribute.id == 0xff || is_all_ones(attribute.raw))
}

fn is_attribute_check(root: Field<'_>) -> bool {
    root.get("smartctl").get("messages").items().any(|message| {
        let text = message.get("string").as_text();
        text.is_some_and(|text| text.contains("based on an Attribute check"))
    })
}

fn read(root: Field<'_>) -> Ata {
    let spare = root.get("spare_available");
    let log = root.get("ata_smart_error_log");
    // The extended log counts to 65535 and has more entries; older drives have the summary.
    let log = ["extended", "comprehensive", "summary"]
        .map(|name| log.get(name))
        .into_iter()
        .find(|log| log.get_u64("count").is_some());
    Ata {
        attributes: root
            .get("ata_smart_attributes")
            .get("table")
            .items()
            .filter_map(attribute)
            .take(MAX_ATTRIBUTES)
            .collect(),
        error_count: log.and_then(|log| log.get_u64("count")),
        last_errors: log
            .into_iter()
            .flat_map(|log| log.get("table").items())
            .filter_map(logged_error)
            .take(MAX_ERRORS)
            .collect(),
        pending_defects: root.get("ata_pending_defects_log").get_u64("count"),
        statistics: root
            .get("ata_device_statistics")
            .get("pages")
            .items()
            .flat_map(statistics)
            .take(MAX_STATISTICS)
            .collect(),
        endurance_used: endurance_used(root),
        spare_threshold: spare.get("threshold_percent").as_unsigned(),
        spare_available: spare.get("current_percent").as_unsigned(),
        error_recovery: error_recovery(root),
        zoned: root.get("zoned_device").get("capabilities").as_text(),
    }
}

/// The longer of both limits. The timers are printed by `-x` only, and not while another SCT command
/// runs; the capability (word 206) is not printed of a drive without SCT.
fn error_recovery(root: Field<'_>) -> Option<ErrorRecovery> {
    let supported = root.get("ata_sct_capabilities").get("error_recovery_control_supported");
    if supported.as_bool() == Some(false) {
        return Some(ErrorRecovery::Unsupported);
    }
    let timers = ["read", "write"].map(|timer| root.get("ata_sct_erc").get(timer));
    if timers.iter().any(|timer| timer.get("enabled").as_bool() == Some(false)) {
        return Some(ErrorRecovery::Off);
    }
    let limits = timers.iter().filter_map(|timer| timer.get("deciseconds").as_unsigned());
    limits.max().map(ErrorRecovery::Deciseconds)
}

fn attribute(row: Field<'_>) -> Option<Attribute> {
    let (flags, raw) = (row.get("flags"), row.get("raw"));
    let raw_value = raw.get_u64("value");
    let threshold = row.get("thresh").as_unsigned();
    let when_failed = match (row.get("when_failed").as_text().as_deref(), threshold) {
        (Some("now"), _) => WhenFailed::Now,
        (Some("past"), _) => WhenFailed::Past,
        // An empty text is trimmed to none: it counts only with a threshold.
        (None, Some(_)) if row.get("when_failed").is_some() => WhenFailed::Never,
        (Some(_) | None, _) => WhenFailed::Unknown,
    };
    Some(Attribute {
        id: row.get("id").as_unsigned().filter(|id| *id > 0)?,
        name: row.get("name").as_text().unwrap_or_default(),
        value: row.get("value").as_unsigned().unwrap_or_default(),
        worst: row.get("worst").as_unsigned().unwrap_or_default(),
        threshold,
        when_failed,
        prefailure: flags
            .get("prefailure")
            .as_bool()
            .or_else(|| flags.get_u64("value").map(|bits| bits & 1 != 0))
            .unwrap_or(false),
        raw: raw_value.unwrap_or_default(),
        raw_text: raw
            .get("string")
            .as_text()
            .or_else(|| raw_value.map(|value| value.to_string()))
            .unwrap_or_default(),
    })
}

fn logged_error(entry: Field<'_>) -> Option<LoggedError> {
    let hours = entry.get_u64("lifetime_hours");
    let registers = entry.get("completion_registers");
    let text = entry
        .get("error_description")
        .as_text()
        .or_else(|| describe_error_register(registers.get_u64("error")?, registers.get_u64("lba")));
    text.map(|text| LoggedError { hours, text })
}

/// For errors that smartctl does not describe: the bits of the error register (ACS-4, ERROR field).
fn describe_error_register(register: u64, lba: Option<u64>) -> Option<String> {
    let names = [(7, "ICRC"), (6, "UNC"), (4, "IDNF"), (2, "ABRT"), (0, "AMNF")];
    let names: Vec<&str> =
        names.iter().filter(|(bit, _)| register >> bit & 1 != 0).map(|(_, name)| *name).collect();
    let place = lba.map(|lba| format!(" at LBA = {lba}")).unwrap_or_default();
    (!names.is_empty()).then(|| format!("Error: {}{place}", names.join(", ")))
}

/// The statistics that the drive marks as valid.
fn statistics(page: Field<'_>) -> impl Iterator<Item = Statistic> {
    let number = page.get("number").as_unsigned();
    page.get("table").items().filter_map(move |row| {
        let flags = row.get("flags");
        let bit = |name: &str, bit: u32| {
            flags
                .get(name)
                .as_bool()
                .or_else(|| flags.get_u64("value").map(|bits| bits >> bit & 1 != 0))
        };
        let value = row.get("value").as_i64().filter(|_| bit("valid", 6).unwrap_or(false))?;
        Some(Statistic {
            page: number?,
            offset: row.get("offset").as_unsigned()?,
            name: row.get("name").as_text().unwrap_or_default(),
            value,
            normalized: bit("normalized", 5).unwrap_or(false),
        })
    })
}
