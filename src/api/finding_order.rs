//! The order of findings in lists: active first, worst first, newest first. The order is total, so
//! a page can continue after any finding.

use crate::model::finding::Finding;

/// Sort key of a finding in a list. Its last part, the id, makes it unique.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FindingRank {
    /// Active before acknowledged before cleared.
    pub group: u8,
    /// 255 minus severity and 255 minus status.
    pub severity: u8,
    pub status: u8,
    /// Negated, in nanoseconds, so that the newest comes first.
    pub since: i128,
    pub id: String,
}

pub(crate) fn rank(finding: &Finding) -> FindingRank {
    let group = match (&finding.cleared, &finding.acknowledged) {
        (Some(_), _) => 2,
        (None, Some(_)) => 1,
        (None, None) => 0,
    };
    FindingRank {
        group,
        severity: u8::MAX - finding.severity as u8,
        status: u8::MAX - finding.status as u8,
        since: -finding.since.as_nanosecond(),
        id: finding.id.to_string(),
    }
}
