//! Counters of faults: how many there are, and whether they become more. Growth beats level.

use crate::model::finding::Severity;
use crate::model::smart::history::{self, Metric};
use crate::model::smart::rules::text::{metric_lines, pluralize, trend};
use crate::model::smart::rules::{RuleInput, Symptom, reaches_limit};

/// Sectors that could not be read and wait for a rewrite, or were found unreadable by the drive's
/// own scan. SUSPECT from `pending_suspect`; BAD from `pending_bad`, or when they came to be more
/// than ever on several occasions within the window. Over when the drive tells 0.
pub fn pending(case: &RuleInput) -> Option<Symptom> {
    merge_worst_first([
        unreadable_sectors(
            case,
            Metric::Pending,
            ("sector waits", "sectors wait"),
            "to be read or reallocated",
        ),
        unreadable_sectors(
            case,
            Metric::OfflineUncorrectable,
            ("sector is", "sectors are"),
            "unreadable by the drive's own scan",
        ),
    ])
}

fn unreadable_sectors(
    case: &RuleInput,
    metric: Metric,
    (one, many): (&str, &str),
    what: &str,
) -> Option<Symptom> {
    let count = case
        .value(metric)
        .filter(|count| *count > 0 && reaches_limit(*count, case.limits.pending_suspect))?;
    let bad =
        reaches_limit(count, case.limits.pending_bad) || case.repeated_growth(metric).is_some();
    let message = format!(
        "{} {what}{}",
        pluralize(count, one, many),
        trend(case, metric)
    );
    Some(Symptom {
        severity: suspect_or_bad(bad),
        message,
        evidence: metric_lines(case, metric),
    })
}

/// Medium errors that a SCSI drive's background scan met and that have not been healed. SUSPECT:
/// the log is of the whole medium and does not say when.
pub fn background_scan(case: &RuleInput) -> Option<Symptom> {
    let scsi = case.scsi()?;
    let count = scsi
        .background_errors
        .filter(|count| reaches_limit(*count, case.limits.pending_suspect))?;
    let message = format!(
        "The drive's background scan met {}",
        pluralize(count, "medium error", "medium errors")
    );
    let status = scsi
        .background_scan
        .as_ref()
        .map(|status| format!("Background scan: {status}"));
    let evidence = status
        .into_iter()
        .chain([format!("Background scan results with errors: {count}")])
        .collect();
    Some(Symptom {
        severity: Severity::Suspect,
        message,
        evidence,
    })
}

/// Errors that the drive could not correct and reported to the host. SUSPECT from
/// `uncorrected_suspect`; BAD when they grow, and for SCSI drives from `uncorrected_bad`. A counter
/// of the drive's life: it stays.
pub fn uncorrected(case: &RuleInput) -> Option<Symptom> {
    let told = |metric: Metric, bad_from: u64| {
        let count = case
            .value(metric)
            .filter(|count| reaches_limit(*count, case.limits.uncorrected_suspect))?;
        let bad = reaches_limit(count, bad_from) || case.repeated_growth(metric).is_some();
        let errors = pluralize(
            count,
            "error that the drive could not correct",
            "errors that the drive could not correct",
        );
        Some(Symptom {
            severity: suspect_or_bad(bad),
            message: format!("{errors}{}", trend(case, metric)),
            evidence: metric_lines(case, metric),
        })
    };
    // How often 187 and NVMe's count a place that is read again is the maker's affair: by
    // themselves large numbers prove nothing.
    let found = [
        told(Metric::ReportedUncorrectable, 0),
        told(Metric::MediaErrors, 0),
        told(Metric::UncorrectedErrors, case.limits.uncorrected_bad),
    ];
    let mut cause = merge_worst_first(found)?;
    let last_errors = case
        .ata()
        .map(|ata| &ata.last_errors)
        .or(case.nvme().map(|nvme| &nvme.last_errors));
    cause.evidence.extend(
        last_errors
            .into_iter()
            .flatten()
            .take(2)
            .map(|error| error.text.clone()),
    );
    Some(cause)
}

/// The drive's error log. History: it counts commands that the host should not have sent as well.
/// SUSPECT when it grows and its newest is about the medium (UNC: uncorrectable, AMNF and IDNF: an
/// address mark or a sector that is not found; ACS-2, 6.2).
pub fn logged_errors(case: &RuleInput) -> Option<Symptom> {
    case.repeated_growth(Metric::LoggedErrors)?;
    let about_medium = |text: &str| {
        ["UNC", "AMNF", "IDNF"]
            .iter()
            .any(|word| text.contains(word))
    };
    let newest = case
        .ata()?
        .last_errors
        .first()
        .filter(|error| about_medium(&error.text))?;
    let count = case.value(Metric::LoggedErrors)?;
    let message = format!(
        "{} in the drive's log{}",
        pluralize(count, "error", "errors"),
        trend(case, Metric::LoggedErrors)
    );
    let mut evidence = metric_lines(case, Metric::LoggedErrors);
    evidence.push(newest.text.clone());
    Some(Symptom {
        severity: Severity::Suspect,
        message,
        evidence,
    })
}

/// Sectors (ATA), blocks (SSD) or elements (SCSI) that spare ones stand for. SUSPECT from
/// `reallocated_suspect`, with how long they have been so many; BAD from `reallocated_bad`, or when
/// `reallocated_growth_bad` came within the window on several occasions. Stays.
pub fn reallocated(case: &RuleInput) -> Option<Symptom> {
    let (metric, noun) = match case.value(Metric::GrownDefects) {
        Some(_) => (Metric::GrownDefects, ("grown defect", "grown defects")),
        None if is_solid_state(case) => (
            Metric::Reallocated,
            ("reallocated block", "reallocated blocks"),
        ),
        None => (
            Metric::Reallocated,
            ("reallocated sector", "reallocated sectors"),
        ),
    };
    let count = case
        .value(metric)
        .filter(|count| reaches_limit(*count, case.limits.reallocated_suspect))?;
    let many = reaches_limit(count, case.limits.reallocated_bad) && !is_negligible_for_ssd(case);
    let fast = case
        .repeated_growth(metric)
        .is_some_and(|growth| reaches_limit(growth.by, case.limits.reallocated_growth_bad));
    let message = format!(
        "{}{}",
        pluralize(count, noun.0, noun.1),
        trend(case, metric)
    );
    let mut evidence = metric_lines(case, metric);
    // Attempts, also those without success, and packed by some makers: a witness, never the
    // accuser.
    evidence.extend(metric_lines(case, Metric::ReallocationEvents));
    Some(Symptom {
        severity: suspect_or_bad(many || fast),
        message,
        evidence,
    })
}

/// On the SSD's own scale of 100 hardly anything of its reserve is gone.
fn is_negligible_for_ssd(case: &RuleInput) -> bool {
    let Some(ata) = case.ata() else { return false };
    let identity = &case.report.identity;
    let mut attributes = ata.attributes.iter().filter(|attribute| {
        history::attribute_metric(attribute, ata, identity) == Some(Metric::Reallocated)
    });
    is_solid_state(case) && attributes.any(|attribute| (90..=100).contains(&attribute.value))
}

fn is_solid_state(case: &RuleInput) -> bool {
    case.ata()
        .is_some_and(|ata| history::is_solid_state(ata, &case.report.identity))
}

/// Data that was damaged between the drive's own cache and its medium. SUSPECT from
/// `end_to_end_suspect`. Stays.
pub fn end_to_end(case: &RuleInput) -> Option<Symptom> {
    let count = case
        .value(Metric::EndToEndErrors)
        .filter(|count| reaches_limit(*count, case.limits.end_to_end_suspect))?;
    suspect(
        case,
        Metric::EndToEndErrors,
        pluralize(count, "end-to-end error", "end-to-end errors"),
    )
}

/// Spin-ups that needed another attempt: motor, bearing, or power. SUSPECT from
/// `spin_retries_suspect`. Stays.
pub fn spin_retries(case: &RuleInput) -> Option<Symptom> {
    let count = case
        .value(Metric::SpinRetries)
        .filter(|count| reaches_limit(*count, case.limits.spin_retries_suspect))?;
    suspect(
        case,
        Metric::SpinRetries,
        pluralize(
            count,
            "spin-up had to be tried again",
            "spin-ups had to be tried again",
        ),
    )
}

/// Commands that the drive did not finish in time. SUSPECT when they grow: a number from the past
/// may be a pulled cable or a reset. Over after the window without another.
pub fn command_timeouts(case: &RuleInput) -> Option<Symptom> {
    case.repeated_growth(Metric::CommandTimeouts)?;
    let count = case.value(Metric::CommandTimeouts)?;
    suspect(
        case,
        Metric::CommandTimeouts,
        pluralize(count, "command timed out", "commands timed out"),
    )
}

/// Reads that went off the track. A rate with some makers, so only its growth counts. SUSPECT; over
/// after the window.
pub fn soft_read_errors(case: &RuleInput) -> Option<Symptom> {
    case.repeated_growth(Metric::SoftReadErrors)?;
    let count = case.value(Metric::SoftReadErrors)?;
    suspect(
        case,
        Metric::SoftReadErrors,
        pluralize(count, "soft read error", "soft read errors"),
    )
}

/// Data damaged on the cable and sent again. SUSPECT when they grow, and about the cable; an old
/// count is of a cable that may be gone, and cannot be set back. Over after the window without
/// another.
pub fn crc(case: &RuleInput) -> Option<Symptom> {
    case.repeated_growth(Metric::CrcErrors)?;
    let count = case.value(Metric::CrcErrors)?;
    let errors = pluralize(count, "CRC error", "CRC errors");
    suspect(
        case,
        Metric::CrcErrors,
        format!(
            "The cable, slot or adapter damages data on its way; the drive itself does not: {errors}"
        ),
    )
}

fn suspect(case: &RuleInput, metric: Metric, what: String) -> Option<Symptom> {
    Some(Symptom {
        severity: Severity::Suspect,
        message: format!("{what}{}", trend(case, metric)),
        evidence: metric_lines(case, metric),
    })
}

fn suspect_or_bad(bad: bool) -> Severity {
    if bad {
        Severity::Bad
    } else {
        Severity::Suspect
    }
}

/// Several causes as one: the worst first.
fn merge_worst_first<const N: usize>(causes: [Option<Symptom>; N]) -> Option<Symptom> {
    let mut causes: Vec<Symptom> = causes.into_iter().flatten().collect();
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.severity));
    causes.into_iter().reduce(|mut all, next| {
        all.message = format!("{}; {}", all.message, next.message);
        all.evidence.extend(next.evidence);
        all
    })
}
