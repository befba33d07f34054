//! Statements about findings: waited for, or the scenario fails.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::lab::context::{Context, SOON, step};
use crate::lab::drives::{self, Drive};

/// What a finding must say.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    pub subject: &'a str,
    pub reason: &'a str,
    pub severity: &'a str,
    pub evidence: Evidence<'a>,
}

#[derive(Clone, Copy, Debug)]
pub enum Evidence<'a> {
    /// Some evidence, written as `source: text`, has this in it.
    Says(&'a str),
    /// What is quoted of the kernel log is there verbatim, since the scenario's start, and one of
    /// these texts is in it. The first of them must come in the kernel log in any case: it proves
    /// the fault. The others are in records of the same incident, any of which may be quoted.
    Record(&'a [&'a str]),
}

/// The source that evidence from the kernel log names.
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
        self.findings(false)
            .into_iter()
            .find(|finding| about(finding, subject, reason))
    }

    /// Waits for the finding, with all of it.
    pub fn expect(&mut self, expected: &Expected<'_>) -> Value {
        if let Evidence::Record(patterns) = expected.evidence {
            self.record(&patterns[..1]);
        }
        let mut last = Value::Null;
        let what = format!("{expected:?}");
        let began = Instant::now();
        let deadline = self.deadline.min(began + SOON);
        loop {
            let seen = self.guest.watch.count();
            if let Some(finding) = self.active(expected.subject, expected.reason) {
                if finding["severity"] == expected.severity
                    && self.has_evidence(&finding, expected.evidence)
                {
                    step(began, &what);
                    return finding;
                }
                last = finding;
            }
            assert!(
                Instant::now() < deadline,
                "no such finding: {what}; there is {last:#}"
            );
            self.guest.watch.more_than(seen, Duration::from_secs(1));
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
            Evidence::Says(part) => all
                .iter()
                .any(|(source, text)| format!("{source}: {text}").contains(part)),
            Evidence::Record(patterns) => {
                let records = self.records();
                let mut quoted = all
                    .iter()
                    .filter(|(source, _)| source == KERNEL_LOG)
                    .map(|(_, text)| text);
                let verbatim = |text: &String| {
                    records
                        .iter()
                        .any(|record| record.trim_end() == text.trim_end())
                };
                let meant = quoted
                    .clone()
                    .any(|text| patterns.iter().any(|pattern| text.contains(pattern)));
                meant && quoted.all(verbatim)
            }
        }
    }

    /// Waits until the finding is cleared, and is in the history as such.
    pub fn expect_cleared(&mut self, subject: &str, reason: &str) {
        self.until(&format!("{reason} of {subject} is cleared"), |context| {
            let all = context.findings(true);
            let mut mine = all
                .iter()
                .filter(|finding| about(finding, subject, reason))
                .peekable();
            mine.peek()?;
            mine.all(|finding| !finding["cleared"].is_null())
                .then_some(())
        });
    }

    /// Whatever the reason: nothing was ever said of this drive.
    pub fn never_blamed(&mut self, drive: &Drive) {
        let said = self.findings(true);
        let blamed: Vec<&Value> = said
            .iter()
            .filter(|finding| finding["subject"]["id"] == drive.id)
            .collect();
        assert!(
            blamed.is_empty(),
            "an innocent drive is blamed: {blamed:#?}"
        );
    }

    /// Never said of the subject, not even for a moment.
    pub fn never_said(&mut self, subject: &str, reasons: &[&str]) {
        let said = self.findings(true);
        let wrong: Vec<&Value> = said
            .iter()
            .filter(|finding| reasons.iter().any(|reason| about(finding, subject, reason)))
            .collect();
        assert!(
            wrong.is_empty(),
            "this must not be said of {subject}: {wrong:#?}"
        );
    }

    /// Every drive that no scenario has broken is GOOD, and nothing was ever said of it.
    pub fn others_are_good(&mut self) {
        let answer = self
            .guest
            .ask("drives")
            .unwrap_or_else(|error| panic!("{error}"));
        let seen = answer["drives"].as_array().cloned().unwrap_or_default();
        let said = self.findings(true);
        for drive in drives::ALL {
            assert!(
                seen.iter().any(|one| one["id"] == drive.id),
                "no drive {} in {:?}",
                drive.id,
                ids(&seen)
            );
        }
        for drive in seen.iter().filter(|one| {
            !one["id"]
                .as_str()
                .is_some_and(|id| self.broken.contains(id))
        }) {
            assert!(
                drive["health"] == "HEALTH_GOOD",
                "an innocent drive is not GOOD: {drive:#}"
            );
            let blamed: Vec<&Value> = said
                .iter()
                .filter(|finding| finding["subject"]["id"] == drive["id"])
                .collect();
            assert!(
                blamed.is_empty(),
                "an innocent drive is blamed: {blamed:#?}"
            );
        }
    }
}

fn about(finding: &Value, subject: &str, reason: &str) -> bool {
    finding["subject"]["id"] == subject && finding["reason"] == reason
}

fn ids(drives: &[Value]) -> Vec<&str> {
    drives
        .iter()
        .filter_map(|drive| drive["id"].as_str())
        .collect()
}
