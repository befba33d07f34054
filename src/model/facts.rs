//! All that is known, as the reports said it, with the little memory that judgement needs (since when, what was seen before). Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::block::{DiskStat, Inventory, LayerState};
use crate::model::dev::DevNo;
use crate::model::drive::DriveFacts;
use crate::model::ids::{DriveId, VolumeId};
use crate::model::kubelet::KubeletRecords;
use crate::model::mount::MountTable;
use crate::model::observation::Observation;
use crate::model::path::HostPath;
use crate::model::probe::{MountProbe, Stuck, Usage};
use crate::model::volume::VolumeFacts;

/// Everything the owner knows. Reports replace parts of it; `drives`, `volumes` and the memories are kept up by `apply`.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub inventory: Observation<Inventory>,
    /// State of md and dm devices by kernel name.
    pub layers: BTreeMap<String, LayerFacts>,
    pub mounts: Observation<MountTable>,
    pub kubelet: Observation<KubeletRecords>,
    pub probes: BTreeMap<HostPath, ProbeFacts>,
    pub disk_stats: Observation<Vec<DiskStat>>,
    pub io: BTreeMap<DevNo, IoMemory>,
    /// Drives that are here and drives that were.
    pub drives: BTreeMap<DriveId, KnownDrive>,
    /// Volumes that are here, and those whose drives went with them.
    pub volumes: BTreeMap<VolumeId, KnownVolume>,
}

#[derive(Clone, Debug, Default)]
pub struct LayerFacts {
    pub state: Observation<LayerState>,
    pub stuck: Option<Stuck>,
}

#[derive(Clone, Debug, Default)]
pub struct ProbeFacts {
    pub result: Observation<MountProbe>,
    /// The last usage that was measured, with its time: it stands, marked stale, while probes fail.
    pub usage: Option<(Usage, Timestamp)>,
    pub stuck: Option<Stuck>,
}

/// When a device last completed something while it had I/O in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoMemory {
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
    pub state_since: Option<Timestamp>,
    /// Volumes that stand on it; frozen when it goes.
    pub volumes: Vec<VolumeId>,
    /// It carried something when it went: a mount, an array, a volume group. A drive that carried nothing is no loss.
    pub in_use: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownVolume {
    pub facts: VolumeFacts,
    pub first_seen: Timestamp,
    /// Whether its filesystem was writable when first seen (or by fstab): then `ro` later is the kernel's doing, unless the mount's own
    /// option changed with it.
    pub first_super_read_only: bool,
    pub first_mount_read_only: bool,
    /// Not in the mount table any more, kept because a drive of it is missing.
    pub retained: bool,
}
