//! Families about active findings, acknowledged ones included; counted findings are marked.

use std::fmt;

use diskvitals_exposition::families::{Families, SECONDS};
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Finding, Status, Subject};
use diskvitals_host::clock;
use diskvitals_model::snapshot::Snapshot;

pub(super) fn encode(families: &mut Families<'_>, snapshot: &Snapshot) -> fmt::Result {
    let findings: Vec<(String, &Finding)> = snapshot
        .findings
        .values()
        .map(|finding| (finding.subject.to_string(), finding.as_ref()))
        .collect();
    let mut family = families.gauge(
        "diskvitals_finding_active",
        None,
        "What is known against a drive, volume or device: always 1.",
    )?;
    for (subject, finding) in &findings {
        family.value(
            &[
                ("subject", subject.as_str()),
                ("reason", finding.reason.name()),
                ("status", status(finding.status)),
            ],
            1,
        )?;
    }
    let help =
        "How bad a finding is, and whether it counts (not acknowledged, no maintenance): always 1.";
    let mut family = families.gauge("diskvitals_finding_info", None, help)?;
    for (subject, finding) in &findings {
        let labels = [
            ("subject", subject.as_str()),
            ("reason", finding.reason.name()),
            ("kind", subject_kind(&finding.subject)),
            ("severity", severity(finding.severity)),
            ("counts", if is_counted(finding, snapshot) { "true" } else { "false" }),
        ];
        family.value(&labels, 1)?;
    }
    let mut family = families.gauge(
        "diskvitals_finding_since_timestamp",
        Some(&SECONDS),
        "Since when it is so, since the epoch.",
    )?;
    for (subject, finding) in &findings {
        family.signed(
            &[("subject", subject.as_str()), ("reason", finding.reason.name())],
            clock::wall(finding.since).as_second(),
        )?;
    }
    Ok(())
}

fn is_counted(finding: &Finding, snapshot: &Snapshot) -> bool {
    let maintained = matches!(&finding.subject, Subject::Drive(id) if snapshot.drives.get(id).is_some_and(|drive| drive.maintenance));
    finding.is_counted() && !maintained
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
