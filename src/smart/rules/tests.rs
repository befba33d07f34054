//! The rules as a specification: each with both sides of its limits.

mod causes;
mod laws;
mod levels;
mod scenarios;

use crate::fixture::*;
use crate::history::SmartHistory;
use crate::policy::SmartPolicy;
use crate::report::SmartReport;
use crate::rules::{RuleHit, evaluate};
use diskvitals_finding::Status;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity::{self, Bad, Info, Suspect};

/// Judged as a recorded file is: by levels.
fn hits(report: &SmartReport) -> Vec<(Reason, Severity)> {
    let said = evaluate(report, None, &SmartPolicy::default());
    said.iter().map(|said| (said.reason, said.severity)).collect()
}

fn recorded(readings: &[(i64, SmartReport)]) -> (SmartHistory, SmartReport) {
    let mut memory = SmartHistory::default();
    for (hours, report) in readings {
        memory.record(report, hour(*hours));
    }
    let (_, last) = memory.last.clone().expect("an answer");
    (memory, *last)
}

/// Judged after these readings, an hour each.
fn after(readings: &[(i64, SmartReport)]) -> Vec<RuleHit> {
    let (memory, last) = recorded(readings);
    evaluate(&last, Some(&memory), &SmartPolicy::default())
}

fn hit_for(said: &[RuleHit], reason: Reason) -> Option<&RuleHit> {
    said.iter().find(|said| said.reason == reason)
}

#[test]
fn healthy_drives_raise_no_finding() {
    for report in [disk(), ssd(), nvme(), sas(), SmartReport::default()] {
        assert_eq!(hits(&report), []);
    }
}

#[test]
fn the_worst_comes_first_and_each_reason_once_with_all_its_causes() {
    let said =
        evaluate(&disk().raw(5, "4").raw(197, "269").raw(198, "2"), None, &SmartPolicy::default());
    let reasons: Vec<(Reason, Severity)> =
        said.iter().map(|said| (said.reason, said.severity)).collect();
    assert_eq!(reasons, [(Reason::PendingSectors, Bad), (Reason::ReallocatedSectors, Suspect)]);
    assert_eq!(
        said[0].message,
        "269 pending sectors; 2 sectors are unreadable by the drive's own scan"
    );
    assert_eq!(
        said[0].evidence,
        [
            "197 Current_Pending_Sector value 100 worst 100 threshold 0 raw 269",
            "198 Offline_Uncorrectable value 100 worst 100 threshold 0 raw 2"
        ]
    );
}

#[test]
fn no_smart_finding_claims_data_loss() {
    for said in evaluate(&disk().raw(197, "5000").raw(187, "5000"), None, &SmartPolicy::default()) {
        assert_eq!(said.status, Status::Degraded);
    }
    let notice = evaluate(&nvme_with_notice(), None, &SmartPolicy::default());
    assert_eq!((notice[0].severity, notice[0].status), (Info, Status::Information));
}

fn nvme_with_notice() -> SmartReport {
    use crate::report::Message;
    let mut report = disk();
    let text = "==> WARNING: A firmware update for this drive may be available".into();
    report.messages = vec![Message { text, severity: "warning".into() }];
    report
}

#[test]
fn a_known_bad_firmware_is_information() {
    let said = evaluate(&nvme_with_notice(), None, &SmartPolicy::default());
    assert_eq!((said[0].reason, said[0].severity), (Reason::FirmwareNotice, Info));
    assert_eq!(said[0].message, "A firmware update for this drive may be available");
}

fn policy(text: &str) -> SmartPolicy {
    toml::from_str(text).unwrap()
}

#[test]
fn every_limit_can_be_set_for_one_model() {
    let policy = policy(
        "[[overrides]]\nmodel = \"TESTDISK*\"\nlimits = { pending_suspect = 10, reallocated_suspect = 0 }\n",
    );
    assert_eq!(evaluate(&disk().raw(197, "9").raw(5, "900"), None, &policy), []);
    assert_eq!(evaluate(&disk().raw(197, "10"), None, &policy).len(), 1);
    let other = disk().raw(197, "9").identity(|identity| identity.model = Some("OTHERDISK".into()));
    assert_eq!(evaluate(&other, None, &policy).len(), 1);
}

#[test]
fn reasons_and_attributes_can_be_left_out_for_one_drive() {
    let by_reason =
        policy("[[overrides]]\nserial = \"TEST0001\"\nignore_reasons = [\"PendingSectors\"]\n");
    let by_number = policy("[[overrides]]\nserial = \"TEST0001\"\nignore_attributes = [197]\n");
    let report = disk().raw(197, "9").raw(5, "4");
    for policy in [by_reason, by_number] {
        let said = evaluate(&report, None, &policy);
        assert_eq!(
            said.iter().map(|said| said.reason).collect::<Vec<_>>(),
            [Reason::ReallocatedSectors]
        );
    }
}
