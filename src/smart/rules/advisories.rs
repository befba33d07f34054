//! The rule about advisories.
//!
//! In: one `RuleInput`. Out: one `Symptom` for all rows that are about the drive, or none.

use crate::SelfTestKind;
use crate::advisory::{Advisory, AdvisoryCondition};
use crate::report::SmartReport;
use crate::rules::text::pluralize;
use crate::rules::{RuleInput, Symptom};
use diskvitals_finding::severity::Severity;

/// Three months, to plan an update. Our choice.
const SOON_HOURS: u64 = 90 * 24;

/// The drive has firmware with a published fault. Information; SUSPECT when the fault shows at a number
/// of power-on hours that is less than three months away, or past. Never BAD: it has not shown.
pub(crate) fn published(case: &RuleInput) -> Option<Symptom> {
    let rows = case.advisories.iter().filter(|row| row.is_about(&case.report.identity));
    let mut symptoms: Vec<Symptom> = rows.map(|row| symptom(row, case.report)).collect();
    symptoms.sort_by_key(|symptom| std::cmp::Reverse(symptom.severity));
    symptoms.into_iter().reduce(|mut all, next| {
        all.message = format!("{}; {}", all.message, next.message);
        all.evidence.extend(next.evidence);
        all
    })
}

fn symptom(row: &Advisory, report: &SmartReport) -> Symptom {
    let Advisory { vendor, condition, text, source, .. } = row;
    let mut severity = Severity::Info;
    let begin = match condition {
        AdvisoryCondition::When(begin) => begin.clone(),
        AdvisoryCondition::SelfTest(SelfTestKind::Short) => "During a self-test".to_owned(),
        AdvisoryCondition::SelfTest(SelfTestKind::Long) => {
            "During an extended self-test".to_owned()
        }
        AdvisoryCondition::PowerOnHours(limit) => {
            let now = report.power_on_hours;
            if now.is_some_and(|now| limit.saturating_sub(now) < SOON_HOURS) {
                severity = Severity::Suspect;
            }
            let left = match now {
                None => "the drive does not report its hours".to_owned(),
                Some(now) if now < *limit => {
                    format!("{} left", pluralize(limit - now, "hour", "hours"))
                }
                Some(now) => format!("passed, {now} now"),
            };
            format!("At {limit} power-on hours ({left})")
        }
    };
    let identity = &report.identity;
    let [model, firmware] =
        [&identity.model, &identity.firmware].map(|it| it.as_deref().unwrap_or_default());
    // Without the hours, which differ at each reading.
    let evidence = vec![format!("{source}: {vendor} {model}, firmware {firmware}")];
    Symptom { severity, message: format!("{begin}: {text}"), evidence }
}
