//! The immutable picture that the owner publishes and everyone else reads. Unchanged parts are shared with the picture before.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::block::Inventory;
use crate::model::drive::DriveFacts;
use crate::model::finding::{Finding, Health};
use crate::model::ids::{DriveId, FindingId, VolumeId};
use crate::model::kernel::memory::Memory;
use crate::model::probe::Usage;
use crate::model::report::{Source, SourceStatus};
use crate::model::volume::{Condition, CsiStatus, OperationalStatus, UsageStatus, VolumeFacts};

#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Grows by one with each change that a watcher would see. Starts at the daemon's start time in microseconds, so that a revision from
    /// before a restart is always older than anything this daemon remembers.
    pub revision: u64,
    /// True from the first full picture on.
    pub settled: bool,
    pub node: Arc<NodeState>,
    pub drives: BTreeMap<DriveId, Arc<Drive>>,
    pub volumes: BTreeMap<VolumeId, Arc<Volume>>,
    /// Active ones.
    pub findings: BTreeMap<FindingId, Arc<Finding>>,
    /// The last good scan of the block graph.
    pub inventory: Arc<Inventory>,
    /// Cleared ones, newest first, bounded by the configuration.
    pub history: Arc<Vec<Arc<Finding>>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    pub sources: BTreeMap<Source, (SourceStatus, Timestamp)>,
    pub store: StoreStatus,
    /// Probes that have not come back.
    pub stuck_probes: u32,
    /// Worst health over drives and volumes, acknowledged findings not counted.
    pub health: Option<Health>,
    /// Things that could not be read or made no sense; newest scan of each source.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoreStatus {
    /// History is written to disk.
    Ok,
    /// History is in memory only; says why.
    Memory(String),
    /// Not opened yet.
    #[default]
    Opening,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drive {
    pub facts: DriveFacts,
    pub presence: Presence,
    pub first_seen: Timestamp,
    /// While it is present: when the daemon first saw this; only moves when the drive goes.
    pub last_seen: Timestamp,
    pub health: Health,
    /// Why the health is unknown; empty otherwise.
    pub health_unknown_why: String,
    /// Active findings about this drive, worst first.
    pub findings: Vec<FindingId>,
    pub maintenance: bool,
    /// What stands on it (or stood, when missing): volume ids.
    pub volumes: Vec<VolumeId>,
    /// What the kernel's log has told of it.
    pub errors: Option<Arc<Memory>>,
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
    pub condition: Condition,
    /// Active findings about this volume, worst first.
    pub findings: Vec<FindingId>,
    pub first_seen: Timestamp,
    pub last_probe: Option<Timestamp>,
    /// What the kernel's log has told of its filesystem and its own device.
    pub errors: Option<Arc<Memory>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeUsage {
    /// Not measured yet.
    NotYet,
    /// The last answer stands, with its time; `stale` says since when asking has failed.
    Mounted { usage: Usage, at: Timestamp, stale: Option<Timestamp> },
    /// Raw block: size only.
    Block { size_bytes: u64 },
    /// Not mounted, or the last probe failed and there never was an answer.
    Unknown,
}
