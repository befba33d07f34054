//! Rules about error counters: the level of a counter, and its growth within `growth_window`.
//!
//! In: one `RuleInput`. Out: one `Symptom` for each rule, or none. Growth weighs more than level.

use crate::history::{self, Metric};
use crate::rules::text::{metric_lines, pluralize, trend};
use crate::rules::{RuleInput, Symptom, reaches_limit};
use diskvitals_finding::severity::Severity;

/// Sectors that the drive could not read and has not remapped yet (drivedb.h 197; ACS-4, Pending
/// Defects log; SBC-4, Pending Defects log page), and sectors that its offline scan found
/// unreadable (drivedb.h 198). SUSPECT from `pending_suspect`. BAD from `pending_bad`, or when the
/// count reached a new maximum on `growth_occasions` occasions within the window. Clears when the
/// drive reports 0.
pub(crate) fn pending(case: &RuleInput) -> Option<Symptom> {
    merge_worst_first([
        unreadable_sectors(case, Metric::Pending, ("pending sector", "pending sectors"), ""),
        unreadable_sectors(
            case,
            Metric::OfflineUncorrectable,
            ("sector is", "sectors are"),
            " unreadable by the drive's own scan",
        ),
    ])
}

fn unreadable_sectors(
    case: &RuleInput,
    metric: Metric,
    (one, many): (&str, &str),
    what: &str,
) -> Option<Symptom> {
    let count = case.value_from(metric, case.limits.pending_suspect)?;
    let bad =
        reaches_limit(count, case.limits.pending_bad) || case.repeated_growth(metric).is_some();
    let message = format!("{}{what}{}", pluralize(count, one, many), trend(case, metric));
    Some(Symptom { severity: suspect_or_bad(bad), message, evidence: metric_lines(case, metric) })
}

/// Medium errors found by the background scan of a SCSI drive and not repaired (SBC-4, Background
/// Scan log page). SUSPECT from `pending_suspect`, never BAD: the log covers the whole medium and
/// has no dates. Clears when the log has no unrepaired error.
pub(crate) fn background_scan(case: &RuleInput) -> Option<Symptom> {
    let scsi = case.scsi()?;
    let count = scsi
        .background_errors
        .filter(|count| reaches_limit(*count, case.limits.pending_suspect))?;
    let message = format!(
        "The drive's background scan met {}",
        pluralize(count, "medium error", "medium errors")
    );
    let status = scsi.background_scan.as_ref().map(|status| format!("Background scan: {status}"));
    let evidence = status
        .into_iter()
        .chain([format!("Background scan results with errors: {count}")])
        .collect();
    Some(Symptom::suspect(message, evidence))
}

/// Errors that the drive could not correct and reported to the host (drivedb.h 187; NVMe Base 2.0
/// 5.16.1.3, Media and Data Integrity Errors; SPC-6, error counter log pages). SUSPECT from
/// `uncorrected_suspect`. BAD when the count grows, and for SCSI drives also from
/// `uncorrected_bad`. Does not clear: it is a lifetime counter.
pub(crate) fn uncorrected(case: &RuleInput) -> Option<Symptom> {
    let symptom = |metric: Metric, bad_from: u64| {
        let count = case.value_from(metric, case.limits.uncorrected_suspect)?;
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
    // Manufacturers differ in how often attribute 187 and the NVMe counter count repeated reads of
    // one bad sector. A large value alone proves nothing.
    let found = [
        symptom(Metric::ReportedUncorrectable, 0),
        symptom(Metric::MediaErrors, 0),
        symptom(Metric::UncorrectedErrors, case.limits.uncorrected_bad),
    ];
    let mut cause = merge_worst_first(found)?;
    let last_errors =
        case.ata().map(|ata| &ata.last_errors).or(case.nvme().map(|nvme| &nvme.last_errors));
    cause
        .evidence
        .extend(last_errors.into_iter().flatten().take(2).map(|error| error.text.clone()));
    Some(cause)
}

/// The ATA error log (smartctl(8) -l error). It is history, and also counts commands that the host
/// should not have sent. SUSPECT when the log grows and its newest entry is about the medium
/// (ACS-2, 6.2: UNC, uncorrectable; AMNF, address mark not found; IDNF, sector not found). Clears
/// after the window without growth.
pub(crate) fn logged_errors(case: &RuleInput) -> Option<Symptom> {
    case.repeated_growth(Metric::LoggedErrors)?;
    let newest = case
        .ata()?
        .last_errors
        .first()
        .filter(|error| ["UNC", "AMNF", "IDNF"].iter().any(|word| error.text.contains(word)))?;
    let count = case.value(Metric::LoggedErrors)?;
    let message = format!(
        "{} in the drive's log{}",
        pluralize(count, "error", "errors"),
        trend(case, Metric::LoggedErrors)
    );
    let mut evidence = metric_lines(case, Metric::LoggedErrors);
    evidence.push(newest.text.clone());
    Some(Symptom::suspect(message, evidence))
}

/// Remapped sectors of a hard disk and blocks of an SSD (drivedb.h 5; ACS-4, Device Statistics page
/// 03h), and grown defects of a SCSI drive (SBC-4, READ DEFECT DATA). SUSPECT from
/// `reallocated_suspect`. BAD from `reallocated_bad`, or when the count grew by
/// `reallocated_growth_bad` within the window on `growth_occasions` occasions. Does not clear.
pub(crate) fn reallocated(case: &RuleInput) -> Option<Symptom> {
    let (metric, noun) = match case.value(Metric::GrownDefects) {
        Some(_) => (Metric::GrownDefects, ("grown defect", "grown defects")),
        None if is_solid_state(case) => {
            (Metric::Reallocated, ("reallocated block", "reallocated blocks"))
        }
        None => (Metric::Reallocated, ("reallocated sector", "reallocated sectors")),
    };
    let count = case.value_from(metric, case.limits.reallocated_suspect)?;
    let many = reaches_limit(count, case.limits.reallocated_bad) && !is_negligible_for_ssd(case);
    let fast = case
        .repeated_growth(metric)
        .is_some_and(|growth| reaches_limit(growth.by, case.limits.reallocated_growth_bad));
    let message = format!("{}{}", pluralize(count, noun.0, noun.1), trend(case, metric));
    let mut evidence = metric_lines(case, metric);
    // Attribute 196 counts attempts, including failed ones, and some manufacturers pack several
    // values into it. It supports a finding and never raises one.
    evidence.extend(metric_lines(case, Metric::ReallocationEvents));
    Some(Symptom { severity: suspect_or_bad(many || fast), message, evidence })
}

/// The SSD's normalized value of 90 to 100 means that nearly all of its reserve is left.
fn is_negligible_for_ssd(case: &RuleInput) -> bool {
    let Some(ata) = case.ata() else { return false };
    let identity = &case.report.identity;
    let mut attributes = ata.attributes.iter().filter(|attribute| {
        history::attribute_metric(attribute, ata, identity) == Some(Metric::Reallocated)
    });
    is_solid_state(case) && attributes.any(|attribute| (90..=100).contains(&attribute.value))
}

fn is_solid_state(case: &RuleInput) -> bool {
    case.ata().is_some_and(|ata| history::is_solid_state(ata, &case.report.identity))
}

/// Data corrupted between the drive's cache and its medium (drivedb.h 184). SUSPECT from
/// `end_to_end_suspect`. Does not clear.
pub(crate) fn end_to_end(case: &RuleInput) -> Option<Symptom> {
    level_symptom(
        case,
        Metric::EndToEndErrors,
        case.limits.end_to_end_suspect,
        ("end-to-end error", "end-to-end errors"),
    )
}

/// Spin-ups that needed another attempt (drivedb.h 10): a fault of the motor, the bearing or the
/// power supply. SUSPECT from `spin_retries_suspect`. Does not clear.
pub(crate) fn spin_retries(case: &RuleInput) -> Option<Symptom> {
    level_symptom(
        case,
        Metric::SpinRetries,
        case.limits.spin_retries_suspect,
        ("spin-up had to be tried again", "spin-ups had to be tried again"),
    )
}

/// Commands that the drive did not finish in time (drivedb.h 188, and its raw16 format for
/// Seagate). SUSPECT when the count grows: an old count may come from a pulled cable or a reset.
/// Clears after the window without growth.
pub(crate) fn command_timeouts(case: &RuleInput) -> Option<Symptom> {
    let nouns = ("command timed out", "commands timed out");
    growth_symptom(case, Metric::CommandTimeouts, "", nouns)
}

/// Off-track reads (drivedb.h 201). Some manufacturers store a rate there, so only growth counts.
/// SUSPECT when the count grows. Clears after the window without growth.
pub(crate) fn soft_read_errors(case: &RuleInput) -> Option<Symptom> {
    let nouns = ("soft read error", "soft read errors");
    growth_symptom(case, Metric::SoftReadErrors, "", nouns)
}

/// Data corrupted on the cable and sent again (drivedb.h 199; ACS-4, Device Statistics page 06h).
/// SUSPECT when the count grows. The finding is about the cable, not about the drive. An old count
/// may come from a cable that was replaced, and no one can reset it. Clears after the window
/// without growth.
pub(crate) fn crc(case: &RuleInput) -> Option<Symptom> {
    let cause = "The cable, slot or adapter damages data on its way; the drive itself does not: ";
    growth_symptom(case, Metric::CrcErrors, cause, ("CRC error", "CRC errors"))
}

/// SUSPECT: the value has reached the limit.
fn level_symptom(
    case: &RuleInput,
    metric: Metric,
    limit: u64,
    (one, many): (&str, &str),
) -> Option<Symptom> {
    let count = case.value_from(metric, limit)?;
    let message = format!("{}{}", pluralize(count, one, many), trend(case, metric));
    Some(Symptom::suspect(message, metric_lines(case, metric)))
}

/// SUSPECT: the value grows.
fn growth_symptom(
    case: &RuleInput,
    metric: Metric,
    cause: &str,
    (one, many): (&str, &str),
) -> Option<Symptom> {
    case.repeated_growth(metric)?;
    let count = pluralize(case.value(metric)?, one, many);
    let message = format!("{cause}{count}{}", trend(case, metric));
    Some(Symptom::suspect(message, metric_lines(case, metric)))
}

fn suspect_or_bad(bad: bool) -> Severity {
    if bad { Severity::Bad } else { Severity::Suspect }
}

/// Merges several symptoms into one: the worst comes first.
fn merge_worst_first<const N: usize>(causes: [Option<Symptom>; N]) -> Option<Symptom> {
    let mut causes: Vec<Symptom> = causes.into_iter().flatten().collect();
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.severity));
    causes.into_iter().reduce(|mut all, next| {
        all.message = format!("{}; {}", all.message, next.message);
        all.evidence.extend(next.evidence);
        all
    })
}
