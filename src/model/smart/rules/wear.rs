//! Flash that wears: how much of the designed life is used, and what is left of the reserve. Wear
//! alone is no failure.

use crate::model::finding::Severity;
use crate::model::smart::memory::{
    Metric, endurance_used, reserve_percent, spare_available, wear_percent,
};
use crate::model::smart::report::{Attribute, WhenFailed};
use crate::model::smart::rules::text::{line, lines};
use crate::model::smart::rules::verdict::warned;
use crate::model::smart::rules::{Case, Cause, reaches};

/// The designed life is used from `wear_suspect_percent` on: SUSPECT, however far beyond. Stays.
pub fn used(case: &Case) -> Option<Cause> {
    let percent = case
        .value(Metric::WearPercent)
        .filter(|percent| reaches(*percent, case.limits.wear_suspect_percent))?;
    let mut evidence = lines(case, Metric::WearPercent);
    if let Some(ata) = case.ata() {
        let telling = ata
            .attributes
            .iter()
            .filter(|attribute| wear_percent(attribute, ata, &case.report.identity).is_some());
        evidence.extend(telling.map(line));
        evidence.extend(
            endurance_used(ata, &case.report.identity)
                .map(|percent| format!("Endurance used: {percent}%")),
        );
    }
    Some(Cause {
        severity: Severity::Suspect,
        message: format!("{percent} % of the designed life is used"),
        evidence,
    })
}

/// An attribute of wear at its maker's threshold: SUSPECT, as that of any age. (One that its maker
/// calls pre-failure is `SmartAttributeFailing`.)
pub fn threshold(case: &Case) -> Option<Cause> {
    let ata = case.ata()?;
    let wears = |attribute: &&Attribute| {
        attribute.when_failed == WhenFailed::Now
            && !attribute.prefailure
            && wear_percent(attribute, ata, &case.report.identity).is_some()
    };
    let evidence: Vec<String> = ata.attributes.iter().filter(wears).map(line).collect();
    let message = "The flash has reached the end of the life that its maker gave it".to_owned();
    (!evidence.is_empty()).then_some(Cause {
        severity: Severity::Suspect,
        message,
        evidence,
    })
}

/// Available spare below the drive's threshold: BAD, said by the drive (bit 0) or by the numbers.
/// SUSPECT when `reserve_suspect_percent` of the way there is gone.
pub fn nvme_spare(case: &Case) -> Option<Cause> {
    let nvme = case.nvme()?;
    let spare = case.value(Metric::SparePercent);
    let threshold = nvme
        .available_spare_threshold
        .map(u64::from)
        .filter(|threshold| *threshold <= 100);
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
    if let Some(mut cause) = warned(
        case,
        1,
        Severity::Bad,
        &format!("The drive has used up its spare blocks{numbers}"),
    ) {
        cause.evidence.extend(evidence);
        return Some(cause);
    }
    let (spare, threshold) = (spare?, threshold?);
    if spare < threshold {
        return Some(Cause {
            severity: Severity::Bad,
            message: format!("The drive has used up its spare blocks{numbers}"),
            evidence,
        });
    }
    let low = is_low(case, spare, threshold);
    low.then(|| Cause {
        severity: Severity::Suspect,
        message: format!("The drive's spare blocks run low{numbers}"),
        evidence,
    })
}

/// The same of SATA drives, where drivedb knows the attribute, or smartctl tells it by itself (from
/// 7.5 on). At its threshold it has failed, and is told as that.
pub fn ata_reserve(case: &Case) -> Option<Cause> {
    let ata = case.ata()?;
    let low = |attribute: &&Attribute| {
        let left = reserve_percent(attribute, ata, &case.report.identity);
        let threshold = attribute
            .threshold
            .map(u64::from)
            .filter(|threshold| (1..100).contains(threshold));
        left.zip(threshold)
            .is_some_and(|(left, threshold)| is_low(case, left, threshold))
    };
    let mut evidence: Vec<String> = ata.attributes.iter().filter(low).map(line).collect();
    let threshold = ata
        .spare_threshold
        .map(u64::from)
        .filter(|threshold| (1..100).contains(threshold));
    if let Some((left, threshold)) = spare_available(ata, &case.report.identity).zip(threshold)
        && is_low(case, left, threshold)
    {
        evidence.push(format!("Spare available: {left}%, threshold {threshold}%"));
    }
    let left = case.value(Metric::SparePercent)?;
    let message = format!("The drive's reserve of blocks runs low ({left} % left)");
    (!evidence.is_empty()).then_some(Cause {
        severity: Severity::Suspect,
        message,
        evidence,
    })
}

/// How much of the way from 100 to the threshold is gone. A drive whose threshold is nearly 100 has
/// hardly any way, and says so itself.
fn is_low(case: &Case, left: u64, threshold: u64) -> bool {
    let (gone, way) = (
        100_u64.saturating_sub(left),
        100_u64.saturating_sub(threshold),
    );
    gone > 0
        && reaches(
            gone * 100,
            case.limits.reserve_suspect_percent.saturating_mul(way),
        )
}

#[cfg(test)]
mod tests {
    use crate::model::finding::Severity;
    use crate::model::policy::smart::SmartPolicy;
    use crate::model::reason::Reason;
    use crate::model::smart::report::{Body, Nvme, Report};
    use crate::model::smart::rules::judge;

    fn spare(left: u8, threshold: u8, critical_warning: u8) -> Option<Severity> {
        let told = Nvme {
            critical_warning: Some(critical_warning),
            available_spare: Some(left),
            available_spare_threshold: Some(threshold),
            ..Nvme::default()
        };
        let report = Report {
            body: Body::Nvme(told),
            ..Report::default()
        };
        let said = judge(&report, None, &SmartPolicy::default());
        said.iter()
            .find(|said| said.reason == Reason::SpareLow)
            .map(|said| said.severity)
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
