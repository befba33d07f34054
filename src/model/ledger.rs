//! The ledger of findings: active and cleared problems, updated with each round of judgements.
//! In: `Judgement`s, acknowledgements, removed subjects, findings from the store. Out: findings and
//! `Transition`s. Pure. There is at most one active finding for a subject and a reason; only
//! `Clear`, or the removal of the subject, ends it.

mod evidence;
mod filesystems;
mod followers;
mod resolution;
mod retention;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::assess::{ActiveFinding, ActiveFindings, Level};
use crate::facts::repairs;
use diskvitals_finding::ids::FindingId;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{
    Acknowledgement, Clearance, Finding, FindingDetails, Judgement, SeenLevel, Subject, Verdict,
};
use diskvitals_text::duration::elapsed;

/// While only `last_seen` of a finding changes, it is updated at most this often.
const LAST_SEEN_INTERVAL: Duration = Duration::from_secs(60);

/// Limits on the history of cleared findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionLimits {
    /// Maximum age since it cleared.
    pub max_age: Duration,
    pub max_count: usize,
}

impl Default for RetentionLimits {
    fn default() -> Self {
        RetentionLimits { max_age: Duration::from_secs(90 * 24 * 3600), max_count: 1000 }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Ledger {
    active: BTreeMap<(Subject, Reason), Entry>,
    /// Cleared findings, newest first.
    history: Arc<Vec<Arc<Finding>>>,
}

#[derive(Clone, Debug)]
struct Entry {
    finding: Arc<Finding>,
    /// When it was last judged as raised; copied to the finding with its next change.
    last_judged: Timestamp,
    /// The repair that a person has named, by which it clears.
    repair: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    pub finding: Arc<Finding>,
    /// None: the finding is new.
    pub from: Option<Severity>,
    /// None: the finding has cleared.
    pub to: Option<Severity>,
    pub kind: TransitionKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransitionKind {
    Raised,
    /// Severity or status increased. Ends an acknowledgement.
    Worsened,
    /// Severity or status decreased and neither increased.
    Eased,
    Cleared,
    Acknowledged,
    Unacknowledged,
}

impl TransitionKind {
    pub fn name(self) -> &'static str {
        match self {
            TransitionKind::Raised => "raised",
            TransitionKind::Worsened => "worsened",
            TransitionKind::Eased => "eased",
            TransitionKind::Cleared => "cleared",
            TransitionKind::Acknowledged => "acknowledged",
            TransitionKind::Unacknowledged => "unacknowledged",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    #[error("no active finding has the id `{0}`")]
    NoSuchFinding(FindingId),
    #[error("finding `{0}` is not acknowledged")]
    NotAcknowledged(FindingId),
    #[error("finding `{0}` has become worse since it was listed: read it again")]
    Worsened(FindingId),
    #[error("{1} (finding `{0}`) does not rest on errors of the past, which a repair would end")]
    NotOfErrors(FindingId, Reason),
}

impl Ledger {
    pub fn active(&self) -> impl Iterator<Item = &Arc<Finding>> {
        self.active.values().map(|entry| &entry.finding)
    }

    /// The level and the start of each active finding, for the rules.
    pub fn levels(&self) -> ActiveFindings {
        let active =
            |entry: &Entry| ActiveFinding { level: entry.level(), since: entry.finding.since };
        self.active.iter().map(|(key, entry)| (key.clone(), active(entry))).collect()
    }

    /// Cleared findings, newest first.
    pub fn history(&self) -> &Arc<Vec<Arc<Finding>>> {
        &self.history
    }

    /// Applies one round of judgements. Findings that are not mentioned, or unknown, stay as they
    /// are.
    pub fn apply(&mut self, judgements: Vec<Judgement>, now: Timestamp) -> Vec<Transition> {
        const OVER: &str = "the condition is over";
        let mut judgements: Vec<_> = resolution::resolve(judgements).into_iter().collect();
        judgements.sort_by(|(a, _), (b, _)| followers::order(a).cmp(&followers::order(b)));
        let related = followers::related(&judgements);
        self.replace_leaders(&related);
        let (mut transitions, mut leaders) = (Vec::new(), Vec::new());
        self.forget_present(&judgements);
        for (key, verdict) in judgements {
            match verdict {
                Verdict::Unknown { .. } => {}
                Verdict::Clear if self.has_followers(&key) => leaders.push(key),
                Verdict::Clear => transitions.extend(self.clear(&key.0, key.1, OVER, now)),
                Verdict::Raised(raised) => {
                    let leader = self.leader(&key, &related, now);
                    transitions.extend(self.raise(key.0, key.1, raised, leader, now))
                }
            }
        }
        for key in leaders {
            transitions.extend(self.clear_leader(&key, OVER, now));
        }
        transitions
    }

    /// A finding that is not judged as raised in this round stays, and none of its evidence is known
    /// to hold.
    fn forget_present(&mut self, judgements: &[((Subject, Reason), Verdict)]) {
        let raised: BTreeSet<&(Subject, Reason)> = judgements
            .iter()
            .filter(|(_, verdict)| matches!(verdict, Verdict::Raised(_)))
            .map(|(key, _)| key)
            .collect();
        for (key, entry) in &mut self.active {
            if !raised.contains(key)
                && let Some(evidence) = evidence::without_present(&entry.finding.evidence)
            {
                entry.finding = Arc::new(Finding { evidence, ..(*entry.finding).clone() });
            }
        }
    }

    /// Marks the findings that maintenance explains, and no others. Returns whether a mark has changed.
    pub(crate) fn mark_maintained(&mut self, explained: &BTreeSet<FindingId>) -> bool {
        let mut has_changed = false;
        for entry in self.active.values_mut() {
            let maintained = explained.contains(&entry.finding.id);
            if entry.finding.maintained != maintained {
                Arc::make_mut(&mut entry.finding).maintained = maintained;
                has_changed = true;
            }
        }
        has_changed
    }

    /// Ends the findings about removed subjects.
    pub fn clear_subjects(
        &mut self,
        gone: impl Fn(&Subject) -> bool,
        now: Timestamp,
    ) -> Vec<Transition> {
        let keys: Vec<_> =
            self.active.keys().filter(|(subject, _)| gone(subject)).cloned().collect();
        keys.iter()
            .filter_map(|(subject, reason)| {
                self.clear(subject, *reason, "no longer applicable: it is no longer there", now)
            })
            .collect()
    }

    /// Acknowledging again replaces the person, the time and the note.
    /// Refused if the finding is worse than what was `seen`.
    pub fn acknowledge(
        &mut self,
        id: &FindingId,
        (by, note): (String, String),
        seen: SeenLevel,
        now: Timestamp,
    ) -> Result<Transition, LedgerError> {
        let entry = self.entry(id)?;
        if seen.is_exceeded_by(&entry.finding) {
            return Err(LedgerError::Worsened(id.clone()));
        }
        let finding = Finding {
            acknowledged: Some(Acknowledgement { by, time: now, note }),
            ..(*entry.finding).clone()
        };
        Ok(entry.replace(finding, TransitionKind::Acknowledged))
    }

    /// The same with a note that names a repair of the cause: the note is why it clears.
    pub fn acknowledge_repair(
        &mut self,
        id: &FindingId,
        (by, note): (String, String),
        seen: SeenLevel,
        now: Timestamp,
    ) -> Result<Transition, LedgerError> {
        let finding = &self.entry(id)?.finding;
        if !repairs::ends(&finding.subject, finding.reason) {
            return Err(LedgerError::NotOfErrors(id.clone(), finding.reason));
        }
        let repair = format!("repaired: {note}, acknowledged by {by}");
        let transition = self.acknowledge(id, (by, note), seen, now)?;
        self.entry(id)?.repair = Some(repair);
        Ok(transition)
    }

    pub fn unacknowledge(&mut self, id: &FindingId) -> Result<Transition, LedgerError> {
        let entry = self.entry(id)?;
        if entry.finding.acknowledged.is_none() {
            return Err(LedgerError::NotAcknowledged(id.clone()));
        }
        let finding = Finding { acknowledged: None, ..(*entry.finding).clone() };
        Ok(entry.replace(finding, TransitionKind::Unacknowledged))
    }

    /// Merges the findings of the store, at the start or later. A finding that was raised since
    /// the start for the same subject and reason continues under the stored id, with the stored
    /// start and, unless it is worse now, the stored acknowledgement. Returns the ids that stored
    /// ones have replaced.
    pub fn restore(&mut self, remembered: Vec<Finding>, now: Timestamp) -> Vec<FindingId> {
        let mut given_up = Vec::new();
        let mut renamed = Vec::new();
        let mut history = (*self.history).clone();
        for old in remembered {
            if !old.is_active() {
                if !history.iter().any(|known| known.id == old.id) {
                    history.push(Arc::new(old));
                }
                continue;
            }
            let key = (old.subject.clone(), old.reason);
            match self.active.get_mut(&key) {
                None => {
                    let entry =
                        Entry { last_judged: old.last_seen, repair: None, finding: Arc::new(old) };
                    self.active.insert(key, entry);
                }
                Some(entry) if entry.finding.id == old.id => {}
                Some(entry) => {
                    let young = entry.finding.clone();
                    let worse = young.severity > old.severity || young.status > old.status;
                    let kept = old.acknowledged.filter(|_| !worse);
                    let finding = Finding {
                        id: old.id,
                        since: old.since.min(young.since),
                        count: old.count + u64::from(worse),
                        evidence: evidence::add(&old.evidence, &young.evidence)
                            .unwrap_or(old.evidence),
                        acknowledged: young.acknowledged.clone().or(kept),
                        ..(*young).clone()
                    };
                    given_up.push(young.id.clone());
                    renamed.push((young.id.clone(), finding.id.clone()));
                    entry.finding = Arc::new(finding);
                }
            }
        }
        history.sort_by(|a, b| (cleared_at(b), &a.id).cmp(&(cleared_at(a), &b.id)));
        if history != *self.history {
            self.history = Arc::new(history);
        }
        for (from, to) in renamed {
            self.rename_leader(&from, &to);
        }
        // The clock may have been ahead when these were written: no time may be in the future.
        for entry in self.active.values_mut() {
            entry.last_judged = entry.last_judged.min(now);
        }
        given_up
    }

    /// Records of the findings that have cleared with these transitions which of them a user could
    /// make.
    pub fn note_origins(
        &mut self,
        transitions: &[Transition],
        is_user_made: impl Fn(&Finding) -> bool,
    ) {
        let ended = transitions.iter().filter(|it| it.to.is_none());
        let users: BTreeSet<&FindingId> =
            ended.filter(|it| is_user_made(&it.finding)).map(|it| &it.finding.id).collect();
        if users.is_empty() {
            return;
        }
        for finding in Arc::make_mut(&mut self.history) {
            if users.contains(&finding.id)
                && let Some(cleared) = &mut Arc::make_mut(finding).cleared
            {
                cleared.is_user_made = true;
            }
        }
    }

    /// Drops findings that cleared too long ago, and those beyond the maximum. Returns the ids of the
    /// rows that the store can delete.
    pub fn prune(&mut self, bounds: RetentionLimits, now: Timestamp) -> Vec<FindingId> {
        let is_kept = |finding: &Arc<Finding>| {
            cleared_at(finding).is_none_or(|cleared| elapsed(cleared, now) <= bounds.max_age)
        };
        if self.history.len() <= bounds.max_count && self.history.iter().all(is_kept) {
            return Vec::new();
        }
        let young: Vec<&Arc<Finding>> = self.history.iter().filter(|it| is_kept(it)).collect();
        let surplus = retention::surplus(&young, bounds.max_count);
        let keeps = |finding: &Arc<Finding>| is_kept(finding) && !surplus.contains(&finding.id);
        let (kept, dropped): (Vec<_>, Vec<_>) = self.history.iter().cloned().partition(keeps);
        self.history = Arc::new(kept);
        dropped.iter().map(|finding| finding.id.clone()).collect()
    }

    fn raise(
        &mut self,
        subject: Subject,
        reason: Reason,
        raised: FindingDetails,
        follows: Option<FindingId>,
        now: Timestamp,
    ) -> Option<Transition> {
        let key = (subject, reason);
        if self.active.contains_key(&key) {
            self.set_leader(&key, follows);
            return self.active.get_mut(&key)?.update(raised, now);
        }
        let since = raised.since.map_or(now, |since| since.min(now));
        let finding = Finding {
            id: self.unique_id(&key.0, reason, since, now),
            subject: key.0.clone(),
            reason,
            severity: raised.severity,
            status: raised.status,
            message: raised.message,
            since,
            last_seen: now,
            count: 1,
            evidence: evidence::first(&raised.evidence),
            clears_when: raised.clears_when,
            advice: raised.advice,
            acknowledged: None,
            maintained: false,
            cleared: None,
            follows,
        };
        let finding = Arc::new(finding);
        let entry = Entry { finding: finding.clone(), last_judged: now, repair: None };
        self.active.insert(key, entry);
        Some(Transition {
            from: None,
            to: Some(finding.severity),
            kind: TransitionKind::Raised,
            finding,
        })
    }

    fn clear(
        &mut self,
        subject: &Subject,
        reason: Reason,
        why: &str,
        now: Timestamp,
    ) -> Option<Transition> {
        let entry = self.active.remove(&(subject.clone(), reason))?;
        let from = Some(entry.finding.severity);
        let finding = Arc::new(Finding {
            last_seen: entry.last_judged.max(entry.finding.last_seen),
            cleared: Some(Clearance {
                time: now,
                why: entry.repair.unwrap_or_else(|| why.to_owned()),
                is_user_made: false,
            }),
            acknowledged: None,
            evidence: evidence::without_present(&entry.finding.evidence)
                .unwrap_or_else(|| entry.finding.evidence.clone()),
            ..(*entry.finding).clone()
        });
        let mut history = Vec::with_capacity(self.history.len() + 1);
        history.push(finding.clone());
        history.extend(self.history.iter().cloned());
        self.history = Arc::new(history);
        Some(Transition { from, to: None, kind: TransitionKind::Cleared, finding })
    }

    /// The same problem may return with the same start (a drive's `missing since`): then the time
    /// of raising makes the ids differ.
    fn unique_id(
        &self,
        subject: &Subject,
        reason: Reason,
        since: Timestamp,
        now: Timestamp,
    ) -> FindingId {
        let taken: BTreeSet<&FindingId> =
            self.active().chain(self.history.iter()).map(|finding| &finding.id).collect();
        let subject = subject.to_string();
        let from = |start: Timestamp| {
            (0..).map(move |step| {
                start.saturating_add(jiff::SignedDuration::from_micros(step)).unwrap_or(start)
            })
        };
        let moments = std::iter::once(since).chain(from(now).take(taken.len() + 1));
        let mut ids = moments.map(|moment| FindingId::new(&subject, reason.name(), moment));
        ids.find(|id| !taken.contains(id))
            .unwrap_or_else(|| FindingId::new(&subject, reason.name(), now))
    }

    fn entry(&mut self, id: &FindingId) -> Result<&mut Entry, LedgerError> {
        self.active
            .values_mut()
            .find(|entry| entry.finding.id == *id)
            .ok_or_else(|| LedgerError::NoSuchFinding(id.clone()))
    }
}

impl Entry {
    fn level(&self) -> Level {
        (self.finding.severity, self.finding.status)
    }

    fn update(&mut self, raised: FindingDetails, now: Timestamp) -> Option<Transition> {
        self.last_judged = self.last_judged.max(now);
        let old = &self.finding;
        let worse = raised.severity > old.severity || raised.status > old.status;
        let changed = raised.severity != old.severity || raised.status != old.status;
        let evidence = evidence::add(&old.evidence, &raised.evidence);
        if worse {
            self.repair = None;
        }
        let is_new = changed
            || evidence.is_some()
            || raised.message != old.message
            || raised.clears_when != old.clears_when
            || raised.advice != old.advice;
        if !is_new && elapsed(old.last_seen, self.last_judged) < LAST_SEEN_INTERVAL {
            return None;
        }
        let finding = Finding {
            severity: raised.severity,
            status: raised.status,
            message: raised.message,
            clears_when: raised.clears_when,
            advice: raised.advice,
            last_seen: self.last_judged,
            count: old.count + u64::from(worse),
            evidence: evidence.unwrap_or_else(|| old.evidence.clone()),
            acknowledged: old.acknowledged.clone().filter(|_| !worse),
            ..(**old).clone()
        };
        let kind = if worse { TransitionKind::Worsened } else { TransitionKind::Eased };
        let transition = self.replace(finding, kind);
        changed.then_some(transition)
    }

    fn replace(&mut self, finding: Finding, kind: TransitionKind) -> Transition {
        let from = Some(self.finding.severity);
        self.finding =
            Arc::new(Finding { last_seen: self.last_judged.max(finding.last_seen), ..finding });
        Transition { from, to: Some(self.finding.severity), kind, finding: self.finding.clone() }
    }
}

fn cleared_at(finding: &Finding) -> Option<Timestamp> {
    finding.cleared.as_ref().map(|cleared| cleared.time)
}
