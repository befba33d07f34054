//! Families about active findings, acknowledged ones included; counted findings are marked.

use std::fmt;
use std::sync::Arc;

use crate::metrics::view::second;
use diskvitals_exposition::families;
use diskvitals_exposition::families::{Families, FamilyRow};
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Finding, Status, Subject};
use diskvitals_model::snapshot::Snapshot;

const FAMILIES: [FamilyRow<Arc<Finding>>; 3] = families! {
    Arc<Finding>:
    Gauge "diskvitals_finding_active": "What is known against a drive, volume or device: always 1."
        => |it, to| to.info(&[("status", status(it.status))]);
    Gauge "diskvitals_finding_info":
        "How bad a finding is, and whether it counts (not acknowledged, no maintenance): always 1."
        => |it, to| to.info(&[
            ("kind", subject_kind(&it.subject)), ("severity", severity(it.severity)),
            ("counts", if it.is_counted() { "true" } else { "false" }),
        ]);
    Gauge "diskvitals_finding_since_timestamp" in SECONDS: "Since when it is so, since the epoch."
        => |it, to| to.value(second(it.since));
};

pub(super) fn encode(families: &mut Families<'_>, snapshot: &Snapshot) -> fmt::Result {
    let findings = snapshot.findings.values();
    let findings: Vec<(String, Arc<Finding>)> =
        findings.map(|it| (it.subject.to_string(), it.clone())).collect();
    let findings: Vec<_> = findings
        .iter()
        .map(|(of, it)| ([("subject", of.as_str()), ("reason", it.reason.name())], it))
        .collect();
    families.encode(&FAMILIES, &findings)
}

fn subject_kind(subject: &Subject) -> &'static str {
    match subject {
        Subject::Drive(_) => "drive",
        Subject::Volume(_) => "volume",
        Subject::Device(_) => "device",
        Subject::Source(_) => "source",
    }
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Suspect => "suspect",
        Severity::Bad => "bad",
    }
}

fn status(status: Status) -> &'static str {
    match status {
        Status::Information => "information",
        Status::Degraded => "degraded",
        Status::Inaccessible => "inaccessible",
        Status::DataLoss => "data_loss",
    }
}
