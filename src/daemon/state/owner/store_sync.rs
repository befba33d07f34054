//! Tracks the state that the store already has, so that only differences are written, and the
//! requests that wait for a write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::state::store::{RowChanges, Store, WriteAck, WriteBatch};
use diskvitals_finding::ids::{CheckId, DriveId, FindingId, VolumeId};
use diskvitals_finding::{Finding, Subject};
use diskvitals_fscheck::Check;
use diskvitals_kernel_log::error_history::ErrorHistory;
use diskvitals_model::facts::kernel_log::{KernelFacts, LogProgress};
use diskvitals_model::facts::{Facts, KnownDrive, StoredVolume};
use diskvitals_model::lamp::LampOrders;
use diskvitals_model::ledger::Ledger;
use diskvitals_model::maintenance::MaintenanceOrders;
use diskvitals_model::snapshot::StoreStatus;

/// Interval of writing when something was last seen, in one transaction. After a crash these times are
/// older; at the end of the daemon everything is written.
const TIMESTAMP_WRITE_INTERVAL: Duration = Duration::from_secs(6 * 3600);
/// The same for histories of which nothing has changed that decides a verdict: temperatures, hours,
/// free space. They are large: written after each reading, they would wear out the disk.
const HISTORY_WRITE_INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// Interval of writing what changes with each record of a flood: errors, and the text and evidence of
/// their findings. After a crash, newer records are read again.
const FLOOD_WRITE_INTERVAL: Duration = Duration::from_secs(2);
/// Records without errors are cheap to read again.
const PROGRESS_WRITE_INTERVAL: Duration = Duration::from_secs(15 * 60);

#[derive(Debug)]
pub(crate) struct StoreSync {
    store: Store,
    pub status: StoreStatus,
    /// The store has sent its contents and accepts writes.
    is_open: bool,
    /// The next write must contain everything.
    needs_full_write: bool,
    drives: BTreeMap<DriveId, KnownDrive>,
    findings: BTreeMap<FindingId, Arc<Finding>>,
    /// The cleared ones of `findings`; shared, so that another list has another address.
    history: Arc<Vec<Arc<Finding>>>,
    errors: BTreeMap<Subject, Arc<ErrorHistory>>,
    progress: Option<Arc<LogProgress>>,
    counters: BTreeMap<
        diskvitals_model::counters::CounterKey,
        Arc<diskvitals_model::counters::CounterHistory>,
    >,
    smart: BTreeMap<DriveId, Arc<diskvitals_smart::history::SmartHistory>>,
    space: BTreeMap<Subject, Arc<diskvitals_model::space_history::SpaceHistory>>,
    volumes: BTreeMap<VolumeId, StoredVolume>,
    checks: BTreeMap<CheckId, Arc<Check>>,
    maintenance: MaintenanceOrders,
    lamps: LampOrders,
    /// The revision up to which the store has the volumes.
    volumes_revision: Option<u64>,
    /// The boot for which volumes are stored.
    pub boot: Option<String>,
    timestamps_written_at: Instant,
    histories_written_at: Instant,
    /// When errors of the kernel log and the text of findings were last written.
    flood_written_at: Instant,
    /// Newer ones exist; they are written from this time on.
    flood_due: Option<Instant>,
    /// The acknowledgements for the first write after the store opens.
    pending_acks: Vec<WriteAck>,
}

impl StoreSync {
    pub(crate) fn new(store: Store) -> StoreSync {
        StoreSync {
            store,
            status: StoreStatus::Opening,
            is_open: false,
            needs_full_write: true,
            drives: BTreeMap::new(),
            findings: BTreeMap::new(),
            history: Arc::default(),
            errors: BTreeMap::new(),
            progress: None,
            counters: BTreeMap::new(),
            smart: BTreeMap::new(),
            space: BTreeMap::new(),
            volumes: BTreeMap::new(),
            checks: BTreeMap::new(),
            maintenance: MaintenanceOrders::new(),
            lamps: LampOrders::new(),
            volumes_revision: None,
            boot: None,
            timestamps_written_at: Instant::now(),
            histories_written_at: Instant::now(),
            flood_written_at: Instant::now(),
            flood_due: None,
            pending_acks: Vec::new(),
        }
    }

    /// Writing works, for the first time or again: the next write contains everything.
    pub(crate) fn mark_open(&mut self) {
        self.is_open = true;
        self.needs_full_write = true;
    }

    /// The next write contains everything, although the store has it.
    pub(crate) fn require_full_write(&mut self) {
        self.needs_full_write = true;
    }

    /// History is in memory only: no request must wait for the disk.
    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(self.status, StoreStatus::MemoryOnly(_))
    }

    pub(crate) fn mark_failed(&mut self, why: String) {
        for stored in self.pending_acks.drain(..) {
            // The requester may have stopped waiting.
            let _ = stored.send(Err(why.clone()));
        }
        self.status = StoreStatus::MemoryOnly(why);
        // Until the store reports that it is open again, it would discard all writes.
        self.is_open = false;
    }

    /// Sends the differences to the store. `all`: also those that can wait.
    pub(crate) fn write(
        &mut self,
        facts: &Facts,
        ledger: &Ledger,
        all: bool,
        stored: Vec<WriteAck>,
    ) {
        self.pending_acks.extend(stored);
        if !self.is_open {
            return;
        }
        let write = self.diff(facts, ledger, all);
        if write.is_empty() && self.pending_acks.is_empty() {
            return;
        }
        let waiting = std::mem::take(&mut self.pending_acks);
        // If the queue is full, the next tick sends a write of everything. The waiting requests get
        // a closed channel.
        self.needs_full_write = self.store.write(write, waiting).is_err();
    }

    /// The store lacks changes and should be tried again.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_open && self.needs_full_write && !self.is_in_memory()
    }

    /// When errors of the kernel log, its position or texts of findings, which wait, are to be written.
    pub(crate) fn flood_due(&self) -> Option<Instant> {
        self.flood_due.filter(|_| self.is_open)
    }

    pub(crate) async fn close(self, limit: Duration) -> bool {
        self.store.close(limit).await
    }

    fn diff(&mut self, facts: &Facts, ledger: &Ledger, all: bool) -> WriteBatch {
        let all = all || self.needs_full_write;
        let histories = is_due(&mut self.histories_written_at, HISTORY_WRITE_INTERVAL, all);
        let times =
            is_due(&mut self.timestamps_written_at, TIMESTAMP_WRITE_INTERVAL, all || histories);
        if self.needs_full_write {
            self.drives.clear();
            self.findings.clear();
            self.errors.clear();
            self.progress = None;
            self.counters.clear();
            self.smart.clear();
            self.space.clear();
            self.volumes.clear();
            self.checks.clear();
            self.maintenance.clear();
            self.lamps.clear();
            self.volumes_revision = None;
        }
        let mut write = WriteBatch {
            is_complete: self.needs_full_write,
            drives: diff_rows(&mut self.drives, facts.drives.iter(), |old, new| {
                !drive_differs(old, new, times)
            }),
            counters: diff_rows(&mut self.counters, facts.counters.iter(), Arc::ptr_eq),
            space: diff_rows(&mut self.space, facts.space.iter(), |old, new| {
                !histories || Arc::ptr_eq(old, new)
            }),
            checks: diff_rows(&mut self.checks, facts.checks.all().iter(), is_check_unchanged),
            maintenance: diff_rows(&mut self.maintenance, facts.maintenance.iter(), PartialEq::eq),
            lamps: diff_rows(&mut self.lamps, facts.lamps.iter(), PartialEq::eq),
            ..WriteBatch::default()
        };
        let smart = facts.smart.iter().map(|(id, smart)| (id, &smart.history));
        write.smart = diff_rows(&mut self.smart, smart, |old, new| {
            Arc::ptr_eq(old, new) || !histories && !old.must_be_stored(new)
        });
        let finding = self.greatest_difference(ledger);
        let is_flood_due = self.diff_kernel_log(&mut write, &facts.kernel, finding, times);
        let written = match (times, is_flood_due) {
            (true, _) => Difference::LastSeen,
            (false, true) => Difference::Text,
            (false, false) => Difference::Level,
        };
        if finding >= written {
            self.diff_findings(&mut write, ledger, written);
        }
        self.diff_volumes(&mut write, facts);
        write
    }

    /// Between the findings and their rows. Looks only at the active ones if no finding has cleared
    /// since: this runs at each publication.
    fn greatest_difference(&self, ledger: &Ledger) -> Difference {
        let count = ledger.active().count() + ledger.history().len();
        if !Arc::ptr_eq(ledger.history(), &self.history) || count != self.findings.len() {
            return Difference::Level;
        }
        let difference = |finding: &Arc<Finding>| {
            let old = self.findings.get(&finding.id);
            old.map_or(Difference::Level, |old| difference(old, finding))
        };
        let active = ledger.active().map(difference);
        active.max().unwrap_or(Difference::None)
    }

    fn diff_findings(&mut self, write: &mut WriteBatch, ledger: &Ledger, written: Difference) {
        let findings: BTreeMap<FindingId, Arc<Finding>> = ledger
            .active()
            .chain(ledger.history().iter())
            .map(|finding| (finding.id.clone(), finding.clone()))
            .collect();
        write.findings = diff_rows(&mut self.findings, findings.iter(), |old, new| {
            difference(old, new) < written
        });
        self.history = ledger.history().clone();
    }

    fn diff_volumes(&mut self, write: &mut WriteBatch, facts: &Facts) {
        write.boot = self.boot.clone().filter(|_| self.needs_full_write);
        if self.boot.is_none() {
            return;
        }
        if self.volumes_revision.replace(facts.volumes_revision) == Some(facts.volumes_revision) {
            return;
        }
        let volumes = facts.stored_volumes();
        write.volumes = diff_rows(&mut self.volumes, volumes.iter(), PartialEq::eq);
    }

    /// The errors of the kernel log, with the position up to which they are counted. Returns whether
    /// the text of findings is to be written too: during a flood, both change all the time.
    fn diff_kernel_log(
        &mut self,
        write: &mut WriteBatch,
        kernel: &KernelFacts,
        finding: Difference,
        times: bool,
    ) -> bool {
        let grown = !is_unchanged(&self.errors, kernel.errors.iter(), Arc::ptr_eq);
        let is_known = |known: &Arc<LogProgress>| Arc::ptr_eq(known, &kernel.progress);
        let interval = if grown || finding >= Difference::Text {
            FLOOD_WRITE_INTERVAL
        } else if !self.progress.as_ref().is_some_and(is_known) {
            PROGRESS_WRITE_INTERVAL
        } else {
            self.flood_due = None;
            return false;
        };
        let due = self.flood_written_at + interval;
        if !self.needs_full_write && !times && Instant::now() < due {
            self.flood_due = Some(due);
            return false;
        }
        (self.flood_due, self.flood_written_at) = (None, Instant::now());
        write.errors = diff_rows(&mut self.errors, kernel.errors.iter(), Arc::ptr_eq);
        write.progress = Some(kernel.progress.clone());
        self.progress = write.progress.clone();
        true
    }
}

/// Whether to write now what is written at this interval.
fn is_due(written_at: &mut Instant, interval: Duration, all: bool) -> bool {
    let due = all || written_at.elapsed() >= interval;
    if due {
        *written_at = Instant::now();
    }
    due
}

/// Both sides are sorted, so no look-up is needed: this runs at each publication.
fn is_unchanged<'a, K: Eq + 'a, V: 'a>(
    known: &BTreeMap<K, V>,
    mut now: impl Iterator<Item = (&'a K, &'a V)>,
    same: impl Fn(&V, &V) -> bool,
) -> bool {
    known
        .iter()
        .all(|(key, old)| now.next().is_some_and(|(other, new)| key == other && same(old, new)))
        && now.next().is_none()
}

/// Returns the differences between `known` and `now`, and applies them to `known`.
fn diff_rows<'a, K: Ord + Clone + 'a, V: Clone + 'a>(
    known: &mut BTreeMap<K, V>,
    now: impl Iterator<Item = (&'a K, &'a V)> + Clone,
    same: impl Fn(&V, &V) -> bool,
) -> RowChanges<K, V> {
    if is_unchanged(known, now.clone(), &same) {
        return RowChanges::default();
    }
    let keys: BTreeSet<&K> = now.clone().map(|(key, _)| key).collect();
    let gone: Vec<K> = known.keys().filter(|key| !keys.contains(key)).cloned().collect();
    let differs = |(key, value): &(&K, &V)| known.get(key).is_none_or(|old| !same(old, value));
    let put: Vec<(K, V)> =
        now.filter(differs).map(|(key, value)| (key.clone(), value.clone())).collect();
    for key in &gone {
        known.remove(key);
    }
    known.extend(put.iter().cloned());
    RowChanges { upserted: put, deleted: gone }
}

/// The current phase of a check is not stored.
fn is_check_unchanged(old: &Arc<Check>, new: &Arc<Check>) -> bool {
    let stored_part = |check: &Check| {
        (
            check.is_over(),
            check.started,
            check.cancelled,
            check.is_scrubbed,
            check.runs.iter().map(|run| run.output.kept).collect::<Vec<_>>(),
        )
    };
    Arc::ptr_eq(old, new) || stored_part(old) == stored_part(new)
}

/// Compared field by field, without a copy: `last_seen` changes with each scan.
fn drive_differs(old: &KnownDrive, new: &KnownDrive, times: bool) -> bool {
    let KnownDrive {
        facts,
        first_seen,
        last_seen,
        missing_since,
        abnormal_state_since,
        volumes,
        in_use,
        signatures,
        member_of,
        content,
        medium_size,
        released,
        last_use,
        failed,
        moved,
    } = old;
    times && *last_seen != new.last_seen
        || (first_seen, missing_since, abnormal_state_since, in_use)
            != (&new.first_seen, &new.missing_since, &new.abnormal_state_since, &new.in_use)
        || (signatures, content, released, last_use, failed)
            != (&new.signatures, &new.content, &new.released, &new.last_use, &new.failed)
        || (moved, member_of) != (&new.moved, &new.member_of)
        || (medium_size, volumes) != (&new.medium_size, &new.volumes)
        || facts != &new.facts
}

/// How a finding differs from its row; a greater difference includes the smaller ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Difference {
    None,
    LastSeen,
    Text,
    /// Another level, an acknowledgement, the end: all that must survive a crash.
    Level,
}

fn difference(old: &Arc<Finding>, new: &Arc<Finding>) -> Difference {
    if Arc::ptr_eq(old, new) {
        return Difference::None;
    }
    let Finding {
        id,
        subject,
        reason,
        severity,
        status,
        message,
        since,
        last_seen,
        count,
        evidence,
        clears_when,
        // Not stored.
        advice: _,
        acknowledged,
        // Not stored.
        maintained: _,
        cleared,
        follows,
    } = &**old;
    let is_same_level = (severity, status, since, count, acknowledged, cleared)
        == (&new.severity, &new.status, &new.since, &new.count, &new.acknowledged, &new.cleared)
        && (id, subject, reason, follows) == (&new.id, &new.subject, &new.reason, &new.follows);
    let is_same_text =
        (message, evidence, clears_when) == (&new.message, &new.evidence, &new.clears_when);
    match (is_same_level, is_same_text, *last_seen == new.last_seen) {
        (false, ..) => Difference::Level,
        (true, false, _) => Difference::Text,
        (true, true, false) => Difference::LastSeen,
        (true, true, true) => Difference::None,
    }
}

#[cfg(test)]
mod tests;
