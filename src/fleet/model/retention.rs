//! Which reports of deleted nodes have been kept long enough.
//!
//! In: the view, the wall clock. Out: names with uid and resourceVersion, for a conditional delete.

use jiff::Timestamp;

use crate::model::{Elapsed, Policy, View};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Expired {
    pub name: String,
    pub uid: String,
    pub resource_version: String,
}

/// `wall`: the age of a report is measured against the API server's time of its last write. A
/// report without one is kept.
pub(crate) fn expired(view: &View, policy: &Policy, now: Elapsed, wall: Timestamp) -> Vec<Expired> {
    let is_old = |name: &str, written: Option<Timestamp>| {
        let absent = view
            .unready_since(name)
            .is_some_and(|since| now.saturating_sub(since) >= policy.absent_before_delete);
        let age = written.map(|written| wall.duration_since(written));
        absent
            && age
                .and_then(|age| std::time::Duration::try_from(age).ok())
                .is_some_and(|age| age >= policy.keep_reports)
    };
    view.reports
        .iter()
        .filter(|(name, _)| !view.nodes.contains_key(*name))
        .filter(|(name, report)| is_old(name, report.last_write))
        .map(|(name, report)| Expired {
            name: name.clone(),
            uid: report.uid.clone(),
            resource_version: report.resource_version.clone(),
        })
        .collect()
}
