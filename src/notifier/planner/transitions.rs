//! Compares what the daemon reports with what is known: which causes were raised, became worse,
//! were acknowledged or cleared.
//!
//! A cause that is missing is not over: it has cleared when the daemon has a record of it, or when
//! its drive or volume is known to be well.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::message::{Cleared, Item, Level, Transition};
use crate::node_state::{NodeState, ObservedCause, ObservedFinding};
use crate::planner::{Change, KnownCause, PlannerState, Settings};

/// How long a cause that is over is remembered: a return within this time is no first raise.
const RETURN_WINDOW: SignedDuration = SignedDuration::from_hours(24);
/// A cause that is missing without a record has cleared when its subject was well for so long, or
/// is gone for so long.
const UNRECORDED_WAIT: SignedDuration = SignedDuration::from_mins(15);
/// Causes that are followed, the node's own storage and the worst first: more than a node has drives
/// and volumes.
const MAX_KNOWN: usize = 10_000;
/// Cleared findings that are remembered, the newest: more than the daemon lists.
const MAX_CLEARED: usize = 100_000;

impl PlannerState {
    pub(super) fn changes(
        &mut self,
        state: &NodeState,
        settings: &Settings,
        now: Timestamp,
    ) -> Vec<Change> {
        state.host.clone_into(&mut self.host);
        let mut changes = Vec::new();
        let active: BTreeSet<&str> = state
            .causes
            .iter()
            .flat_map(|cause| &cause.findings)
            .map(|finding| finding.id.as_str())
            .collect();
        let mut causes: Vec<&ObservedCause> = state
            .causes
            .iter()
            .filter(|cause| cause.item.severity >= settings.min_severity)
            .collect();
        causes.sort_by_key(|cause| std::cmp::Reverse(cause.item.rank()));
        let observed: BTreeMap<&str, &ObservedCause> = causes
            .into_iter()
            .take(MAX_KNOWN)
            .map(|cause| (cause.item.cause.as_str(), cause))
            .collect();
        let first_answer = !self.initialized;
        self.initialized = true;
        self.rename_filesystems(&observed);
        self.note_endings(state, &observed, &active, now, &mut changes);
        if !first_answer {
            self.note_unobserved(state, settings, &active, &mut changes);
        }
        for (id, finding) in &state.cleared {
            self.cleared.insert(id.clone(), finding.cleared.time);
        }
        for cause in observed.values() {
            self.note_active(cause, settings, now, &mut changes);
        }
        self.forget(now);
        changes
    }

    /// A daemon of another version may give the cause of a filesystem another id: its findings
    /// show that it is the same.
    fn rename_filesystems(&mut self, observed: &BTreeMap<&str, &ObservedCause>) {
        let is_filesystem = |item: &Item| matches!(item.kind.as_str(), "mount" | "device");
        let mut former: BTreeMap<String, String> = BTreeMap::new();
        for (id, known) in &self.known {
            let is_gone = known.over_since.is_none() && !observed.contains_key(id.as_str());
            if is_gone && is_filesystem(&known.item) {
                let findings = known.findings.keys();
                former.extend(findings.map(|finding| (finding.clone(), id.clone())));
            }
        }
        if former.is_empty() {
            return;
        }
        for (id, cause) in observed {
            if self.known.contains_key(*id) || !is_filesystem(&cause.item) {
                continue;
            }
            let mut same = cause.findings.iter().filter_map(|it| former.get(&it.id));
            if let Some(mut known) = same.next().and_then(|old| self.known.remove(old)) {
                known.item.cause = (*id).to_owned();
                self.known.insert((*id).to_owned(), known);
            }
        }
    }

    /// Causes that have ended, also if they have returned since.
    fn note_endings(
        &mut self,
        state: &NodeState,
        observed: &BTreeMap<&str, &ObservedCause>,
        active: &BTreeSet<&str>,
        now: Timestamp,
        changes: &mut Vec<Change>,
    ) {
        for (id, known) in &mut self.known {
            if known.over_since.is_some() {
                continue;
            }
            let record = || {
                let records = known.findings.keys().filter_map(|id| state.cleared.get(id));
                records.max_by_key(|finding| finding.cleared.time)
            };
            let cleared = match observed.get(id.as_str()) {
                // All its findings have cleared, and others have come. Without a record the daemon has
                // lost its history and found the same again.
                Some(_) => {
                    let remains = known.findings.keys().any(|id| active.contains(id.as_str()));
                    let record = record().filter(|_| !remains);
                    record.map(|finding| finding.cleared.clone())
                }
                None => {
                    match record() {
                        Some(finding) => Some(finding.cleared.clone()),
                        None => {
                            let since = *known.missing_since.get_or_insert(now);
                            let settled = !state.subjects.contains(&known.subject)
                                || state.good.contains(&known.subject);
                            let waited = now.duration_since(since) >= UNRECORDED_WAIT;
                            (settled && waited).then(|| Cleared {
                            time: now,
                            why: match state.good.contains(&known.subject) {
                                true => "the daemon reports it as well, and has no record of the end",
                                false => "the daemon no longer knows it, and has no record of the end",
                            }
                            .to_owned(),
                        })
                        }
                    }
                }
            };
            if observed.contains_key(id.as_str()) {
                known.missing_since = None;
            }
            let Some(cleared) = cleared else { continue };
            known.over_since = Some(now);
            known.reminder_at = None;
            if known.announced {
                let good = state.good.contains(&known.subject);
                changes.push(Change {
                    key: format!("{} cleared", known.key),
                    item: Item {
                        transition: Transition::Cleared,
                        time: cleared.time,
                        cleared: Some(cleared),
                        good,
                        ..known.item.clone()
                    },
                    urgent: false,
                    thread: known.thread.clone(),
                });
            }
        }
    }

    /// Findings that were raised and cleared since the last answer.
    fn note_unobserved(
        &self,
        state: &NodeState,
        settings: &Settings,
        active: &BTreeSet<&str>,
        changes: &mut Vec<Change>,
    ) {
        let known: BTreeSet<&str> = self
            .known
            .values()
            .flat_map(|cause| cause.findings.keys().map(String::as_str))
            .collect();
        for (id, finding) in &state.cleared {
            let accounted = self.cleared.contains_key(id)
                || known.contains(id.as_str())
                || active.contains(id.as_str());
            if accounted || finding.follows || finding.item.severity < settings.min_severity {
                continue;
            }
            changes.push(Change {
                key: format!("{id} unobserved"),
                item: finding.item.clone(),
                urgent: finding.item.severity == Level::Bad,
                thread: None,
            });
        }
    }

    fn note_active(
        &mut self,
        cause: &ObservedCause,
        settings: &Settings,
        now: Timestamp,
        changes: &mut Vec<Change>,
    ) {
        let item = |transition| Item { transition, time: now, ..cause.item.clone() };
        let before = self.known.get(&cause.item.cause);
        let returned = before.is_some();
        let before = before.filter(|known| known.over_since.is_none());
        let first_id = cause.findings.iter().map(|finding| finding.id.as_str()).min();
        let key = before.map_or_else(
            || format!("{} {}", cause.item.cause, first_id.unwrap_or_default()),
            |known| known.key.clone(),
        );
        let was_announced = before.is_some_and(|known| known.announced);
        let transition = match before {
            _ if !cause.counted => {
                let noted = cause.acknowledged && before.is_some_and(|known| !known.acknowledged);
                (noted && was_announced).then_some(Transition::Acknowledged)
            }
            Some(known) if known.announced && is_worse(known, cause) => Some(Transition::Worse),
            // What is left at the end of maintenance.
            Some(known) if known.announced => known.maintained.then_some(Transition::Present),
            _ => Some(Transition::Raised),
        };
        let bad_ids = || {
            let bad = cause.findings.iter().filter(|finding| finding.severity == Level::Bad);
            bad.map(|finding| finding.id.as_str()).collect::<Vec<_>>().join(" ")
        };
        let maintenances = before.map_or(0, |known| known.maintenances)
            + u32::from(transition == Some(Transition::Present));
        if let Some(transition) = transition {
            let bad = cause.item.severity == Level::Bad;
            changes.push(Change {
                key: match transition {
                    Transition::Raised => format!("{key} raised"),
                    Transition::Acknowledged => format!("{key} acknowledged {}", bad_ids()),
                    Transition::Present => format!("{key} after maintenance {maintenances}"),
                    _ => {
                        let (severity, status) = (cause.item.severity, cause.status);
                        format!("{key} worse {severity:?} {status} {}", bad_ids())
                    }
                },
                item: item(transition),
                urgent: match transition {
                    Transition::Raised => bad || !returned,
                    Transition::Worse | Transition::Present => bad,
                    _ => false,
                },
                thread: None,
            });
        }
        let mut findings = before.map(|known| known.findings.clone()).unwrap_or_default();
        findings.extend(
            cause
                .findings
                .iter()
                .map(|finding| (finding.id.clone(), (finding.key.clone(), finding.severity))),
        );
        let starts = matches!(
            transition,
            Some(Transition::Raised | Transition::Worse | Transition::Present)
        );
        let wait = settings.reminder_wait(0);
        let known = KnownCause {
            item: Item { evidence: Vec::new(), ..item(Transition::Present) },
            subject: cause.subject.clone(),
            counted: cause.counted,
            acknowledged: cause.acknowledged,
            maintained: cause.maintained && !cause.counted,
            maintenances,
            status: before.and_then(|known| known.status).max(Some(cause.status)),
            announced: was_announced || starts,
            thread: before.and_then(|known| known.thread.clone()),
            key,
            findings,
            missing_since: None,
            over_since: None,
            reminders: before.filter(|_| !starts).map_or(0, |known| known.reminders),
            reminder_at: match before.filter(|_| !starts) {
                Some(known) => known.reminder_at.or_else(|| wait.map(|wait| now + wait)),
                None => wait.map(|wait| now + wait),
            },
        };
        self.known.insert(cause.item.cause.clone(), known);
    }

    fn forget(&mut self, now: Timestamp) {
        self.known.retain(|_, known| {
            known.over_since.is_none_or(|since| now.duration_since(since) < RETURN_WINDOW)
        });
        if self.cleared.len() > MAX_CLEARED {
            let mut times: Vec<Timestamp> = self.cleared.values().copied().collect();
            times.sort_unstable_by(|a, b| b.cmp(a));
            let oldest = times[MAX_CLEARED];
            self.cleared.retain(|_, time| *time > oldest);
        }
    }
}

/// A higher severity, a worse effect of what is BAD, or a finding that is BAD and new.
fn is_worse(known: &KnownCause, cause: &ObservedCause) -> bool {
    let was_bad = |(key, severity): &(String, Level), finding: &ObservedFinding| {
        *key == finding.key && *severity == Level::Bad
    };
    // A finding keeps its id when its filesystem is mounted or unmounted: then its subject is another.
    let is_new = |finding: &ObservedFinding| {
        let same = known.findings.get(&finding.id);
        same.is_none_or(|(_, severity)| *severity < Level::Bad)
            && !known.findings.values().any(|it| was_bad(it, finding))
    };
    cause.item.severity > known.item.severity
        || known.status.is_some_and(|worst| cause.status > worst)
        || cause.findings.iter().any(|finding| {
            finding.severity == Level::Bad && !finding.acknowledged && is_new(finding)
        })
}
