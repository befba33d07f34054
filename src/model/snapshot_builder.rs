//! Builds the next `Snapshot` from the facts, the ledger and the previous snapshot, with the
//! changes between the two for watchers.
//!
//! Pure. Unchanged parts are shared with the previous snapshot. A newer time alone (`last_seen`,
//! `last_probe`, the time of a figure) is in the snapshot but is not a change; usage figures are a
//! change if they moved noticeably.

#[cfg(test)]
mod tests;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::block::LayerState;
use crate::care::CareTask;
use crate::cause::{self, Cause};
use crate::facts::Facts;
use crate::ledger::Ledger;
use crate::maintenance;
use crate::model_statistics::ModelStatistics;
use crate::policy::Policy;
use crate::probe::Usage;
use crate::snapshot::{Drive, KnownPool, NodeState, Snapshot, Volume, VolumeUsage};
use crate::stack;
use diskvitals_finding::ids::{CauseId, DriveId, FindingId, VolumeId};
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Finding, Health, Subject};
use diskvitals_fscheck::Check;
use diskvitals_text::duration::elapsed;

/// Usage is published at once if a thousandth of the total changed, otherwise at most this often.
const USAGE_CHANGE_INTERVAL: Duration = Duration::from_secs(300);

/// The drives' time in service is published at least this often.
const MODELS_INTERVAL: Duration = Duration::from_secs(300);

/// One change of the published snapshot, in the order of revisions.
#[derive(Clone, Debug)]
pub struct Change {
    pub revision: u64,
    pub time: Timestamp,
    pub kind: ChangeKind,
    /// The object as it is now; for `Removed`, its last state.
    pub item: ChangedItem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Modified,
    Removed,
}

#[derive(Clone, Debug)]
pub enum ChangedItem {
    Drive(Arc<Drive>),
    Volume(Arc<Volume>),
    Finding(Arc<Finding>),
    Check(Arc<Check>),
    Cause(Arc<Cause>),
}

/// The input of a snapshot.
pub struct SnapshotInput<'a> {
    pub facts: &'a Facts,
    /// The builder marks what maintenance explains.
    pub ledger: &'a mut Ledger,
    pub policy: &'a Policy,
    pub care: &'a BTreeMap<DriveId, Vec<CareTask>>,
    /// The builder sets `health`.
    pub node: NodeState,
    pub settled: bool,
    pub now: Timestamp,
}

/// Builds consecutive snapshots, and stores the last published usage.
#[derive(Debug, Default)]
pub struct SnapshotBuilder {
    published_usage: BTreeMap<VolumeId, (VolumeUsage, Timestamp)>,
}

#[derive(Debug)]
pub struct SnapshotUpdate {
    pub snapshot: Arc<Snapshot>,
    /// In ascending order of revision; the last one is the snapshot's.
    pub changes: Vec<Change>,
    /// The snapshot equals the previous one.
    pub unchanged: bool,
}

impl SnapshotBuilder {
    pub fn build(&mut self, previous: &Arc<Snapshot>, scene: SnapshotInput<'_>) -> SnapshotUpdate {
        let findings = active_findings(scene.ledger);
        let by_subject = by_subject(&findings);
        let drives = views::drives(previous, &scene, &by_subject);
        let volumes = views::volumes(previous, &scene, &by_subject);
        let inventory = scene.facts.shared_inventory().unwrap_or(&previous.inventory).clone();
        let checks = scene.facts.checks.all();
        // What maintenance explains, the node's health and causes need the rest of the snapshot.
        let mut snapshot = Snapshot {
            revision: previous.revision,
            settled: scene.settled,
            node: previous.node.clone(),
            drives,
            volumes,
            findings,
            causes: BTreeMap::new(),
            maintenance: scene.facts.maintenance.clone(),
            lamps: scene.facts.lamps.clone(),
            checks: checks.clone(),
            attachments: scene.facts.attachments.clone(),
            node_context: scene.facts.node_context.clone(),
            inventory,
            history: scene.ledger.history().clone(),
            models: models(previous, scene.facts),
            zfs_pools: zfs_pools(previous, scene.facts),
        };
        if scene.ledger.mark_maintained(&maintenance::explained(&snapshot, scene.facts, scene.now))
        {
            snapshot.findings = active_findings(scene.ledger);
        }
        let health = node_health(&snapshot, sources_incomplete(scene.facts));
        let node = NodeState { health, ..scene.node };
        if node != *previous.node {
            snapshot.node = Arc::new(node);
        }

        let mut log =
            ChangeLog { revision: previous.revision, time: scene.now, changes: Vec::new() };
        log.compare(&previous.drives, &snapshot.drives, ChangedItem::Drive, views::drive_changed);
        let (told, now) = (&mut self.published_usage, scene.now);
        log.compare(&previous.volumes, &snapshot.volumes, ChangedItem::Volume, |old, new| {
            views::volume_changed(old, new) || usage_change_due(told, new, now)
        });
        self.record_published_usage(&log.changes, scene.now);
        let history = scene.ledger.history();
        let last = |finding: &Arc<Finding>| {
            history.iter().find(|over| over.id == finding.id).unwrap_or(finding).clone()
        };
        log.compare(
            &previous.findings,
            &snapshot.findings,
            |finding| ChangedItem::Finding(last(&finding)),
            views::finding_changed,
        );

        log.compare(&previous.checks, checks, ChangedItem::Check, |old, new| old != new);
        snapshot.causes = causes(&snapshot, previous, scene.facts, scene.now);
        log.compare(&previous.causes, &snapshot.causes, ChangedItem::Cause, |_, _| true);
        snapshot.revision = log.revision;
        let same = Arc::ptr_eq(&snapshot.node, &previous.node)
            && Arc::ptr_eq(&snapshot.inventory, &previous.inventory)
            && Arc::ptr_eq(history, &previous.history)
            && Arc::ptr_eq(&snapshot.models, &previous.models)
            && scene.settled == previous.settled
            && all_shared(&snapshot.drives, &previous.drives)
            && all_shared(&snapshot.volumes, &previous.volumes)
            && all_shared(&snapshot.findings, &previous.findings)
            && all_shared(&snapshot.causes, &previous.causes)
            && all_shared(checks, &previous.checks)
            && all_shared(&snapshot.zfs_pools, &previous.zfs_pools)
            && all_shared(&scene.facts.attachments, &previous.attachments)
            && scene.facts.maintenance == previous.maintenance
            && scene.facts.lamps == previous.lamps
            && scene.facts.node_context == previous.node_context;
        SnapshotUpdate {
            snapshot: if same { previous.clone() } else { Arc::new(snapshot) },
            changes: if same { Vec::new() } else { log.changes },
            unchanged: same,
        }
    }

    fn record_published_usage(&mut self, changes: &[Change], now: Timestamp) {
        for change in changes {
            if let ChangedItem::Volume(volume) = &change.item {
                match change.kind {
                    ChangeKind::Removed => self.published_usage.remove(&volume.facts.id),
                    _ => self.published_usage.insert(volume.facts.id.clone(), (volume.usage, now)),
                };
            }
        }
    }
}

struct ChangeLog {
    revision: u64,
    time: Timestamp,
    changes: Vec<Change>,
}

impl ChangeLog {
    fn compare<K: Ord, T>(
        &mut self,
        before: &BTreeMap<K, Arc<T>>,
        after: &BTreeMap<K, Arc<T>>,
        item: impl Fn(Arc<T>) -> ChangedItem,
        mut told_anew: impl FnMut(&T, &T) -> bool,
    ) {
        for (key, new) in after {
            match before.get(key) {
                None => self.push(ChangeKind::Added, item(new.clone())),
                Some(old) if !Arc::ptr_eq(old, new) && told_anew(old, new) => {
                    self.push(ChangeKind::Modified, item(new.clone()))
                }
                Some(_) => {}
            }
        }
        for (key, old) in before {
            if !after.contains_key(key) {
                self.push(ChangeKind::Removed, item(old.clone()));
            }
        }
    }

    fn push(&mut self, kind: ChangeKind, item: ChangedItem) {
        self.revision += 1;
        self.changes.push(Change { revision: self.revision, time: self.time, kind, item });
    }
}

/// Each shared with the previous snapshot if it is equal.
fn zfs_pools(previous: &Snapshot, facts: &Facts) -> BTreeMap<String, Arc<KnownPool>> {
    let known = facts.layers.iter().filter_map(|(device, layer)| {
        let LayerState::Zfs(pool) = layer.state.value().filter(|_| layer.stuck.is_none())? else {
            return None;
        };
        let name = stack::pool_of_device(device)?;
        let last_scrub = facts.last_pass(device).ended.map(|ended| facts.wall_time(ended));
        let same = previous.zfs_pools.get(name);
        let same = same.filter(|it| it.pool == *pool && it.last_scrub == last_scrub).cloned();
        let new = || Arc::new(KnownPool { pool: pool.clone(), last_scrub });
        Some((name.to_owned(), same.unwrap_or_else(new)))
    });
    known.collect()
}

/// Each shared with the previous snapshot if it is equal.
fn causes(
    snapshot: &Snapshot,
    previous: &Snapshot,
    facts: &Facts,
    now: Timestamp,
) -> BTreeMap<CauseId, Arc<Cause>> {
    let causes = cause::group(snapshot, facts, now).into_iter();
    let shared = |(id, new): (CauseId, Cause)| {
        let old = previous.causes.get(&id).filter(|old| ***old == new);
        let cause = old.cloned().unwrap_or_else(|| Arc::new(new));
        (id, cause)
    };
    causes.map(shared).collect()
}

/// The previous statistics until some time or a failure is to be added.
fn models(previous: &Snapshot, facts: &Facts) -> Arc<ModelStatistics> {
    let (old, new) = (&previous.models, &facts.models);
    let is_recent = match (old.counted_until, new.counted_until) {
        (Some(old), Some(new)) => elapsed(old, new) < MODELS_INTERVAL,
        (None, None) => true,
        _ => false,
    };
    let same_models = old.tallies().map(|(key, _)| key).eq(new.tallies().map(|(key, _)| key));
    match is_recent && same_models && old.failures() == new.failures() {
        true => old.clone(),
        false => Arc::new(new.clone()),
    }
}

fn active_findings(ledger: &Ledger) -> BTreeMap<FindingId, Arc<Finding>> {
    ledger.active().map(|finding| (finding.id.clone(), finding.clone())).collect()
}

type FindingsBySubject = BTreeMap<Subject, Vec<Arc<Finding>>>;

/// Worst first; equal ones by reason, then age.
fn by_subject(findings: &BTreeMap<FindingId, Arc<Finding>>) -> FindingsBySubject {
    let mut by_subject = FindingsBySubject::new();
    for finding in findings.values() {
        by_subject.entry(finding.subject.clone()).or_default().push(finding.clone());
    }
    for findings in by_subject.values_mut() {
        findings.sort_by(|a, b| {
            b.weight().cmp(&a.weight()).then_with(|| (a.reason, a.since).cmp(&(b.reason, b.since)))
        });
    }
    by_subject
}

/// Compares with the last published usage, so that small steps add up.
fn usage_change_due(
    told: &BTreeMap<VolumeId, (VolumeUsage, Timestamp)>,
    volume: &Volume,
    now: Timestamp,
) -> bool {
    let Some((old, when)) = told.get(&volume.facts.id) else {
        return true;
    };
    match (old, &volume.usage) {
        (VolumeUsage::Mounted { usage: old, .. }, VolumeUsage::Mounted { usage: new, .. }) => {
            let waited = elapsed(*when, now);
            old != new && (is_noticeable(old, new) || waited >= USAGE_CHANGE_INTERVAL)
        }
        (old, new) => old != new,
    }
}

fn is_noticeable(old: &Usage, new: &Usage) -> bool {
    let moved = |total: u64, a: u64, b: u64| {
        a.abs_diff(b) > 0 && u128::from(a.abs_diff(b)) * 1000 >= u128::from(total)
    };
    (old.total_bytes, old.total_inodes) != (new.total_bytes, new.total_inodes)
        || moved(new.total_bytes, old.available_bytes, new.available_bytes)
        || moved(new.total_bytes, old.used_bytes, new.used_bytes)
        || moved(new.total_inodes, old.available_inodes, new.available_inodes)
        || moved(new.total_inodes, old.used_inodes, new.used_inodes)
}

/// A source that lists objects has not reported or has failed: an object that is missing from the
/// list is not healthy.
fn sources_incomplete(facts: &Facts) -> bool {
    facts.inventory.value().is_none()
        || facts.mounts.value().is_none()
        || facts.kubelet.error().is_some()
}

/// Bad before suspect before unknown before good. `blind`: some objects may not even be listed.
fn node_health(snapshot: &Snapshot, blind: bool) -> Option<Health> {
    let Snapshot { findings, drives, volumes, settled, .. } = snapshot;
    match findings
        .values()
        .filter(|finding| finding.is_counted())
        .map(|finding| finding.severity)
        .max()
    {
        Some(Severity::Bad) => return Some(Health::Bad),
        Some(Severity::Suspect) => return Some(Health::Suspect),
        Some(Severity::Info) | None => {}
    }
    let is_unread = |finding: &&Arc<Finding>| finding.reason == Reason::RaidStateUnknown;
    // One finding is of all arrays of a controller.
    let accepted = findings.values().filter(is_unread).filter(|it| it.acknowledged.is_some());
    let accepted: BTreeSet<&Option<String>> = accepted
        .filter_map(|finding| match &finding.subject {
            Subject::Drive(id) => Some(&drives.get(id)?.facts.location.pci),
            _ => None,
        })
        .collect();
    let is_accepted = |drive: &Drive| {
        let here = &drive.facts.location;
        here.array_driver.is_some() && accepted.contains(&here.pci)
    };
    let is_unknown = |drive: &Arc<Drive>| {
        drive.is_adversely_unknown() && !drive.maintenance && !is_accepted(drive)
    };
    let unknown = blind
        || drives.values().any(is_unknown)
        || volumes.values().any(|volume| volume.health == Health::Unknown);
    let health = if unknown { Health::Unknown } else { Health::Good };
    settled.then_some(health)
}

fn all_shared<K: Ord, T>(a: &BTreeMap<K, Arc<T>>, b: &BTreeMap<K, Arc<T>>) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|((ka, a), (kb, b))| ka == kb && Arc::ptr_eq(a, b))
}
