//! What each report changes.
//!
//! A failure replaces what a source says of itself, never what it said before of the world:
//! volumes, drives and memories stay as they are.

use std::sync::Arc;

use jiff::Timestamp;

use crate::model::block::{DiskStat, LayerState};
use crate::model::facts::{Facts, IoProgress, LayerFacts, ProbeFacts, Urgency};
use crate::model::observation::Observation;
use crate::model::path::HostPath;
use crate::model::policy::VolumeSettings;
use crate::model::probe::{MountProbe, StuckProbe};
use crate::model::source_update::{Source, SourceStatus, SourceUpdate};

impl Facts {
    /// Takes a report in. `now` is when it arrived.
    pub fn apply(
        &mut self,
        report: SourceUpdate,
        settings: &VolumeSettings,
        now: Timestamp,
    ) -> Urgency {
        let change = self.apply_update(report, settings, now);
        change.max(self.retry_pending(now))
    }

    fn apply_update(
        &mut self,
        report: SourceUpdate,
        settings: &VolumeSettings,
        now: Timestamp,
    ) -> Urgency {
        match report {
            SourceUpdate::Inventory(seen) => {
                let first = self.inventory().is_none();
                let known = self.shared_inventory().cloned();
                let seen = seen.map(|new| {
                    known
                        .filter(|known| **known == new)
                        .unwrap_or_else(|| Arc::new(new))
                });
                let (change, good) =
                    replace_observation(&mut self.inventory, &mut self.last_inventory, seen);
                if let (true, Some(inventory)) = (good, self.inventory.value()) {
                    self.kernel.names.update_check_devices(inventory, now);
                }
                if good && change == Urgency::Immediate {
                    if let Some(inventory) = self.inventory.value() {
                        self.kernel.names.update(inventory, first, now);
                    }
                    // What left a moment ago is looked at while the drives are gone through, hence
                    // the order.
                    self.update_drives(now);
                    self.forget_layers();
                    self.update_volumes(settings, now);
                } else if good {
                    self.update_last_seen(now);
                }
                change
            }
            SourceUpdate::Mounts(seen) => {
                let (change, good) =
                    replace_observation(&mut self.mounts, &mut self.last_mounts, seen);
                if good && change == Urgency::Immediate {
                    self.update_volumes(settings, now);
                }
                change
            }
            SourceUpdate::Kubelet(seen) => {
                let first = !std::mem::replace(&mut self.kubelet_answered, true);
                let (change, good) =
                    replace_observation(&mut self.kubelet, &mut self.last_kubelet, seen);
                if good && change == Urgency::Immediate {
                    self.update_volumes(settings, now);
                } else if good {
                    self.confirm_attachments();
                }
                if first { Urgency::Immediate } else { change }
            }
            SourceUpdate::Source {
                source: Source::KernelLog,
                status,
            } => {
                self.set_kernel_log_available(
                    matches!(status, SourceStatus::Active(_) | SourceStatus::Limited(_)),
                    now,
                );
                Urgency::Nothing
            }
            SourceUpdate::Source { source, status } => {
                let answered = source == Source::Kubelet
                    && matches!(status, SourceStatus::Absent(_) | SourceStatus::Down(_));
                if answered && !std::mem::replace(&mut self.kubelet_answered, true) {
                    Urgency::Immediate
                } else {
                    Urgency::Nothing
                }
            }
            SourceUpdate::Layer { device, state } => self.apply_layer(device, state, settings, now),
            SourceUpdate::LayerStuck { device, stuck } => {
                let known = self.layers.entry(device).or_default();
                set_stuck(&mut known.stuck, stuck)
            }
            SourceUpdate::Probe {
                path,
                result,
                duration: took,
            } => {
                self.timings.entry(Source::Probe).or_default().take(took);
                self.apply_probe(path, result)
            }
            SourceUpdate::ProbeStuck { path, stuck } => {
                if !self.probed_mounts.contains_key(&path) {
                    return Urgency::Nothing;
                }
                set_stuck(&mut self.probes.entry(path).or_default().stuck, stuck)
            }
            SourceUpdate::DiskStats(seen) => self.apply_disk_stats(seen),
            SourceUpdate::KernelLog(batch) => self.apply_kernel_log(batch, now),
            SourceUpdate::FsError(notice) => self.apply_fs_error(notice, now),
            SourceUpdate::Counters(seen) => self.apply_counters(seen, now),
            SourceUpdate::Smart {
                drive,
                at,
                response: answer,
                duration: took,
            } => {
                self.timings.entry(Source::Smart).or_default().take(took);
                self.apply_smart_response(drive, *answer, at)
            }
            SourceUpdate::SmartStuck { drive, stuck } => self.apply_smart_stuck(drive, stuck),
            SourceUpdate::SelfTest {
                drive,
                kind,
                at,
                result,
            } => self.apply_self_test_start(drive, kind, at, result),
            SourceUpdate::RaidControllers(controllers) => self.apply_controllers(&controllers, now),
            SourceUpdate::Check(progress) => self.apply_check_progress(*progress),
            SourceUpdate::Provision(seen) => {
                let first = self.provision().is_none();
                let (change, good) =
                    replace_observation(&mut self.provision, &mut self.last_provision, seen);
                if good && (first || change == Urgency::Immediate) {
                    self.update_volumes(settings, now);
                }
                change
            }
            SourceUpdate::SmartIgnored(drives) => self.apply_smart_ignored(drives),
            SourceUpdate::RaidMembers { controller, drives } => {
                self.apply_raid_members(controller, drives, now)
            }
        }
    }

    fn apply_layer(
        &mut self,
        device: String,
        seen: Observation<LayerState>,
        settings: &VolumeSettings,
        now: Timestamp,
    ) -> Urgency {
        let known = self.layers.entry(device).or_default();
        let answered = known.stuck.is_some() && seen.value().is_some();
        if answered {
            known.stuck = None;
        }
        let before = known.last_known().cloned();
        let LayerFacts {
            state,
            last_good: last,
            ..
        } = known;
        let (mut change, good) = replace_observation(state, last, seen);
        if good && change == Urgency::Immediate {
            let after = known.last_known();
            // No answer yet and a plain table are the same to the volumes above: neither has
            // members. At a start hundreds of logical volumes answer one by one.
            let plain = |state: Option<&LayerState>| {
                matches!(
                    state,
                    None | Some(LayerState::Plain | LayerState::Linear { .. })
                )
            };
            if before.as_ref().map(without_usage) == after.map(without_usage) {
                change = Urgency::UsageOnly;
            } else if !(plain(before.as_ref()) && plain(after)) {
                // Members and tolerance may have changed.
                self.update_volumes(settings, now);
            }
        }
        if answered { Urgency::Immediate } else { change }
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

    fn apply_probe(&mut self, path: HostPath, seen: Observation<MountProbe>) -> Urgency {
        // An answer from a mount that is gone says nothing of what is there now.
        if !self.probed_mounts.contains_key(&path) {
            return Urgency::Nothing;
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
                Urgency::Nothing
            }
            (Observation::Ok { value: before, .. }, Observation::Ok { value: after, .. }) => {
                let same = before.statfs.is_ok() == after.statfs.is_ok()
                    && before.statfs.as_ref().err() == after.statfs.as_ref().err()
                    && before.readdir == after.readdir;
                if same {
                    Urgency::UsageOnly
                } else {
                    Urgency::Immediate
                }
            }
            (before, after) if before.error().is_some() && before.error() == after.error() => {
                Urgency::Nothing
            }
            (Observation::Unavailable, Observation::Unavailable) => Urgency::Nothing,
            _ => Urgency::Immediate,
        };
        if let Observation::Ok { at, value } = &seen {
            if stuck.take().is_some() {
                change = Urgency::Immediate;
            }
            if let Ok(measured) = value.statfs {
                *usage = Some((measured, *at));
            }
        }
        *result = seen;
        change
    }

    /// Per device: since when I/O has been in flight without one completion between two readings.
    fn apply_disk_stats(&mut self, seen: Observation<Vec<DiskStat>>) -> Urgency {
        let before = self.has_waiting_io();
        let failed_before = self.disk_stats.error().is_some();
        if let Observation::Ok { at, value } = &seen {
            let mut io = std::collections::BTreeMap::new();
            for stat in value {
                let old = self.io.remove(&stat.dev);
                io.insert(stat.dev, next_io_progress(old, stat, *at));
            }
            self.io = io;
        }
        let failed = seen.error().is_some();
        self.disk_stats = seen;
        let after = self.has_waiting_io();
        if failed != failed_before || before || after {
            Urgency::Immediate
        } else {
            Urgency::Nothing
        }
    }

    fn has_waiting_io(&self) -> bool {
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
fn next_io_progress(old: Option<IoProgress>, stat: &DiskStat, at: Timestamp) -> IoProgress {
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
        _ => IoProgress {
            completed: stat.completed,
            waiting_since: (stat.in_flight > 0).then_some(at),
            first_line: line.clone(),
            last_line: line,
        },
    }
}

/// Puts `seen` in place; keeps the last good value aside while newer ones fail. Says what changed
/// and whether `seen` is an answer.
fn replace_observation<T: PartialEq>(
    slot: &mut Observation<T>,
    last: &mut Option<T>,
    seen: Observation<T>,
) -> (Urgency, bool) {
    let good = seen.value().is_some();
    let known = slot.value().or(last.as_ref());
    let change = match (&*slot, &seen) {
        (Observation::Ok { .. }, Observation::Ok { value, .. }) if known == Some(value) => {
            Urgency::Nothing
        }
        (Observation::Failed { error: before, .. }, Observation::Failed { error: after, .. })
            if before == after =>
        {
            Urgency::Nothing
        }
        (Observation::Unavailable, Observation::Unavailable) => Urgency::Nothing,
        _ => Urgency::Immediate,
    };
    let old = std::mem::replace(slot, seen);
    match (good, old) {
        (true, _) => *last = None,
        (false, Observation::Ok { value, .. }) => *last = Some(value),
        (false, _) => {}
    }
    (change, good)
}

fn set_stuck(slot: &mut Option<StuckProbe>, stuck: StuckProbe) -> Urgency {
    let same = slot
        .as_ref()
        .is_some_and(|known| known.since == stuck.since && known.path == stuck.path);
    *slot = Some(stuck);
    if same {
        Urgency::Nothing
    } else {
        Urgency::Immediate
    }
}

/// A layer's state less what moves all the time.
fn without_usage(state: &LayerState) -> LayerState {
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
