//! Rules about ATA attributes that have reached the manufacturer's thresholds.
//!
//! In: one `RuleInput`. Out: one `Symptom` for each rule, or none. The meaning of an attribute is
//! not needed, with three exceptions: temperature, wear and spare blocks have separate rules.

use crate::history::{is_temperature, wear_percent};
use crate::report::{Ata, Attribute, WhenFailed};
use crate::rules::text::attribute_line;
use crate::rules::{RuleInput, Symptom};
use diskvitals_finding::severity::Severity;

/// A pre-failure attribute at or below its threshold: the manufacturer predicts imminent failure. BAD
/// while it is there, SUSPECT when it has recovered. Temperature attributes are excluded.
pub(crate) fn prefailure(case: &RuleInput) -> Option<Symptom> {
    let attributes = failed_attributes(case.ata()?, |attribute| {
        attribute.prefailure && !is_temperature(attribute)
    });
    threshold_symptom(&attributes, Severity::Bad, "imminent failure")
}

/// Any other attribute at or below its threshold: the end of the designed life. SUSPECT, also when it
/// has recovered. Excluded are wear attributes, and temperature attributes, because past heat has no
/// effect now.
pub(crate) fn old_age(case: &RuleInput) -> Option<Symptom> {
    let ata = case.ata()?;
    let wears =
        |attribute: &Attribute| wear_percent(attribute, ata, &case.report.identity).is_some();
    let attributes = failed_attributes(ata, |attribute| {
        !attribute.prefailure && !is_temperature(attribute) && !wears(attribute)
    });
    threshold_symptom(&attributes, Severity::Suspect, "end of the designed life")
}

/// The attributes that have reached their thresholds, current failures first.
fn failed_attributes(ata: &Ata, of_kind: impl Fn(&Attribute) -> bool) -> Vec<&Attribute> {
    let failed = |attribute: &&Attribute| {
        matches!(attribute.when_failed, WhenFailed::Now | WhenFailed::Past)
    };
    let mut found: Vec<&Attribute> = ata
        .attributes
        .iter()
        .filter(failed)
        .filter(|attribute| of_kind(attribute) && !is_unused_threshold(attribute))
        .collect();
    found.sort_by_key(|attribute| attribute.when_failed != WhenFailed::Now);
    found
}

/// A threshold that a new drive would already have reached. Either it is above all values (253 is
/// the highest, SFF-8035i; FFh is "always failing", to test the alarm). Or it equals the initial
/// value 100, and the attribute has never left that value. Firmware writes these thresholds for
/// attributes that it does not evaluate.
fn is_unused_threshold(attribute: &Attribute) -> bool {
    let (value, worst) = (attribute.value, attribute.worst);
    attribute.threshold.is_some_and(|threshold| {
        threshold > 253 || (threshold == 100 && value == 100 && worst == 100)
    })
}

fn threshold_symptom(attributes: &[&Attribute], now: Severity, limit: &str) -> Option<Symptom> {
    let first = attributes.first()?;
    let named = |attribute: &&&Attribute| attribute.when_failed == first.when_failed;
    let names: Vec<String> =
        attributes.iter().filter(named).map(|attribute| describe(attribute)).collect();
    let verb = if names.len() == 1 { "has" } else { "have" };
    let names = names.join(", ");
    let (severity, recovered) = match first.when_failed {
        WhenFailed::Now => (now, String::new()),
        WhenFailed::Past | WhenFailed::Never | WhenFailed::Unknown => {
            (Severity::Suspect, format!(", and {verb} recovered"))
        }
    };
    let message = format!("{names} ({limit}){recovered}");
    Some(Symptom {
        severity,
        message,
        evidence: attributes.iter().map(|attribute| attribute_line(attribute)).collect(),
    })
}

/// `attribute 5 Reallocated_Sector_Ct has failed: value 1 is below the manufacturer's threshold 10`; for an attribute
/// that has recovered, with the worst value.
fn describe(attribute: &Attribute) -> String {
    let Attribute { id, name, worst, .. } = attribute;
    let (failed, value, number) = match attribute.when_failed {
        WhenFailed::Now => ("has failed", format!("value {} is", attribute.value), attribute.value),
        _ => ("had failed", format!("its worst value {worst} was"), *worst),
    };
    let threshold = match attribute.threshold {
        Some(threshold) if number < threshold => {
            format!("below the manufacturer's threshold {threshold}")
        }
        Some(threshold) => format!("at the manufacturer's threshold {threshold}"),
        None => "at the manufacturer's threshold".to_owned(),
    };
    format!("attribute {id} {name} {failed}: {value} {threshold}")
}
