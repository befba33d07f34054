//! Counts of drives by model: see `model::model_statistics`.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::facts::Facts;
use crate::snapshot::{Drive, Snapshot};
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Finding, Health, Subject};

fn is_bad_failure(finding: &Finding) -> bool {
    finding.severity == Severity::Bad && finding.reason.counts_for_model()
}

impl Facts {
    /// Counts the time in service, and the drives that have failed since the previous snapshot: those
    /// that it had judged to be better. A drive that is bad when it is judged for the first time has
    /// failed at some time before, which no counter of today may show.
    pub fn count_models<'a>(
        &mut self,
        previous: &Snapshot,
        active: impl Iterator<Item = &'a Finding>,
        now: Timestamp,
    ) {
        let failing: BTreeSet<&DriveId> = active
            .filter(|finding| is_bad_failure(finding))
            .filter_map(|finding| match &finding.subject {
                Subject::Drive(id) => Some(id),
                Subject::Volume(_) | Subject::Device(_) | Subject::Source(_) => None,
            })
            .collect();
        let had_failed = |drive: &Drive| {
            let findings = drive.findings.iter().filter_map(|id| previous.findings.get(id));
            findings.into_iter().any(|finding| is_bad_failure(finding))
        };
        let was_better = |id: &DriveId| {
            let before = previous.drives.get(id);
            before.is_some_and(|drive| drive.health != Health::Unknown && !had_failed(drive))
        };
        for (id, known) in &mut self.drives {
            if known.failed.is_none() && failing.contains(id) && was_better(id) {
                known.failed = Some(now);
                self.models.count_failure(&known.facts);
            }
        }
        let present = self.drives.values().filter(|known| known.missing_since.is_none());
        self.models.count_time(present.map(|known| &known.facts), now);
    }
}
