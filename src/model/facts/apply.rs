//! What each report changes.
//!
//! A failure replaces what a source says of itself, never what it said before of the world:
//! volumes, drives and memories stay as they are.

use std::sync::Arc;

use jiff::Timestamp;

use crate::model::block::{DiskStat, LayerState};
use crate::model::facts::{Change, Facts, IoMemory, LayerFacts, ProbeFacts};
use crate::model::observation::Observation;
use crate::model::path::HostPath;
use crate::model::policy::VolumeSettings;
use crate::model::probe::{MountProbe, Stuck};
use crate::model::report::{Report, Source, SourceStatus};

impl Facts {
    /// Takes a report in. `now` is when it arrived.
    pub fn apply(&mut self, report: Report, settings: &VolumeSettings, now: Timestamp) -> Change {
        let change = self.take_in(report, settings, now);
        change.max(self.retry_pending(now))
    }

    fn take_in(&mut self, report: Report, settings: &VolumeSettings, now: Timestamp) -> Change {
        match report {
            Report::Inventory(seen) => {
                let first = self.inventory().is_none();
                let known = self.shared_inventory().cloned();
                let seen = seen.map(|new| {
                    known
                        .filter(|known| **known == new)
                        .unwrap_or_else(|| Arc::new(new))
                });
                let (change, good) = replace(&mut self.inventory, &mut self.last_inventory, seen);
                if let (true, Some(inventory)) = (good, self.inventory.value()) {
                    self.kernel.names.update_checks(inventory, now);
                }
                if good && change == Change::Material {
                    if let Some(inventory) = self.inventory.value() {
                        self.kernel.names.update(inventory, first, now);
                    }
                    // What left a moment ago is looked at while the drives are gone through, hence
                    // the order.
                    self.update_drives(now);
                    self.forget_layers();
                    self.update_volumes(settings, now);
                } else if good {
                    self.touch_drives(now);
                }
                change
            }
            Report::Mounts(seen) => {
                let (change, good) = replace(&mut self.mounts, &mut self.last_mounts, seen);
                if good && change == Change::Material {
                    self.update_volumes(settings, now);
                }
                change
            }
            Report::Kubelet(seen) => {
                let first = !std::mem::replace(&mut self.kubelet_answered, true);
                let (change, good) = replace(&mut self.kubelet, &mut self.last_kubelet, seen);
                if good && change == Change::Material {
                    self.update_volumes(settings, now);
                } else if good {
                    self.confirm_attachments();
                }
                if first { Change::Material } else { change }
            }
            Report::Source {
                source: Source::KernelLog,
                status,
            } => {
                self.kernel_log_heard(
                    matches!(status, SourceStatus::Active(_) | SourceStatus::Limited(_)),
                    now,
                );
                Change::Nothing
            }
            Report::Source { source, status } => {
                let answered = source == Source::Kubelet
                    && matches!(status, SourceStatus::Absent(_) | SourceStatus::Down(_));
                if answered && !std::mem::replace(&mut self.kubelet_answered, true) {
                    Change::Material
                } else {
                    Change::Nothing
                }
            }
            Report::Layer { device, state } => self.layer(device, state, settings, now),
            Report::LayerStuck { device, stuck } => {
                let known = self.layers.entry(device).or_default();
                set_stuck(&mut known.stuck, stuck)
            }
            Report::Probe { path, result, took } => {
                self.timings.entry(Source::Probe).or_default().take(took);
                self.probe(path, result)
            }
            Report::ProbeStuck { path, stuck } => {
                if !self.targets.contains_key(&path) {
                    return Change::Nothing;
                }
                set_stuck(&mut self.probes.entry(path).or_default().stuck, stuck)
            }
            Report::DiskStats(seen) => self.disk_stats(seen),
            Report::KernelLog(batch) => self.kernel_log(batch, now),
            Report::FsError(notice) => self.fs_error(notice, now),
            Report::Counters(seen) => self.counters(seen, now),
            Report::Smart {
                drive,
                at,
                answer,
                took,
            } => {
                self.timings.entry(Source::Smart).or_default().take(took);
                self.smart_answer(drive, *answer, at)
            }
            Report::SmartStuck { drive, stuck } => self.smart_stuck(drive, stuck),
            Report::SelfTest {
                drive,
                kind,
                at,
                result,
            } => self.self_test_asked(drive, kind, at, result),
            Report::Controllers(controllers) => self.controllers(&controllers, now),
            Report::Check(progress) => self.check_progress(*progress),
            Report::Provision(seen) => {
                let first = self.provision().is_none();
                let (change, good) = replace(&mut self.provision, &mut self.last_provision, seen);
                if good && (first || change == Change::Material) {
                    self.update_volumes(settings, now);
                }
                change
            }
            Report::SmartIgnored(drives) => self.smart_ignored(drives),
            Report::Hidden { controller, drives } => self.hidden_drives(controller, drives, now),
        }
    }

    fn layer(
        &mut self,
        device: String,
        seen: Observation<LayerState>,
        settings: &VolumeSettings,
        now: Timestamp,
    ) -> Change {
        let known = self.layers.entry(device).or_default();
        let answered = known.stuck.is_some() && seen.value().is_some();
        if answered {
            known.stuck = None;
        }
        let before = known.known().cloned();
        let LayerFacts { state, last, .. } = known;
        let (mut change, good) = replace(state, last, seen);
        if good && change == Change::Material {
            let after = known.known();
            // No answer yet and a plain table are the same to the volumes above: neither has
            // members. At a start hundreds of logical volumes answer one by one.
            let plain = |state: Option<&LayerState>| {
                matches!(
                    state,
                    None | Some(LayerState::Plain | LayerState::Linear { .. })
                )
            };
            if before.as_ref().map(without_figures) == after.map(without_figures) {
                change = Change::Figures;
            } else if !(plain(before.as_ref()) && plain(after)) {
                // Members and tolerance may have changed.
                self.update_volumes(settings, now);
            }
        }
        if answered { Change::Material } else { change }
    }

    fn forget_layers(&mut self) {
        let Some(inventory) = self.inventory.value() else {
            return;
        };
        // A stuck question is kept: it is the trace of a device that went while somebody waited for
        // it.
        self.layers
            .retain(|name, known| inventory.devices.contains_key(name) || known.stuck.is_some());
    }

    fn probe(&mut self, path: HostPath, seen: Observation<MountProbe>) -> Change {
        // An answer from a mount that is gone says nothing of what is there now.
        if !self.targets.contains_key(&path) {
            return Change::Nothing;
        }
        let known = self.probes.entry(path).or_default();
        let ProbeFacts {
            result,
            usage,
            stuck,
        } = known;
        let mut change = match (&*result, &seen) {
            (Observation::Ok { value: before, .. }, Observation::Ok { value: after, .. })
                if before == after =>
            {
                Change::Nothing
            }
            (Observation::Ok { value: before, .. }, Observation::Ok { value: after, .. }) => {
                let same = before.statfs.is_ok() == after.statfs.is_ok()
                    && before.statfs.as_ref().err() == after.statfs.as_ref().err()
                    && before.readdir == after.readdir;
                if same {
                    Change::Figures
                } else {
                    Change::Material
                }
            }
            (before, after) if before.error().is_some() && before.error() == after.error() => {
                Change::Nothing
            }
            (Observation::Unavailable, Observation::Unavailable) => Change::Nothing,
            _ => Change::Material,
        };
        if let Observation::Ok { at, value } = &seen {
            if stuck.take().is_some() {
                change = Change::Material;
            }
            if let Ok(measured) = value.statfs {
                *usage = Some((measured, *at));
            }
        }
        *result = seen;
        change
    }

    /// Per device: since when I/O has been in flight without one completion between two readings.
    fn disk_stats(&mut self, seen: Observation<Vec<DiskStat>>) -> Change {
        let before = self.waiting();
        let failed_before = self.disk_stats.error().is_some();
        if let Observation::Ok { at, value } = &seen {
            let mut io = std::collections::BTreeMap::new();
            for stat in value {
                let old = self.io.remove(&stat.dev);
                io.insert(stat.dev, remember(old, stat, *at));
            }
            self.io = io;
        }
        let failed = seen.error().is_some();
        self.disk_stats = seen;
        let after = self.waiting();
        if failed != failed_before || before || after {
            Change::Material
        } else {
            Change::Nothing
        }
    }

    fn waiting(&self) -> bool {
        let Some(at) = self.disk_stats.at() else {
            return false;
        };
        self.io
            .values()
            .any(|memory| memory.waiting_since.is_some_and(|since| since < at))
    }
}

/// Counters that differ in either direction have moved: backwards is another device under the same
/// number.
fn remember(old: Option<IoMemory>, stat: &DiskStat, at: Timestamp) -> IoMemory {
    let line = stat.line.clone();
    match old {
        Some(mut memory)
            if memory.completed == stat.completed
                && memory.waiting_since.is_some()
                && stat.in_flight > 0 =>
        {
            memory.last_line = line;
            memory
        }
        _ => IoMemory {
            completed: stat.completed,
            waiting_since: (stat.in_flight > 0).then_some(at),
            first_line: line.clone(),
            last_line: line,
        },
    }
}

/// Puts `seen` in place; keeps the last good value aside while newer ones fail. Says what changed
/// and whether `seen` is an answer.
fn replace<T: PartialEq>(
    slot: &mut Observation<T>,
    last: &mut Option<T>,
    seen: Observation<T>,
) -> (Change, bool) {
    let good = seen.value().is_some();
    let known = slot.value().or(last.as_ref());
    let change = match (&*slot, &seen) {
        (Observation::Ok { .. }, Observation::Ok { value, .. }) if known == Some(value) => {
            Change::Nothing
        }
        (Observation::Failed { error: before, .. }, Observation::Failed { error: after, .. })
            if before == after =>
        {
            Change::Nothing
        }
        (Observation::Unavailable, Observation::Unavailable) => Change::Nothing,
        _ => Change::Material,
    };
    let old = std::mem::replace(slot, seen);
    match (good, old) {
        (true, _) => *last = None,
        (false, Observation::Ok { value, .. }) => *last = Some(value),
        (false, _) => {}
    }
    (change, good)
}

fn set_stuck(slot: &mut Option<Stuck>, stuck: Stuck) -> Change {
    let same = slot
        .as_ref()
        .is_some_and(|known| known.since == stuck.since && known.path == stuck.path);
    *slot = Some(stuck);
    if same {
        Change::Nothing
    } else {
        Change::Material
    }
}

/// A layer's state less what moves all the time.
fn without_figures(state: &LayerState) -> LayerState {
    let mut state = state.clone();
    match &mut state {
        LayerState::Md(md) => md.sync_completed = None,
        LayerState::Thin(thin) => {
            thin.metadata_used = 0;
            thin.data_used = 0;
            thin.status_line.clear();
        }
        LayerState::Multipath(multipath) => multipath.status_line.clear(),
        LayerState::DmRaid { status_line, .. } => status_line.clear(),
        LayerState::Plain | LayerState::Linear { .. } => {}
    }
    state
}
