//! What the store has been given, so that it is given what differs, and whoever waits for a write is told how it ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::model::facts::{Facts, KnownDrive};
use crate::model::finding::Finding;
use crate::model::ids::{DriveId, FindingId};
use crate::model::ledger::Ledger;
use crate::model::snapshot::StoreStatus;
use crate::state::store::{Store, Stored, Write};

/// Times that merely move are written this often.
const TIMES_EVERY: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub struct History {
    store: Store,
    pub status: StoreStatus,
    /// The store has told what it remembers, and takes writes.
    opened: bool,
    /// It must be given everything.
    stale: bool,
    drives: BTreeMap<DriveId, KnownDrive>,
    findings: BTreeMap<FindingId, Arc<Finding>>,
    /// For the first write after it opens.
    waiting: Vec<Stored>,
}

impl History {
    pub fn new(store: Store) -> History {
        let (drives, findings) = (BTreeMap::new(), BTreeMap::new());
        History { store, status: StoreStatus::Opening, opened: false, stale: true, drives, findings, waiting: Vec::new() }
    }

    /// Writing works, for the first time or again: the next write is of everything.
    pub fn opened(&mut self) {
        self.opened = true;
        self.stale = true;
    }

    /// Known to be in memory only: nothing on disk is to be waited for.
    pub fn in_memory(&self) -> bool {
        matches!(self.status, StoreStatus::Memory(_))
    }

    pub fn failed(&mut self, why: String) {
        for stored in self.waiting.drain(..) {
            // Whoever asked may have stopped waiting.
            let _ = stored.send(Err(why.clone()));
        }
        self.status = StoreStatus::Memory(why);
        // Until it says that it opened again, it would throw everything away.
        self.opened = false;
    }

    /// Gives the store what differs from what it has. `times`: also those that merely moved.
    pub fn write(&mut self, facts: &Facts, ledger: &Ledger, times: bool, stored: Vec<Stored>) {
        self.waiting.extend(stored);
        if !self.opened {
            return;
        }
        let write = self.difference(facts, ledger, times);
        if write.is_empty() && self.waiting.is_empty() {
            return;
        }
        let waiting = std::mem::take(&mut self.waiting);
        // A queue that is full (those who wait see their channel close) is caught up with by a write of everything, with the next tick.
        self.stale = self.store.write(write, waiting).is_err();
    }

    /// The store has fallen behind and should be tried again.
    pub fn behind(&self) -> bool {
        self.opened && self.stale && !self.in_memory()
    }

    pub async fn close(self, limit: Duration) -> bool {
        self.store.close(limit).await
    }

    fn difference(&mut self, facts: &Facts, ledger: &Ledger, times: bool) -> Write {
        if self.stale {
            self.drives.clear();
            self.findings.clear();
        }
        let findings: BTreeMap<FindingId, Arc<Finding>> =
            ledger.active().chain(ledger.history().iter()).map(|finding| (finding.id.clone(), finding.clone())).collect();
        let write = Write {
            everything: self.stale,
            forgotten: self.drives.keys().filter(|id| !facts.drives.contains_key(id)).cloned().collect(),
            dropped: self.findings.keys().filter(|id| !findings.contains_key(id)).cloned().collect(),
            drives: facts
                .drives
                .iter()
                .filter(|(id, new)| drive_differs(self.drives.get(id), new, times))
                .map(|(_, new)| new.clone())
                .collect(),
            findings: findings.values().filter(|new| finding_differs(self.findings.get(&new.id), new, times)).cloned().collect(),
        };
        for id in &write.forgotten {
            self.drives.remove(id);
        }
        for id in &write.dropped {
            self.findings.remove(id);
        }
        self.drives.extend(write.drives.iter().map(|known| (known.facts.id.clone(), known.clone())));
        self.findings.extend(write.findings.iter().map(|finding| (finding.id.clone(), finding.clone())));
        write
    }
}

fn drive_differs(old: Option<&KnownDrive>, new: &KnownDrive, times: bool) -> bool {
    let Some(old) = old else { return true };
    let KnownDrive { facts, first_seen, last_seen, missing_since, state_since, volumes, in_use } = old;
    *facts != new.facts
        || *first_seen != new.first_seen
        || *missing_since != new.missing_since
        || *state_since != new.state_since
        || *volumes != new.volumes
        || *in_use != new.in_use
        || moved(*last_seen, new.last_seen, times)
}

fn finding_differs(old: Option<&Arc<Finding>>, new: &Arc<Finding>, times: bool) -> bool {
    let Some(old) = old.filter(|old| !Arc::ptr_eq(old, new)) else { return old.is_none() };
    moved(old.last_seen, new.last_seen, times) || Finding { last_seen: new.last_seen, ..(**old).clone() } != **new
}

fn moved(old: Timestamp, new: Timestamp, times: bool) -> bool {
    old != new && (times || Duration::try_from(new.duration_since(old)).is_ok_and(|lag| lag >= TIMES_EVERY))
}
