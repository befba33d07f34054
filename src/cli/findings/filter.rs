//! The filters of `findings` and `watch`: severity, reason, and what a drive or a volume has.
//!
//! In: arguments, the daemon's explanation of the names. Out: the findings that pass.

use std::collections::BTreeSet;

use crate::args::findings::FindingFilter;
use crate::findings::obstacle;
use crate::place::by_name;
use diskvitals_finding::reason::Reason;
use diskvitals_wire as wire;
use diskvitals_wire::client::{Client, ClientError};

/// A filter whose names have been resolved by the daemon.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    filter: FindingFilter,
    /// Of the drive and of the volume.
    named: Vec<wire::Explanation>,
}

impl Resolved {
    pub async fn ask(client: &Client, filter: &FindingFilter) -> Result<Resolved, ClientError> {
        let mut named = Vec::new();
        for name in filter.drive.iter().chain(&filter.volume) {
            named.push(by_name(client, name, async |name| client.explain(name).await).await?);
        }
        Ok(Resolved { filter: filter.clone(), named })
    }

    /// Without names to resolve.
    #[cfg(test)]
    pub fn of(filter: FindingFilter) -> Resolved {
        Resolved { filter, named: Vec::new() }
    }

    pub fn keep(&self, findings: Vec<wire::Finding>) -> Vec<wire::Finding> {
        let mut kept = findings;
        for explained in &self.named {
            let about = about(explained, &kept);
            kept = about.into_iter().map(|(finding, _)| finding).collect();
        }
        let reasons = &self.filter.reason;
        kept.retain(|finding| {
            self.filter.severity.is_none_or(|least| finding.severity() >= least.wire())
                && (reasons.is_empty()
                    || reasons.iter().any(|wanted| finding.reason.eq_ignore_ascii_case(wanted)))
        });
        kept
    }

    /// Whether nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty() && !self.is_about_findings()
    }

    /// Whether a drive, volume or check with this id passes: it has no severity and no reason of its
    /// own.
    pub fn passes(&self, id: &str) -> bool {
        let subjects = |explained: &wire::Explanation| {
            let mut subjects = explained.subjects.iter().chain(&explained.subject);
            subjects.any(|subject| subject.id == id)
        };
        !self.is_about_findings() && self.named.iter().all(subjects)
    }

    fn is_about_findings(&self) -> bool {
        self.filter.severity.is_some() || !self.filter.reason.is_empty()
    }
}

/// The findings about what was explained, and those of volumes that only follow from them. With the
/// latter: why acknowledging the cause is not enough for it, if another drive fails as well.
pub(super) fn about(
    explained: &wire::Explanation,
    all: &[wire::Finding],
) -> Vec<(wire::Finding, Option<String>)> {
    // An older daemon names the first subject only.
    let subjects: Vec<&wire::Subject> = match explained.subjects.as_slice() {
        [] => explained.subject.iter().collect(),
        subjects => subjects.iter().collect(),
    };
    let is_named = |finding: &wire::Finding| {
        let subject = finding.subject.as_ref();
        subject.is_some_and(|subject| subjects.contains(&subject))
    };
    let drives: BTreeSet<&str> = subjects
        .iter()
        .filter(|subject| subject.kind() == wire::SubjectKind::Drive)
        .map(|subject| subject.id.as_str())
        .collect();
    let above = |finding: &wire::Finding| {
        let subject = finding.subject.as_ref();
        explained.volumes.iter().find(|volume| {
            subject.is_some_and(|it| it.kind() == wire::SubjectKind::Volume && it.id == volume.id)
                && volume.drive_ids.iter().any(|drive| drives.contains(drive.as_str()))
        })
    };
    // Active findings only: a cleared one follows from nothing.
    let announces = |finding: &wire::Finding| {
        finding.cleared.is_none() && finding.reason.parse() == Ok(Reason::DriveFailing)
    };
    let leaders: BTreeSet<&str> = all
        .iter()
        .filter(|finding| announces(finding) && above(finding).is_some())
        .map(|finding| finding.id.as_str())
        .collect();
    all.iter()
        .filter_map(|finding| {
            if is_named(finding) {
                return Some((finding.clone(), None));
            }
            let follows = leaders.contains(finding.id.as_str())
                || finding.cleared.is_none() && leaders.contains(finding.follows.as_str());
            let volume = above(finding).filter(|_| follows)?;
            Some((finding.clone(), obstacle(finding, volume, &drives, all)))
        })
        .collect()
}
