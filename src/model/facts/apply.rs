//! Applies each source update to the facts.
//!
//! A failure replaces the newest observation of a source, never its last good value: volumes,
//! drives and histories stay as they are.

use std::sync::Arc;

use jiff::Timestamp;

use crate::block::{Inventory, LayerState};
use crate::facts::smart::SelfTestStart;
use crate::facts::{Facts, Urgency};
use crate::policy::VolumeSettings;
use crate::probe::{MountProbe, StuckProbe};
use crate::source_update::{SourceStatus, SourceUpdate};
use crate::stack::DmRaid;
use diskvitals_finding::Subject;
use diskvitals_finding::btrfs_space;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::source::Source;

impl Facts {
    /// Applies an update. `now` is the time of its arrival.
    pub fn apply(
        &mut self,
        report: SourceUpdate,
        settings: &VolumeSettings,
        now: Timestamp,
    ) -> Urgency {
        let change = self.apply_update(report, settings, now);
        self.request_scan_after_removal(now);
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
                let seen = seen.map(|mut new| {
                    self.identify(&mut new, now);
                    self.note_btrfs_members(&mut new, now);
                    self.note_pool_members(&mut new);
                    let same = known.clone().filter(|known| **known == new);
                    same.unwrap_or_else(|| Arc::new(new))
                });
                let (change, good) = self.inventory.replace(seen);
                if let (true, Some(inventory)) = (good, self.inventory.value()) {
                    self.kernel.names.update_check_devices(inventory, now);
                }
                if good && change == Urgency::Immediate {
                    if let Some(inventory) = self.inventory.value() {
                        self.kernel.names.update(inventory, first, now);
                    }
                    // `update_drives` reads the recent removals, so it runs before
                    // `update_volumes`.
                    self.update_drives(now);
                    self.forget_layers(known.as_deref());
                    self.forget_partial_scrubs();
                    self.forget_superblocks();
                    self.update_volumes(settings, now);
                    self.request_ext_superblocks();
                } else if good {
                    self.update_last_seen(now);
                }
                change
            }
            SourceUpdate::Mounts(seen) => {
                let before = match self.superblocks.is_empty() {
                    true => None,
                    false => self.mount_table().cloned(),
                };
                let (change, good) = self.mounts.replace(seen);
                if good && change == Urgency::Immediate {
                    self.forget_superblocks_of_new_mounts(before.as_ref());
                    self.update_volumes(settings, now);
                    self.request_ext_superblocks();
                }
                change
            }
            SourceUpdate::Kubelet(seen) => {
                let first = self.kubelet.set_answered();
                let (change, good) = self.kubelet.replace(seen);
                if good && change == Urgency::Immediate {
                    self.update_volumes(settings, now);
                } else if good {
                    self.confirm_attachments();
                }
                if first { Urgency::Immediate } else { change }
            }
            SourceUpdate::Source { source, status } => {
                self.sources.set(source, status.clone(), now);
                let answered = source == Source::Kubelet
                    && matches!(status, SourceStatus::Absent(_) | SourceStatus::Down(_));
                if source == Source::KernelLog {
                    self.set_kernel_log_status(status, now);
                }
                if answered && self.kubelet.set_answered() {
                    Urgency::Immediate
                } else {
                    Urgency::Nothing
                }
            }
            SourceUpdate::Layer { device, state } => self.apply_layer(device, state, settings, now),
            SourceUpdate::Superblock { device, dev, superblock } => {
                self.apply_superblock(device, dev, superblock, settings, now)
            }
            SourceUpdate::LayerStuck { device, stuck } => {
                let known = self.layers.entry(device).or_default();
                set_stuck(&mut known.stuck, stuck)
            }
            SourceUpdate::Probe { path, result, duration: took } => {
                self.timings.entry(Source::Probe).or_default().take(took);
                self.record_space(&path, &result);
                let change = self.probes.apply(path.clone(), result);
                if change.is_first {
                    // The store keeps which mounts have answered.
                    self.volumes_revision += 1;
                }
                if let Some(since) = change.replaced_since {
                    self.mount_replaced(&path, since);
                }
                if self.note_mounted_btrfs(&path) {
                    self.update_volumes(settings, now);
                    return Urgency::Immediate;
                }
                change.urgency
            }
            SourceUpdate::ProbeStuck { path, stuck } => self.probes.apply_stuck(path, stuck),
            SourceUpdate::DiskStats(seen) => {
                let change = self.disk_io.apply(seen);
                self.record_latencies();
                change.max(self.update_idle_drives(now))
            }
            SourceUpdate::CountedIo(_) => Urgency::Nothing,
            SourceUpdate::KernelLog(batch) => self.apply_kernel_log(batch, now),
            SourceUpdate::FsError(notice) => self.apply_fs_error(notice, now),
            SourceUpdate::Counters(seen) => self.apply_counters(seen, now),
            SourceUpdate::Smart { drive, at, response: answer, duration: took } => {
                self.timings.entry(Source::Smart).or_default().take(took);
                let change = self
                    .smart_of_known(&drive)
                    .map_or(Urgency::Nothing, |smart| smart.apply_response(*answer, at));
                let begun = at.checked_sub(took).unwrap_or(at);
                let change = change.max(self.update_idle_drives(now));
                change.max(self.compare_with_drive(&drive, begun, at))
            }
            SourceUpdate::SmartOutput { drive, output } => {
                if let Some(smart) = self.smart_of_known(&drive) {
                    smart.keep_output(*output);
                }
                // The response follows.
                Urgency::Nothing
            }
            SourceUpdate::SmartStuck { drive, stuck } => self.apply_smart_stuck(&drive, stuck),
            SourceUpdate::SelfTest { drive, kind, at, result } => {
                self.smart_of_known(&drive).map_or(Urgency::Nothing, |smart| {
                    if let Err(why) = &result {
                        smart.note_refused(kind, at, why);
                    }
                    smart.self_test = Some(SelfTestStart { kind, at, result });
                    Urgency::Immediate
                })
            }
            SourceUpdate::RaidControllers(controllers) => self.apply_controllers(&controllers, now),
            SourceUpdate::Check(progress) => self.apply_check_progress(*progress),
            SourceUpdate::Provision(seen) => {
                let first = self.provision().is_none();
                let (change, good) = self.provision.replace(seen);
                if good && (first || change == Urgency::Immediate) {
                    self.update_volumes(settings, now);
                }
                change
            }
            SourceUpdate::RaidReports { family, reports } => {
                self.apply_raid_reports(family, reports)
            }
            SourceUpdate::SmartIgnored(drives) => self.smart.set_ignored(drives),
            SourceUpdate::RaidMembers { controller, drives } => {
                self.apply_raid_members(controller, drives, now)
            }
        }
    }

    fn record_space(&mut self, path: &HostPath, result: &Observation<MountProbe>) {
        let mount = self.probes.mounts().get(path);
        if let (Some(mount), Observation::Ok { at, value }) = (mount, result)
            && let Ok(usage) = &value.statfs
        {
            let subject = Subject::Volume(mount.volume.clone());
            let btrfs = value.btrfs.as_deref().and_then(btrfs_space::allocatable);
            let available = btrfs.map_or(usage.available_bytes, |room| room.data.left());
            self.space.record(subject, *at, usage.total_bytes, available);
        }
    }

    fn apply_layer(
        &mut self,
        device: String,
        seen: Observation<LayerState>,
        settings: &VolumeSettings,
        now: Timestamp,
    ) -> Urgency {
        if let Observation::Ok { at, value } = &seen
            && let Some((total, left)) = value.stack().and_then(|stack| stack.space())
        {
            self.space.record(Subject::Device(device.clone()), *at, total, left);
        }
        if let Observation::Ok { at, value } = &seen
            && let LayerState::Md(md) = value
        {
            self.record_slots(&device, md, *at);
        }
        if let Observation::Ok { value: LayerState::Zfs(pool), .. } = &seen {
            self.record_pool_members(&device, pool);
        }
        if let Observation::Ok { at, value: LayerState::Integrity(seen) } = &seen {
            self.record_integrity(&device, seen, *at);
        }
        if let Observation::Ok { at, value } = &seen {
            self.record_mismatches(&device, value, *at);
            if value.stack().is_some_and(|stack| stack.is_scrubbed()) {
                self.watch_passes(&device, *at);
            }
        }
        let known = self.layers.entry(device).or_default();
        if let Observation::Ok { at, value } = &seen
            && let LayerState::DmRaid(DmRaid { sync_action, .. }) = value
            && matches!(sync_action.as_deref(), Some("check" | "repair"))
        {
            known.last_check = Some(*at);
        }
        let answered = known.stuck.is_some() && seen.value().is_some();
        if answered {
            known.stuck = None;
        }
        let before = known.state.last_known().cloned();
        let (mut change, good) = known.state.replace(seen);
        if good && change == Urgency::Immediate {
            let after = known.state.last_known();
            // No state yet and a plain table are equal for the volumes above: neither has members.
            // At a start, hundreds of logical volumes report one by one.
            let plain = |state: Option<&LayerState>| {
                matches!(
                    state,
                    None | Some(
                        LayerState::Plain | LayerState::Linear { .. } | LayerState::Integrity(_)
                    )
                )
            };
            if before.as_ref().map(without_usage) == after.map(without_usage) {
                change = Urgency::UsageOnly;
            } else if !(plain(before.as_ref()) && plain(after)) {
                // Members and tolerance may have changed.
                self.update_volumes(settings, now);
            }
        }
        if good && matches!(before, None | Some(LayerState::Zfs(_))) {
            self.add_pool_members(settings, now);
        }
        if answered { Urgency::Immediate } else { change }
    }

    /// What `zpool status` has said may concern the last scan.
    fn add_pool_members(&mut self, settings: &VolumeSettings, now: Timestamp) {
        let mut seen = self.inventory.observation().clone().map(|it| (*it).clone());
        if let Observation::Ok { value, .. } = &mut seen
            && self.note_pool_members(value)
        {
            self.apply_update(SourceUpdate::Inventory(seen), settings, now);
        }
    }

    /// `before`: the scan before the last one.
    fn forget_layers(&mut self, before: Option<&Inventory>) {
        if let Some(before) = before {
            self.end_watch_of_removed(before);
        }
        let Some(inventory) = self.inventory.value() else {
            return;
        };
        // A removed device's layer is kept while its query is stuck: the query is the only trace of
        // it.
        self.layers
            .retain(|name, known| inventory.devices.contains_key(name) || known.stuck.is_some());
    }
}

pub(super) fn set_stuck(slot: &mut Option<StuckProbe>, stuck: StuckProbe) -> Urgency {
    let same =
        slot.as_ref().is_some_and(|known| known.since == stuck.since && known.path == stuck.path);
    *slot = Some(stuck);
    if same { Urgency::Nothing } else { Urgency::Immediate }
}

/// A layer's state without the values that always change.
fn without_usage(state: &LayerState) -> LayerState {
    let mut state = state.clone();
    if let Some(stack) = state.stack_mut() {
        stack.clear_usage();
    }
    state
}
