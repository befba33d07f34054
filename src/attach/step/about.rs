//! What is to be known of each step besides what it does, a row a step: where it is taken, how long
//! it may take, what it is called.

use std::time::Duration;

use crate::attach::step::Step;

/// Where a step is taken: by a process with the rights and in the mount namespace that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    Host,
    Lvm,
    Tools,
}

pub struct About {
    pub site: Site,
    /// How long it may take before it is stuck. It is not ended then: nothing in it can be ended
    /// safely from outside.
    pub patience: Duration,
    /// For messages and logs.
    pub name: &'static str,
    /// For people: what is being done to what.
    pub words: String,
}

// Seconds.
/// Memory, a folder, a few sectors: a disk that needs longer does not answer. A drive may take 30 s
/// for a bad sector, and be asked again.
const SHORT: u64 = 60;
const LOOKING: u64 = 90;
/// A log is replayed, or what is not yet written is: as much as memory holds.
const MOUNTING: u64 = 180;
/// lvm's own reading is given up after 180 s.
const LVM_READING: u64 = 240;
/// Extents of a large, fragmented filesystem.
const ALLOCATING: u64 = 300;
const LVM_CHANGING: u64 = 300;
/// Metadata of the largest volume on a slow disk.
const FORMATTING: u64 = 1800;
/// Offline, all metadata is checked first.
const GROWING: u64 = 4 * 3600;
/// All of it may have to be overwritten: 20 TB at 250 MB/s.
const WIPING: u64 = 24 * 3600;

impl Step {
    pub fn about(&self) -> About {
        use Site::{Host, Lvm, Tools};
        let (site, seconds, name, words) = match self {
            Step::FolderRoom { folder } => (
                Host,
                SHORT,
                "asking for the room in the pool's folder",
                format!("asking for the room in {folder}"),
            ),
            Step::ReadRecords { folder } => (
                Host,
                SHORT,
                "reading records",
                format!("reading the records in {folder}"),
            ),
            Step::WriteRecord { folder, name, .. } => (
                Host,
                SHORT,
                "writing a record",
                format!("writing {}", folder.join(name)),
            ),
            Step::RemoveRecord { folder, name } => (
                Host,
                SHORT,
                "removing a record",
                format!("removing {}", folder.join(name)),
            ),
            Step::MakeImage { image, size } => (
                Host,
                ALLOCATING,
                "making an image",
                format!("allocating {size} bytes for {image}"),
            ),
            Step::GrowImage { image, size } => (
                Host,
                ALLOCATING,
                "growing an image",
                format!("growing {image} to {size} bytes"),
            ),
            Step::RemoveImage { image, .. } => (
                Host,
                WIPING,
                "removing an image",
                format!("wiping and removing {image}"),
            ),
            Step::AttachImage { image, .. } => (
                Host,
                SHORT,
                "attaching an image",
                format!("attaching {image}"),
            ),
            Step::DetachImage { image } => (
                Host,
                SHORT,
                "detaching an image",
                format!("detaching {image}"),
            ),
            Step::FindImage { image } => (
                Host,
                SHORT,
                "looking for an image's device",
                format!("looking for the device of {image}"),
            ),
            Step::GroupRoom { group } => (
                Lvm,
                LVM_READING,
                "asking for the room in the volume group",
                format!("asking for the room in volume group {group}"),
            ),
            Step::LogicalVolumes { group, .. } => (
                Lvm,
                LVM_READING,
                "listing logical volumes",
                format!("listing the logical volumes of {group}"),
            ),
            Step::MakeLogicalVolume { group, name, .. } => (
                Lvm,
                LVM_CHANGING,
                "making a logical volume",
                format!("making logical volume {group}/{name}"),
            ),
            Step::TagLogicalVolume { group, name, .. } => (
                Lvm,
                LVM_CHANGING,
                "tagging a logical volume",
                format!("tagging logical volume {group}/{name}"),
            ),
            Step::GrowLogicalVolume { group, name, size } => (
                Lvm,
                LVM_CHANGING,
                "growing a logical volume",
                format!("growing logical volume {group}/{name} to {size} bytes"),
            ),
            Step::RemoveLogicalVolume { group, name, .. } => (
                Lvm,
                WIPING,
                "removing a logical volume",
                format!("wiping and removing logical volume {group}/{name}"),
            ),
            Step::ActivateLogicalVolume { group, name } => (
                Lvm,
                LVM_CHANGING,
                "activating a logical volume",
                format!("activating logical volume {group}/{name}"),
            ),
            Step::DeactivateLogicalVolume { group, name } => (
                Lvm,
                LVM_CHANGING,
                "deactivating a logical volume",
                format!("deactivating logical volume {group}/{name}"),
            ),
            Step::ResolveDevice { path } => (
                Host,
                SHORT,
                "looking for a device",
                format!("looking for {path}"),
            ),
            Step::CheckFolder { path, .. } => (
                Host,
                SHORT,
                "looking at a folder",
                format!("looking at {path}"),
            ),
            Step::LookAt { device } => (
                Tools,
                LOOKING,
                "looking at what is on a device",
                format!("looking what is on {device}"),
            ),
            Step::Format {
                device, fs_type, ..
            }
            | Step::FormatAgain {
                device, fs_type, ..
            } => (
                Tools,
                FORMATTING,
                "making a filesystem",
                format!("making an {fs_type} on {device}"),
            ),
            Step::Blank { device } => (
                Tools,
                FORMATTING,
                "clearing a device",
                format!("clearing what a mkfs left on {device}"),
            ),
            Step::Mount { device, target, .. } => (
                Host,
                MOUNTING,
                "mounting",
                format!("mounting {device} at {}", target.path),
            ),
            Step::Bind { target, .. } | Step::BindDevice { target, .. } => (
                Host,
                SHORT,
                "making a bind mount",
                format!("binding it to {}", target.path),
            ),
            Step::Unmount { target, .. } => (
                Host,
                MOUNTING,
                "unmounting",
                format!("unmounting {}", target.path),
            ),
            Step::RemoveTarget { target } => (
                Host,
                SHORT,
                "removing a mount point",
                format!("removing {}", target.path),
            ),
            Step::WhatIsMounted { target } => (
                Host,
                SHORT,
                "looking at what is mounted",
                format!("looking what is mounted at {}", target.path),
            ),
            Step::Holders { .. } => (
                Host,
                SHORT,
                "looking for who holds a mount",
                "looking for who holds a mount".to_owned(),
            ),
            // Mounted; what is not is grown by its tools (`steps`).
            Step::GrowFilesystem { at, fs_type, .. } => (
                Host,
                GROWING,
                "growing a filesystem",
                format!("growing the {fs_type} at {}", at.path),
            ),
        };
        About {
            site,
            patience: Duration::from_secs(seconds),
            name,
            words,
        }
    }
}
