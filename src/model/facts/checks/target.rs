//! Resolves a requested target to the device, its mount and its filesystem.

use crate::block::{BlockDevice, Inventory, Layer};
use crate::facts::checks::{RequestedTarget, StartCheckError};
use crate::facts::{Facts, KnownVolume};
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::ids::{DriveId, VolumeId};
use diskvitals_fscheck::{CheckTarget, Filesystem, Mode};

impl Facts {
    pub(super) fn resolve_target(
        &self,
        what: &RequestedTarget,
        given: Option<Filesystem>,
    ) -> Result<CheckTarget, StartCheckError> {
        match what {
            RequestedTarget::Volume(id) => self.volume_target(id, given),
            RequestedTarget::Device(name) => {
                // If the device carries a volume, the volume is checked, with all its mounts.
                let on = |known: &&KnownVolume| {
                    known.facts.device.as_ref() == Some(name) && !known.facts.mounts.is_empty()
                };
                match self.volumes.values().find(on) {
                    Some(known) => self.volume_target(&known.facts.id, given),
                    None => self.device_target(name, given),
                }
            }
        }
    }

    fn volume_target(
        &self,
        id: &VolumeId,
        given: Option<Filesystem>,
    ) -> Result<CheckTarget, StartCheckError> {
        let refuse = |why: String| Err(StartCheckError::NotCheckable(format!("{id}: {why}")));
        let Some(known) = self.volumes.get(id) else {
            return Err(StartCheckError::VolumeGone(id.clone()));
        };
        let facts = &known.facts;
        if facts.remote {
            return refuse("it is reached over a network: check it where its disks are".to_owned());
        }
        let (Some(name), false) = (&facts.device, facts.device_gone) else {
            return refuse("no block device of this node is beneath it".to_owned());
        };
        let (inventory, device) = self.block_device(name)?;
        if facts.block && facts.mounts.is_empty() && given.is_none() && device.fs_type.is_none() {
            return refuse(
                "it is a raw block volume: what is on it is its user's affair".to_owned(),
            );
        }
        let on_it = facts.fs_type.as_deref().filter(|_| !facts.block).or(device.fs_type.as_deref());
        let filesystem = filesystem(&id.to_string(), on_it, given)?;
        // A mount that a lookup of its path ends in: a filesystem mounted over it must not be used
        // instead.
        let shown = facts.mounts.iter().find_map(|mount| {
            let dev = self.probes.mounts().get(&mount.path)?.dev;
            Some((mount.path.clone(), dev))
        });
        Ok(CheckTarget {
            name: id.to_string(),
            volume: Some(id.clone()),
            filesystem,
            uuid: facts.fs_uuid.clone().or_else(|| self.device_uuid(name).cloned()),
            device: name.clone(),
            dev: device.dev,
            members: members(inventory, device, filesystem),
            mounted_dev: shown.as_ref().map(|(_, dev)| *dev),
            mount: shown.map(|(path, _)| path),
            mode: mode(known),
            drives: facts.drive_ids.clone(),
            logical_volume: logical_volume(device),
        })
    }

    fn device_target(
        &self,
        name: &str,
        given: Option<Filesystem>,
    ) -> Result<CheckTarget, StartCheckError> {
        let (inventory, device) = self.block_device(name)?;
        let filesystem = filesystem(&format!("/dev/{name}"), device.fs_type.as_deref(), given)?;
        // Members of a pool, keys and swap are recognized by their own type; a disk with partitions
        // has no type.
        let mut drives: Vec<DriveId> = Vec::new();
        let mut todo = vec![device];
        while let Some(next) = todo.pop() {
            drives.extend(next.drive.clone());
            todo.extend(
                next.underlying
                    .iter()
                    .filter(|below| **below != next.name)
                    .filter_map(|below| inventory.devices.get(below)),
            );
        }
        drives.sort();
        drives.dedup();
        Ok(CheckTarget {
            name: format!("/dev/{name}"),
            volume: None,
            filesystem,
            uuid: self.device_uuid(name).cloned(),
            device: name.to_owned(),
            dev: device.dev,
            members: members(inventory, device, filesystem),
            mount: None,
            mounted_dev: None,
            mode: Mode::Unmounted,
            drives,
            logical_volume: logical_volume(device),
        })
    }

    fn block_device(&self, name: &str) -> Result<(&Inventory, &BlockDevice), StartCheckError> {
        self.inventory().zip(self.device(name)).ok_or_else(|| {
            let why = format!("/dev/{name} is not among this node's block devices");
            StartCheckError::NotCheckable(why)
        })
    }
}

/// How a volume's filesystem is used, by the mount table. A filesystem that is mounted only in
/// other mount namespaces counts as unmounted here: the runner detects those mounts.
pub(crate) fn mode(known: &KnownVolume) -> Mode {
    let mounts = &known.facts.mounts;
    if mounts.is_empty() || known.facts.block {
        Mode::Unmounted
    } else if mounts.iter().all(|mount| mount.is_super_read_only()) {
        Mode::ReadOnly
    } else {
        Mode::Live
    }
}

fn filesystem(
    what: &str,
    known: Option<&str>,
    given: Option<Filesystem>,
) -> Result<Filesystem, StartCheckError> {
    let refuse = |why: String| Err(StartCheckError::NotCheckable(format!("{what} is {why}")));
    match (known.map(|known| (known, Filesystem::from_name(known))), given) {
        (Some((known, Some(is))), Some(given)) if is != given => {
            refuse(format!("{known} and not {}", given.name()))
        }
        (Some((_, Some(is))), _) => Ok(is),
        (Some((known, None)), _) => {
            refuse(format!("{known}: ext2 to ext4, XFS and btrfs can be checked"))
        }
        (None, Some(given)) => Ok(given),
        (None, None) => Err(StartCheckError::NotCheckable(format!(
            "what is on {what} is not known (udev's database does not say): name the filesystem"
        ))),
    }
}

/// The other members of the btrfs on `device`: if mounted, from sysfs; otherwise all devices with
/// its UUID.
fn members(
    inventory: &Inventory,
    device: &BlockDevice,
    filesystem: Filesystem,
) -> Vec<(String, DevNo)> {
    if filesystem != Filesystem::Btrfs {
        return Vec::new();
    }
    let mounted = inventory.btrfs_of(&device.name);
    let is_member = |other: &&BlockDevice| match mounted {
        Some(fs) => fs.devices.contains(&other.name),
        None => {
            device.fs_uuid.is_some()
                && other.fs_uuid == device.fs_uuid
                && other.fs_type.as_deref() == Some("btrfs")
        }
    };
    let others = inventory.devices.values().filter(|other| other.name != device.name);
    others.filter(is_member).map(|other| (other.name.clone(), other.dev)).collect()
}

fn logical_volume(device: &BlockDevice) -> Option<(String, String)> {
    match &device.layer {
        Layer::Dm { volume_group: Some(group), logical_volume: Some(volume), .. } => {
            Some((group.clone(), volume.clone()))
        }
        _ => None,
    }
}
