//! What smartmontools knows of this model, beside the drive's own word.

use crate::model::finding::Severity;
use crate::model::smart::rules::{RuleInput, Symptom};

/// drivedb's warning of a firmware with known faults. Information: whether the fault concerns this
/// host is for an admin to read.
pub fn firmware(case: &RuleInput) -> Option<Symptom> {
    let notices = case
        .report
        .messages
        .iter()
        .filter(|message| message.is_firmware_notice());
    let evidence: Vec<String> = notices.map(|message| message.text.clone()).collect();
    let message = evidence
        .first()?
        .trim_start_matches("==> WARNING: ")
        .trim()
        .to_owned();
    Some(Symptom {
        severity: Severity::Info,
        message,
        evidence,
    })
}
