//! Heat. SUSPECT at most: it shortens a drive's life and does not say that the drive fails.

use crate::model::finding::Severity;
use crate::model::smart::history::{Metric, is_solid_state, is_temperature};
use crate::model::smart::report::{Attribute, Body, WhenFailed};
use crate::model::smart::rules::self_assessment::{critical_warning_symptom, exception_line};
use crate::model::smart::rules::text::attribute_line;
use crate::model::smart::rules::{RuleInput, Symptom};

/// What can be a limit. Drives tell 0 and 255 for none.
const PLAUSIBLE_LIMITS: std::ops::RangeInclusive<i64> = 40..=125;

/// An attribute of the temperature may be at its threshold this far below the limit, since makers'
/// thresholds are lower (Hitachi and WD: 55 °C). Further below, the attribute speaks nonsense:
/// firmware whose normalised value is the temperature itself, with a threshold for its upper end.
const THRESHOLD_MARGIN: u64 = 10;

/// A temperature beyond one of the drive's own thresholds, the upper or the lower.
pub fn nvme_warning(case: &RuleInput) -> Option<Symptom> {
    let celsius = case
        .report
        .temperature
        .map(|celsius| format!(" ({celsius} °C)"))
        .unwrap_or_default();
    critical_warning_symptom(
        case,
        0b10,
        Severity::Suspect,
        &format!("The drive's temperature is beyond its own limit{celsius}"),
    )
}

/// 0B/01: specified temperature exceeded.
pub fn scsi_warning(case: &RuleInput) -> Option<Symptom> {
    let exception = case
        .scsi()?
        .exception
        .as_ref()
        .filter(|exception| (exception.asc, exception.ascq) == (0x0b, 1))?;
    let message = "The drive says that it is warmer than it should be".to_owned();
    Some(Symptom {
        severity: Severity::Suspect,
        message,
        evidence: vec![exception_line(exception)],
    })
}

/// An attribute of the temperature at its threshold now. In the past is over. Information where the
/// drive is plainly cool.
pub fn attribute_threshold(case: &RuleInput) -> Option<Symptom> {
    let ata = case.ata()?;
    let failed = |attribute: &&Attribute| {
        attribute.when_failed == WhenFailed::Now && is_temperature(attribute)
    };
    let evidence: Vec<String> = ata
        .attributes
        .iter()
        .filter(failed)
        .map(attribute_line)
        .collect();
    let cool = match (case.value(Metric::Temperature), effective_limit(case)) {
        (Some(celsius), Some(limit)) => celsius + THRESHOLD_MARGIN < limit,
        _ => false,
    };
    let (severity, message) = if cool {
        (
            Severity::Info,
            "An attribute of the temperature is at its limit although the drive is cool: the table that its maker gave it is wrong",
        )
    } else {
        (
            Severity::Suspect,
            "The drive's temperature is at its maker's limit",
        )
    };
    (!evidence.is_empty()).then(|| Symptom {
        severity,
        message: message.to_owned(),
        evidence,
    })
}

/// Above the drive's own limit, or the policy's where it tells none. Over `temperature_clear_below`
/// degrees below.
pub fn above_limit(case: &RuleInput) -> Option<Symptom> {
    let (celsius, limit) = (case.value(Metric::Temperature)?, effective_limit(case)?);
    let cleared = limit.saturating_sub(case.limits.temperature_clear_below);
    let earlier = case
        .series(Metric::Temperature)
        .into_iter()
        .flat_map(|series| series.points.iter().rev())
        .map(|point| point.value);
    // The last reading that was clearly one or the other decides.
    let decided = std::iter::once(celsius)
        .chain(earlier)
        .find(|celsius| *celsius > limit || *celsius <= cleared)?;
    let evidence = vec![format!(
        "Current Drive Temperature: {celsius} C, limit {limit} C"
    )];
    (decided > limit).then(|| Symptom {
        severity: Severity::Suspect,
        message: format!("The drive has {celsius} °C; its limit is {limit} °C"),
        evidence,
    })
}

/// The policy's for this drive; the drive's own; the policy's for its kind. NVMe drives without one
/// of their own are not judged: they are built hot.
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
    let of_kind = solid.map(|solid| {
        if solid {
            limits.temperature_solid_state
        } else {
            limits.temperature_rotating
        }
    });
    Some(limits.temperature)
        .filter(|limit| *limit > 0)
        .or(own)
        .or(of_kind)
        .filter(|limit| *limit > 0)
}
