//! Steps: single changes to the host for a volume. The interface between `engine`, which decides,
//! and `worker`, which executes in a process that may hang.
//!
//! Each step is idempotent: repeating it changes nothing. A step does not depend on the order of
//! steps, which the engine decides.

pub(crate) mod spec;

use serde::{Deserialize, Serialize};

use crate::model::path::HostPath;
pub use crate::model::provision::Wipe;

/// A path that a caller named: resolved below `root` only (`host::resolve_beneath`: through no link),
/// in the host's mount namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootedPath {
    /// The kubelet's folder, absolute.
    pub root: HostPath,
    /// Below `root`, absolute.
    pub path: HostPath,
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
    /// Writes `folder/name` so that it is either the old or the new after a crash (temporary file,
    /// fsync, rename, fsync of the folder). Makes the folder (0700).
    WriteRecord {
        folder: HostPath,
        name: String,
        text: String,
    },
    RemoveRecord {
        folder: HostPath,
        name: String,
    },
    /// Allocates the image (fallocate(2), so that writes cannot run out of space), makes its folder →
    /// `StepOutput::Empty`. Exists with at least this size: done.
    CreateImage {
        image: HostPath,
        size: u64,
    },
    /// Enlarges the image and its loop device (LOOP_SET_CAPACITY).
    GrowImage {
        image: HostPath,
        size: u64,
    },
    /// Wipes, then unlinks. `InUse` while it is attached.
    RemoveImage {
        image: HostPath,
        wipe: Wipe,
    },
    /// A loop device over the image, with direct I/O if the filesystem supports it; an existing one
    /// is used → `StepOutput::Device`.
    AttachImage {
        image: HostPath,
        read_only: bool,
    },
    /// `InUse` while something uses the loop device.
    DetachImage {
        image: HostPath,
    },
    /// The loop device of the image → `StepOutput::Device` or `StepOutput::Empty`.
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
    /// Created inactive for auto-activation, and tagged. Exists already: done.
    CreateLogicalVolume {
        group: String,
        name: String,
        size: u64,
        tags: Vec<String>,
    },
    /// Changes its tags, which hold the record of a pool's volume.
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
    /// Wipes, then removes. `InUse` while it is open.
    RemoveLogicalVolume {
        group: String,
        name: String,
        wipe: Wipe,
    },
    /// Active, with its node → `StepOutput::Device`. An unfinished one is `ForeignData`, because it
    /// would show earlier data of its extents.
    ActivateLogicalVolume {
        group: String,
        name: String,
    },
    DeactivateLogicalVolume {
        group: String,
        name: String,
    },
    /// The device that a configured path (a link in /dev/disk/by-id, …) leads to →
    /// `StepOutput::Device`.
    ResolveDevice {
        path: HostPath,
    },
    /// Checks that a configured folder exists, and that no symbolic link leads to it below one of the
    /// allowed roots → `StepOutput::Empty`.
    CheckDirectory {
        path: HostPath,
        roots: Vec<HostPath>,
    },
    /// The content of a device, read-only (libblkid's low-level probing, by blkid -p; in doubt never
    /// "blank") → `StepOutput::Content`.
    ProbeContent {
        device: HostPath,
    },
    /// mkfs, only if `ProbeContent` within the same step finds the device blank. `options` have been
    /// checked. An error that `is_refusal` occurs before mkfs.
    Format {
        device: HostPath,
        fs_type: String,
        options: Vec<String>,
    },
    /// As `Format`, for a device on which a record shows an interrupted `Format` (a crash in the
    /// middle of mkfs): unknown content, or content of this type, is what that mkfs left. Any other
    /// signature is `ForeignData`, and so is another device than the `expected` one.
    RepeatFormat {
        device: HostPath,
        expected: DeviceIdentity,
        fs_type: String,
        options: Vec<String>,
    },
    /// Clears the areas of signatures, so that `ProbeContent` finds the device blank; only on a
    /// device of the pool whose `Format` did not succeed. `InUse` while a process, such as that mkfs,
    /// uses it.
    WipeSignatures {
        device: HostPath,
    },
    /// Makes the folder and mounts. Mounted there already from the same device: done; from another:
    /// `AlreadyExists`.
    Mount {
        device: HostPath,
        target: RootedPath,
        fs_type: String,
        options: Vec<String>,
        read_only: bool,
    },
    /// Binds `source` to `target`, makes the folder.
    Bind {
        source: BindSource,
        target: RootedPath,
        read_only: bool,
    },
    /// Binds the device's node to the file `target`, makes the file.
    BindDevice {
        device: HostPath,
        target: RootedPath,
        read_only: bool,
    },
    /// Unmounts everything that is mounted there, topmost first; `lazy`: by MNT_DETACH. No mount:
    /// done. `InUse` while it is in use.
    Unmount {
        target: RootedPath,
        lazy: bool,
    },
    /// Removes the empty folder or file where something was bound. Never recursive; gone: done; not
    /// empty: `InUse`.
    RemoveTarget {
        target: RootedPath,
    },
    /// The mount at a path → `StepOutput::Mounted`.
    FindMount {
        target: RootedPath,
    },
    /// The openers of the mounts at these paths, from /proc alone → `StepOutput::Openers`. A path
    /// without a mount has none.
    ListOpeners {
        mounts: Vec<HostPath>,
    },
    /// Grows the filesystem to its device: mounted at `at`, or, where nothing is mounted there, an
    /// ext4 offline (a machine that does not let us grow it while it is mounted has it grown before
    /// it is mounted next).
    GrowFilesystem {
        device: HostPath,
        at: RootedPath,
        fs_type: String,
    },
}

/// Source of a bind mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "source", rename_all = "snake_case")]
pub enum BindSource {
    /// The staging path, where this device must be what is mounted on top: else `ForeignData`.
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
    Mounted {
        mounted: Option<MountedFilesystem>,
    },
    /// A line each: `812 (mysqld) has /x/y open`.
    Openers {
        openers: Vec<String>,
    },
}

/// Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolCapacity {
    pub total: u64,
    pub available: u64,
    /// What sizes are multiples of: the block, or the extent.
    pub unit: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordFile {
    pub name: String,
    /// Or why it cannot be read.
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
    /// An identity that no other device in its place would report; None where it reports none.
    pub identity: Option<String>,
}

impl Device {
    pub fn device_identity(&self) -> DeviceIdentity {
        DeviceIdentity {
            size: self.size,
            name: self.identity.clone(),
        }
    }
}

/// Identity of a device, to recognize it later.
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
    /// True only with certainty: two devices without an identity are not known to be the same.
    pub(crate) fn is_certainly_same(&self, other: &DeviceIdentity) -> bool {
        self.name.is_some() && self == other
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogicalVolume {
    pub name: String,
    pub size: u64,
    pub tags: Vec<String>,
    /// Kernel name while it is active.
    pub device: Option<String>,
    pub open: bool,
    /// Its creation has begun, and it is not blank yet.
    pub unfinished: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "content", rename_all = "snake_case")]
pub enum Content {
    /// Certainly blank: no signature, no partition table, and zeros in the areas of both.
    Blank,
    Filesystem {
        fs_type: String,
        uuid: Option<String>,
        /// Its size in bytes by its superblock, if that is known.
        size: Option<u64>,
    },
    /// Other content, or more than one signature: never formatted.
    Foreign { what: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountedFilesystem {
    /// Kernel name (or source) of what is mounted.
    pub source: String,
    pub fs_type: String,
    pub options: Vec<String>,
    pub read_only: bool,
    /// The path within the filesystem.
    pub root: HostPath,
}

/// Why a step was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct StepError {
    pub kind: StepErrorKind,
    /// The operation, its object, and the causes.
    pub message: String,
}

impl StepError {
    pub(crate) fn new(kind: StepErrorKind, message: impl Into<String>) -> StepError {
        StepError {
            kind,
            message: message.into(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepErrorKind {
    /// The path leads out of its root, through a link, or names the wrong sort of thing.
    InvalidPath,
    NotFound,
    /// Something else is there.
    AlreadyExists,
    /// In use: the message names the users, as far as they are known.
    InUse,
    /// No room.
    NoSpace,
    /// The kernel does not support it, or a tool is missing.
    Unsupported,
    /// It has content that is not ours.
    ForeignData,
    /// Anything else that failed.
    Other,
    /// It has not finished in its time; whether it will be done is not known.
    Stuck,
}

impl StepErrorKind {
    /// Of a `Format`: mkfs was not begun. Errors from mkfs on are `Other` or `Stuck`.
    pub(crate) fn is_refusal(self) -> bool {
        !matches!(self, StepErrorKind::Other | StepErrorKind::Stuck)
    }
}

/// Executes steps, one at a time for each `target` (a volume's handle, or `pool`): another one waits,
/// or is `Stuck` behind a stuck one.
pub trait StepExecutor: Send + Sync + 'static {
    fn execute(
        &self,
        target: &str,
        step: Step,
    ) -> impl Future<Output = Result<StepOutput, StepError>> + Send;
}
