//! The status as the output of a monitoring plugin (Monitoring Plugins Development Guidelines): a line
//! with performance data, then one line for each cause. Pure.

use crate::render::causes;
use crate::render::figures::{self, Figure, Unit, safe_name, safe_text};
use crate::render::status::{StatusView, summary, unknown_by_reason, verdict};
use diskvitals_terminal::verdict::Verdict;
use diskvitals_wire as wire;

/// Causes in the first line, and in all: Nagios reads 8 KiB.
const MAX_NAMED: usize = 3;
const MAX_LINES: usize = 10;
const MAX_TEXT: usize = 160;
/// Performance data, in bytes.
const MAX_DATA: usize = 5000;

pub fn unknown(why: &str) -> String {
    format!("DISKVITALS UNKNOWN - {}\n", safe_text(why, MAX_TEXT * 2))
}

pub fn output(view: &StatusView) -> String {
    let word = match verdict(view) {
        Verdict::Good => "OK",
        Verdict::Warning => "WARNING",
        Verdict::Critical => "CRITICAL",
        Verdict::Unknown => "UNKNOWN",
    };
    let counted = || {
        let all = view.causes.unwrap_or_default().iter();
        all.filter(|cause| cause.counted)
    };
    let named: Vec<String> = counted().take(MAX_NAMED).map(name).collect();
    let mut text = format!("DISKVITALS {word} - {}", safe_text(&summary(view), MAX_TEXT));
    if !named.is_empty() {
        text.push_str(&format!(": {}", named.join("; ")));
    }
    if counted().count() > MAX_NAMED {
        text.push_str("; …");
    }
    text.push_str(&data(view));
    text.push('\n');
    for cause in counted().take(MAX_LINES) {
        let state = match cause.severity() {
            wire::Severity::Bad => "CRITICAL",
            wire::Severity::Suspect => "WARNING",
            _ => "OK",
        };
        text.push_str(&format!("{state}: {}", name(cause)));
        if !cause.action.is_empty() {
            text.push_str(&format!(" - {}", safe_text(&cause.action, MAX_TEXT)));
        }
        text.push('\n');
    }
    if let Some(more @ 1..) = counted().count().checked_sub(MAX_LINES) {
        text.push_str(&format!("and {more} more: diskvitals status\n"));
    }
    for (why, names) in unknown_by_reason(view.drives, view.volumes).iter().take(MAX_NAMED) {
        let shown = names.iter().take(MAX_NAMED);
        let shown: Vec<&str> = shown.map(String::as_str).collect();
        let more = match names.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let line = format!("{}{more} - {why}", shown.join(", "));
        text.push_str(&format!("UNKNOWN: {}\n", safe_text(&line, MAX_TEXT * 2)));
    }
    text
}

/// `sda (slot 00) SmartFailing, PendingSectors (24)`.
fn name(cause: &wire::Cause) -> String {
    let reasons = causes::reasons(cause).join(", ");
    let slot = match diskvitals_text::naming::slot_name(&cause.slot) {
        "" => String::new(),
        slot => format!(" (slot {slot})"),
    };
    safe_text(&format!("{}{slot} {reasons}", cause.name), MAX_TEXT)
}

fn data(view: &StatusView) -> String {
    let drives = figures::drive_names(view.drives).into_iter();
    let drives = drives.zip(view.drives.iter().map(figures::of_drive));
    let volumes = figures::volume_names(view.volumes).into_iter();
    let volumes = volumes.zip(view.volumes.iter().map(figures::of_volume));
    let mut text = String::new();
    for (name, all) in drives.chain(volumes) {
        for figure in all {
            let entry = entry(&name, &figure);
            if text.len() + entry.len() > MAX_DATA {
                return format!(" |{text}");
            }
            text.push_str(&entry);
        }
    }
    match text.is_empty() {
        true => text,
        false => format!(" |{text}"),
    }
}

/// ` 'sda_wear'=97%;;;0;`. The label has no quote and no equals sign.
fn entry(name: &str, figure: &Figure) -> String {
    let label = safe_name(name, "'=|\"`$");
    let unit = match figure.unit {
        Unit::None => "",
        Unit::Percent => "%",
        Unit::Bytes => "B",
    };
    let number = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
    let value = match figure.value {
        Some(value) => format!("{value}{unit}"),
        None => "U".to_owned(),
    };
    format!(" '{label}_{}'={value};;;{};{}", figure.metric, number(figure.min), number(figure.max))
}
