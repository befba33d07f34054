//! Findings of one volume with one cause, the failure of a drive: the first of them announces it, and
//! the others follow it.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use crate::ledger::{Ledger, Transition};
use diskvitals_finding::ids::FindingId;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::{FindingDetails, Subject, Verdict};
use diskvitals_text::duration::elapsed;

/// A volume may fail a moment before its drive is known to: probes, the log and scans are not in
/// step.
const CAUSE_LAG: Duration = Duration::from_secs(60);

type Key = (Subject, Reason);

/// The order in which judgements are applied: DriveFailing is raised before what follows it.
pub(super) fn order(key: &Key) -> (&Subject, bool, Reason) {
    (&key.0, key.1 != Reason::DriveFailing, key.1)
}

impl Ledger {
    /// The finding that a new finding follows, if one announces the same cause. `related`: the
    /// findings that are raised now and belong to failures of drives.
    pub(super) fn leader(
        &self,
        key: &Key,
        raised: &FindingDetails,
        related: &BTreeSet<Key>,
        now: Timestamp,
    ) -> Option<FindingId> {
        if !raised.of_drive_failure {
            return None;
        }
        let leads = |other: &&Key| {
            other.0 == key.0
                && self.active.get(other).is_some_and(|entry| entry.finding.follows.is_none())
        };
        let failing = (key.0.clone(), Reason::DriveFailing);
        if key.1 != Reason::DriveFailing && related.contains(&failing) {
            let failing = self.active.get(&failing)?;
            let leader = failing.finding.follows.as_ref();
            return Some(leader.unwrap_or(&failing.finding.id).clone());
        }
        let earlier = related.iter().filter(leads).filter_map(|other| {
            let finding = &self.active.get(other)?.finding;
            let is_recent = elapsed(finding.since, now) <= CAUSE_LAG;
            (is_recent && finding.severity >= raised.severity).then_some(finding)
        });
        earlier.min_by_key(|finding| (finding.since, &finding.id)).map(|finding| finding.id.clone())
    }

    fn followers(&self, id: &FindingId) -> Vec<Key> {
        let follows = |finding: &diskvitals_finding::Finding| finding.follows.as_ref() == Some(id);
        self.active
            .iter()
            .filter(|(_, entry)| follows(&entry.finding))
            .map(|(key, _)| key.clone())
            .collect()
    }

    pub(super) fn has_followers(&self, key: &Key) -> bool {
        self.active.get(key).is_some_and(|entry| {
            entry.finding.follows.is_none() && !self.followers(&entry.finding.id).is_empty()
        })
    }

    /// The announcing finding is over, and others that follow it may not be. DriveFailing stays until
    /// they are. Another one hands its place over.
    pub(super) fn clear_leader(
        &mut self,
        key: &Key,
        why: &str,
        now: Timestamp,
    ) -> Option<Transition> {
        let finding = self.active.get(key)?.finding.clone();
        let followers = self.followers(&finding.id);
        if followers.is_empty() {
            return self.clear(&key.0, key.1, why, now);
        }
        if key.1 == Reason::DriveFailing {
            let left = followers.iter().filter_map(|key| self.active.get(key));
            let severity = left.map(|entry| entry.finding.severity).max()?;
            let names: Vec<&str> = followers.iter().map(|(_, reason)| reason.name()).collect();
            let details = FindingDetails {
                severity,
                status: finding.status,
                message: format!(
                    "the drives of the volume are good again; it still has {}",
                    names.join(", ")
                ),
                evidence: Vec::new(),
                clears_when: "what followed from the failure is over".to_owned(),
                advice: None,
                since: None,
                of_drive_failure: true,
            };
            return self.active.get_mut(key)?.update(details, now);
        }
        let failing = (key.0.clone(), Reason::DriveFailing);
        let next = match followers.contains(&failing) {
            true => failing,
            false => followers.first()?.clone(),
        };
        let next_id = self.active.get(&next)?.finding.id.clone();
        for follower in followers {
            let leader = Some(next_id.clone()).filter(|_| follower != next);
            self.set_leader(&follower, leader);
        }
        self.set_leader(key, Some(next_id));
        self.clear(&key.0, key.1, why, now)
    }

    pub(super) fn set_leader(&mut self, key: &Key, leader: Option<FindingId>) {
        if let Some(entry) = self.active.get_mut(key) {
            std::sync::Arc::make_mut(&mut entry.finding).follows = leader;
        }
    }

    /// The findings of stored history have replaced the ids of newer ones.
    pub(super) fn rename_leader(&mut self, from: &FindingId, to: &FindingId) {
        for key in self.followers(from) {
            self.set_leader(&key, Some(to.clone()));
        }
    }
}

/// The raised judgements that belong to failures of drives.
pub(super) fn related(judgements: &[(Key, Verdict)]) -> BTreeSet<Key> {
    let is_related =
        |verdict: &Verdict| matches!(verdict, Verdict::Raised(raised) if raised.of_drive_failure);
    judgements
        .iter()
        .filter(|(_, verdict)| is_related(verdict))
        .map(|(key, _)| key.clone())
        .collect()
}
