//! Rules about error counters: the level of a counter, and its growth within `growth_window`.
//!
//! In: one `RuleInput`. Out: one `Symptom` for each rule, or none. Growth weighs more than level.

use crate::history::{self, Metric};
use crate::policy::SmartLimits;
use crate::rules::text::{metric_lines, pluralize, trend};
use crate::rules::{RuleInput, Symptom, reaches_limit};
use diskvitals_finding::severity::Severity;

/// The name of one, and of several.
type Noun = (&'static str, &'static str);

/// Sectors that the drive could not read and has not remapped yet, and sectors that its offline scan
/// found unreadable. SUSPECT from `pending_suspect`. BAD from `pending_bad`, or when the count reached
/// a new maximum on `growth_occasions` occasions within the window.
pub(crate) fn pending(case: &RuleInput) -> Option<Symptom> {
    let unreadable = |metric, noun| {
        let SmartLimits { pending_suspect, pending_bad, .. } = *case.limits;
        level_or_growth(case, metric, pending_suspect, pending_bad, noun)
    };
    let one_by_scan = "sector is unreadable by the drive's own scan";
    let by_scan = "sectors are unreadable by the drive's own scan";
    merge_worst_first([
        unreadable(Metric::Pending, ("pending sector", "pending sectors")),
        unreadable(Metric::OfflineUncorrectable, (one_by_scan, by_scan)),
    ])
}

/// Medium errors found by the background scan of a SCSI drive and not repaired. SUSPECT from
/// `pending_suspect`, never BAD: the log covers the whole medium and has no dates.
pub(crate) fn background_scan(case: &RuleInput) -> Option<Symptom> {
    let scsi = case.scsi()?;
    let count = scsi
        .background_errors
        .filter(|count| reaches_limit(*count, case.limits.pending_suspect))?;
    let errors = pluralize(count, "medium error", "medium errors");
    let message = format!("The drive's background scan met {errors}");
    let status = scsi.background_scan.as_ref().map(|status| format!("Background scan: {status}"));
    let evidence = status
        .into_iter()
        .chain([format!("Background scan results with errors: {count}")])
        .collect();
    Some(Symptom::suspect(message, evidence))
}

/// Errors that the drive could not correct and reported to the host. SUSPECT from
/// `uncorrected_suspect`. BAD when the count grows, and for SCSI drives also from `uncorrected_bad`.
/// It is a lifetime counter.
pub(crate) fn uncorrected(case: &RuleInput) -> Option<Symptom> {
    let SmartLimits { uncorrected_suspect: from, uncorrected_bad: bad_from, .. } = *case.limits;
    let noun =
        ("error that the drive could not correct", "errors that the drive could not correct");
    // Manufacturers differ in how often attribute 187 and the NVMe counter count repeated reads of
    // one bad sector. A large value alone proves nothing.
    let found = [
        level_or_growth(case, Metric::ReportedUncorrectable, from, 0, noun),
        level_or_growth(case, Metric::MediaErrors, from, 0, noun),
        level_or_growth(case, Metric::UncorrectedErrors, from, bad_from, noun),
    ];
    let mut cause = merge_worst_first(found)?;
    let last_errors =
        case.ata().map(|ata| &ata.last_errors).or(case.nvme().map(|nvme| &nvme.last_errors));
    let last_errors = last_errors.into_iter().flatten().take(2);
    cause.evidence.extend(last_errors.map(|error| error.text.clone()));
    Some(cause)
}

/// The ATA error log. It is history, and also counts commands that the host should not have sent.
/// SUSPECT when the log grows and its newest entry is about the medium (ACS-2, 6.2: UNC,
/// uncorrectable; AMNF, address mark not found; IDNF, sector not found).
pub(crate) fn logged_errors(case: &RuleInput) -> Option<Symptom> {
    let noun = ("error in the drive's log", "errors in the drive's log");
    let mut cause = growth(case, Metric::LoggedErrors, noun)?;
    let newest = case
        .ata()?
        .last_errors
        .first()
        .filter(|error| ["UNC", "AMNF", "IDNF"].iter().any(|word| error.text.contains(word)))?;
    cause.evidence.push(newest.text.clone());
    Some(cause)
}

/// Remapped sectors of a hard disk and blocks of an SSD, and grown defects of a SCSI drive. SUSPECT
/// from `reallocated_suspect`. BAD from `reallocated_bad`, or when the count grew by
/// `reallocated_growth_bad` within the window on `growth_occasions` occasions.
pub(crate) fn reallocated(case: &RuleInput) -> Option<Symptom> {
    let (metric, noun) = match case.value(Metric::GrownDefects) {
        Some(_) => (Metric::GrownDefects, ("grown defect", "grown defects")),
        None if is_solid_state(case) => {
            (Metric::Reallocated, ("reallocated block", "reallocated blocks"))
        }
        None => (Metric::Reallocated, ("reallocated sector", "reallocated sectors")),
    };
    let limits = case.limits;
    let mut cause = level(case, metric, limits.reallocated_suspect, noun)?;
    let many = case.value_from(metric, limits.reallocated_bad).is_some();
    let growth = case.repeated_growth(metric);
    let fast = growth.is_some_and(|it| reaches_limit(it.by, limits.reallocated_growth_bad));
    cause.severity = suspect_or_bad(fast || (many && !is_negligible_for_ssd(case)));
    // Attribute 196 counts attempts, including failed ones, and some manufacturers pack several
    // values into it. It supports a finding and never raises one.
    cause.evidence.extend(metric_lines(case, Metric::ReallocationEvents));
    Some(cause)
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

/// Data corrupted on the cable and sent again. SUSPECT when the count grows: an old count may come
/// from a cable that was replaced, and no one can reset it.
pub(crate) fn crc(case: &RuleInput) -> Option<Symptom> {
    let mut cause = growth(case, Metric::CrcErrors, ("CRC error", "CRC errors"))?;
    let not_the_drive =
        "The cable, slot or adapter damages data on its way; the drive itself does not: ";
    cause.message.insert_str(0, not_the_drive);
    Some(cause)
}

/// SUSPECT: the value has reached the limit.
pub(super) fn level(case: &RuleInput, metric: Metric, limit: u64, noun: Noun) -> Option<Symptom> {
    let message = pluralize(case.value_from(metric, limit)?, noun.0, noun.1);
    Some(Symptom::suspect(message + &trend(case, metric), metric_lines(case, metric)))
}

/// SUSPECT: the value grows.
pub(super) fn growth(case: &RuleInput, metric: Metric, noun: Noun) -> Option<Symptom> {
    case.repeated_growth(metric)?;
    let message = pluralize(case.value(metric)?, noun.0, noun.1);
    Some(Symptom::suspect(message + &trend(case, metric), metric_lines(case, metric)))
}

/// The value has reached the first limit; BAD from the second, and while it grows.
fn level_or_growth(
    case: &RuleInput,
    metric: Metric,
    suspect_from: u64,
    bad_from: u64,
    noun: Noun,
) -> Option<Symptom> {
    let reached = case.value_from(metric, bad_from).is_some();
    let severity = suspect_or_bad(reached || case.repeated_growth(metric).is_some());
    Some(Symptom { severity, ..level(case, metric, suspect_from, noun)? })
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
