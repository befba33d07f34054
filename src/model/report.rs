//! What a source tells the owner of the state. Each report is whole: it replaces what the same source said before of the same thing.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::block::{DiskStat, Inventory, LayerState};
use crate::model::counters::Reading;
use crate::model::dev::DevNo;
use crate::model::kernel::event::Batch;
use crate::model::kubelet::KubeletRecords;
use crate::model::mount::MountTable;
use crate::model::observation::Observation;
use crate::model::path::HostPath;
use crate::model::probe::{MountProbe, Stuck};

#[derive(Clone, Debug)]
pub enum Report {
    Inventory(Observation<Inventory>),
    /// State of one md or dm device, by kernel name.
    Layer {
        device: String,
        state: Observation<LayerState>,
    },
    /// A worker that reads `device`'s state has not come back in its time.
    LayerStuck {
        device: String,
        stuck: Stuck,
    },
    Mounts(Observation<MountTable>),
    Kubelet(Observation<KubeletRecords>),
    /// The answer for one path. `Failed` means that the probe could not be made, not that the volume said no.
    Probe {
        path: HostPath,
        result: Observation<MountProbe>,
        took: Duration,
    },
    ProbeStuck {
        path: HostPath,
        stuck: Stuck,
    },
    DiskStats(Observation<Vec<DiskStat>>),
    /// Error counters; whole each time.
    Counters(Observation<Vec<Reading>>),
    KernelLog(Batch),
    /// The kernel's own notice of a filesystem's error (fanotify's FAN_FS_ERROR).
    FsError(FsError),
    /// How a source itself is.
    Source {
        source: Source,
        status: SourceStatus,
    },
}

/// One notice of fanotify(7), FAN_FS_ERROR: the first error's number, and how many came since the last notice was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsError {
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

/// What the owner asks of sources: look again, now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Everything.
    All,
    Inventory,
    Kubelet,
    /// Probe these paths now.
    Probe(Vec<HostPath>),
}
