//! ATA: attributes, the error log, pending defects, device statistics (ataprint.cpp; ACS-4).

use crate::model::smart::parse::fields::Field;
use crate::model::smart::report::{Ata, Attribute, LoggedError, Statistic, WhenFailed};

/// A drive has at most 30 attributes.
const MOST_ATTRIBUTES: usize = 64;
const MOST_ERRORS: usize = 8;
const MOST_STATISTICS: usize = 256;

pub fn body(root: Field<'_>) -> Ata {
    let log = root.get("ata_smart_error_log");
    // The extended log counts to 65535 and holds more; the summary is what older drives have.
    let log = ["extended", "comprehensive", "summary"]
        .map(|name| log.get(name))
        .into_iter()
        .find(|log| log.number("count").is_some());
    Ata {
        attributes: root
            .get("ata_smart_attributes")
            .get("table")
            .items()
            .filter_map(attribute)
            .take(MOST_ATTRIBUTES)
            .collect(),
        error_count: log.and_then(|log| log.number("count")),
        last_errors: log
            .into_iter()
            .flat_map(|log| log.get("table").items())
            .filter_map(error)
            .take(MOST_ERRORS)
            .collect(),
        pending_defects: root.get("ata_pending_defects_log").number("count"),
        statistics: root
            .get("ata_device_statistics")
            .get("pages")
            .items()
            .flat_map(statistics)
            .take(MOST_STATISTICS)
            .collect(),
        endurance_used: root.get("endurance_used").get("current_percent").amount(),
        spare_threshold: root
            .get("spare_available")
            .get("threshold_percent")
            .amount(),
        spare_available: root.get("spare_available").get("current_percent").amount(),
    }
}

fn attribute(row: Field<'_>) -> Option<Attribute> {
    let (flags, raw) = (row.get("flags"), row.get("raw"));
    let raw_value = raw.number("value");
    let threshold = row.get("thresh").amount();
    let when_failed = match (row.get("when_failed").text().as_deref(), threshold) {
        (Some("now"), _) => WhenFailed::Now,
        (Some("past"), _) => WhenFailed::Past,
        // An empty word is trimmed to none: it is an answer only beside a threshold.
        (None, Some(_)) if row.get("when_failed").is_some() => WhenFailed::Never,
        (Some(_) | None, _) => WhenFailed::Untold,
    };
    Some(Attribute {
        id: row.get("id").amount().filter(|id| *id > 0)?,
        name: row.get("name").text().unwrap_or_default(),
        value: row.get("value").amount().unwrap_or_default(),
        worst: row.get("worst").amount().unwrap_or_default(),
        threshold,
        when_failed,
        prefailure: flags
            .get("prefailure")
            .truth()
            .or_else(|| flags.number("value").map(|bits| bits & 1 != 0))
            .unwrap_or(false),
        raw: raw_value.unwrap_or_default(),
        raw_text: raw
            .get("string")
            .text()
            .or_else(|| raw_value.map(|value| value.to_string()))
            .unwrap_or_default(),
    })
}

fn error(entry: Field<'_>) -> Option<LoggedError> {
    let hours = entry.number("lifetime_hours");
    let registers = entry.get("completion_registers");
    let text = entry
        .get("error_description")
        .text()
        .or_else(|| in_words(registers.number("error")?, registers.number("lba")));
    text.map(|text| LoggedError { hours, text })
}

/// Where smartctl gives no description: the bits of the error register (ACS-4, ERROR field).
fn in_words(register: u64, lba: Option<u64>) -> Option<String> {
    let names = [
        (7, "ICRC"),
        (6, "UNC"),
        (4, "IDNF"),
        (2, "ABRT"),
        (0, "AMNF"),
    ];
    let names: Vec<&str> = names
        .iter()
        .filter(|(bit, _)| register >> bit & 1 != 0)
        .map(|(_, name)| *name)
        .collect();
    let place = lba
        .map(|lba| format!(" at LBA = {lba}"))
        .unwrap_or_default();
    (!names.is_empty()).then(|| format!("Error: {}{place}", names.join(", ")))
}

/// Those that the drive calls valid.
fn statistics(page: Field<'_>) -> impl Iterator<Item = Statistic> {
    let number = page.get("number").amount();
    page.get("table").items().filter_map(move |row| {
        let flags = row.get("flags");
        let bit = |name: &str, bit: u32| {
            flags
                .get(name)
                .truth()
                .or_else(|| flags.number("value").map(|bits| bits >> bit & 1 != 0))
        };
        let value = row
            .get("value")
            .signed()
            .filter(|_| bit("valid", 6).unwrap_or(false))?;
        Some(Statistic {
            page: number?,
            offset: row.get("offset").amount()?,
            name: row.get("name").text().unwrap_or_default(),
            value,
            normalized: bit("normalized", 5).unwrap_or(false),
        })
    })
}
