//! The jobs that run in worker processes, because they may never return: everything that reads a
//! device, a mount, a directory on a disk, or a sysfs attribute whose reading takes a lock that I/O
//! can hold.
//!
//! Both ends of the pipe use these types: the daemon sends a job, and the same binary in worker
//! mode performs it.

use std::time::Duration;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::smart::controllers::Controller;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::kubelet::KubeletRecords;
use diskvitals_finding::path::HostPath;
use diskvitals_model::block::{Inventory, Layer, LayerState};
use diskvitals_model::counters::CounterReading;
use diskvitals_model::lamp::LampPlace;
use diskvitals_model::probe::MountProbe;
use diskvitals_model::signature::Signature;
use diskvitals_model::superblock::Superblock;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "job", rename_all = "snake_case")]
pub enum Job {
    /// Scan /sys/class/block, /sys/class/nvme, /sys/fs/btrfs and udev's database.
    Inventory { admit: Vec<String>, ignore: Vec<String> },
    /// Read the state of one md or dm device.
    Layer { device: String, layer: Layer },
    /// Read the superblock of the filesystem on a device; `only_ext`: of an ext2 to ext4.
    Superblock { device: String, dev: DevNo, only_ext: bool },
    /// Read every signature on a device of `size` bytes.
    Signatures { device: String, dev: DevNo, size: u64 },
    /// Read the kubelet's records and the names of the pod log folders.
    Kubelet { kubelet_root: HostPath },
    /// statfs and readdir of the mount `id` of the filesystem `dev` at `path`, in the host's mount
    /// namespace; for a btrfs, also what it can allocate.
    ProbeMount { path: HostPath, id: u32, dev: DevNo, is_btrfs: bool },
    /// Read error counters.
    Counters { group: CounterGroup },
    /// Find the RAID controllers that hide their disks.
    Controllers,
    /// Make an NVMe controller (`nvme0`) announce health events.
    NvmeEvents { controller: String },
    /// syncfs(2) of the mount at `path` in the host's mount namespace, whose device must be `dev`.
    SyncFs { path: HostPath, dev: DevNo },
    /// Find the locate lamp of the drive with these block devices and NVMe controllers.
    FindLamp { devices: Vec<String>, controllers: Vec<String> },
    /// Switch a locate lamp, and read it back.
    SwitchLamp { place: LampPlace, is_on: bool },
}

/// A group of counters: counters whose reading can block separately are read separately.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum CounterGroup {
    /// Counters that are in the kernel's memory. The result names the other groups.
    Plain,
    /// Counters of an md array and its members.
    Md { array: String },
    /// Counters of all bcache devices.
    Bcache { devices: Vec<String> },
    /// Counters of the XFS `dev` mounted at `path` in the host's mount namespace.
    Xfs { path: HostPath, dev: DevNo },
    /// Counters of the members of the btrfs mounted at `path` in the host's mount namespace, if it
    /// has several.
    Btrfs { path: HostPath },
    /// The last scrub of a btrfs, by its UUID; its members: device ids and kernel names.
    BtrfsScrub { uuid: String, members: BTreeMap<String, String> },
    /// The PCIe link of an NVMe controller that is awake.
    PcieLink { controller: String },
    /// The SAS link of a disk, with the error counters of its phys.
    SasLink { device: String },
    /// The health descriptor of the UFS device of a disk.
    Ufs { device: String },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterReadings {
    pub readings: Vec<CounterReading>,
    /// Read errors, each naming its file.
    pub warnings: Vec<String>,
    /// The md arrays and bcache devices that exist.
    pub arrays: Vec<String>,
    pub bcache: Vec<String>,
    /// Groups of one drive each: its link, or its flash.
    pub drives: Vec<CounterGroup>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", content = "value", rename_all = "snake_case")]
pub enum JobResult {
    Inventory(Inventory),
    Layer(LayerState),
    /// None: no known filesystem.
    Superblock(Option<Superblock>),
    Signatures(Vec<Signature>),
    /// None where there is no kubelet folder.
    Kubelet(Option<KubeletRecords>),
    ProbeMount(MountProbe),
    Counters(CounterReadings),
    Controllers(Vec<Controller>),
    /// Whether the setting was changed.
    NvmeEvents {
        changed: bool,
    },
    SyncFs {
        elapsed: Duration,
    },
    /// None: the kernel knows of no lamp.
    Lamp(Option<LampPlace>),
    LampSwitched,
    /// The job failed; the text names what was being read.
    Failed {
        error: String,
    },
}
