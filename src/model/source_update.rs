//! What a source tells the owner of the state. Each report is whole: it replaces what the same
//! source said before of the same thing.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::block::{DiskStat, Inventory, LayerState};
use crate::model::check::CheckProgress;
use crate::model::counters::CounterReading;
use crate::model::dev::DevNo;
use crate::model::drive::{DriveFacts, Transport};
use crate::model::ids::DriveId;
use crate::model::kernel_log::event::Batch;
use crate::model::kubelet::KubeletRecords;
use crate::model::mount::MountTable;
use crate::model::observation::Observation;
use crate::model::path::HostPath;
use crate::model::probe::{MountProbe, StuckProbe};
use crate::model::provision::ProvisionState;
use crate::model::smart::{SelfTestKind, SmartResponse};

#[derive(Clone, Debug)]
pub enum SourceUpdate {
    Inventory(Observation<Inventory>),
    /// State of one md or dm device, by kernel name.
    Layer {
        device: String,
        state: Observation<LayerState>,
    },
    /// A worker that reads `device`'s state has not come back in its time.
    LayerStuck {
        device: String,
        stuck: StuckProbe,
    },
    Mounts(Observation<MountTable>),
    Kubelet(Observation<KubeletRecords>),
    /// The answer for one path. `Failed` means that the probe could not be made, not that the
    /// volume said no.
    Probe {
        path: HostPath,
        result: Observation<MountProbe>,
        duration: Duration,
    },
    ProbeStuck {
        path: HostPath,
        stuck: StuckProbe,
    },
    DiskStats(Observation<Vec<DiskStat>>),
    /// Error counters; whole each time.
    Counters(Observation<Vec<CounterReading>>),
    KernelLog(Batch),
    /// The kernel's own notice of a filesystem's error (fanotify's FAN_FS_ERROR).
    FsError(FsErrorNotice),
    /// What one drive said of itself when it was asked, or why it did not.
    Smart {
        drive: DriveId,
        at: Timestamp,
        response: Box<SmartResponse>,
        duration: Duration,
    },
    /// smartctl has not come back for this drive in its time, and could not be killed: nobody asks
    /// it until it has gone (`None`).
    SmartStuck {
        drive: DriveId,
        stuck: Option<StuckSmartctl>,
    },
    /// How an admin's request for a self-test went.
    SelfTest {
        drive: DriveId,
        kind: SelfTestKind,
        at: Timestamp,
        /// smartctl's words, when the drive took it; else why not.
        result: Result<String, String>,
    },
    /// The drives behind one RAID controller that the kernel does not show, whole each time.
    RaidMembers {
        /// `megaraid host0`.
        controller: String,
        drives: Observation<Vec<RaidMemberDrive>>,
    },
    /// The RAID controllers that there are, by the names in `Hidden`, whole each time: the drives
    /// of one that is not among them are gone with it.
    RaidControllers(Vec<String>),
    /// Drives that the configuration has not asked (`smart.enabled`, `device_type = "ignore"`),
    /// whole each time: what they said before is over.
    SmartIgnored(Vec<DriveId>),
    /// How a filesystem check is now, whole each time.
    Check(Box<CheckProgress>),
    /// The volumes that this node provides itself, whole each time. `Failed`: they could not be
    /// read, what was known stands.
    Provision(Observation<ProvisionState>),
    /// How a source itself is.
    Source {
        source: Source,
        status: SourceStatus,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckSmartctl {
    pub since: Timestamp,
    /// What it is waiting in, where /proc tells.
    pub waiting_in: Option<String>,
}

/// A physical disk behind a RAID controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaidMemberDrive {
    /// Without devices; `location.slot` is the controller's number of it (`megaraid,3`).
    pub facts: DriveFacts,
    /// How smartctl reaches it: `/dev/bus/0` and `megaraid,3`.
    pub device: HostPath,
    pub device_type: String,
}

/// A drive that the owner wants asked for its SMART data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmartTarget {
    pub drive: DriveId,
    /// As the host names it: `/dev/sda`, `/dev/nvme0`, `/dev/bus/0`.
    pub device: HostPath,
    /// smartctl's `-d`; None: smartctl finds out.
    pub device_type: Option<String>,
    pub transport: Transport,
    /// NVMe controllers that lead to it (`nvme0`): several, where there are several paths.
    pub controllers: Vec<String>,
    /// For overrides, and to know another drive's answer.
    pub model: Option<String>,
    pub serial: Option<String>,
    /// Runtime-suspended: not even asked whether it sleeps.
    pub asleep: bool,
    /// It has adverse findings: asked more often.
    pub suspect: bool,
    /// Grows with each error that the kernel tells of it: then it is asked at once.
    pub kernel_error_count: u64,
    /// When it last answered, as the store remembers: after a restart the next question is due from
    /// then.
    pub last_response: Option<Timestamp>,
}

/// One notice of fanotify(7), FAN_FS_ERROR: the first error's number, and how many came since the
/// last notice was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsErrorNotice {
    pub at: Timestamp,
    /// Of the filesystem, as mountinfo has it.
    pub dev: DevNo,
    /// A mount of it, for evidence.
    pub path: HostPath,
    /// Positive errno of the first of them.
    pub errno: i32,
    /// Errors since the notice before.
    pub count: u32,
    /// Of the first of them, where the file handle told it.
    pub inode: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    Udev,
    Mounts,
    Kubelet,
    Probe,
    DiskStats,
    Layers,
    KernelLog,
    Counters,
    FsErrors,
    Smart,
    Checks,
}

impl Source {
    pub fn name(self) -> &'static str {
        match self {
            Source::Udev => "udev",
            Source::Mounts => "mounts",
            Source::Kubelet => "kubelet",
            Source::Probe => "probe",
            Source::DiskStats => "diskstats",
            Source::Layers => "layers",
            Source::KernelLog => "kernel-log",
            Source::Counters => "counters",
            Source::FsErrors => "fs-errors",
            Source::Smart => "smart",
            Source::Checks => "checks",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceStatus {
    /// Works as it should; the text says how (`udev events`).
    Active(String),
    /// Works with less than it should have; the text says what is missing and what is done instead.
    Limited(String),
    /// Gives nothing; the text says why and what to do.
    Down(String),
    /// Does not apply to this node (`no kubelet folder`).
    Absent(String),
}

/// Requests that may wait for a source that is busy. What is lost beyond is made good by asking
/// everything anew, which an admin's self-test is not: so there is room for far more than can come
/// while the owner takes a source's reports. Each is sent once per admin's command, event or scan,
/// and NVMe controllers tell no second event of a kind before their log is read (NVM Express Base
/// 2.0, 5.2).
pub const REQUEST_QUEUE_CAPACITY: usize = 1024;

/// What the owner asks of sources: look again, now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceRequest {
    /// Everything.
    All,
    Inventory,
    Kubelet,
    Mounts,
    /// Read the I/O counters now.
    DiskStats,
    /// Probe these paths now.
    Probe(Vec<HostPath>),
    /// Ask these drives for their SMART data now (every 30 s at most).
    Smart(Vec<DriveId>),
    /// The NVMe controller (`nvme0`) has announced an event (udev's NVME_AEN).
    NvmeEvent {
        controller: String,
    },
    /// Start a self-test: an admin's command.
    SelfTest {
        drive: DriveId,
        kind: SelfTestKind,
    },
}
