//! The messages from sources to the owner of the state, and back. Each update is complete: it
//! replaces the previous one of the same source and subject.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::block::{DiskStat, Inventory, LayerState};
use crate::counters::CounterReading;
use crate::drive::{DriveFacts, Transport};
use crate::probe::{MountProbe, StuckProbe};
use crate::raid_report::{RaidFamily, RaidReport};
use crate::superblock::Superblock;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::kubelet::KubeletRecords;
use diskvitals_finding::mount::MountTable;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::provision::ProvisionState;
use diskvitals_finding::source::Source;
use diskvitals_fscheck::CheckProgress;
use diskvitals_kernel_log::event::Batch;
use diskvitals_smart::{SelfTestKind, SmartOutput, SmartResponse};

#[derive(Clone, Debug)]
pub enum SourceUpdate {
    Inventory(Observation<Inventory>),
    /// State of one md or dm device, by kernel name.
    Layer {
        device: String,
        state: Observation<LayerState>,
    },
    /// A worker that reads `device`'s state has not returned in time.
    LayerStuck {
        device: String,
        stuck: StuckProbe,
    },
    /// The superblock on a device of which udev's database has no record, or of an ext2 to ext4;
    /// None: no known filesystem.
    Superblock {
        device: String,
        dev: DevNo,
        superblock: Observation<Option<Superblock>>,
    },
    Mounts(Observation<MountTable>),
    Kubelet(Observation<KubeletRecords>),
    /// The result for one path. `Failed` means that the probe could not be made, not that the
    /// volume returned an error.
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
    /// A requested reading, without the devices whose I/O the kernel does not count. It answers the
    /// requests and changes no facts.
    CountedIo(Observation<Vec<DiskStat>>),
    /// Error counters; complete each time.
    Counters(Observation<Vec<CounterReading>>),
    KernelLog(Batch),
    /// The kernel's notice of a filesystem error (fanotify's FAN_FS_ERROR).
    FsError(FsErrorNotice),
    /// One drive's SMART report, or the reason why there is none.
    Smart {
        drive: DriveId,
        at: Timestamp,
        response: Box<SmartResponse>,
        duration: Duration,
    },
    /// What smartctl printed for the response that follows.
    SmartOutput {
        drive: DriveId,
        output: Box<SmartOutput>,
    },
    /// smartctl has not returned for this drive in time, and could not be killed: the drive is not
    /// queried until it has ended (`None`).
    SmartStuck {
        drive: DriveId,
        stuck: Option<StuckSmartctl>,
    },
    /// The result of an admin's request for a self-test.
    SelfTest {
        drive: DriveId,
        kind: SelfTestKind,
        at: Timestamp,
        /// smartctl's output, if the drive accepted; otherwise the reason.
        result: Result<String, String>,
    },
    /// The drives behind one RAID controller that hides them from the kernel; complete each time.
    RaidMembers {
        /// `megaraid host0`.
        controller: String,
        drives: Observation<Vec<RaidMemberDrive>>,
    },
    /// The existing RAID controllers, by their names in `RaidMembers`; complete each time. The
    /// drives of a controller that is not listed are removed.
    RaidControllers(Vec<String>),
    /// What a vendor's tool reports of all controllers that it knows. `Unavailable`: none is installed.
    RaidReports {
        family: RaidFamily,
        reports: Observation<Vec<RaidReport>>,
    },
    /// Drives that the configuration excludes from SMART (`smart.enabled`, `device_type =
    /// "ignore"`); complete each time. Their former reports no longer hold.
    SmartIgnored(Vec<DriveId>),
    /// The state of a filesystem check; complete each time.
    Check(Box<CheckProgress>),
    /// The volumes that this node provides itself; complete each time. `Failed`: they could not be
    /// read, and the known ones stay.
    Provision(Observation<ProvisionState>),
    /// The status of a source itself.
    Source {
        source: Source,
        status: SourceStatus,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckSmartctl {
    pub since: Timestamp,
    /// The kernel function in which it waits, if /proc shows it.
    pub waiting_in: Option<String>,
}

/// A physical disk behind a RAID controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaidMemberDrive {
    /// Without devices; `location.slot` is the controller's number for it (`megaraid,3`).
    pub facts: DriveFacts,
    /// smartctl's arguments for it: `/dev/bus/0` and `megaraid,3`.
    pub device: HostPath,
    pub device_type: String,
}

/// A drive to query for its SMART data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmartTarget {
    pub drive: DriveId,
    /// The host's name for it: `/dev/sda`, `/dev/nvme0`, `/dev/bus/0`.
    pub device: HostPath,
    /// smartctl's `-d`; None: smartctl detects it.
    pub device_type: Option<String>,
    pub transport: Transport,
    /// NVMe controllers that lead to it (`nvme0`): several with several paths.
    pub controllers: Vec<String>,
    /// Selects overrides, and detects the answer of another drive.
    pub model: Option<String>,
    pub serial: Option<String>,
    /// Runtime-suspended: not even queried for its power state.
    pub asleep: bool,
    /// Rotating, without I/O since its last answer: not queried at the usual interval.
    pub idle: bool,
    /// It has adverse findings: queried more often.
    pub suspect: bool,
    /// Grows with each kernel log error of the drive, which is then queried at once.
    pub kernel_error_count: u64,
    /// When it last responded, from the store: after a restart, the next query is due from then.
    pub last_response: Option<Timestamp>,
}

/// One notice of fanotify(7), FAN_FS_ERROR: the first error's number, and the count of errors since
/// the last notice was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsErrorNotice {
    pub at: Timestamp,
    /// The filesystem's device number in mountinfo.
    pub dev: DevNo,
    /// One of its mounts, for evidence.
    pub path: HostPath,
    /// Positive errno of the first error.
    pub errno: i32,
    /// Errors since the previous notice.
    pub count: u32,
    /// Inode of the first error, if the file handle contained it.
    pub inode: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceStatus {
    /// Works as intended; the text names the method (`udev events`).
    Active(String),
    /// Works with limitations; the text names the missing part and its replacement.
    Limited(String),
    /// Provides nothing; the text contains the reason and the action.
    Down(String),
    /// Does not apply to this node (`no kubelet folder`).
    Absent(String),
}

/// Requests that may wait for a busy source. After a lost request, everything is queried again,
/// except an admin's self-test. So the queue holds far more than can arrive while the owner applies
/// a source's updates. Each request is sent once per admin's command, event or scan, and NVMe
/// controllers send no second event of a kind before their log is read (NVM Express Base 2.0, 5.2).
pub const REQUEST_QUEUE_CAPACITY: usize = 1024;

/// Requests from the owner to sources: read again, now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceRequest {
    /// Everything.
    All,
    Inventory,
    Kubelet,
    Mounts,
    /// The mount table has changed: read the superblocks again that udev does not know.
    Superblocks,
    /// Read the superblocks of the ext2 to ext4 on these devices.
    ExtSuperblocks(Vec<(String, DevNo)>),
    /// Read the I/O counters now.
    DiskStats,
    /// Read the kernel's error counters soon: they confirm what its log says, or do not.
    Counters,
    /// Probe these paths now.
    Probe(Vec<HostPath>),
    /// Query these drives for their SMART data now (every 30 s at most).
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
