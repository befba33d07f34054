//! What smartmontools knows of this model, beside the drive's own word.

use crate::model::finding::Severity;
use crate::model::smart::rules::{Case, Cause};

/// drivedb's warning of a firmware with known faults. Information: whether the fault concerns this
/// host is for an admin to read.
pub fn firmware(case: &Case) -> Option<Cause> {
    let notices = case
        .report
        .messages
        .iter()
        .filter(|message| message.is_notice());
    let evidence: Vec<String> = notices.map(|message| message.text.clone()).collect();
    let message = evidence
        .first()?
        .trim_start_matches("==> WARNING: ")
        .trim()
        .to_owned();
    Some(Cause {
        severity: Severity::Info,
        message,
        evidence,
    })
}
