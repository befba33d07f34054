//! What stands in claims, what should, and what is to be written next. Pure: times are arguments.
//!
//! In: the desired entries, and what became of writes. Out: one write after the other. A claim with
//! a foreign manager is left alone; without the API server's support only a rare probe is written.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::model::claims::Entry;
use crate::model::{Claim, Elapsed};

/// How long a claim is left alone after a refusal, and a server without support before a probe.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    pub refused: Duration,
    pub probe: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Support {
    #[default]
    Unknown,
    Present,
    /// The next probe is at this time.
    Absent(Elapsed),
}

#[derive(Debug)]
pub(crate) struct ClaimLedger {
    pauses: Pauses,
    pub written: BTreeMap<Claim, Entry>,
    desired: BTreeMap<Claim, Entry>,
    /// Claims that are not written before this time.
    paused: BTreeMap<Claim, Elapsed>,
    in_flight: BTreeSet<Claim>,
    /// To be written; none of them is in flight.
    pending: VecDeque<Claim>,
    pub support: Support,
}

impl ClaimLedger {
    /// `written`: what the API server had of this manager.
    pub(crate) fn new(pauses: Pauses, written: Vec<(Claim, Entry)>) -> ClaimLedger {
        ClaimLedger {
            pauses,
            written: written.into_iter().collect(),
            desired: BTreeMap::new(),
            paused: BTreeMap::new(),
            in_flight: BTreeSet::new(),
            pending: VecDeque::new(),
            support: Support::Unknown,
        }
    }

    pub(crate) fn set_desired(&mut self, desired: BTreeMap<Claim, Entry>) {
        for (claim, entry) in &desired {
            if let Some(written) = self.written.get_mut(claim)
                && written.conditions == entry.conditions
            {
                // No write: the drives are known here only.
                written.drives.clone_from(&entry.drives);
            }
        }
        self.paused
            .retain(|claim, _| desired.contains_key(claim) || self.written.contains_key(claim));
        let raised = desired
            .iter()
            .filter(|(claim, entry)| {
                self.written
                    .get(*claim)
                    .is_none_or(|written| written.conditions != entry.conditions)
            })
            .map(|(claim, _)| claim.clone());
        let cleared = self.written.keys().filter(|claim| !desired.contains_key(*claim)).cloned();
        // What is worse goes first. What is in flight is looked at when it has ended.
        let changed = raised.chain(cleared);
        self.pending = changed.filter(|claim| !self.in_flight.contains(claim)).collect();
        self.desired = desired;
    }

    /// The next write, with an empty entry to clear. It is in flight until `finish`.
    pub(crate) fn next(&mut self, now: Elapsed) -> Option<(Claim, Entry)> {
        for _ in 0..self.pending.len() {
            let claim = self.pending.pop_front()?;
            let entry = self.desired.get(&claim).cloned().unwrap_or_default();
            let is_paused = self.paused.get(&claim).is_some_and(|until| now < *until);
            let unsupported = match self.support {
                Support::Absent(probe) => now < probe && !entry.conditions.is_empty(),
                Support::Unknown | Support::Present => false,
            };
            if is_paused || unsupported {
                self.pending.push_back(claim);
                continue;
            }
            if matches!(self.support, Support::Absent(_)) && !entry.conditions.is_empty() {
                self.support = Support::Absent(now + self.pauses.probe);
            }
            self.in_flight.insert(claim.clone());
            return Some((claim, entry));
        }
        None
    }

    /// When the next write may start: `now`, or later if all that wait are paused.
    pub(crate) fn next_time(&self, now: Elapsed) -> Option<Elapsed> {
        let ready = |claim: &Claim| {
            let paused = self.paused.get(claim).copied().unwrap_or(now);
            match self.support {
                Support::Absent(probe) if self.desired.contains_key(claim) => paused.max(probe),
                _ => paused,
            }
        };
        self.pending.iter().map(ready).min()
    }

    pub(crate) fn backlog(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn is_done(&mut self, claim: &Claim, entry: Entry) {
        self.in_flight.remove(claim);
        self.paused.remove(claim);
        if entry.conditions.is_empty() {
            self.written.remove(claim);
        } else {
            self.support = Support::Present;
            self.written.insert(claim.clone(), entry);
        }
        self.requeue(claim);
    }

    /// True if this is a change.
    pub(crate) fn is_not_kept(&mut self, claim: &Claim, now: Elapsed) -> bool {
        self.in_flight.remove(claim);
        let is_new = !matches!(self.support, Support::Absent(_));
        self.support = Support::Absent(now + self.pauses.probe);
        self.requeue(claim);
        is_new
    }

    pub(crate) fn is_gone(&mut self, claim: &Claim, now: Elapsed) {
        self.written.remove(claim);
        self.refuse(claim, now);
    }

    /// True if this is a change: the claim was not refused before.
    pub(crate) fn refuse(&mut self, claim: &Claim, now: Elapsed) -> bool {
        self.in_flight.remove(claim);
        let before = self.paused.insert(claim.clone(), now + self.pauses.refused);
        self.requeue(claim);
        before.is_none()
    }

    /// It is tried again when the owner tries anything again.
    pub(crate) fn retry(&mut self, claim: &Claim) {
        self.in_flight.remove(claim);
        self.requeue(claim);
    }

    fn requeue(&mut self, claim: &Claim) {
        let desired = self.desired.get(claim).map(|entry| &entry.conditions);
        let written = self.written.get(claim).map(|entry| &entry.conditions);
        if desired != written && !self.pending.contains(claim) {
            self.pending.push_back(claim.clone());
        }
    }
}

#[cfg(test)]
mod tests;
