//! Text of findings: counts, growth and times as text, and lines of evidence in smartctl's format.

use jiff::SignedDuration;

use crate::history::{self, Growth, Metric};
use crate::report::{Ata, Attribute, Body, ErrorCounter, Identity, Scsi, SelfTest};
use crate::rules::RuleInput;

/// `1 sector`, `12 sectors`.
pub(crate) fn pluralize(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

/// The growth of a value: ` (12 more in 3 days, 4.0 a day)`, `, unchanged for 211 days`, or empty
/// without a history.
pub(crate) fn trend(case: &RuleInput, metric: Metric) -> String {
    if let Some(growth) = case.growth(metric) {
        return format!(" ({})", growth_text(&growth));
    }
    let unchanged =
        case.series(metric).map_or(SignedDuration::ZERO, |series| series.unchanged_for());
    if unchanged >= SignedDuration::from_hours(24) {
        format!(", unchanged for {}", duration_text(unchanged))
    } else {
        String::new()
    }
}

/// `12 more in 3 days, 4.0 a day`; `8 more 2 days ago` for a single step.
pub(crate) fn growth_text(growth: &Growth) -> String {
    let by = growth.by;
    let ago = growth.last_reading.duration_since(growth.first);
    if growth.occasions == 1 {
        return if ago < SignedDuration::from_hours(1) {
            format!("{by} more just now")
        } else {
            format!("{by} more {} ago", duration_text(ago))
        };
    }
    let days = ago.as_secs_f64() / 86_400.0;
    if days >= 1.0 {
        format!("{by} more in {}, {:.1} a day", duration_text(ago), by as f64 / days)
    } else {
        format!("{by} more in {}", duration_text(ago))
    }
}

/// `40 minutes`, `5 hours`, `3 days`.
pub(crate) fn duration_text(duration: SignedDuration) -> String {
    let (hours, minutes) = (duration.as_hours().unsigned_abs(), duration.as_mins().unsigned_abs());
    match (hours, minutes) {
        (48.., _) => pluralize(hours / 24, "day", "days"),
        (2.., _) => pluralize(hours, "hour", "hours"),
        _ => pluralize(minutes, "minute", "minutes"),
    }
}

/// `197 Current_Pending_Sector value 99 worst 98 threshold 0 raw 269`.
pub(crate) fn attribute_line(attribute: &Attribute) -> String {
    let Attribute { id, name, value, worst, .. } = attribute;
    let threshold =
        attribute.threshold.map_or_else(|| "untold".to_owned(), |threshold| threshold.to_string());
    format!(
        "{id} {name} value {value} worst {worst} threshold {threshold} raw {}",
        attribute.raw_text
    )
}

/// The lines of the attributes of this kind.
pub(crate) fn attribute_lines(ata: &Ata, of_kind: impl Fn(&Attribute) -> bool) -> Vec<String> {
    ata.attributes.iter().filter(|attribute| of_kind(attribute)).map(attribute_line).collect()
}

/// `Extended offline: Completed: read failure, at 27196 hours, first error at LBA 4132075584`.
pub(crate) fn self_test_line(test: &SelfTest) -> String {
    let hours = test.hours.map(|hours| format!(", at {hours} hours")).unwrap_or_default();
    let lba = test.lba.map(|lba| format!(", first error at LBA {lba}")).unwrap_or_default();
    format!("{}: {}{hours}{lba}", test.kind, test.text)
}

/// The lines of the report that contain this value.
pub(crate) fn metric_lines(case: &RuleInput, metric: Metric) -> Vec<String> {
    let body = &case.report.body;
    let mut lines = match body {
        Body::Ata(ata) => ata_lines(ata, &case.report.identity, metric),
        Body::Scsi(scsi) if metric == Metric::UncorrectedErrors => uncorrected_lines(scsi),
        _ => Vec::new(),
    };
    let (name, value, unit) = match (body, metric) {
        (Body::Ata(ata), Metric::Pending) => ("Pending Defects log", ata.pending_defects, ""),
        (Body::Ata(ata), Metric::LoggedErrors) => ("ATA error count", ata.error_count, ""),
        (Body::Nvme(nvme), Metric::MediaErrors) => {
            ("Media and Data Integrity Errors", nvme.media_errors, "")
        }
        (Body::Nvme(nvme), Metric::WearPercent) => {
            ("Percentage Used", nvme.percentage_used.map(u64::from), "%")
        }
        (Body::Scsi(scsi), Metric::GrownDefects) => {
            ("Elements in grown defect list", scsi.grown_defects, "")
        }
        (Body::Scsi(scsi), Metric::Pending) => ("Pending defects", scsi.pending_defects, ""),
        (Body::Scsi(scsi), Metric::WearPercent) => {
            ("Percentage used endurance indicator", scsi.percentage_used.map(u64::from), "%")
        }
        _ => return lines,
    };
    lines.extend(value.map(|value| format!("{name}: {value}{unit}")));
    lines
}

/// Attributes and device statistics.
fn ata_lines(ata: &Ata, identity: &Identity, metric: Metric) -> Vec<String> {
    let page = match metric {
        Metric::Reallocated => Some((3, 0x20)),
        Metric::ReportedUncorrectable => Some((4, 0x08)),
        Metric::CrcErrors => Some((6, 0x18)),
        Metric::WearPercent => Some((7, 0x08)),
        _ => None,
    };
    let of_page = ata.statistics.iter().filter(|it| Some((it.page, it.offset)) == page);
    let mut lines = attribute_lines(ata, |attribute| {
        history::attribute_metric(attribute, ata, identity) == Some(metric)
    });
    lines.extend(of_page.map(|it| format!("Device Statistics: {} {}", it.name, it.value)));
    lines
}

fn uncorrected_lines(scsi: &Scsi) -> Vec<String> {
    let counters = [("read", &scsi.read), ("write", &scsi.write), ("verify", &scsi.verify)];
    let line = |(name, counter): (&str, &Option<ErrorCounter>)| {
        Some(format!("{name}: total uncorrected errors {}", counter.as_ref()?.uncorrected?))
    };
    counters.into_iter().filter_map(line).collect()
}
