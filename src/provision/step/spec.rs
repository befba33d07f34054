//! The specification of each step: the worker role that executes it, its time limit, and its
//! description for people.

use std::time::Duration;

use crate::step::Step;

/// The kind of worker process that executes a step, with the capabilities and the mount namespace
/// that the step needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerRole {
    Host,
    Lvm,
    Tools,
}

// Seconds.
/// For memory, a directory, or a few sectors. A drive may take 30 s for a bad sector, and the
/// kernel retries a read.
const QUICK_SECONDS: u64 = 60;
const PROBE_SECONDS: u64 = 90;
/// For a mount, which may replay a log, and an unmount, which writes back all dirty data.
const MOUNT_SECONDS: u64 = 180;
/// `worker::lvm` stops its own reads after 180 s.
const LVM_READ_SECONDS: u64 = 240;
/// For the extents of a large, fragmented filesystem.
const ALLOCATE_SECONDS: u64 = 300;
const LVM_CHANGE_SECONDS: u64 = 300;
/// For metadata of the largest volume on a slow disk.
const MKFS_SECONDS: u64 = 1800;
/// For offline growth, which checks all metadata first.
const GROW_SECONDS: u64 = 4 * 3600;
/// For a wipe, which may overwrite the whole volume: 20 TB at 250 MB/s.
const WIPE_SECONDS: u64 = 24 * 3600;

impl WorkerRole {
    /// In the order of the enumeration: `role as usize` is the place in this list.
    pub const ALL: [WorkerRole; 3] = {
        let all = [WorkerRole::Host, WorkerRole::Lvm, WorkerRole::Tools];
        let mut at = 0;
        while at < all.len() {
            assert!(all[at] as usize == at);
            at += 1;
        }
        all
    };

    pub fn name(self) -> &'static str {
        match self {
            WorkerRole::Host => "host",
            WorkerRole::Lvm => "lvm",
            WorkerRole::Tools => "tools",
        }
    }
}

impl Step {
    /// Whether the step waits for the pool alone: its files or its volume group. Such steps of a
    /// volume wait for each other and for no other step of it, so that a volume can be unmounted while
    /// its pool hangs. No other step relies on the order.
    pub(crate) fn waits_for_pool(&self) -> bool {
        matches!(
            self,
            Step::ReadRecords { .. }
                | Step::WriteRecord { .. }
                | Step::RemoveRecord { .. }
                | Step::CreateImage { .. }
                | Step::GrowImage { .. }
                | Step::RemoveImage { .. }
                | Step::ListLogicalVolumes { .. }
        )
    }

    /// The worker role that executes the step, and the time after which it counts as stuck. A stuck
    /// step is not terminated: nothing in it can be ended safely from outside.
    pub fn worker(&self) -> (WorkerRole, Duration) {
        use WorkerRole::{Host, Lvm, Tools};
        let (role, seconds) = match self {
            Step::DirectoryCapacity { .. }
            | Step::ReadRecords { .. }
            | Step::WriteRecord { .. }
            | Step::RemoveRecord { .. }
            | Step::AttachImage { .. }
            | Step::DetachImage { .. }
            | Step::FindImage { .. }
            | Step::ResolveDevice { .. }
            | Step::CheckDirectory { .. }
            | Step::CheckTarget { .. }
            | Step::Bind { .. }
            | Step::BindDevice { .. }
            | Step::RemoveTarget { .. }
            | Step::FindMount { .. }
            | Step::FindRemains { .. }
            | Step::ListOpeners { .. }
            | Step::ListPodHolds { .. } => (Host, QUICK_SECONDS),
            Step::CreateImage { .. } | Step::GrowImage { .. } => (Host, ALLOCATE_SECONDS),
            Step::RemoveImage { .. } => (Host, WIPE_SECONDS),
            Step::Mount { .. } | Step::Unmount { .. } => (Host, MOUNT_SECONDS),
            // A mounted filesystem. `executor` grows an unmounted one by its tools.
            Step::GrowFilesystem { .. } => (Host, GROW_SECONDS),
            Step::VolumeGroupCapacity { .. } | Step::ListLogicalVolumes { .. } => {
                (Lvm, LVM_READ_SECONDS)
            }
            Step::CreateLogicalVolume { .. }
            | Step::TagLogicalVolume { .. }
            | Step::GrowLogicalVolume { .. }
            | Step::ActivateLogicalVolume { .. }
            | Step::DeactivateLogicalVolume { .. } => (Lvm, LVM_CHANGE_SECONDS),
            Step::RemoveLogicalVolume { .. } => (Lvm, WIPE_SECONDS),
            Step::ProbeContent { .. } | Step::Scan { .. } => (Tools, PROBE_SECONDS),
            Step::Format { .. } | Step::RepeatFormat { .. } | Step::WipeSignatures { .. } => {
                (Tools, MKFS_SECONDS)
            }
        };
        (role, Duration::from_secs(seconds))
    }

    /// The operation and its object, for messages.
    pub fn description(&self) -> String {
        match self {
            Step::DirectoryCapacity { folder } => format!("reading the free space of {folder}"),
            Step::ReadRecords { folder } => format!("reading the records in {folder}"),
            Step::WriteRecord { folder, name, .. } => format!("writing {}", folder.join(name)),
            Step::RemoveRecord { folder, name } => format!("removing {}", folder.join(name)),
            Step::CreateImage { image, size } => format!("allocating {size} bytes for {image}"),
            Step::GrowImage { image, size } => format!("growing {image} to {size} bytes"),
            Step::RemoveImage { image, .. } => format!("wiping and removing {image}"),
            Step::AttachImage { image, .. } => format!("attaching {image}"),
            Step::DetachImage { image } => format!("detaching {image}"),
            Step::FindImage { image } => format!("looking for the device of {image}"),
            Step::VolumeGroupCapacity { group } => {
                format!("reading the free space of volume group {group}")
            }
            Step::ListLogicalVolumes { group, .. } => {
                format!("listing the logical volumes of {group}")
            }
            Step::CreateLogicalVolume { group, name, .. } => {
                format!("creating logical volume {group}/{name}")
            }
            Step::TagLogicalVolume { group, name, .. } => {
                format!("tagging logical volume {group}/{name}")
            }
            Step::GrowLogicalVolume { group, name, size } => {
                format!("growing logical volume {group}/{name} to {size} bytes")
            }
            Step::RemoveLogicalVolume { group, name, .. } => {
                format!("wiping and removing logical volume {group}/{name}")
            }
            Step::ActivateLogicalVolume { group, name } => {
                format!("activating logical volume {group}/{name}")
            }
            Step::DeactivateLogicalVolume { group, name } => {
                format!("deactivating logical volume {group}/{name}")
            }
            Step::ResolveDevice { path } => format!("looking for {path}"),
            Step::CheckDirectory { path, .. } => format!("checking {path}"),
            Step::ProbeContent { device } => format!("probing the content of {device}"),
            Step::Scan { device, .. } => format!("reading {device} for data"),
            Step::Format { device, fs_type, .. } | Step::RepeatFormat { device, fs_type, .. } => {
                format!("creating an {fs_type} on {device}")
            }
            Step::WipeSignatures { device } => {
                format!("clearing what an interrupted mkfs left on {device}")
            }
            Step::CheckTarget { target } => format!("checking {}", target.place.path),
            Step::Mount { device, target, .. } => {
                format!("mounting {device} at {}", target.place.path)
            }
            Step::Bind { target, .. } | Step::BindDevice { target, .. } => {
                format!("binding it to {}", target.place.path)
            }
            Step::Unmount { target, .. } => format!("unmounting {}", target.path),
            Step::RemoveTarget { target, .. } => format!("removing {}", target.path),
            Step::FindMount { target, .. } => format!("looking up the mount at {}", target.path),
            Step::FindRemains { .. } => {
                "looking for what is left in the mount table and on loop devices".to_owned()
            }
            Step::ListOpeners { .. } => "listing the openers of a mount".to_owned(),
            Step::ListPodHolds { .. } => "looking for what holds pods".to_owned(),
            Step::GrowFilesystem { at, fs_type, .. } => {
                format!("growing the {fs_type} at {}", at.path)
            }
        }
    }
}
