//! The drive's own tests of itself.

use crate::model::finding::Severity;
use crate::model::smart::report::SelfTestOutcome;
use crate::model::smart::rules::text::self_test_line;
use crate::model::smart::rules::{RuleInput, Symptom};

/// A self-test found a fault and no extended one has passed since: BAD. SUSPECT where a test of the
/// same kind has passed since, which read less than all. smartctl's exit status leaves out the
/// failures that an extended test has outdated; that an admin or a reset broke a test off is no
/// failure.
pub fn failed(case: &RuleInput) -> Option<Symptom> {
    let log = &case.report.self_tests.log;
    let whole =
        |outcome: SelfTestOutcome, extended: bool| outcome == SelfTestOutcome::Passed && extended;
    let standing = log
        .iter()
        .take_while(|test| !whole(test.outcome, test.extended));
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
        evidence: failures
            .iter()
            .take(4)
            .map(|test| self_test_line(test))
            .collect(),
    })
}
