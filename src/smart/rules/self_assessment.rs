//! Rules about the drive's assessment of itself: the overall SMART verdict, the critical warnings
//! of NVMe, and the informational exceptions of SCSI.
//!
//! In: one `RuleInput`. Out: one `Symptom` for each rule, or none.

use crate::history::is_temperature;
use crate::report::{InformationalException, Message, WhenFailed};
use crate::rules::text::{attribute_lines, pluralize};
use crate::rules::{RuleInput, Symptom};
use diskvitals_finding::severity::Severity;

/// ASC 5Dh: failure prediction threshold exceeded.
const ASC_FAILURE_PREDICTION: u8 = 0x5d;
/// ASC 0Bh: warning.
pub(crate) const ASC_WARNING: u8 = 0x0b;

/// The SMART overall-health self-assessment is FAILED. BAD. If the drive reports the cause (bits of
/// NVMe, codes of SCSI), the rules about the causes decide: smartctl reports an NVMe or SAS drive as
/// failed for its temperature alone. Without `passed`, exit status bit 3 decides.
pub(crate) fn overall(case: &RuleInput) -> Option<Symptom> {
    let report = case.report;
    let failed = report.overall_passed() == Some(false);
    let has_specific_cause =
        case.nvme().is_some_and(|nvme| nvme.critical_warning.is_some_and(|bits| bits != 0))
            || case.scsi().is_some_and(|scsi| {
                scsi.exception.as_ref().is_some_and(|exception| {
                    matches!(exception.asc, ASC_FAILURE_PREDICTION | ASC_WARNING)
                })
            })
            || is_attribute_check_for_temperature(case);
    if !failed || has_specific_cause {
        return None;
    }
    let mut evidence = vec!["SMART overall-health self-assessment test result: FAILED".to_owned()];
    evidence.extend(case.scsi().and_then(|scsi| scsi.exception.as_ref()).map(exception_line));
    if let Some(ata) = case.ata() {
        evidence.extend(attribute_lines(ata, |attribute| attribute.when_failed == WhenFailed::Now));
    }
    let message = "The drive says that it is failing".to_owned();
    Some(Symptom { severity: Severity::Bad, message, evidence })
}

/// smartctl derived the verdict from temperature attributes.
fn is_attribute_check_for_temperature(case: &RuleInput) -> bool {
    let Some(ata) = case.ata() else { return false };
    let mut below = ata
        .attributes
        .iter()
        .filter(|attribute| attribute.prefailure && attribute.when_failed == WhenFailed::Now)
        .peekable();
    case.report.messages.iter().any(Message::is_attribute_check_warning)
        && below.peek().is_some()
        && below.all(is_temperature)
}

/// The drive predicts its failure. BAD. 5D/FF is a test of the alarm by an admin.
pub(crate) fn scsi_predicts_failure(case: &RuleInput) -> Option<Symptom> {
    let exception = exception(case, ASC_FAILURE_PREDICTION, |_| true)?;
    let (severity, message) = match exception.ascq {
        0xff => (
            Severity::Info,
            "The drive's failure prediction is being tested; it is no true one".to_owned(),
        ),
        _ => (Severity::Bad, format!("The drive predicts its failure: {}", exception.text)),
    };
    Some(Symptom { severity, message, evidence: vec![exception_line(exception)] })
}

/// Other warnings: self-test, background scan, cache without backup power and others. SUSPECT. The
/// temperature, 0B/01, has a separate rule.
pub(crate) fn scsi_warning(case: &RuleInput) -> Option<Symptom> {
    let exception = exception(case, ASC_WARNING, |code| code != 1)?;
    let message = format!("The drive warns: {}", exception.text);
    Some(Symptom::suspect(message, vec![exception_line(exception)]))
}

/// What the rest of the health log says about the cause of a warning: `: it is worn out (100 % of
/// its designed life is used); 100 % of its spare blocks are left, it counts no media errors`.
fn warning_cause(case: &RuleInput) -> String {
    let Some(nvme) = case.nvme() else {
        return String::new();
    };
    let (spare, threshold) = (nvme.available_spare, nvme.available_spare_threshold);
    let is_spare_used = nvme.critical_warning.is_some_and(|bits| bits & 1 != 0)
        || spare.zip(threshold).is_some_and(|(spare, threshold)| spare < threshold);
    let used = nvme.percentage_used;
    let left = |spare: u8| format!("{spare} % of its spare blocks are left");
    // Each finding: whether it explains the warning, and its text.
    let findings = [
        used.map(|used| match used >= 100 {
            true => (true, format!("it is worn out ({used} % of its designed life is used)")),
            false => (false, format!("{used} % of its designed life is used")),
        }),
        match (is_spare_used, spare) {
            (true, Some(spare)) => {
                Some((true, format!("its spare blocks are used up ({spare} % left)")))
            }
            (true, None) => Some((true, "its spare blocks are used up".to_owned())),
            (false, spare) => spare.map(|spare| (false, left(spare))),
        },
        nvme.media_errors.map(|count| match count {
            0 => (false, "it counts no media errors".to_owned()),
            _ => (true, pluralize(count, "media error", "media errors") + " counted"),
        }),
    ];
    let texts = |explains: bool| -> Vec<String> {
        let chosen = findings.iter().flatten().filter(|(is, _)| *is == explains);
        chosen.map(|(_, text)| text.clone()).collect()
    };
    let (causes, others) = (texts(true), texts(false));
    match (causes.is_empty(), others.is_empty()) {
        (true, true) => String::new(),
        (true, false) => {
            format!(", and nothing that it reports explains it: {}", others.join(", "))
        }
        (false, true) => format!(": {}", causes.join(", ")),
        (false, false) => format!(": {}; {}", causes.join(", "), others.join(", ")),
    }
}

/// The persistent memory region, which is not part of the medium, is read-only or unreliable, or
/// the drive sets a reserved bit. SUSPECT.
pub(crate) fn nvme_other_warnings(case: &RuleInput) -> Option<Symptom> {
    let region = "The drive's persistent memory region has become read-only or unreliable";
    let unknown = "The drive raises a critical warning that is not known here";
    critical_warning(case, 0b10_0000, Severity::Suspect, region)
        .or_else(|| critical_warning(case, 0b1100_0000, Severity::Suspect, unknown))
}

/// One of the bits of NVMe's critical warning is set.
pub(crate) fn critical_warning(
    case: &RuleInput,
    bits: u8,
    severity: Severity,
    message: &str,
) -> Option<Symptom> {
    let warning = case.nvme()?.critical_warning.filter(|warning| warning & bits != 0)?;
    let evidence = vec![format!("Critical Warning: {warning:#04x}")];
    Some(Symptom { severity, message: message.to_owned(), evidence })
}

/// The same, BAD, with its cause.
pub(crate) fn explained_warning(case: &RuleInput, bits: u8, message: &str) -> Option<Symptom> {
    critical_warning(case, bits, Severity::Bad, &format!("{message}{}", warning_cause(case)))
}

/// An informational exception of SCSI with these codes.
pub(crate) fn exception<'a>(
    case: &'a RuleInput,
    asc: u8,
    is_code: impl Fn(u8) -> bool,
) -> Option<&'a InformationalException> {
    let exception = case.scsi()?.exception.as_ref();
    exception.filter(|exception| exception.asc == asc && is_code(exception.ascq))
}

pub(crate) fn exception_line(exception: &InformationalException) -> String {
    format!(
        "SMART Health Status: {} [asc={:x}, ascq={:x}]",
        exception.text, exception.asc, exception.ascq
    )
}
