//! Maintenance: things of which a person has said that their findings are expected for a time. Pure.
//!
//! In: a snapshot. Out: the findings that it explains. They are shown and do not count.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::snapshot::Snapshot;
use diskvitals_finding::ids::FindingId;
use diskvitals_finding::{Finding, Status, Subject};

/// The active findings that maintenance explains: those about a drive that is under it.
pub(crate) fn explained(snapshot: &Snapshot) -> BTreeSet<FindingId> {
    let is_maintained = |finding: &&Finding| match &finding.subject {
        Subject::Drive(id) => snapshot.drives.get(id).is_some_and(|drive| drive.maintenance),
        Subject::Volume(_) | Subject::Device(_) | Subject::Source(_) => false,
    };
    let findings = snapshot.findings.values().map(Arc::as_ref);
    let explained = findings.filter(|finding| may_be_explained(finding)).filter(is_maintained);
    explained.map(|finding| finding.id.clone()).collect()
}

/// Lost data, and a volume that its users cannot reach, are never what a person has expected.
fn may_be_explained(finding: &Finding) -> bool {
    match (&finding.subject, finding.status) {
        (_, Status::DataLoss) | (Subject::Volume(_), Status::Inaccessible) => false,
        (_, Status::Information | Status::Degraded | Status::Inaccessible) => true,
    }
}
