//! Steps: single changes to the host for a volume. They are the interface between `engine`, which
//! decides, and `worker`, which executes them in a process that may hang.
//!
//! Each step is idempotent. A step does not depend on the order of steps; the engine decides it.

mod error;
pub mod spec;

use serde::{Deserialize, Serialize};

pub use crate::step::error::{StepError, StepErrorKind};
use diskvitals_finding::path::HostPath;
pub use diskvitals_finding::provision::Wipe;
use diskvitals_model::clean_order::PodHolds;

/// A path from a caller, in the host's mount namespace. It is resolved below `root` only and
/// follows no link (`host::resolve_beneath`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootedPath {
    /// The kubelet's folder, absolute.
    pub root: HostPath,
    /// Below `root`, absolute.
    pub path: HostPath,
}

/// A path at which a volume is to be mounted. The step refuses the path unless the layout of the
/// kubelet's folder and the kubelet's record give it to that volume (`worker::ownership`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnedPath {
    pub place: RootedPath,
    pub owner: PathOwner,
}

/// The volume and the request that a path must belong to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathOwner {
    /// The CSI driver of our volumes.
    pub driver: String,
    pub handle: String,
    pub role: PathRole,
    /// None: the request does not contain it.
    pub block: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathRole {
    Stage,
    Publish,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// Free space of the pool's folder → `StepOutput::Capacity`.
    DirectoryCapacity {
        folder: HostPath,
    },
    /// The files `*.json` in a folder of the pool with their contents → `StepOutput::Records`. An
    /// absent folder counts as empty.
    ReadRecords {
        folder: HostPath,
    },
    /// Writes `folder/name` atomically: after a crash it is either the old or the new file
    /// (temporary file, fsync, rename, fsync of the folder). Creates the folder (0700).
    WriteRecord {
        folder: HostPath,
        name: String,
        text: String,
    },
    RemoveRecord {
        folder: HostPath,
        name: String,
    },
    /// Allocates the image (fallocate(2), so that writes cannot run out of space) and creates its
    /// folder → `StepOutput::Empty`. Does nothing if the image exists with at least this size.
    CreateImage {
        image: HostPath,
        size: u64,
    },
    /// Enlarges the image and its loop device (LOOP_SET_CAPACITY).
    GrowImage {
        image: HostPath,
        size: u64,
    },
    /// Wipes, then unlinks. Returns `InUse` while the image is attached.
    RemoveImage {
        image: HostPath,
        wipe: Wipe,
    },
    /// Sets up a loop device for the image, with direct I/O if the filesystem supports it, or uses
    /// an existing one → `StepOutput::Device`.
    AttachImage {
        image: HostPath,
        read_only: bool,
    },
    /// Detaches the loop device, which is found as in `FindImage`; returns `InUse` while it is in use.
    DetachImage {
        image: HostPath,
    },
    /// Finds the loop device of the image → `StepOutput::Device` or `StepOutput::Empty`. The pool is
    /// accessed only if a loop device has a file of the same name in another folder.
    FindImage {
        image: HostPath,
    },
    /// Free space of the volume group → `StepOutput::Capacity`.
    VolumeGroupCapacity {
        group: String,
    },
    /// The logical volumes of the group with this tag → `StepOutput::LogicalVolumes`.
    ListLogicalVolumes {
        group: String,
        tag: String,
    },
    /// Creates a tagged volume without auto-activation. Does nothing if the volume exists.
    CreateLogicalVolume {
        group: String,
        name: String,
        size: u64,
        tags: Vec<String>,
    },
    /// Changes its tags, which hold the record of a pool volume.
    TagLogicalVolume {
        group: String,
        name: String,
        add: Vec<String>,
        remove: Vec<String>,
    },
    GrowLogicalVolume {
        group: String,
        name: String,
        size: u64,
    },
    /// Wipes, then removes. Returns `InUse` while the volume is open.
    RemoveLogicalVolume {
        group: String,
        name: String,
        wipe: Wipe,
    },
    /// Activates the volume and ensures its device node → `StepOutput::Device`. An unfinished
    /// volume is `ForeignData`, because it would show earlier data of its extents.
    ActivateLogicalVolume {
        group: String,
        name: String,
    },
    DeactivateLogicalVolume {
        group: String,
        name: String,
    },
    /// Resolves a configured path (for example a link in /dev/disk/by-id) to its device →
    /// `StepOutput::Device`.
    ResolveDevice {
        path: HostPath,
    },
    /// Checks that a configured folder exists, and that the path to it below one of the allowed
    /// roots contains no symbolic link → `StepOutput::Empty`.
    CheckDirectory {
        path: HostPath,
        roots: Vec<HostPath>,
    },
    /// Detects the content of a device, read-only (blkid -p, libblkid's low-level probing; in doubt
    /// never "blank") → `StepOutput::Content`.
    ProbeContent {
        device: HostPath,
    },
    /// Reads the device exclusively for some seconds, from where `state` ends → `StepOutput::Scanned`.
    /// `tracked`: a device that others may write to; it starts again after any write.
    Scan {
        device: HostPath,
        state: ScanState,
        tracked: bool,
    },
    /// Runs mkfs, only with a proof that nothing is on the device, and only if `ProbeContent` within
    /// the same step finds no signature. `options` are already checked. An error with `is_refusal`
    /// occurs before mkfs starts.
    Format {
        device: HostPath,
        fs_type: String,
        options: Vec<String>,
        proof: FormatProof,
    },
    /// As `Format`, for a device with a record of an interrupted `Format` (a crash during mkfs).
    /// Unknown content, or content of this type, counts as the remains of that mkfs. Any other
    /// signature is `ForeignData`, and so is a device other than `expected`.
    RepeatFormat {
        device: HostPath,
        expected: DeviceIdentity,
        fs_type: String,
        options: Vec<String>,
    },
    /// Clears the areas of signatures, so that `ProbeContent` finds the device blank. For a device
    /// of the pool whose `Format` failed. Returns `InUse` while a process, for example that mkfs,
    /// uses it.
    WipeSignatures {
        device: HostPath,
    },
    /// Checks that a path at which nothing is mounted belongs to the volume. Changes nothing.
    CheckTarget {
        target: OwnedPath,
    },
    /// Creates the folder and mounts. Does nothing if the same device is already mounted there;
    /// another device is `AlreadyExists`.
    Mount {
        device: HostPath,
        target: OwnedPath,
        fs_type: String,
        options: Vec<String>,
        read_only: bool,
    },
    /// Creates the folder and bind-mounts `source` on `target`.
    Bind {
        source: BindSource,
        target: OwnedPath,
        read_only: bool,
    },
    /// Creates the file `target` and bind-mounts the device's node on it.
    BindDevice {
        device: HostPath,
        target: OwnedPath,
        read_only: bool,
    },
    /// Unmounts all mounts at the path, topmost first; `lazy`: with MNT_DETACH. Does nothing if
    /// there is no mount. Returns `InUse` while a mount is in use.
    Unmount {
        target: RootedPath,
        lazy: bool,
    },
    /// Removes the empty folder or file of a former bind mount, never recursively. Does nothing if
    /// it does not exist, or if it does not belong to the `owner`. If it is not empty: `InUse`.
    RemoveTarget {
        target: RootedPath,
        /// None: our own record names the path.
        owner: Option<PathOwner>,
    },
    /// Finds the mount at a path → `StepOutput::Mounted`.
    FindMount {
        target: RootedPath,
        /// A folder that it may show.
        folder: Option<HostPath>,
    },
    /// Finds what the kernel still has of a volume, from its mount table and its list of loop devices
    /// alone: neither the volume nor the pool is accessed → `StepOutput::Remains`.
    FindRemains {
        /// A path at which any mount counts.
        at: Option<HostPath>,
        /// Loop devices with a file of this name count, and their mounts.
        image: Option<HostPath>,
        /// The kernel name of a device whose mounts count.
        device: Option<String>,
    },
    /// Lists the openers of the mounts at these paths, from /proc only → `StepOutput::Openers`. A
    /// path without a mount has none.
    ListOpeners {
        mounts: Vec<HostPath>,
    },
    /// Finds what holds pods: their mounts in any mount namespace, and processes in their control
    /// groups, from /proc only → `StepOutput::PodHolds`.
    ListPodHolds {
        kubelet_root: HostPath,
        pod_uids: Vec<String>,
    },
    /// Grows the filesystem to the size of its device. If it is mounted at `at`, it grows online;
    /// an unmounted ext4 grows offline. A machine that forbids online growth grows it before the
    /// next mount.
    GrowFilesystem {
        device: HostPath,
        at: RootedPath,
        fs_type: String,
    },
}

/// The source of a bind mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "source", rename_all = "snake_case")]
pub enum BindSource {
    /// The staging path. This device must be the topmost mount there, otherwise `ForeignData`.
    Staged { place: RootedPath, device: HostPath },
    /// A folder that the configuration names.
    Directory { path: HostPath },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "done", rename_all = "snake_case")]
pub enum StepOutput {
    Empty,
    Capacity(PoolCapacity),
    Records {
        records: Vec<RecordFile>,
    },
    Device(Device),
    LogicalVolumes {
        volumes: Vec<LogicalVolume>,
    },
    Content(Content),
    Scanned(ScanState),
    Mounted {
        mounted: Option<MountedFilesystem>,
    },
    Remains(Remains),
    /// One line per opener: `812 (mysqld) has /x/y open`.
    Openers {
        openers: Vec<String>,
    },
    PodHolds {
        found: PodHolds,
    },
}

/// What is left of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remains {
    pub mounts: Vec<HostPath>,
    /// Kernel names: `loop3`.
    pub loops: Vec<String>,
}

/// Capacities in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolCapacity {
    pub total: u64,
    pub available: u64,
    /// Sizes are multiples of this unit: the block or the extent.
    pub unit: u64,
    /// The physical volumes of a volume group, as lvm lists them; empty for a folder.
    #[serde(default)]
    pub physical_volumes: Vec<HostPath>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordFile {
    pub name: String,
    /// The text, or the reason why it cannot be read.
    pub text: Result<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// `/dev/loop3`.
    pub node: HostPath,
    /// `loop3`.
    pub name: String,
    /// Bytes.
    pub size: u64,
    pub read_only: bool,
    /// An identity that no other device at the same path would have; None if the device reports
    /// none.
    pub identity: Option<String>,
}

impl Device {
    pub fn device_identity(&self) -> DeviceIdentity {
        DeviceIdentity { size: self.size, name: self.identity.clone() }
    }
}

/// The identity of a device, to recognize it later.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceIdentity {
    /// Bytes.
    pub size: u64,
    pub name: Option<String>,
}

impl std::fmt::Display for DeviceIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.name.as_deref().unwrap_or("an unidentified device");
        write!(f, "{name} with {} bytes", self.size)
    }
}

impl DeviceIdentity {
    /// True only with certainty: for two devices without an identity it is false.
    pub(crate) fn is_certainly_same(&self, other: &DeviceIdentity) -> bool {
        self.name.is_some() && self == other
    }
}

/// How far a device was read for data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanState {
    pub device: DeviceIdentity,
    /// Differs after a write to the device, after it was attached again, and after a boot.
    pub generation: String,
    /// All bytes before this one are zero.
    pub position: u64,
    /// The first byte that is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_at: Option<u64>,
}

impl ScanState {
    /// Whether the whole device read as zero.
    pub fn is_complete(&self) -> bool {
        self.device.size > 0 && self.data_at.is_none() && self.position >= self.device.size
    }

    pub fn percent(&self) -> u64 {
        let done = u128::from(self.position) * 100;
        u64::try_from(done / u128::from(self.device.size.max(1))).unwrap_or(100)
    }
}

/// Why a mkfs destroys nothing that somebody needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "proof", rename_all = "snake_case")]
pub enum FormatProof {
    /// Our record: we created the volume, and nothing has used it since.
    New,
    /// All of it read as zero, and it is unchanged since.
    Scanned { state: ScanState, tracked: bool },
    /// Root permits it for this device. None: a volume of the pool, which its handle identifies.
    /// Data without a known signature is overwritten.
    Authorized { device: Option<DeviceIdentity> },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogicalVolume {
    pub name: String,
    pub size: u64,
    pub tags: Vec<String>,
    /// The kernel name while the volume is active.
    pub device: Option<String>,
    pub open: bool,
    /// The creation has begun, and the volume is not blank yet.
    pub unfinished: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "content", rename_all = "snake_case")]
pub enum Content {
    /// No signature, no partition table, and zeros in the areas of both. Not a proof that the device
    /// is blank.
    Blank,
    Filesystem {
        fs_type: String,
        uuid: Option<String>,
        /// The size in bytes from its superblock, if it is known.
        size: Option<u64>,
    },
    /// No signature, but bytes other than zeros in the 64 KiB from this byte on.
    Unknown { at: u64 },
    /// Other content, or more than one signature. It is never formatted.
    Foreign { what: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountedFilesystem {
    /// The kernel name (or source) of the mount.
    pub source: String,
    pub fs_type: String,
    pub options: Vec<String>,
    pub read_only: bool,
    /// The path within the filesystem.
    pub root: HostPath,
    /// It shows the folder that was asked for.
    pub shows_folder: bool,
}

/// Executes steps, one at a time for each `target` (a volume's handle, or `pool`). Further steps of
/// a target wait; behind a stuck step they return `Stuck`.
pub trait StepExecutor: Send + Sync + 'static {
    fn execute(
        &self,
        target: &str,
        step: Step,
    ) -> impl Future<Output = Result<StepOutput, StepError>> + Send;
}
