//! The specification of each step, one row per step: the worker that executes it, its time limit,
//! its description.

use std::time::Duration;

use crate::provision::step::Step;

/// Where a step is taken: by a process with the rights and in the mount namespace that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerRole {
    Host,
    Lvm,
    Tools,
}

pub(crate) struct StepSpec {
    pub role: WorkerRole,
    /// How long it may take before it is stuck. It is not ended then: nothing in it can be ended
    /// safely from outside.
    pub timeout: Duration,
    /// For messages and logs.
    pub name: &'static str,
    /// For people: what is being done to what.
    pub description: String,
}

// Seconds.
/// Memory, a folder, a few sectors: a disk that needs longer does not answer. A drive may take 30 s
/// for a bad sector, and be asked again.
const QUICK_SECONDS: u64 = 60;
const PROBE_SECONDS: u64 = 90;
/// A log is replayed, or what is not yet written is: as much as memory holds.
const MOUNT_SECONDS: u64 = 180;
/// lvm's own reading is given up after 180 s.
const LVM_READ_SECONDS: u64 = 240;
/// Extents of a large, fragmented filesystem.
const ALLOCATE_SECONDS: u64 = 300;
const LVM_CHANGE_SECONDS: u64 = 300;
/// Metadata of the largest volume on a slow disk.
const MKFS_SECONDS: u64 = 1800;
/// Offline, all metadata is checked first.
const GROW_SECONDS: u64 = 4 * 3600;
/// All of it may have to be overwritten: 20 TB at 250 MB/s.
const WIPE_SECONDS: u64 = 24 * 3600;

impl Step {
    pub(crate) fn spec(&self) -> StepSpec {
        use WorkerRole::{Host, Lvm, Tools};
        let (site, seconds, name, words) = match self {
            Step::DirectoryCapacity { folder } => (
                Host,
                QUICK_SECONDS,
                "asking for the room in the pool's folder",
                format!("asking for the room in {folder}"),
            ),
            Step::ReadRecords { folder } => (
                Host,
                QUICK_SECONDS,
                "reading records",
                format!("reading the records in {folder}"),
            ),
            Step::WriteRecord { folder, name, .. } => (
                Host,
                QUICK_SECONDS,
                "writing a record",
                format!("writing {}", folder.join(name)),
            ),
            Step::RemoveRecord { folder, name } => (
                Host,
                QUICK_SECONDS,
                "removing a record",
                format!("removing {}", folder.join(name)),
            ),
            Step::CreateImage { image, size } => (
                Host,
                ALLOCATE_SECONDS,
                "making an image",
                format!("allocating {size} bytes for {image}"),
            ),
            Step::GrowImage { image, size } => (
                Host,
                ALLOCATE_SECONDS,
                "growing an image",
                format!("growing {image} to {size} bytes"),
            ),
            Step::RemoveImage { image, .. } => (
                Host,
                WIPE_SECONDS,
                "removing an image",
                format!("wiping and removing {image}"),
            ),
            Step::AttachImage { image, .. } => (
                Host,
                QUICK_SECONDS,
                "attaching an image",
                format!("attaching {image}"),
            ),
            Step::DetachImage { image } => (
                Host,
                QUICK_SECONDS,
                "detaching an image",
                format!("detaching {image}"),
            ),
            Step::FindImage { image } => (
                Host,
                QUICK_SECONDS,
                "looking for an image's device",
                format!("looking for the device of {image}"),
            ),
            Step::VolumeGroupCapacity { group } => (
                Lvm,
                LVM_READ_SECONDS,
                "asking for the room in the volume group",
                format!("asking for the room in volume group {group}"),
            ),
            Step::ListLogicalVolumes { group, .. } => (
                Lvm,
                LVM_READ_SECONDS,
                "listing logical volumes",
                format!("listing the logical volumes of {group}"),
            ),
            Step::CreateLogicalVolume { group, name, .. } => (
                Lvm,
                LVM_CHANGE_SECONDS,
                "making a logical volume",
                format!("making logical volume {group}/{name}"),
            ),
            Step::TagLogicalVolume { group, name, .. } => (
                Lvm,
                LVM_CHANGE_SECONDS,
                "tagging a logical volume",
                format!("tagging logical volume {group}/{name}"),
            ),
            Step::GrowLogicalVolume { group, name, size } => (
                Lvm,
                LVM_CHANGE_SECONDS,
                "growing a logical volume",
                format!("growing logical volume {group}/{name} to {size} bytes"),
            ),
            Step::RemoveLogicalVolume { group, name, .. } => (
                Lvm,
                WIPE_SECONDS,
                "removing a logical volume",
                format!("wiping and removing logical volume {group}/{name}"),
            ),
            Step::ActivateLogicalVolume { group, name } => (
                Lvm,
                LVM_CHANGE_SECONDS,
                "activating a logical volume",
                format!("activating logical volume {group}/{name}"),
            ),
            Step::DeactivateLogicalVolume { group, name } => (
                Lvm,
                LVM_CHANGE_SECONDS,
                "deactivating a logical volume",
                format!("deactivating logical volume {group}/{name}"),
            ),
            Step::ResolveDevice { path } => (
                Host,
                QUICK_SECONDS,
                "looking for a device",
                format!("looking for {path}"),
            ),
            Step::CheckDirectory { path, .. } => (
                Host,
                QUICK_SECONDS,
                "looking at a folder",
                format!("looking at {path}"),
            ),
            Step::ProbeContent { device } => (
                Tools,
                PROBE_SECONDS,
                "looking at what is on a device",
                format!("looking what is on {device}"),
            ),
            Step::Format {
                device, fs_type, ..
            }
            | Step::RepeatFormat {
                device, fs_type, ..
            } => (
                Tools,
                MKFS_SECONDS,
                "making a filesystem",
                format!("making an {fs_type} on {device}"),
            ),
            Step::WipeSignatures { device } => (
                Tools,
                MKFS_SECONDS,
                "clearing a device",
                format!("clearing what a mkfs left on {device}"),
            ),
            Step::Mount { device, target, .. } => (
                Host,
                MOUNT_SECONDS,
                "mounting",
                format!("mounting {device} at {}", target.path),
            ),
            Step::Bind { target, .. } | Step::BindDevice { target, .. } => (
                Host,
                QUICK_SECONDS,
                "making a bind mount",
                format!("binding it to {}", target.path),
            ),
            Step::Unmount { target, .. } => (
                Host,
                MOUNT_SECONDS,
                "unmounting",
                format!("unmounting {}", target.path),
            ),
            Step::RemoveTarget { target } => (
                Host,
                QUICK_SECONDS,
                "removing a mount point",
                format!("removing {}", target.path),
            ),
            Step::FindMount { target } => (
                Host,
                QUICK_SECONDS,
                "looking at what is mounted",
                format!("looking what is mounted at {}", target.path),
            ),
            Step::ListOpeners { .. } => (
                Host,
                QUICK_SECONDS,
                "looking for who holds a mount",
                "looking for who holds a mount".to_owned(),
            ),
            // Mounted; what is not is grown by its tools (`steps`).
            Step::GrowFilesystem { at, fs_type, .. } => (
                Host,
                GROW_SECONDS,
                "growing a filesystem",
                format!("growing the {fs_type} at {}", at.path),
            ),
        };
        StepSpec {
            role: site,
            timeout: Duration::from_secs(seconds),
            name,
            description: words,
        }
    }
}
