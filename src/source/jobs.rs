//! The questions that are asked in worker processes, because their answer may never come:
//! everything that reads a device, a mount, a folder on a disk, or a sysfs attribute whose reading
//! takes a lock that I/O can hold.
//!
//! Both sides of the pipe use these types: the daemon asks, the same binary in worker mode
//! performs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::block::{Inventory, Layer, LayerState};
use crate::model::counters::CounterReading;
use crate::model::dev::DevNo;
use crate::model::kubelet::KubeletRecords;
use crate::model::path::HostPath;
use crate::model::probe::MountProbe;
use crate::source::smart::controllers::Controller;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "job", rename_all = "snake_case")]
pub enum Job {
    /// Scan /sys/class/block, /sys/class/nvme, /sys/fs/btrfs and udev's database.
    Inventory {
        admit: Vec<String>,
        ignore: Vec<String>,
    },
    /// Read the state of one md or dm device.
    Layer { device: String, layer: Layer },
    /// Read the kubelet's records and the names of the pod log folders.
    Kubelet { kubelet_root: HostPath },
    /// statfs and readdir of a mounted volume, in the host's mount namespace.
    ProbeMount { path: HostPath },
    /// Read error counters.
    Counters { group: CounterGroup },
    /// Find the RAID controllers that hide their disks.
    Controllers,
    /// Have an NVMe controller (`nvme0`) announce health events.
    NvmeEvents { controller: String },
    /// syncfs(2) of what is mounted at `path` in the host's mount namespace, which must be `dev`.
    SyncFs { path: HostPath, dev: DevNo },
}

/// Which of them: what can wait for something of its own is asked on its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum CounterGroup {
    /// All that are plain memory of the kernel. The answer says what else there is to ask.
    Plain,
    /// Of an md array and its members.
    Md { array: String },
    /// Of all devices of bcaches.
    Bcache { devices: Vec<String> },
    /// Of the XFS `dev` mounted at `path`, in the host's mount namespace.
    Xfs { path: HostPath, dev: DevNo },
    /// Of the members of the btrfs mounted at `path`, in the host's mount namespace, where it has
    /// several.
    Btrfs { path: HostPath },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterReadings {
    pub readings: Vec<CounterReading>,
    /// What could not be read, each naming its file.
    pub warnings: Vec<String>,
    /// md arrays and bcache's devices that there are.
    pub arrays: Vec<String>,
    pub bcache: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", content = "value", rename_all = "snake_case")]
pub enum JobResult {
    Inventory(Inventory),
    Layer(LayerState),
    /// None where there is no kubelet folder.
    Kubelet(Option<KubeletRecords>),
    ProbeMount(MountProbe),
    Counters(CounterReadings),
    Controllers(Vec<Controller>),
    /// Whether it had to be told.
    NvmeEvents {
        changed: bool,
    },
    SyncFs {
        elapsed: Duration,
    },
    /// The job could not be done; the text names what was being read.
    Failed {
        error: String,
    },
}
