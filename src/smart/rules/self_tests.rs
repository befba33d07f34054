//! The rules about self-tests of the drive: what one found, and how long ago the last one was.
//!
//! In: the self-test log of one report. Out: a `Symptom`, or none.

use crate::report::{Body, SelfTest, SelfTestOutcome, SmartReport};
use crate::rules::text::self_test_line;
use crate::rules::{RuleInput, Symptom};
use diskvitals_finding::severity::Severity;

/// Whether the log has an extended test that passed: a drive drops the oldest entries first, so it is
/// newer than a failure that the log no longer has.
pub fn has_passed(report: &SmartReport) -> bool {
    report.self_tests.log.iter().any(is_whole)
}

/// An extended test that passed.
pub fn is_whole(test: &SelfTest) -> bool {
    test.outcome == SelfTestOutcome::Passed && test.extended
}

/// A self-test found a fault, and no extended test has passed since. BAD. SUSPECT when a test of the
/// same kind, which reads only a part, has passed since. A test aborted by an admin or by a reset is
/// not a failure.
pub(super) fn failed(case: &RuleInput) -> Option<Symptom> {
    let log = &case.report.self_tests.log;
    let standing = log.iter().take_while(|test| !is_whole(test));
    let mut passed: Vec<&str> = Vec::new();
    let mut severity = Severity::Suspect;
    let mut failures = Vec::new();
    for test in standing {
        match test.outcome {
            SelfTestOutcome::Passed => passed.push(&test.kind),
            SelfTestOutcome::Failed => {
                failures.push(test);
                if !passed.contains(&test.kind.as_str()) {
                    severity = Severity::Bad;
                }
            }
            SelfTestOutcome::Running | SelfTestOutcome::Other => {}
        }
    }
    let newest = failures.first()?;
    let times = if failures.len() > 1 {
        format!(", and {} more", failures.len() - 1)
    } else {
        String::new()
    };
    let message = format!(
        "The drive's own test found a fault and no extended test has passed since ({}{times})",
        self_test_line(newest)
    );
    Some(Symptom {
        severity,
        message,
        evidence: failures.iter().take(4).map(|test| self_test_line(test)).collect(),
    })
}

/// ATA and SCSI log 16 bits of the hours: ACS-4, 9.6 (life timestamp); SPC-6, 7.3.19
/// (ACCUMULATED POWER ON HOURS). NVMe logs 64 (NVMe Base 2.0, 5.16.1.7).
const HOURS_WRAP: u64 = 1 << 16;
/// Tests of the factory, or hours that the drive does not count (some SSDs log 0 or 1, whatever their
/// age).
const FIRST_HOURS: u64 = 2;

/// Hours of operation since a test of the log. None where the log or the drive does not count them.
pub fn hours_since(report: &SmartReport, test: &SelfTest) -> Option<u64> {
    let own = report.power_on_hours?;
    let age = own.checked_sub(test.hours.filter(|hours| *hours >= FIRST_HOURS)?)?;
    Some(if matches!(report.body, Body::Nvme(_)) { age } else { age % HOURS_WRAP })
}

/// No self-test has ended for `self_test_overdue_days` of operation, or for half as long again as this
/// drive's tests are usually apart. Information. Only where tests are run: the log has one. Their age is
/// unknown where the log or the drive's hours were not read. Tests that were aborted are none.
pub(super) fn overdue(case: &RuleInput) -> Option<Symptom> {
    let own = case.report.power_on_hours?;
    let limit = case.limits.self_test_overdue_days.checked_mul(24).filter(|hours| *hours > 0)?;
    let log = &case.report.self_tests.log;
    let is_ended = |test: &&SelfTest| {
        matches!(test.outcome, SelfTestOutcome::Passed | SelfTestOutcome::Failed)
    };
    let age = |test: &SelfTest| hours_since(case.report, test);
    let ended: Vec<&SelfTest> = log.iter().filter(is_ended).collect();
    let newest = ended.first()?;
    let ages: Vec<u64> = ended.iter().filter_map(|test| age(test)).collect();
    let hours = age(newest)?;
    let mut apart: Vec<u64> = ages.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    apart.sort_unstable();
    let usual = apart.get(apart.len() / 2).copied().unwrap_or_default();
    if hours <= limit.max(usual.saturating_add(usual / 2)) {
        return None;
    }
    let message = format!(
        "No self-test has ended for {hours} hours of operation ({} days); the last one: {}",
        hours / 24,
        self_test_line(newest)
    );
    let evidence = vec![self_test_line(newest), format!("Power_On_Hours {own}")];
    Some(Symptom { severity: Severity::Info, message, evidence })
}
