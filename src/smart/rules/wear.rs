//! Rules about flash wear: the used share of the designed life, and the remaining spare blocks.
//!
//! In: one `RuleInput`. Out: one `Symptom` for each rule, or none. Wear alone is not a failure.

use crate::history::{
    Endurance, Metric, endurance_used, spare_available, spare_percent, wear_percent,
};
use crate::report::WhenFailed;
use crate::rules::self_assessment::critical_warning;
use crate::rules::text::{attribute_lines, duration_text, metric_lines, pluralize};
use crate::rules::{RuleInput, Symptom, reaches_limit};
use diskvitals_finding::severity::Severity;

/// The used share of the designed life. SUSPECT from `wear_suspect_percent`, never BAD.
pub(crate) fn percent_used(case: &RuleInput) -> Option<Symptom> {
    let percent = case.value_from(Metric::WearPercent, case.limits.wear_suspect_percent)?;
    let message = format!("{percent} % of the designed life is used");
    Some(Symptom::suspect(message, wear_lines(case, case.limits.wear_suspect_percent)))
}

/// 100 % of the designed life is used within `wear_forecast_days`, at the rate so far. Information: it is
/// the end of what the maker warrants, not of the drive.
pub(crate) fn forecast(case: &RuleInput) -> Option<Symptom> {
    let percent = case.value(Metric::WearPercent)?;
    let Endurance { days_left, grown_percent, period } = case.history?.endurance()?;
    if percent >= 100 || days_left >= case.limits.wear_forecast_days {
        return None;
    }
    let message = format!(
        "100 % of the designed life is used in {}, at the rate of the last {} ({grown_percent} % more)",
        pluralize(days_left, "day", "days"),
        duration_text(period)
    );
    Some(Symptom { severity: Severity::Info, message, evidence: wear_lines(case, 1) })
}

/// The lines with the used percent, of attributes from this value on.
fn wear_lines(case: &RuleInput, at_least: u64) -> Vec<String> {
    let mut lines = metric_lines(case, Metric::WearPercent);
    if let Some(ata) = case.ata() {
        lines.extend(attribute_lines(ata, |attribute| {
            wear_percent(attribute, ata, &case.report.identity)
                .is_some_and(|used| reaches_limit(used, at_least))
        }));
        lines.extend(
            endurance_used(ata, &case.report.identity)
                .map(|percent| format!("Endurance used: {percent}%")),
        );
    }
    lines
}

/// A wear attribute at its threshold. SUSPECT. A wear attribute that the manufacturer marks as
/// pre-failure belongs to `SmartAttributeFailing`.
pub(crate) fn threshold(case: &RuleInput) -> Option<Symptom> {
    let ata = case.ata()?;
    let evidence = attribute_lines(ata, |attribute| {
        attribute.when_failed == WhenFailed::Now
            && !attribute.prefailure
            && wear_percent(attribute, ata, &case.report.identity).is_some()
    });
    let message = "The flash has reached the end of the life that its maker gave it";
    (!evidence.is_empty()).then(|| Symptom::suspect(message, evidence))
}

/// Available spare of an NVMe drive. BAD when the drive sets bit 0 of its critical warning, or when
/// the value is below the threshold of the drive. SUSPECT when `reserve_suspect_percent` of the range
/// from 100 to the threshold is used.
pub(crate) fn nvme_spare(case: &RuleInput) -> Option<Symptom> {
    let nvme = case.nvme()?;
    let spare = case.value(Metric::SparePercent);
    let threshold =
        nvme.available_spare_threshold.map(u64::from).filter(|threshold| *threshold <= 100);
    let evidence: Vec<String> = [
        spare.map(|spare| format!("Available Spare: {spare}%")),
        threshold.map(|t| format!("Available Spare Threshold: {t}%")),
    ]
    .into_iter()
    .flatten()
    .collect();
    let numbers = match (spare, threshold) {
        (Some(spare), Some(threshold)) => format!(" ({spare} % left; its limit is {threshold} %)"),
        (Some(spare), None) => format!(" ({spare} % left)"),
        (None, _) => String::new(),
    };
    let used_up = format!("The drive has used up its spare blocks{numbers}");
    if let Some(mut cause) = critical_warning(case, 1, Severity::Bad, &used_up) {
        cause.evidence.extend(evidence);
        return Some(cause);
    }
    let (spare, threshold) = (spare?, threshold?);
    if spare < threshold {
        return Some(Symptom { severity: Severity::Bad, message: used_up, evidence });
    }
    is_spare_low(case, spare, threshold).then(|| {
        let message = format!("The drive's spare blocks run low{numbers}");
        Symptom::suspect(message, evidence)
    })
}

/// Spare blocks of a SATA drive, if the attribute is in drivedb.h or smartctl reports it (7.5 and
/// later). SUSPECT when `reserve_suspect_percent` of the range to the threshold is used. At its
/// threshold the attribute has failed, and other rules report that.
pub(crate) fn ata_spare(case: &RuleInput) -> Option<Symptom> {
    let ata = case.ata()?;
    let mut evidence = attribute_lines(ata, |attribute| {
        if attribute.when_failed == WhenFailed::Now {
            return false;
        }
        let left = spare_percent(attribute, ata, &case.report.identity);
        let threshold =
            attribute.threshold.map(u64::from).filter(|threshold| (1..100).contains(threshold));
        left.zip(threshold).is_some_and(|(left, threshold)| is_spare_low(case, left, threshold))
    });
    let threshold =
        ata.spare_threshold.map(u64::from).filter(|threshold| (1..100).contains(threshold));
    if let Some((left, threshold)) = spare_available(ata, &case.report.identity).zip(threshold)
        && is_spare_low(case, left, threshold)
    {
        evidence.push(format!("Spare available: {left}%, threshold {threshold}%"));
    }
    let left = case.value(Metric::SparePercent)?;
    let message = format!("The drive's reserve of blocks runs low ({left} % left)");
    (!evidence.is_empty()).then(|| Symptom::suspect(message, evidence))
}

/// Whether `reserve_suspect_percent` of the range from 100 to the threshold is used. A threshold
/// near 100 leaves hardly any range; a drive with that threshold reports a shortage itself.
fn is_spare_low(case: &RuleInput, left: u64, threshold: u64) -> bool {
    let (used, range) = (100_u64.saturating_sub(left), 100_u64.saturating_sub(threshold));
    used > 0 && reaches_limit(used * 100, case.limits.reserve_suspect_percent.saturating_mul(range))
}

#[cfg(test)]
mod tests {
    use crate::policy::SmartPolicy;
    use crate::report::{Body, Nvme, SmartReport};
    use crate::rules::evaluate;
    use diskvitals_finding::reason::Reason;
    use diskvitals_finding::severity::Severity;

    fn spare(left: u8, threshold: u8, critical_warning: u8) -> Option<Severity> {
        let log = Nvme {
            critical_warning: Some(critical_warning),
            available_spare: Some(left),
            available_spare_threshold: Some(threshold),
            ..Nvme::default()
        };
        let report = SmartReport { body: Body::Nvme(log), ..SmartReport::default() };
        let said = evaluate(&report, None, &SmartPolicy::default());
        said.iter().find(|said| said.reason == Reason::SpareLow).map(|said| said.severity)
    }

    #[test]
    fn a_drive_that_counts_no_spare_blocks_has_not_run_out_of_them() {
        assert_eq!(spare(0, 0, 0), None);
        assert_eq!(spare(0, 0, 1), Some(Severity::Bad), "its own word counts");
        assert_eq!(spare(0, 10, 0), Some(Severity::Bad));
        assert_eq!(spare(12, 10, 0), Some(Severity::Suspect));
        assert_eq!(spare(100, 10, 0), None);
    }
}
