//! The current state of the node from the sources' updates, with the history that rules need. Pure.

mod apply;
pub mod attachments;
pub(crate) mod btrfs_members;
pub mod checks;
mod corruption;
pub mod counters;
pub mod device_names;
pub mod disk_io;
pub(crate) mod drive_use;
mod drives;
pub(crate) mod filesystem_homes;
pub mod former_ids;
pub mod full_reads;
pub mod identities;
mod integrity;
pub mod kernel_log;
pub(crate) mod last_pass;
mod latency;
pub mod latest;
pub(crate) mod links;
mod md_slots;
mod models;
mod mounted_btrfs;
mod new_mounts;
pub(crate) mod pool_members;
pub mod probes;
pub(crate) mod raid_controllers;
pub mod readings;
pub mod repairs;
mod rest;
pub mod smart;
pub mod sources;
mod space;
pub(crate) mod superblocks;
pub mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::block::{BlockDevice, Inventory, LayerState};
use crate::drive::{DriveFacts, Transport};
use crate::facts::attachments::BypassedDrivers;
use crate::facts::checks::CheckRecords;
use crate::facts::counters::Counters;
use crate::facts::disk_io::DiskIo;
use crate::facts::drive_use::{LastUse, MemberSignature};
use crate::facts::identities::Move;
use crate::facts::kernel_log::KernelFacts;
use crate::facts::last_pass::{PassRecord, WholePass};
use crate::facts::latest::Latest;
use crate::facts::links::LinkWatch;
use crate::facts::probes::{ProbedMount, Probes};
use crate::facts::raid_controllers::RaidControllers;
use crate::facts::smart::{SmartFacts, SmartReadings};
use crate::facts::sources::SourceStates;
use crate::facts::space::SpaceHistories;
use crate::facts::superblocks::Superblocks;
use crate::lamp::LampOrders;
use crate::maintenance::MaintenanceOrders;
use crate::model_statistics::ModelStatistics;
use crate::policy::VolumeSettings;
use crate::probe::{ProbePace, ProbeTarget, StuckProbe};
use crate::snapshot::NodeContext;
use crate::stale::Attachment;
use crate::volume::VolumeFacts;
use diskvitals_finding::Subject;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::ids::{DriveId, VolumeId};
use diskvitals_finding::kubelet::KubeletRecords;
use diskvitals_finding::mount::MountTable;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::provision::ProvisionState;
use diskvitals_finding::source::Source;
use diskvitals_finding::timing::Timings;
use diskvitals_text::duration::elapsed;

/// Unused drives that are remembered as missing: loop devices and USB sticks come and go.
const MAX_UNUSED_MISSING: usize = 64;

/// All state of the owner. Each report replaces a part; `drives` and `volumes` are derived from the
/// parts and updated with them.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Shared with the snapshots. The allocation stays the same while scans return the same result:
    /// it is the largest part.
    pub inventory: Latest<Arc<Inventory>>,
    /// States of md and dm devices by kernel name.
    pub layers: BTreeMap<String, LayerFacts>,
    /// The filesystems on devices of which udev's database has no record, and what ext2 to ext4
    /// record about themselves.
    pub superblocks: Superblocks,
    pub mounts: Latest<MountTable>,
    pub kubelet: Latest<KubeletRecords>,
    /// The volumes that this node provisions.
    pub provision: Latest<ProvisionState>,
    /// Results of probes of volumes, by mount.
    pub probes: Probes,
    /// Free space over time. Kept in the store.
    pub space: SpaceHistories,
    pub disk_io: DiskIo,
    pub latencies: latency::LatencyWindow,
    /// How long probes and SMART queries took.
    pub timings: Timings,
    /// The kernel log, by the drive, volume or device of each record.
    pub kernel: KernelFacts,
    /// The kernel's error counters. Kept in the store.
    pub counters: Counters,
    pub links: LinkWatch,
    pub sources: SourceStates,
    /// What ZFS and btrfs-progs keep of the last scrub, by what it is of.
    pub pass_records: BTreeMap<Subject, PassRecord>,
    /// SMART readings and their history. Kept in the store.
    pub smart: SmartReadings,
    pub raid_controllers: RaidControllers,
    /// Filesystem checks, including those that have ended. Kept in the store.
    pub checks: CheckRecords,
    /// What people have put under maintenance. Kept in the store.
    pub maintenance: Arc<MaintenanceOrders>,
    /// The locate lamps that people have lit. Kept in the store.
    pub lamps: Arc<LampOrders>,
    /// Drives that are present, and drives that were removed.
    pub drives: BTreeMap<DriveId, KnownDrive>,
    /// The drives that the store knows, until they are compared with those that were found before.
    pub restored_drives: BTreeSet<DriveId>,
    /// The SMART readings of drives that have just moved, from before.
    pub before_moves: BTreeMap<DriveId, Option<Arc<SmartFacts>>>,
    /// Volumes that are present, and those whose drives are missing.
    pub volumes: BTreeMap<VolumeId, KnownVolume>,
    /// Incremented whenever `volumes` may have changed: only then the store compares them.
    pub volumes_revision: u64,
    /// A scan is to be requested.
    pub is_scan_due: bool,
    /// The error counters are to be read: the kernel's log waits for their confirmation.
    pub are_counters_due: bool,
    /// The drives are to be asked for their own error logs.
    pub is_smart_due: bool,
    /// Drives whose own log may refute what the kernel's says of them.
    pub smart_due: BTreeSet<DriveId>,
    /// The paths at which CSI volumes are staged and published.
    pub attachments: BTreeMap<HostPath, Arc<Attachment>>,
    /// The node's settings against which the paths of callers are compared, and the pool's storage.
    pub node_context: Arc<NodeContext>,
    pub bypassed_drivers: BypassedDrivers,
    pub models: ModelStatistics,
    /// The wall clock minus the timeline of all times here; only texts and calendars need it.
    pub wall_offset: SignedDuration,
    /// When this boot began, on the timeline of all times here; None until the owner says it.
    pub booted: Option<Timestamp>,
    /// Recently removed volumes and drives: both are reported missing in either order.
    pub recent_removals: RecentRemovals,
}

#[derive(Clone, Debug, Default)]
pub struct RecentRemovals {
    pub volumes: BTreeMap<VolumeId, (KnownVolume, Timestamp)>,
    /// Recent users of drives: the volumes of each drive, and when they were removed.
    pub drive_volumes: BTreeMap<DriveId, (Vec<VolumeId>, Timestamp)>,
}

/// How soon a change must be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Only times have changed.
    Nothing,
    /// Usage and progress numbers: judged and published, without urgency.
    UsageOnly,
    /// More events of a published kind, and a drive that answers as before: published soon, so
    /// that a flood, or a round of many drives, is rolled up.
    Coalesce,
    /// A change that a watcher waits for.
    Immediate,
}

#[derive(Clone, Debug, Default)]
pub struct LayerFacts {
    pub state: Latest<LayerState>,
    pub stuck: Option<StuckProbe>,
    /// What was in each slot of an md array when it was last in sync.
    pub slots: BTreeMap<u32, SlotHistory>,
    /// The array that has these slots: its kernel name may be another one's by now.
    pub slots_of: Option<Subject>,
    /// When an array of dm-raid was last seen in a check or a repair.
    pub last_check: Option<Timestamp>,
    /// Of an array that nothing identifies; for others there is a note (`last_pass`).
    pub last_pass: Option<WholePass>,
}

/// The last member in sync of one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotHistory {
    /// Kernel name.
    pub device: String,
    /// The drive that it was on, if it was on one.
    pub drive: Option<DriveId>,
    pub last_in_sync: Timestamp,
}

/// Kept in the store across restarts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownDrive {
    pub facts: DriveFacts,
    pub first_seen: Timestamp,
    pub last_seen: Timestamp,
    pub missing_since: Option<Timestamp>,
    /// Since when the kernel's state of the device is neither running nor live.
    #[serde(rename = "state_since")]
    pub abnormal_state_since: Option<Timestamp>,
    /// Volumes on this drive; unchanged after the drive is removed.
    pub volumes: Vec<VolumeId>,
    /// The drive was in use when it was removed: a mount, an array, a volume group, swap, or a user
    /// that only its writes show. The removal of an unused drive is no loss.
    pub in_use: bool,
    /// Signatures of pools, arrays and swap on it, when it was last present.
    #[serde(default)]
    pub signatures: Vec<MemberSignature>,
    /// What it belongs to, for people, when it was last present (`membership`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub member_of: Vec<String>,
    /// The UUIDs of what is on it: partitions and filesystems.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub content: BTreeSet<String>,
    /// The size of the last medium, in bytes. A reader without a card has none.
    #[serde(default)]
    pub medium_size: u64,
    /// When its last volume, array or mapping was removed from it.
    #[serde(default)]
    pub released: Option<Timestamp>,
    /// The use that was found when it was removed, other than volumes, arrays and mappings.
    #[serde(default)]
    pub last_use: Option<LastUse>,
    /// When its failure was counted (`model_statistics`): each drive fails once.
    #[serde(default)]
    pub failed: Option<Timestamp>,
    /// When it was found in another place than before.
    #[serde(default)]
    pub moved: Option<Move>,
}

impl KnownDrive {
    /// No scan lists it, or the kernel does not use it.
    pub(crate) fn is_unusable(&self) -> bool {
        self.missing_since.is_some() || self.abnormal_state_since.is_some()
    }

    pub(crate) fn was_detached(&self) -> bool {
        self.missing_since.is_some() && self.facts.transport == Transport::Loop
    }
}

/// Kept in the store until the next boot: after a restart of the daemon, a volume whose device was
/// removed in between keeps its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredVolume {
    pub known: KnownVolume,
    /// Its mounts that can be probed, with the filesystem's device number.
    pub mounts: Vec<(HostPath, DevNo)>,
    /// Which of them had been probed with an answer.
    #[serde(default)]
    pub answered: Vec<HostPath>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownVolume {
    pub facts: Arc<VolumeFacts>,
    pub first_seen: Timestamp,
    /// Whether its filesystem was read-only when first found (or by fstab). If not, the kernel set
    /// a later `ro`, unless the mount's own option changed with it.
    pub first_super_read_only: bool,
    pub first_mount_read_only: bool,
    /// No longer in the mount table; kept because one of its drives is missing.
    pub retained: bool,
    /// Mounts that were `ro` while the filesystem was writable: an administrator's choice.
    pub read_only_by_choice: BTreeSet<HostPath>,
    /// Mounts that have been observed writable.
    pub seen_writable: BTreeSet<HostPath>,
    /// Expected mounts that are missing: since when, and whether they were mounted before.
    #[serde(rename = "absent")]
    pub absences: BTreeMap<HostPath, MountAbsence>,
    /// Since when each of its mounts has been observed.
    #[serde(rename = "mounted", default)]
    pub mounted_since: BTreeMap<HostPath, Timestamp>,
    /// It was mounted anew at this time or later, although no reading of the mount table shows it.
    #[serde(default)]
    pub remounted_at: Option<Timestamp>,
    /// No lookup ends in it: the mount of a user that hides it.
    #[serde(skip)]
    pub hidden_by: Option<HidingMount>,
}

/// A FUSE filesystem that a user has mounted over a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HidingMount {
    /// The mount of the volume that it hides.
    pub hidden: HostPath,
    pub mount_point: HostPath,
    pub uid: u32,
}

impl KnownVolume {
    /// Nobody has looked between two runs of the daemon: the mount may have been there meanwhile.
    fn with_absences_since(mut self, now: Timestamp) -> KnownVolume {
        self.absences.values_mut().for_each(|absence| absence.since = now);
        self
    }

    /// The earliest known time of use: its device may not have been scanned before.
    pub(crate) fn in_use_since(&self) -> Timestamp {
        let provided = self.facts.provided.as_ref();
        let attached = provided
            .into_iter()
            .flat_map(|volume| volume.staged.iter().chain(&volume.published))
            .map(|at| at.since);
        self.mounted_since.values().copied().chain(attached).min().unwrap_or(self.first_seen)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountAbsence {
    pub since: Timestamp,
    pub was_mounted: bool,
}

impl Facts {
    /// A time as the wall clock has it, for people and for calendars.
    pub fn wall_time(&self, time: Timestamp) -> Timestamp {
        time.checked_add(self.wall_offset).unwrap_or(time)
    }

    /// The time here that the wall clock has as `time`.
    pub(crate) fn steady_time(&self, time: Timestamp) -> Timestamp {
        time.checked_sub(self.wall_offset).unwrap_or(time)
    }

    /// For messages: to the second.
    pub(crate) fn wall_text(&self, time: Timestamp) -> String {
        format!("{:.0}", self.wall_time(time))
    }

    /// The last good scan.
    pub fn inventory(&self) -> Option<&Inventory> {
        self.shared_inventory().map(AsRef::as_ref)
    }

    pub(crate) fn shared_inventory(&self) -> Option<&Arc<Inventory>> {
        self.inventory.last_known()
    }

    /// A block device of the last good scan, by kernel name.
    pub fn device(&self, name: &str) -> Option<&BlockDevice> {
        self.inventory()?.devices.get(name)
    }

    /// The last good state of an md or dm device, however old.
    pub fn layer_state(&self, name: &str) -> Option<&LayerState> {
        self.layers.get(name)?.state.last_known()
    }

    pub(crate) fn is_drive_missing(&self, id: &DriveId) -> bool {
        self.drives.get(id).is_some_and(|known| known.missing_since.is_some())
    }

    /// The kernel removes a loop device only when nothing uses it (`lo_release`): its
    /// absence alone is no loss.
    pub(crate) fn was_detached(&self, id: &DriveId) -> bool {
        self.drives.get(id).is_some_and(KnownDrive::was_detached)
    }

    /// The last mount table that could be read.
    pub fn mount_table(&self) -> Option<&MountTable> {
        self.mounts.last_known()
    }

    /// The last kubelet records that could be read.
    pub fn kubelet_records(&self) -> Option<&KubeletRecords> {
        self.kubelet.last_known()
    }

    pub fn provision(&self) -> Option<&ProvisionState> {
        self.provision.last_known()
    }

    /// The records of the volumes that this node provides have not been read in this run: why, if the
    /// volume is one of them.
    pub(crate) fn unread_record(&self, volume: &VolumeFacts) -> Option<&str> {
        let own = self.node_context.configured_driver.as_ref();
        let is_own = volume.driver.is_some() && volume.driver.as_ref() == own;
        (is_own && self.provision().is_none())
            .then(|| self.provision.error().unwrap_or("its record has not been read yet"))
    }

    /// Drives, mounts and the kubelet's records have each been reported, if only as an error.
    /// Probes are not required: with one dead mount the node would never be settled.
    pub fn settled(&self) -> bool {
        self.inventory.is_answered() && self.mounts.is_answered() && self.kubelet.is_answered()
    }

    /// Whether every drive below the volume is runtime-suspended: a probe would wake it.
    pub fn is_asleep(&self, volume: &VolumeFacts) -> bool {
        let is_asleep = |id: &DriveId| self.drives.get(id).is_some_and(|drive| drive.facts.asleep);
        !volume.drive_ids.is_empty() && volume.drive_ids.iter().all(is_asleep)
    }

    /// Whether a rotating drive below the volume has completed no I/O of late. A device whose I/O is
    /// not counted shows none.
    fn has_idle_rotating_drive(&self, volume: &VolumeFacts) -> bool {
        let is_idle = |id: &DriveId| {
            let Some(known) = self.drives.get(id) else {
                return false;
            };
            let mut devices = known.facts.devices.iter();
            rest::can_stop_turning(&known.facts)
                && !devices.any(|device| self.disk_io.has_recent_io(device.dev))
        };
        volume.drive_ids.iter().any(is_idle)
    }

    /// One target for each distinct mount of each mounted volume, sorted by path.
    pub fn probe_targets(&self) -> Vec<ProbeTarget> {
        let asleep = |volume: &VolumeId| {
            let known = self.volumes.get(volume);
            known.is_some_and(|known| self.is_asleep(&known.facts))
        };
        let target = |(path, target): (&HostPath, &ProbedMount)| ProbeTarget {
            path: path.clone(),
            id: target.id,
            dev: target.dev,
            asleep: asleep(&target.volume),
            at_rest: self.is_at_rest(path, target),
            filesystem: target.filesystem.clone(),
            pace: match self.volumes.get(&target.volume) {
                _ if target.is_network => ProbePace::Network,
                Some(known) if self.has_idle_rotating_drive(&known.facts) => ProbePace::Idle,
                _ => ProbePace::Local,
            },
            awaited_scrub: match self.volumes.get(&target.volume) {
                Some(known) if target.filesystem == "btrfs" => self.awaited_scrub(known),
                _ => None,
            },
            domains: target.domains.clone(),
        };
        self.probes.mounts().iter().map(target).collect()
    }

    /// The mounts of filesystems that have just failed.
    pub fn take_probe_requests(&mut self) -> Vec<HostPath> {
        self.probes.take_requests()
    }

    /// The mounts of volumes on a device that has completed no I/O for some seconds since the last
    /// reading of the I/O counters.
    pub fn newly_waiting_mounts(&self) -> Vec<HostPath> {
        let waiting = self.disk_io.newly_waiting();
        if waiting.is_empty() {
            return Vec::new();
        }
        let is_waiting = |name: &String| {
            let device = self.device(name);
            device.is_some_and(|device| device.iostats && waiting.contains(&device.dev))
        };
        let volumes: BTreeSet<&VolumeId> = self
            .volumes
            .iter()
            .filter(|(_, known)| known.facts.devices.iter().any(is_waiting))
            .map(|(id, _)| id)
            .collect();
        let mounts = self.probes.mounts().iter();
        mounts
            .filter(|(_, target)| volumes.contains(&target.volume))
            .map(|(path, _)| path.clone())
            .collect()
    }

    /// The volumes in the form that the store keeps.
    pub fn stored_volumes(&self) -> BTreeMap<VolumeId, StoredVolume> {
        let stored = |known: &KnownVolume| StoredVolume {
            known: known.clone(),
            mounts: Vec::new(),
            answered: Vec::new(),
        };
        let volumes = self.volumes.iter();
        let mut stored: BTreeMap<VolumeId, StoredVolume> =
            volumes.map(|(id, known)| (id.clone(), stored(known))).collect();
        for (path, target) in self.probes.mounts() {
            if let Some(volume) = stored.get_mut(&target.volume) {
                volume.mounts.push((path.clone(), target.dev));
                let known = self.probes.get(path);
                if known.is_some_and(|probe| probe.answered) {
                    volume.answered.push(path.clone());
                }
            }
        }
        stored
    }

    /// The subject is certainly absent: its findings no longer apply. A reading that is still
    /// awaited, or that failed, removes nothing. A layer's state is read after the scan that lists
    /// it: until then, the listed device is enough.
    pub fn is_removed(&self, subject: &Subject) -> bool {
        let Some(inventory) = self.inventory.value().filter(|_| self.settled()) else {
            return false;
        };
        match subject {
            Subject::Drive(id) => !self.drives.contains_key(id),
            Subject::Device(name) => !inventory.devices.contains_key(name),
            Subject::Source(_) => false,
            Subject::Volume(id) => {
                self.mounts.value().is_some()
                    && self.kubelet.error().is_none()
                    && !self.volumes.contains_key(id)
            }
        }
    }

    /// Restores volumes from before a restart, in the same boot, and observes them again if devices
    /// and mounts were read first: the state's disk may be slow.
    pub fn restore_volumes(
        &mut self,
        stored: Vec<StoredVolume>,
        settings: &VolumeSettings,
        now: Timestamp,
    ) {
        self.volumes_revision += 1;
        let mut restored_mounts = BTreeMap::new();
        for StoredVolume { known, mounts, answered } in stored {
            let filesystem = known.facts.fs_type.clone().unwrap_or_default();
            let domains = known.facts.failure_domains();
            for (path, dev) in mounts {
                let target = ProbedMount {
                    // The mount table has it; until then, nothing is probed.
                    id: 0,
                    dev,
                    volume: known.facts.id.clone(),
                    filesystem: filesystem.clone(),
                    is_network: volumes::is_network(&known.facts),
                    domains: domains.clone(),
                };
                let has_answered = answered.contains(&path);
                restored_mounts.insert(path, (target, has_answered));
            }
            let id = known.facts.id.clone();
            let restored = match self.volumes.remove(&id) {
                Some(KnownVolume { absences, .. }) => KnownVolume { absences, ..known },
                None => known.with_absences_since(now),
            };
            self.volumes.insert(id, restored);
        }
        self.probes.restore_mounts(restored_mounts);
        self.note_homes();
        self.update_volumes(settings, now);
    }

    /// How many probes are stuck, by source.
    pub fn stuck(&self) -> BTreeMap<Source, u32> {
        let layers = self.layers.values().filter(|layer| layer.stuck.is_some());
        [
            (Source::Probe, self.probes.stuck_count()),
            (Source::Layers, layers.count()),
            (Source::Smart, self.smart.stuck_count()),
        ]
        .map(|(source, count)| (source, u32::try_from(count).unwrap_or(u32::MAX)))
        .into()
    }

    /// Drops unused drives that have been missing for `after`, and the oldest ones of too many;
    /// returns them.
    pub fn forget_missing_drives(
        &mut self,
        after: std::time::Duration,
        now: Timestamp,
    ) -> Vec<DriveId> {
        let mut unused: Vec<Timestamp> = self
            .drives
            .values()
            .filter(|known| !known.in_use)
            .filter_map(|known| known.missing_since)
            .collect();
        unused.sort_unstable();
        let surplus = unused.len().saturating_sub(MAX_UNUSED_MISSING);
        let newest_surplus = surplus.checked_sub(1).map(|at| unused[at]);
        let old = |known: &KnownDrive| {
            let is_old = |since| {
                elapsed(since, now) >= after || newest_surplus.is_some_and(|newest| since <= newest)
            };
            !known.in_use && known.missing_since.is_some_and(is_old)
        };
        let gone: Vec<DriveId> =
            self.drives.extract_if(.., |_, known| old(known)).map(|(id, _)| id).collect();
        if !gone.is_empty() {
            self.smart.retain(&self.drives);
        }
        gone
    }
}

#[cfg(test)]
mod tests;
