//! Findings of one volume with one cause, the failure of a drive: one of them announces it, and the
//! others follow it. A finding follows only one that is at least as bad.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::assess::Level;
use crate::ledger::{Entry, Ledger, Transition};
use diskvitals_finding::ids::FindingId;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::{FindingDetails, Subject, Verdict};
use diskvitals_text::duration::elapsed;

/// A volume may fail a moment before its drive is known to: probes, the log and scans are not in
/// step.
const CAUSE_LAG: Duration = Duration::from_secs(60);

type Key = (Subject, Reason);
/// The findings that are raised now and belong to failures of drives.
type Related = BTreeMap<Key, Level>;

/// The order in which judgements are applied: DriveFailing is raised before what follows it.
pub(super) fn order(key: &Key) -> (&Subject, bool, Reason) {
    (&key.0, key.1 != Reason::DriveFailing, key.1)
}

fn is_worse((severity, status): Level, than: Level) -> bool {
    severity > than.0 || status > than.1
}

impl Ledger {
    /// Before the judgements are applied: a finding that is now worse than the one it follows takes
    /// its place.
    pub(super) fn replace_leaders(&mut self, related: &Related) {
        let mut replaced: BTreeMap<Key, (Level, Key)> = BTreeMap::new();
        for (key, level) in related {
            let leader = self.active.get(key).and_then(|entry| entry.finding.follows.as_ref());
            let leader = leader.and_then(|id| self.active.iter().find(|it| it.1.finding.id == *id));
            let Some((leader, entry)) = leader else { continue };
            let best = replaced.get(leader).map(|(level, _)| *level);
            let now = related.get(leader).copied().unwrap_or(entry.level());
            if is_worse(*level, best.unwrap_or(now)) {
                replaced.insert(leader.clone(), (*level, key.clone()));
            }
        }
        for (leader, (_, next)) in replaced {
            self.hand_over(&leader, &next);
        }
    }

    /// The finding that a raised one follows: DriveFailing once the drive is known to fail, whichever
    /// came first; until then an earlier finding with the same cause.
    pub(super) fn leader(&self, key: &Key, related: &Related, now: Timestamp) -> Option<FindingId> {
        let follows = self.active.get(key).map(|entry| entry.finding.follows.clone());
        let Some(level) = related.get(key) else {
            return follows.flatten();
        };
        let failing = (key.0.clone(), Reason::DriveFailing);
        if *key == failing {
            return None;
        }
        if related.contains_key(&failing) {
            return self.active.get(&failing).map(|entry| entry.finding.id.clone());
        }
        if let Some(follows) = follows {
            return follows;
        }
        let of_subject = related.iter().filter(|(other, _)| other.0 == key.0);
        let earlier = of_subject.filter_map(|(other, its_level)| {
            let finding = &self.active.get(other)?.finding;
            let is_recent = elapsed(finding.since, now) <= CAUSE_LAG;
            let leads = finding.follows.is_none() && !is_worse(*level, *its_level);
            (is_recent && leads).then_some(finding)
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
            let left = || followers.iter().filter_map(|key| Some(self.active.get(key)?.level()));
            let names: Vec<&str> = followers.iter().map(|(_, reason)| reason.name()).collect();
            let details = FindingDetails {
                severity: left().map(|(severity, _)| severity).max()?,
                status: left().map(|(_, status)| status).max()?,
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
        let level = |key: &Key| self.active.get(key).map(Entry::level);
        // Of equals the first.
        let next = followers.iter().min_by_key(|key| Reverse(level(key)))?.clone();
        self.hand_over(key, &next);
        self.clear(&key.0, key.1, why, now)
    }

    /// What follows `from`, and `from` itself, follow `to`.
    fn hand_over(&mut self, from: &Key, to: &Key) {
        let id = |key| self.active.get(key).map(|entry: &Entry| entry.finding.id.clone());
        let (Some(old), Some(new)) = (id(from), id(to)) else { return };
        for key in self.followers(&old) {
            self.set_leader(&key, Some(new.clone()));
        }
        self.set_leader(from, Some(new));
        self.set_leader(to, None);
    }

    pub(super) fn set_leader(&mut self, key: &Key, leader: Option<FindingId>) {
        if let Some(entry) = self.active.get_mut(key)
            && entry.finding.follows != leader
        {
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
pub(super) fn related(judgements: &[(Key, Verdict)]) -> Related {
    let level = |verdict: &Verdict| match verdict {
        Verdict::Raised(raised) => {
            raised.of_drive_failure.then_some((raised.severity, raised.status))
        }
        Verdict::Clear | Verdict::Unknown { .. } => None,
    };
    let related = |(key, verdict): &(Key, Verdict)| Some((key.clone(), level(verdict)?));
    judgements.iter().filter_map(related).collect()
}
