//! Rules about temperature.
//!
//! In: one `RuleInput`. Out: one `Symptom` for each rule, or none. SUSPECT at most: heat shortens
//! the life of a drive and is not a failure.

use crate::history::{Metric, is_solid_state, is_temperature};
use crate::report::{Body, WhenFailed};
use crate::rules::self_assessment::{ASC_WARNING, critical_warning, exception, exception_line};
use crate::rules::text::attribute_lines;
use crate::rules::{RuleInput, Symptom};
use diskvitals_finding::severity::Severity;

/// Plausible limits in °C. Drives report 0 and 255 for "no limit".
const PLAUSIBLE_LIMITS: std::ops::RangeInclusive<i64> = 40..=125;

/// How far below the limit a temperature attribute may be at its threshold: thresholds of
/// manufacturers are lower than the limit (Hitachi and WD: 55 °C). At lower temperatures the
/// attribute is wrong: some firmware stores the temperature itself as the normalized value, with an
/// upper bound as the threshold.
const THRESHOLD_MARGIN: u64 = 10;

/// The temperature is above the upper or below the lower threshold of the drive. SUSPECT.
pub(crate) fn nvme_warning(case: &RuleInput) -> Option<Symptom> {
    let celsius = case.report.temperature;
    let celsius = celsius.map(|celsius| format!(" ({celsius} °C)")).unwrap_or_default();
    let message = format!("The drive's temperature is beyond its own limit{celsius}");
    critical_warning(case, 0b10, Severity::Suspect, &message)
}

/// Specified temperature exceeded. SUSPECT.
pub(crate) fn scsi_warning(case: &RuleInput) -> Option<Symptom> {
    let evidence = vec![exception_line(exception(case, ASC_WARNING, |code| code == 1)?)];
    Some(Symptom::suspect("The drive says that it is warmer than it should be", evidence))
}

/// A temperature attribute at its threshold now: past heat has no effect. SUSPECT; information if the
/// drive is clearly cool.
pub(crate) fn attribute_threshold(case: &RuleInput) -> Option<Symptom> {
    let ata = case.ata()?;
    let evidence = attribute_lines(ata, |attribute| {
        attribute.when_failed == WhenFailed::Now && is_temperature(attribute)
    });
    let cool = match (case.value(Metric::Temperature), effective_limit(case)) {
        (Some(celsius), Some(limit)) => celsius + THRESHOLD_MARGIN < limit,
        _ => false,
    };
    let (severity, message) = if cool {
        (
            Severity::Info,
            "An attribute of the temperature is at its limit although the drive is cool: the table that its manufacturer gave it is wrong",
        )
    } else {
        (Severity::Suspect, "The drive's temperature is at its manufacturer's threshold")
    };
    (!evidence.is_empty()).then(|| Symptom { severity, message: message.to_owned(), evidence })
}

/// The temperature is above the limit, or above the limit of the policy if the drive reports none.
/// SUSPECT.
pub(crate) fn above_limit(case: &RuleInput) -> Option<Symptom> {
    let (celsius, limit) = (case.value(Metric::Temperature)?, effective_limit(case)?);
    let cleared = limit.saturating_sub(case.limits.temperature_clear_below);
    let earlier = case
        .series(Metric::Temperature)
        .into_iter()
        .flat_map(|series| series.points.iter().rev())
        .map(|point| point.value);
    // The last reading outside the hysteresis decides.
    let decided = std::iter::once(celsius)
        .chain(earlier)
        .find(|celsius| *celsius > limit || *celsius <= cleared)?;
    let evidence = vec![format!("Current Drive Temperature: {celsius} C, limit {limit} C")];
    let message = format!("The drive has {celsius} °C; its limit is {limit} °C");
    (decided > limit).then(|| Symptom::suspect(message, evidence))
}

/// The limit, by precedence: the policy for this drive, the drive's own limit, the policy for its
/// kind. NVMe drives without their own limit have none: they are built to run hot.
fn effective_limit(case: &RuleInput) -> Option<u64> {
    let limits = case.limits;
    let own = case
        .report
        .temperature_limit
        .filter(|limit| PLAUSIBLE_LIMITS.contains(limit))
        .and_then(|limit| u64::try_from(limit).ok());
    let solid = match &case.report.body {
        Body::Ata(ata) => Some(is_solid_state(ata, &case.report.identity)),
        Body::Scsi(_) => Some(case.report.identity.rotation_rate == Some(0)),
        Body::Nvme(_) | Body::None => None,
    };
    let of_kind =
        solid.map(
            |solid| {
                if solid { limits.temperature_solid_state } else { limits.temperature_rotating }
            },
        );
    Some(limits.temperature)
        .filter(|limit| *limit > 0)
        .or(own)
        .or(of_kind)
        .filter(|limit| *limit > 0)
}
