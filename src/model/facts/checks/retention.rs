//! Stored checks: which filesystem they belong to, and how much of them is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::facts::checks::CheckBaseline;
use crate::facts::{Facts, KnownVolume};
use diskvitals_finding::ids::CheckId;
use diskvitals_fscheck::{Check, CheckState, CheckVerdict, CheckerOutput, Mode, Run};

/// Maximum number of stored checks, of all filesystems together.
const MAX_KEPT: usize = 1000;
/// The newest checks of a filesystem that are kept in full; older ones are truncated.
const KEPT_IN_FULL: usize = 2;
/// Maximum number of problems kept of each run of an older check.
const MAX_OLD_PROBLEMS: usize = 20;
/// Maximum size of all stored checks (output and problems), in bytes: they are in locked memory.
const MAX_BYTES: usize = 2 << 20;

/// All stored and active checks, by id.
#[derive(Clone, Debug, Default)]
pub struct CheckRecords {
    pub(super) by_id: BTreeMap<CheckId, Arc<Check>>,
    /// By volume id and by filesystem UUID.
    index: BTreeMap<String, BTreeSet<CheckId>>,
    /// The state that must not change while a check runs.
    pub(super) baselines: BTreeMap<CheckId, CheckBaseline>,
}

impl CheckRecords {
    pub fn all(&self) -> &BTreeMap<CheckId, Arc<Check>> {
        &self.by_id
    }

    pub(super) fn insert(&mut self, check: Arc<Check>) {
        for key in index_keys(&check) {
            self.index.entry(key).or_default().insert(check.id.clone());
        }
        self.by_id.insert(check.id.clone(), check);
    }

    /// The check has read this filesystem: a new one may have been made since the last scan.
    pub(super) fn set_uuid(&mut self, id: &CheckId, uuid: &str) {
        let Some(check) = self.by_id.get(id) else {
            return;
        };
        if check.target.uuid.as_deref() == Some(uuid) {
            return;
        }
        let mut check = check.clone();
        self.remove(id);
        Arc::make_mut(&mut check).target.uuid = Some(uuid.to_owned());
        self.insert(check);
    }

    fn remove(&mut self, id: &CheckId) {
        let Some(check) = self.by_id.remove(id) else {
            return;
        };
        for key in index_keys(&check) {
            if let Some(ids) = self.index.get_mut(&key) {
                ids.remove(id);
                if ids.is_empty() {
                    self.index.remove(&key);
                }
            }
        }
    }

    /// Restores checks from the store, at the start or later. Checks that were running ended with
    /// the daemon that ran them.
    pub fn restore(&mut self, remembered: Vec<(CheckId, Check)>) {
        for (id, mut check) in remembered {
            if self.by_id.contains_key(&id) {
                continue;
            }
            if !check.is_over() {
                check.ended = Some(check.started.unwrap_or(check.asked));
                check.state = CheckState::Ended;
                check.verdict = Some(CheckVerdict::Failed);
                check.reason = "the daemon ended while it went on: start it again".to_owned();
            }
            self.insert(Arc::new(check));
        }
    }

    /// Keeps the newest checks of each filesystem, the newest two of them in full if there is room,
    /// and every check on which a finding depends.
    pub fn prune(&mut self, keep: usize) {
        let mut by_target: BTreeMap<(String, String), Vec<&Arc<Check>>> = BTreeMap::new();
        for check in self.by_id.values().filter(|check| check.is_over()) {
            let target = &check.target;
            by_target
                .entry((target.name.clone(), target.uuid.clone().unwrap_or_default()))
                .or_default()
                .push(check);
        }
        let (mut kept, mut gone): (Vec<(Timestamp, CheckId, bool)>, Vec<CheckId>) =
            (Vec::new(), Vec::new());
        let mut needed = BTreeSet::new();
        for checks in by_target.values_mut() {
            checks.sort_by(|a, b| (b.asked, &b.id).cmp(&(a.asked, &a.id)));
            needed.extend(deciding_checks(checks));
            for (place, check) in checks.iter().enumerate() {
                if place < keep || needed.contains(&check.id) {
                    kept.push((check.asked, check.id.clone(), place < KEPT_IN_FULL));
                } else {
                    gone.push(check.id.clone());
                }
            }
        }
        kept.sort_by(|a, b| b.cmp(a));
        let mut bytes = 0;
        let mut shortened = Vec::new();
        for (place, (_, id, whole)) in kept.into_iter().enumerate() {
            bytes += self.by_id.get(&id).map_or(0, |check| estimated_size(check));
            if place >= MAX_KEPT && !needed.contains(&id) {
                gone.push(id);
            } else if !whole || bytes > MAX_BYTES {
                shortened.push(id);
            }
        }
        gone.iter().for_each(|id| self.remove(id));
        shortened.iter().for_each(|id| self.truncate(id));
    }

    fn truncate(&mut self, id: &CheckId) {
        let Some(check) = self.by_id.get_mut(id) else {
            return;
        };
        let long =
            |run: &Arc<Run>| run.problems.len() > MAX_OLD_PROBLEMS || !run.output.gzip.is_empty();
        if !check.runs.iter().any(long) {
            return;
        }
        for run in &mut Arc::make_mut(check).runs {
            let run = Arc::make_mut(run);
            let cut = run.problems.len().saturating_sub(MAX_OLD_PROBLEMS);
            run.problems.truncate(MAX_OLD_PROBLEMS);
            run.more_problems += cut as u64;
            run.output = CheckerOutput { written: run.output.written, ..CheckerOutput::default() };
        }
    }
}

impl Facts {
    /// Checks of the filesystem that this volume has now, by the volume's id or by the UUID: on the
    /// same device, or on another if no other device has the UUID. A new filesystem on the device
    /// does not match, nor does a clone that shares the UUID.
    pub(crate) fn checks_of<'a>(
        &'a self,
        known: &'a KnownVolume,
    ) -> impl Iterator<Item = &'a Arc<Check>> {
        let facts = &known.facts;
        let by = |key: &str| self.checks.index.get(key).into_iter().flatten();
        let ids: BTreeSet<&CheckId> = by(facts.id.as_str())
            .chain(facts.fs_uuid.iter().flat_map(move |uuid| by(uuid)))
            .collect();
        ids.into_iter().filter_map(|id| self.checks.by_id.get(id)).filter(move |check| {
            let target = &check.target;
            let named = target.volume.as_ref() == Some(&facts.id);
            match (&target.uuid, &facts.fs_uuid) {
                (Some(checked), Some(now)) if checked != now => false,
                (Some(uuid), Some(_)) => {
                    named
                        || facts.device.as_ref() == Some(&target.device)
                        || !self.uuid_is_shared(known, uuid)
                }
                _ => named,
            }
        })
    }

    /// Whether another device, which is not below this volume, has the same UUID.
    fn uuid_is_shared(&self, known: &KnownVolume, uuid: &str) -> bool {
        let Some(inventory) = self.inventory() else {
            return true;
        };
        let btrfs = known.facts.fs_type.as_deref() == Some("btrfs");
        inventory.devices.values().any(|device| {
            self.device_uuid(&device.name).is_some_and(|found| found == uuid)
                && !known.facts.devices.contains(&device.name)
                && !(btrfs && device.fs_type.as_deref() == Some("btrfs"))
        })
    }
}

/// The checks of one filesystem that decide about findings: the newest of each conclusive verdict
/// and strength. A finding would return if the check that cleared it were removed before the one
/// that raised it.
fn deciding_checks(checks: &[&Arc<Check>]) -> BTreeSet<CheckId> {
    let strength = |mode: Mode| (mode.at_least(Mode::Frozen), mode.is_quiescent());
    let mut newest: BTreeMap<(u8, (bool, bool)), &Arc<Check>> = BTreeMap::new();
    for check in checks {
        let verdict = match check.verdict {
            Some(CheckVerdict::Clean) => 0,
            Some(CheckVerdict::Suspected) => 1,
            Some(CheckVerdict::Corrupted) => 2,
            Some(CheckVerdict::Inconclusive | CheckVerdict::Failed) | None => continue,
        };
        newest.entry((verdict, strength(check.mode))).or_insert(check);
    }
    newest.into_values().map(|check| check.id.clone()).collect()
}

fn index_keys(check: &Check) -> impl Iterator<Item = String> {
    check
        .target
        .volume
        .as_ref()
        .map(ToString::to_string)
        .into_iter()
        .chain(check.target.uuid.clone())
}

/// Estimated memory of a check, including its variable parts.
fn estimated_size(check: &Check) -> usize {
    let flaw = |flaw: &diskvitals_fscheck::Problem| {
        128 + flaw.text.len() + flaw.ids.iter().map(|id| 24 + id.len()).sum::<usize>()
    };
    let run =
        |run: &Arc<Run>| 512 + run.output.gzip.len() + run.problems.iter().map(flaw).sum::<usize>();
    1024 + check.runs.iter().map(run).sum::<usize>()
}
