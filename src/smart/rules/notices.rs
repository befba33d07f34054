//! The rule about firmware notices: warnings in smartmontools' drive database about this model.

use crate::rules::{RuleInput, Symptom};
use diskvitals_finding::severity::Severity;

/// A warning in drivedb.h about firmware with known faults. Information: an admin must read whether
/// the fault concerns this host. Clears with a firmware or a database without the warning.
pub(crate) fn firmware(case: &RuleInput) -> Option<Symptom> {
    let notices = case.report.messages.iter().filter(|message| message.is_firmware_notice());
    let evidence: Vec<String> = notices.map(|message| message.text.clone()).collect();
    let message = evidence.first()?.trim_start_matches("==> WARNING: ").trim().to_owned();
    Some(Symptom { severity: Severity::Info, message, evidence })
}
