//! What the store has been given, so that it is given what differs, and whoever waits for a write
//! is told how it ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::model;
use crate::model::check::Check;
use crate::model::facts::kernel::{KernelFacts, Progress};
use crate::model::facts::{Facts, KnownDrive, StoredVolume, counters};
use crate::model::finding::{Finding, Subject};
use crate::model::ids::{CheckId, DriveId, FindingId, VolumeId};
use crate::model::kernel::memory::Memory;
use crate::model::ledger::Ledger;
use crate::model::snapshot::StoreStatus;
use crate::state::store::{Rows, Store, Stored, Write};

/// Times that merely move are written this often.
const TIMES_EVERY: Duration = Duration::from_secs(600);
/// A flood of errors is written this often: what came since would be read again after a crash.
const ERRORS_EVERY: Duration = Duration::from_millis(500);
/// Records that said nothing are read again cheaply.
const PROGRESS_EVERY: Duration = Duration::from_secs(60);

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
    errors: BTreeMap<Subject, Arc<Memory>>,
    progress: Option<Arc<Progress>>,
    counters: BTreeMap<counters::Key, Arc<model::counters::Memory>>,
    smart: BTreeMap<DriveId, Arc<model::smart::memory::Memory>>,
    volumes: BTreeMap<VolumeId, StoredVolume>,
    checks: BTreeMap<CheckId, Arc<Check>>,
    /// Up to where they are known.
    volumes_revision: Option<u64>,
    /// Volumes are remembered for this boot.
    pub boot: Option<String>,
    /// When the kernel's log was last written.
    errors_at: Instant,
    /// There is more of it since, to be written from then on.
    errors_due: Option<Instant>,
    /// For the first write after it opens.
    waiting: Vec<Stored>,
}

impl History {
    pub fn new(store: Store) -> History {
        History {
            store,
            status: StoreStatus::Opening,
            opened: false,
            stale: true,
            drives: BTreeMap::new(),
            findings: BTreeMap::new(),
            errors: BTreeMap::new(),
            progress: None,
            counters: BTreeMap::new(),
            smart: BTreeMap::new(),
            volumes: BTreeMap::new(),
            checks: BTreeMap::new(),
            volumes_revision: None,
            boot: None,
            errors_at: Instant::now(),
            errors_due: None,
            waiting: Vec::new(),
        }
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
        // A queue that is full (those who wait see their channel close) is caught up with by a
        // write of everything, with the next tick.
        self.stale = self.store.write(write, waiting).is_err();
    }

    /// The store has fallen behind and should be tried again.
    pub fn behind(&self) -> bool {
        self.opened && self.stale && !self.in_memory()
    }

    /// Something of the kernel's log waits to be written, and may be now.
    pub fn errors_due(&self) -> bool {
        self.opened && self.errors_due.is_some_and(|due| Instant::now() >= due)
    }

    pub async fn close(self, limit: Duration) -> bool {
        self.store.close(limit).await
    }

    fn difference(&mut self, facts: &Facts, ledger: &Ledger, times: bool) -> Write {
        if self.stale {
            self.drives.clear();
            self.findings.clear();
            self.errors.clear();
            self.progress = None;
            self.counters.clear();
            self.smart.clear();
            self.volumes.clear();
            self.checks.clear();
            self.volumes_revision = None;
        }
        let findings: BTreeMap<FindingId, Arc<Finding>> = ledger
            .active()
            .chain(ledger.history().iter())
            .map(|finding| (finding.id.clone(), finding.clone()))
            .collect();
        let mut write = Write {
            everything: self.stale,
            forgotten: self
                .drives
                .keys()
                .filter(|id| !facts.drives.contains_key(id))
                .cloned()
                .collect(),
            dropped: self
                .findings
                .keys()
                .filter(|id| !findings.contains_key(id))
                .cloned()
                .collect(),
            drives: facts
                .drives
                .iter()
                .filter(|(id, new)| drive_differs(self.drives.get(id), new, times))
                .map(|(_, new)| new.clone())
                .collect(),
            findings: findings
                .values()
                .filter(|new| finding_differs(self.findings.get(&new.id), new, times))
                .cloned()
                .collect(),
            ..Write::default()
        };
        self.kernel_log(&mut write, &facts.kernel, times);
        write.counters = rows(&mut self.counters, facts.counters.iter(), Arc::ptr_eq);
        let smart = facts.smart.iter().map(|(id, smart)| (id, &smart.memory));
        write.smart = rows(&mut self.smart, smart, Arc::ptr_eq);
        self.volumes(&mut write, facts);
        write.checks = rows(&mut self.checks, facts.checks.iter(), is_check_same);
        for id in &write.forgotten {
            self.drives.remove(id);
        }
        for id in &write.dropped {
            self.findings.remove(id);
        }
        self.drives.extend(
            write
                .drives
                .iter()
                .map(|known| (known.facts.id.clone(), known.clone())),
        );
        self.findings.extend(
            write
                .findings
                .iter()
                .map(|finding| (finding.id.clone(), finding.clone())),
        );
        write
    }

    fn volumes(&mut self, write: &mut Write, facts: &Facts) {
        write.boot = self.boot.clone().filter(|_| self.stale);
        if self.boot.is_none() {
            return;
        }
        if self.volumes_revision.replace(facts.volumes_revision) == Some(facts.volumes_revision) {
            return;
        }
        write.volumes = rows(
            &mut self.volumes,
            facts.stored_volumes().iter(),
            |old, new| old == new,
        );
    }

    /// What the kernel's log has said, with how far it is counted; under a flood a few times a
    /// second.
    fn kernel_log(&mut self, write: &mut Write, kernel: &KernelFacts, times: bool) {
        let told = !unchanged(&self.errors, kernel.errors.iter(), Arc::ptr_eq);
        let moved = self
            .progress
            .as_ref()
            .is_none_or(|known| !Arc::ptr_eq(known, &kernel.progress));
        if !told && !moved {
            self.errors_due = None;
            return;
        }
        let due = self.errors_at + if told { ERRORS_EVERY } else { PROGRESS_EVERY };
        if !self.stale && !times && Instant::now() < due {
            self.errors_due = Some(due);
            return;
        }
        (self.errors_due, self.errors_at) = (None, Instant::now());
        write.errors = rows(&mut self.errors, kernel.errors.iter(), Arc::ptr_eq);
        write.progress = Some(kernel.progress.clone());
        self.progress = write.progress.clone();
    }
}

/// Both are in order, so that nothing is looked up: this is asked at each publication.
fn unchanged<'a, K: Eq + 'a, V: 'a>(
    known: &BTreeMap<K, V>,
    mut now: impl Iterator<Item = (&'a K, &'a V)>,
    same: impl Fn(&V, &V) -> bool,
) -> bool {
    known.iter().all(|(key, old)| {
        now.next()
            .is_some_and(|(other, new)| key == other && same(old, new))
    }) && now.next().is_none()
}

/// What differs from what is known, which is brought up to it.
fn rows<'a, K: Ord + Clone + 'a, V: Clone + 'a>(
    known: &mut BTreeMap<K, V>,
    now: impl Iterator<Item = (&'a K, &'a V)> + Clone,
    same: impl Fn(&V, &V) -> bool,
) -> Rows<K, V> {
    if unchanged(known, now.clone(), &same) {
        return Rows::default();
    }
    let keys: BTreeSet<&K> = now.clone().map(|(key, _)| key).collect();
    let gone: Vec<K> = known
        .keys()
        .filter(|key| !keys.contains(key))
        .cloned()
        .collect();
    let differs = |(key, value): &(&K, &V)| known.get(key).is_none_or(|old| !same(old, value));
    let put: Vec<(K, V)> = now
        .filter(differs)
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    for key in &gone {
        known.remove(key);
    }
    known.extend(put.iter().cloned());
    Rows { put, gone }
}

/// What a check is doing at the moment is no history.
fn is_check_same(old: &Arc<Check>, new: &Arc<Check>) -> bool {
    let told = |check: &Check| {
        (
            check.is_over(),
            check.started,
            check.cancelled,
            check
                .runs
                .iter()
                .map(|run| run.output.kept)
                .collect::<Vec<_>>(),
        )
    };
    Arc::ptr_eq(old, new) || told(old) == told(new)
}

fn drive_differs(old: Option<&KnownDrive>, new: &KnownDrive, times: bool) -> bool {
    let Some(old) = old else { return true };
    let KnownDrive {
        facts,
        first_seen,
        last_seen,
        missing_since,
        state_since,
        volumes,
        in_use,
    } = old;
    *facts != new.facts
        || *first_seen != new.first_seen
        || *missing_since != new.missing_since
        || *state_since != new.state_since
        || *volumes != new.volumes
        || *in_use != new.in_use
        || moved(*last_seen, new.last_seen, times)
}

fn finding_differs(old: Option<&Arc<Finding>>, new: &Arc<Finding>, times: bool) -> bool {
    let Some(old) = old.filter(|old| !Arc::ptr_eq(old, new)) else {
        return old.is_none();
    };
    moved(old.last_seen, new.last_seen, times)
        || Finding {
            last_seen: new.last_seen,
            ..(**old).clone()
        } != **new
}

fn moved(old: Timestamp, new: Timestamp, times: bool) -> bool {
    old != new
        && (times
            || Duration::try_from(new.duration_since(old)).is_ok_and(|lag| lag >= TIMES_EVERY))
}
