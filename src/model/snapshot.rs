//! The immutable state that the owner publishes and all other tasks read. Unchanged parts are
//! shared with the previous snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::assess::scrub::LastScrub;
use crate::block::Inventory;
use crate::care::CareTask;
use crate::cause::Cause;
use crate::drive::{DriveFacts, DriveKind, FlashHealth};
use crate::facts::kernel_log::lost_records::LostRecords;
use crate::facts::smart::SmartFacts;
use crate::lamp::{LampOrder, LampOrders};
use crate::link::DriveLink;
use crate::maintenance::{MaintenanceOrder, MaintenanceOrders};
use crate::model_statistics::ModelStatistics;
use crate::policy::{Exclusion, NodeFailurePolicy};
use crate::probe::Usage;
use crate::source_update::SourceStatus;
use crate::stack::ZfsPool;
use crate::stale::Attachment;
use crate::volume::{Condition, CsiStatus, OperationalStatus, Stack, UsageStatus, VolumeFacts};
use diskvitals_finding::ids::{CauseId, CheckId, DriveId, FindingId, VolumeId};
use diskvitals_finding::origin::{self, Origins};
use diskvitals_finding::path::HostPath;
use diskvitals_finding::provision::BackingKind;
use diskvitals_finding::source::Source;
use diskvitals_finding::timing::Timings;
use diskvitals_finding::{Finding, Health, UnknownCause};
use diskvitals_fscheck::Check;
use diskvitals_kernel_log::error_history::ErrorHistory;

#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Grows by one with each change that a watcher would receive. Starts at the daemon's start
    /// time in microseconds, so a revision from before a restart is always older than any revision
    /// of this daemon.
    pub revision: u64,
    /// True from the first complete snapshot on.
    pub settled: bool,
    pub node: Arc<NodeState>,
    pub drives: BTreeMap<DriveId, Arc<Drive>>,
    pub volumes: BTreeMap<VolumeId, Arc<Volume>>,
    /// Active findings.
    pub findings: BTreeMap<FindingId, Arc<Finding>>,
    /// The active findings by what they come from.
    pub causes: BTreeMap<CauseId, Arc<Cause>>,
    /// What people have put under maintenance.
    pub maintenance: Arc<MaintenanceOrders>,
    /// The locate lamps that people have lit.
    pub lamps: Arc<LampOrders>,
    /// Filesystem checks, running and stored.
    pub checks: BTreeMap<CheckId, Arc<Check>>,
    /// Where CSI volumes are staged and published, by path.
    pub attachments: BTreeMap<HostPath, Arc<Attachment>>,
    pub node_context: Arc<NodeContext>,
    /// The last good scan of the block graph.
    pub inventory: Arc<Inventory>,
    /// Cleared findings, newest first, bounded by the configuration.
    pub history: Arc<Vec<Arc<Finding>>>,
    /// A newer time alone makes no new snapshot for some minutes.
    pub models: Arc<ModelStatistics>,
    /// The imported ZFS pools whose state is known now, by name.
    pub zfs_pools: BTreeMap<String, Arc<KnownPool>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownPool {
    pub pool: ZfsPool,
    /// When its last scrub ended, by the wall clock.
    pub last_scrub: Option<Timestamp>,
}

/// The kubelet's folder and this node's own CSI driver and pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeContext {
    /// The kubelet's folder as the configuration has it, and as the mount table names it (its links
    /// resolved).
    pub configured_kubelet_root: HostPath,
    pub kubelet_root: HostPath,
    /// The CSI driver of the volumes that this node provides; None until it is reported.
    pub driver: Option<String>,
    /// The same by configuration.
    pub configured_driver: Option<String>,
    /// Static volumes that are no volumes of this node: their paths, by their handles.
    pub absent_volumes: BTreeMap<String, HostPath>,
    /// What new volumes of each kind of the pool will be on. A kind is absent while that is not known.
    pub pool: BTreeMap<BackingKind, Stack>,
    /// What the node cannot work without.
    pub system_directories: Vec<SystemDirectory>,
    /// Mounts that are no volumes, and could be by configuration: type and reason.
    pub excluded_mounts: BTreeMap<HostPath, (String, Exclusion)>,
    /// How many of them each user has mounted, by uid.
    pub user_mounts: BTreeMap<u32, UserMounts>,
    /// Every mount that a path lookup reaches, by its mount point.
    pub mount_points: BTreeMap<HostPath, MountPoint>,
}

/// FUSE filesystems that one user has mounted and that are no volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserMounts {
    pub listed: usize,
    /// Over the limit of one user.
    pub not_listed: usize,
}

/// What is mounted at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPoint {
    pub fs_type: String,
    /// mountinfo's source.
    pub source: HostPath,
}

impl NodeContext {
    /// The mount point that holds a path, and what is mounted there.
    pub fn mount_of(&self, path: &HostPath) -> Option<(&HostPath, &MountPoint)> {
        path.prefixes().find_map(|prefix| self.mount_points.get_key_value(&HostPath::new(prefix)))
    }
}

/// The root directory, the kubelet's or the container runtime's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemDirectory {
    pub path: HostPath,
    /// The volume that holds it; None if its filesystem is none (an overlay, a read-only image).
    pub volume: Option<VolumeId>,
}

impl NodeContext {
    /// The drives below the pool, each once.
    pub(crate) fn pool_drives(&self) -> Vec<&DriveId> {
        let mut drives: Vec<&DriveId> = self.pool.values().flat_map(Stack::drives).collect();
        drives.sort();
        drives.dedup();
        drives
    }

    /// A caller's path as the mount table would name it.
    pub fn resolve_kubelet_path(&self, path: &HostPath) -> HostPath {
        let bytes = path.as_bytes();
        let trimmed = bytes.len() - bytes.iter().rev().take_while(|byte| **byte == b'/').count();
        let path = HostPath::new(&bytes[..trimmed.max(1).min(bytes.len())]);
        match path.strip_prefix(&self.configured_kubelet_root) {
            Some([]) => self.kubelet_root.clone(),
            Some(below) if !self.configured_kubelet_root.as_bytes().is_empty() => {
                self.kubelet_root.join(below)
            }
            _ => path,
        }
    }
}

impl Snapshot {
    /// Which problems an unprivileged user can make.
    pub fn origins(&self) -> Origins<'_> {
        let drives = self.drives.values().map(|drive| &drive.facts);
        let remote = drives.filter(|facts| facts.kind == DriveKind::Remote);
        let volumes = self.volumes.values();
        Origins::new(
            remote.map(|facts| facts.id.as_str()),
            volumes.map(|volume| origin::Volume::from(&*volume.facts)),
        )
    }

    /// The volume of a CSI driver. An id has a limited length and ends with a hash if the handle is
    /// long, so the handle itself is compared.
    pub fn csi_volume(&self, driver: &str, handle: &str) -> Option<&Arc<Volume>> {
        let volume = self.volumes.get(&VolumeId::csi(driver, handle))?;
        let facts = &volume.facts;
        (facts.driver.as_deref() == Some(driver) && facts.handle.as_deref() == Some(handle))
            .then_some(volume)
    }

    /// Whether the check was of the volume's current filesystem, under any requested name.
    pub fn is_check_of(&self, check: &Check, volume: &VolumeId) -> bool {
        let facts = self.volumes.get(volume).map(|volume| &volume.facts);
        let named = check.target.volume.as_ref() == Some(volume);
        match (&check.target.uuid, facts.and_then(|facts| facts.fs_uuid.as_ref())) {
            (Some(checked), Some(now)) => {
                checked == now
                    && (named
                        || facts.is_some_and(|facts| {
                            facts.device.as_ref() == Some(&check.target.device)
                        }))
            }
            _ => named,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    pub sources: BTreeMap<Source, (SourceStatus, Timestamp)>,
    pub store: StoreStatus,
    /// Probes that have not returned.
    pub stuck_probes: u32,
    /// The number of stuck probes of each source; sources without any are included.
    pub stuck: BTreeMap<Source, u32>,
    pub timings: Timings,
    /// Records of the kernel log that were overwritten before they were read, since the boot; None
    /// while no record has been read.
    pub kernel_log_lost: Option<u64>,
    /// When the node as a whole is unfit.
    pub failure_policy: NodeFailurePolicy,
    /// When that was.
    pub kernel_log_losses: Vec<LostRecords>,
    /// Worst health over drives and volumes, acknowledged findings not counted.
    pub health: Option<Health>,
    /// Data that could not be read or parsed; newest scan of each source.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoreStatus {
    /// History is written to disk.
    Ok,
    /// History is in memory only; contains the reason.
    MemoryOnly(String),
    /// Not opened yet.
    #[default]
    Opening,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Drive {
    pub facts: DriveFacts,
    pub presence: Presence,
    pub first_seen: Timestamp,
    /// When a scan last listed it. For a present drive, it is updated only with another change.
    pub last_seen: Timestamp,
    pub health: Health,
    /// Why the health is unknown; empty otherwise.
    pub health_unknown_why: String,
    pub health_unknown_cause: Option<UnknownCause>,
    /// Active findings about this drive, worst first.
    pub findings: Vec<FindingId>,
    pub maintenance: bool,
    /// None: it is not under maintenance, or by the configuration, without an end.
    pub maintenance_order: Option<Arc<MaintenanceOrder>>,
    /// Its locate lamp, if a person has lit it.
    pub lamp: Option<Arc<LampOrder>>,
    /// What it belongs to besides volumes, or belonged to, when missing; for people.
    pub member_of: Vec<String>,
    /// The volumes that it carries (or carried, when missing).
    pub volumes: Vec<VolumeId>,
    /// Its errors in the kernel log.
    pub errors: Option<Arc<ErrorHistory>>,
    /// Its SMART readings; None where it is never queried.
    pub smart: Option<Arc<SmartFacts>>,
    /// What a schedule does to it.
    pub care: Vec<CareTask>,
    /// What its flash reports of its wear (eMMC, UFS).
    pub flash: Option<FlashHealth>,
    /// Its links and paths that the kernel describes.
    pub links: Vec<DriveLink>,
}

impl Drive {
    /// A drive that sleeps and has never answered does not count: nothing has failed.
    pub(crate) fn is_adversely_unknown(&self) -> bool {
        self.health == Health::Unknown && self.health_unknown_cause != Some(UnknownCause::Asleep)
    }

    /// Whether it is unknown that the drive serves its volumes. A drive without SMART data serves
    /// them: without smartctl, no call about volumes may fail.
    pub(crate) fn may_hold_back(&self) -> bool {
        self.is_adversely_unknown() && self.health_unknown_cause != Some(UnknownCause::NoSmart)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    Present,
    Missing { since: Timestamp },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    pub facts: Arc<VolumeFacts>,
    pub usage: VolumeUsage,
    pub csi_status: CsiStatus,
    pub operational_status: OperationalStatus,
    pub usage_status: UsageStatus,
    pub health: Health,
    pub health_unknown_why: String,
    pub health_unknown_cause: Option<UnknownCause>,
    /// What may still fail, in one sentence; empty without redundancy, and while it is lost.
    pub redundancy: String,
    /// Of the arrays with redundancy and pools below it, and of its btrfs.
    pub scrubs: Vec<LastScrub>,
    /// None while it has never been known.
    pub condition: Option<Condition>,
    /// Active findings about this volume, worst first.
    pub findings: Vec<FindingId>,
    pub first_seen: Timestamp,
    pub last_probe: Option<Timestamp>,
    /// Errors of its filesystem and its own device in the kernel log.
    pub errors: Option<Arc<ErrorHistory>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeUsage {
    /// Not measured yet.
    NotMeasured,
    /// The last figures, with their time. `stale`: since when probes have failed.
    Mounted {
        usage: Usage,
        at: Timestamp,
        stale: Option<Timestamp>,
        /// When it is full at the rate of the last days; None if it is not filling, or unknown.
        full_at: Option<Timestamp>,
    },
    /// Raw block, or provided by this node and not mounted: size only.
    Block { size_bytes: u64 },
    /// Not mounted, or the last probe failed and there was never a result.
    Unknown,
}
