//! Assertions about findings: awaited until the deadline, then the scenario fails.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::lab::context::{Context, SOON, step};
use crate::lab::drives::{self, Drive};

/// The expected content of a finding.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    pub subject: &'a str,
    pub reason: &'a str,
    pub severity: &'a str,
    pub evidence: Evidence<'a>,
}

#[derive(Clone, Copy, Debug)]
pub enum Evidence<'a> {
    /// Some evidence, written as `source: text`, contains this.
    Says(&'a str),
    /// Quotes of the kernel log are verbatim, since the scenario's start, and contain one of these
    /// texts. The first text must appear in the kernel log in any case: it proves the fault. The
    /// others are in records of the same incident, any of which may be quoted.
    Record(&'a [&'a str]),
}

/// The source name of evidence from the kernel log.
const KERNEL_LOG: &str = "kernel log";

pub const SUSPECT: &str = "SEVERITY_SUSPECT";
pub const BAD: &str = "SEVERITY_BAD";
pub const INFO: &str = "SEVERITY_INFO";

impl Context {
    pub fn findings(&mut self, all: bool) -> Vec<Value> {
        let answer = self
            .guest
            .ask(if all { "findings --all" } else { "findings" })
            .unwrap_or_else(|error| panic!("{error}"));
        answer["findings"].as_array().cloned().unwrap_or_default()
    }

    pub fn active(&mut self, subject: &str, reason: &str) -> Option<Value> {
        self.findings(false).into_iter().find(|finding| about(finding, subject, reason))
    }

    /// Waits for the finding with all of its content.
    pub fn expect(&mut self, expected: &Expected<'_>) -> Value {
        if let Evidence::Record(patterns) = expected.evidence {
            self.record(&patterns[..1]);
        }
        let mut last = Value::Null;
        let what = format!("{expected:?}");
        let began = Instant::now();
        let deadline = self.deadline.min(began + SOON);
        loop {
            let known = self.guest.watch.count();
            if let Some(finding) = self.active(expected.subject, expected.reason) {
                if finding["severity"] == expected.severity
                    && self.has_evidence(&finding, expected.evidence)
                {
                    step(began, &what);
                    return finding;
                }
                last = finding;
            }
            assert!(Instant::now() < deadline, "no such finding: {what}; there is {last:#}");
            self.guest.watch.more_than(known, Duration::from_secs(1));
        }
    }

    fn has_evidence(&self, finding: &Value, evidence: Evidence<'_>) -> bool {
        let field = |one: &Value, name: &str| one[name].as_str().unwrap_or_default().to_owned();
        let all: Vec<(String, String)> = finding["evidence"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| (field(one, "source"), field(one, "text")))
            .collect();
        match evidence {
            Evidence::Says(part) => {
                all.iter().any(|(source, text)| format!("{source}: {text}").contains(part))
            }
            Evidence::Record(patterns) => {
                let records = self.records();
                let mut quoted =
                    all.iter().filter(|(source, _)| source == KERNEL_LOG).map(|(_, text)| text);
                let verbatim = |text: &String| {
                    records.iter().any(|record| record.trim_end() == text.trim_end())
                };
                let meant = quoted
                    .clone()
                    .any(|text| patterns.iter().any(|pattern| text.contains(pattern)));
                meant && quoted.all(verbatim)
            }
        }
    }

    /// Waits until the finding is cleared, and is in the history as cleared.
    pub fn expect_cleared(&mut self, subject: &str, reason: &str) {
        self.until(&format!("{reason} of {subject} is cleared"), |context| {
            let all = context.findings(true);
            let mut mine = all.iter().filter(|finding| about(finding, subject, reason)).peekable();
            mine.peek()?;
            mine.all(|finding| !finding["cleared"].is_null()).then_some(())
        });
    }

    /// This drive never had a finding, of any reason.
    pub fn never_had_finding(&mut self, drive: &Drive) {
        let findings = self.findings(true);
        let wrong: Vec<&Value> =
            findings.iter().filter(|finding| finding["subject"]["id"] == drive.id).collect();
        assert!(wrong.is_empty(), "an unbroken drive has findings: {wrong:#?}");
    }

    /// The subject never had this finding, not even for a moment.
    pub fn never_raised(&mut self, subject: &str, reasons: &[&str]) {
        let findings = self.findings(true);
        let wrong: Vec<&Value> = findings
            .iter()
            .filter(|finding| reasons.iter().any(|reason| about(finding, subject, reason)))
            .collect();
        assert!(wrong.is_empty(), "{subject} must not have these findings: {wrong:#?}");
    }

    /// Every drive that no scenario has broken is GOOD and never had a finding.
    pub fn others_are_good(&mut self) {
        // A daemon that has just started has not read everything yet.
        let shown = self.until("no drive is about to be looked at", |context| {
            let answer = context.guest.ask("drives").ok()?;
            let shown = answer["drives"].as_array()?.clone();
            let is_pending = |one: &Value| one["healthUnknownCause"] == "UNKNOWN_CAUSE_PENDING";
            (!shown.iter().any(is_pending)).then_some(shown)
        });
        let findings = self.findings(true);
        for drive in drives::ALL {
            assert!(
                shown.iter().any(|one| one["id"] == drive.id),
                "no drive {} in {:?}",
                drive.id,
                ids(&shown)
            );
        }
        for drive in shown
            .iter()
            .filter(|one| !one["id"].as_str().is_some_and(|id| self.broken.contains(id)))
        {
            assert!(drive["health"] == "HEALTH_GOOD", "an unbroken drive is not GOOD: {drive:#}");
            let wrong: Vec<&Value> =
                findings.iter().filter(|finding| finding["subject"]["id"] == drive["id"]).collect();
            assert!(wrong.is_empty(), "an unbroken drive has findings: {wrong:#?}");
        }
    }
}

fn about(finding: &Value, subject: &str, reason: &str) -> bool {
    finding["subject"]["id"] == subject && finding["reason"] == reason
}

fn ids(drives: &[Value]) -> Vec<&str> {
    drives.iter().filter_map(|drive| drive["id"].as_str()).collect()
}
