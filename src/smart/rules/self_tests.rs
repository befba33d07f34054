//! The rule about self-tests of the drive.
//!
//! In: the self-test log of one report. Out: a `Symptom`, or none.

use crate::report::{SelfTest, SelfTestOutcome, SmartReport};
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
