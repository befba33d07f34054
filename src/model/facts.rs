//! All that is known, as the reports said it, with the little memory that judgement needs (since
//! when, what was seen before). Pure.

mod apply;
pub mod attachments;
pub mod checks;
pub mod counters;
pub mod device_names;
mod drives;
pub mod kernel_log;
pub mod smart;
pub(crate) mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::block::{DiskStat, Inventory, LayerState};
use crate::model::check::Check;
use crate::model::dev::DevNo;
use crate::model::drive::DriveFacts;
use crate::model::facts::attachments::BypassedDrivers;
use crate::model::facts::kernel_log::KernelFacts;
use crate::model::ids::{CheckId, DriveId, VolumeId};
use crate::model::kubelet::KubeletRecords;
use crate::model::mount::MountTable;
use crate::model::observation::Observation;
use crate::model::path::HostPath;
use crate::model::policy::smart::SmartPolicy;
use crate::model::probe::{MountProbe, ProbeTarget, StuckProbe, Usage};
use crate::model::provision::ProvisionState;
use crate::model::snapshot::NodeContext;
use crate::model::source_update::{RaidMemberDrive, Source};
use crate::model::stale::Attachment;
use crate::model::timing::Timings;
use crate::model::volume::VolumeFacts;

/// Everything the owner knows. Reports replace parts of it; `drives`, `volumes` and the memories
/// are kept up by `apply`.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Shared with the picture, and the same as long as scans show the same: it is the largest
    /// thing there is.
    pub inventory: Observation<Arc<Inventory>>,
    /// State of md and dm devices by kernel name.
    pub layers: BTreeMap<String, LayerFacts>,
    pub mounts: Observation<MountTable>,
    pub kubelet: Observation<KubeletRecords>,
    pub probes: BTreeMap<HostPath, ProbeFacts>,
    pub disk_stats: Observation<Vec<DiskStat>>,
    pub io: BTreeMap<DevNo, IoProgress>,
    /// How long probes and drives took to answer.
    pub timings: Timings,
    /// What the kernel's log has said, by whom it is about.
    pub kernel: KernelFacts,
    /// The kernel's error counters, by whom they are about and their source. Kept in the store.
    pub counters: BTreeMap<counters::CounterKey, Arc<crate::model::counters::CounterHistory>>,
    /// When they were last read.
    pub(crate) counters_read_at: Option<Timestamp>,
    /// What drives have said of themselves; kept in the store. Drives that are never asked are not
    /// in it.
    pub smart: BTreeMap<DriveId, Arc<smart::SmartFacts>>,
    /// By what drives' statements are judged.
    pub(crate) smart_policy: Arc<SmartPolicy>,
    /// Filesystem checks, those that are over too; kept in the store.
    pub checks: BTreeMap<CheckId, Arc<Check>>,
    /// By volume id and by UUID.
    pub(crate) check_index: BTreeMap<String, BTreeSet<CheckId>>,
    pub(crate) check_baselines: BTreeMap<CheckId, checks::CheckBaseline>,
    /// Drives that the configuration has not asked.
    pub(crate) smart_ignored: BTreeSet<DriveId>,
    /// Why a controller did not list its drives when it was asked last.
    pub(crate) controller_errors: BTreeMap<String, String>,
    /// Drives that only a controller knows, by controller; the last good answer of each.
    pub(crate) raid_members: BTreeMap<String, Vec<RaidMemberDrive>>,
    /// Drives that are here and drives that were.
    pub drives: BTreeMap<DriveId, KnownDrive>,
    /// Volumes that are here, and those whose drives went with them.
    pub volumes: BTreeMap<VolumeId, KnownVolume>,
    /// Grows whenever they may have changed: who has written them need not compare them.
    pub(crate) volumes_revision: u64,
    /// The last good answers, while newer ones failed; use `inventory()`, `mount_table()`,
    /// `kubelet_records()`.
    pub(crate) last_inventory: Option<Arc<Inventory>>,
    pub(crate) last_mounts: Option<MountTable>,
    pub(crate) last_kubelet: Option<KubeletRecords>,
    /// The kubelet's source has said something, were it that there is no kubelet here.
    pub(crate) kubelet_answered: bool,
    /// What this node provides itself; use `provision()`.
    pub provision: Observation<ProvisionState>,
    pub(crate) last_provision: Option<ProvisionState>,
    /// Where CSI volumes are staged and published, by path.
    pub attachments: BTreeMap<HostPath, Arc<Attachment>>,
    /// What the paths of callers are compared by, and what the pool lies on.
    pub node_context: Arc<NodeContext>,
    /// CSI drivers that were reached by another way than the one that is watched.
    pub bypassed_drivers: BypassedDrivers,
    /// Every mount of every volume that can be asked, by path.
    pub(crate) probed_mounts: BTreeMap<HostPath, ProbedMount>,
    /// As they were before a restart, for the first look at the volumes.
    pub(crate) restored_mounts: BTreeMap<HostPath, ProbedMount>,
    /// What left a moment ago: a drive's going and its mounts' going are reported in either order.
    pub(crate) recent_removals: RecentRemovals,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbedMount {
    pub dev: DevNo,
    pub volume: VolumeId,
    pub filesystem: String,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RecentRemovals {
    pub volumes: BTreeMap<VolumeId, (KnownVolume, Timestamp)>,
    /// Drives that carried something a moment ago, with what.
    pub drive_volumes: BTreeMap<DriveId, (Vec<VolumeId>, Timestamp)>,
}

/// What a report changed, for whoever decides how much work follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Only times.
    Nothing,
    /// Usage and progress numbers: to be judged and published, not in a hurry.
    UsageOnly,
    /// More of what was told already, in a hurry but not at once: a flood is told rolled up.
    Coalesce,
    /// Something that a watcher waits for.
    Immediate,
}

#[derive(Clone, Debug, Default)]
pub struct LayerFacts {
    pub state: Observation<LayerState>,
    pub stuck: Option<StuckProbe>,
    /// The last good answer, while newer ones failed; use `known()`.
    pub last_good: Option<LayerState>,
}

impl LayerFacts {
    /// What was said last, however long ago.
    pub fn last_known(&self) -> Option<&LayerState> {
        self.state.value().or(self.last_good.as_ref())
    }
}

#[derive(Clone, Debug, Default)]
pub struct ProbeFacts {
    pub result: Observation<MountProbe>,
    /// The last usage that was measured, with its time: it stands, marked stale, while probes fail.
    pub usage: Option<(Usage, Timestamp)>,
    pub stuck: Option<StuckProbe>,
}

/// When a device last completed something while it had I/O in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoProgress {
    pub completed: u64,
    /// Since when I/O has been in flight without a completion; None while it moves or is idle.
    pub waiting_since: Option<Timestamp>,
    /// The diskstats lines at the start of the wait and now.
    pub first_line: String,
    pub last_line: String,
}

/// Kept in the store over restarts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownDrive {
    pub facts: DriveFacts,
    pub first_seen: Timestamp,
    pub last_seen: Timestamp,
    pub missing_since: Option<Timestamp>,
    /// Since when the kernel's state of the device has been other than running or live.
    #[serde(rename = "state_since")]
    pub abnormal_state_since: Option<Timestamp>,
    /// Volumes that stand on it; frozen when it goes.
    pub volumes: Vec<VolumeId>,
    /// It carried something when it went: a mount, an array, a volume group. A drive that carried
    /// nothing is no loss.
    pub in_use: bool,
}

/// Kept in the store for as long as the boot lasts: after a restart of the daemon, a volume whose
/// device went meanwhile has its name still.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredVolume {
    pub known: KnownVolume,
    /// Its mounts that can be asked, with the filesystem's number.
    pub mounts: Vec<(HostPath, DevNo)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownVolume {
    pub facts: Arc<VolumeFacts>,
    pub first_seen: Timestamp,
    /// Whether its filesystem was writable when first seen (or by fstab): then `ro` later is the
    /// kernel's doing, unless the mount's own option changed with it.
    pub first_super_read_only: bool,
    pub first_mount_read_only: bool,
    /// Not in the mount table any more, kept because a drive of it is missing.
    pub retained: bool,
    /// Mounts that were `ro` by themselves while the filesystem was writable: somebody's choice.
    pub read_only_by_choice: BTreeSet<HostPath>,
    /// Mounts that have been seen writable.
    pub seen_writable: BTreeSet<HostPath>,
    /// Expected mounts that are not there: since when, and whether they had been there before.
    #[serde(rename = "absent")]
    pub absences: BTreeMap<HostPath, MountAbsence>,
    /// Since when each of its mounts has been seen.
    #[serde(rename = "mounted", default)]
    pub mounted_since: BTreeMap<HostPath, Timestamp>,
}

impl KnownVolume {
    /// When it came into use, as far as is known: its device may not have been scanned before.
    pub fn in_use_since(&self) -> Timestamp {
        let provided = self.facts.provided.as_ref();
        let attached = provided
            .into_iter()
            .flat_map(|volume| volume.staged.iter().chain(&volume.published))
            .map(|at| at.since);
        self.mounted_since
            .values()
            .copied()
            .chain(attached)
            .min()
            .unwrap_or(self.first_seen)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountAbsence {
    pub since: Timestamp,
    pub was_mounted: bool,
}

impl Facts {
    /// With the drives that the store remembers; until a scan says more, they are as they were.
    pub fn restore(drives: impl IntoIterator<Item = KnownDrive>) -> Facts {
        Facts {
            drives: drives
                .into_iter()
                .map(|drive| (drive.facts.id.clone(), drive))
                .collect(),
            ..Facts::default()
        }
    }

    /// The last good scan.
    pub fn inventory(&self) -> Option<&Inventory> {
        self.shared_inventory().map(AsRef::as_ref)
    }

    pub fn shared_inventory(&self) -> Option<&Arc<Inventory>> {
        self.inventory.value().or(self.last_inventory.as_ref())
    }

    /// The last mount table that could be read.
    pub fn mount_table(&self) -> Option<&MountTable> {
        self.mounts.value().or(self.last_mounts.as_ref())
    }

    /// The last records that could be read.
    pub fn kubelet_records(&self) -> Option<&KubeletRecords> {
        self.kubelet.value().or(self.last_kubelet.as_ref())
    }

    /// The volumes that this node provides, as they were told last.
    pub fn provision(&self) -> Option<&ProvisionState> {
        self.provision.value().or(self.last_provision.as_ref())
    }

    /// The first full picture is there: drives, mounts and the kubelet's records have each been
    /// answered for, if only by an error. Probes are not waited for: one dead mount would keep the
    /// node unanswered.
    pub fn settled(&self) -> bool {
        self.inventory.at().is_some()
            && self.mounts.at().is_some()
            && (self.kubelet_answered || self.kubelet.at().is_some())
    }

    /// One for each distinct mount of each volume that is mounted, sorted by path.
    pub fn probe_targets(&self) -> Vec<ProbeTarget> {
        let asleep = |volume: &VolumeId| {
            let drives = self
                .volumes
                .get(volume)
                .map_or(&[][..], |known| &known.facts.drive_ids);
            !drives.is_empty()
                && drives
                    .iter()
                    .all(|id| self.drives.get(id).is_some_and(|drive| drive.facts.asleep))
        };
        let target = |(path, target): (&HostPath, &ProbedMount)| ProbeTarget {
            path: path.clone(),
            dev: target.dev,
            asleep: asleep(&target.volume),
            filesystem: target.filesystem.clone(),
        };
        self.probed_mounts.iter().map(target).collect()
    }

    /// The volumes as the store is to remember them.
    pub fn stored_volumes(&self) -> BTreeMap<VolumeId, StoredVolume> {
        let mut stored: BTreeMap<VolumeId, StoredVolume> = self
            .volumes
            .iter()
            .map(|(id, known)| {
                (
                    id.clone(),
                    StoredVolume {
                        known: known.clone(),
                        mounts: Vec::new(),
                    },
                )
            })
            .collect();
        for (path, target) in &self.probed_mounts {
            if let Some(volume) = stored.get_mut(&target.volume) {
                volume.mounts.push((path.clone(), target.dev));
            }
        }
        stored
    }

    /// Volumes of before a restart, in the same boot. Only at the start: what has been seen since
    /// is newer.
    pub fn restore_volumes(&mut self, stored: Vec<StoredVolume>) {
        if !self.volumes.is_empty() || !self.probed_mounts.is_empty() {
            return;
        }
        self.volumes_revision += 1;
        for StoredVolume { known, mounts } in stored {
            let filesystem = known.facts.fs_type.clone().unwrap_or_default();
            for (path, dev) in mounts {
                let target = ProbedMount {
                    dev,
                    volume: known.facts.id.clone(),
                    filesystem: filesystem.clone(),
                };
                self.restored_mounts.insert(path, target);
            }
            self.volumes.insert(known.facts.id.clone(), known);
        }
    }

    /// Questions that have not come back, by who asked them.
    pub fn stuck(&self) -> BTreeMap<Source, u32> {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        BTreeMap::from([
            (
                Source::Probe,
                number(
                    self.probes
                        .values()
                        .filter(|probe| probe.stuck.is_some())
                        .count(),
                ),
            ),
            (
                Source::Layers,
                number(
                    self.layers
                        .values()
                        .filter(|layer| layer.stuck.is_some())
                        .count(),
                ),
            ),
            (
                Source::Smart,
                number(
                    self.smart
                        .values()
                        .filter(|smart| smart.stuck.is_some())
                        .count(),
                ),
            ),
        ])
    }

    /// Drops drives that have been missing for `after` and carried nothing; says which.
    pub fn forget_missing_drives(
        &mut self,
        after: std::time::Duration,
        now: Timestamp,
    ) -> Vec<DriveId> {
        let old = |known: &KnownDrive| {
            !known.in_use
                && known
                    .missing_since
                    .is_some_and(|since| elapsed(since, now) >= after)
        };
        let gone: Vec<DriveId> = self
            .drives
            .iter()
            .filter(|(_, known)| old(known))
            .map(|(id, _)| id.clone())
            .collect();
        for id in &gone {
            self.drives.remove(id);
        }
        if !gone.is_empty() {
            self.forget_smart();
        }
        gone
    }
}

/// From `since` to `now`; nothing when the clock went back.
pub fn elapsed(since: Timestamp, now: Timestamp) -> std::time::Duration {
    std::time::Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
