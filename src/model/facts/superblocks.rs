//! Superblocks: the identity of filesystems on devices of which udev's database has no record.
//!
//! In: readings, scans, mount tables. Out: the UUID of a device's filesystem. A reading holds until
//! the device is mounted anew: without udevd, nothing else shows that a filesystem was made.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::model::dev::DevNo;
use crate::model::facts::{Facts, Urgency};
use crate::model::mount::MountTable;
use crate::model::observation::Observation;
use crate::model::policy::VolumeSettings;
use crate::model::superblock::{ExtState, Superblock};

#[derive(Clone, Debug, Default)]
pub(crate) struct Superblocks {
    by_device: BTreeMap<String, Reading>,
}

impl Superblocks {
    pub(super) fn is_empty(&self) -> bool {
        self.by_device.is_empty()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Reading {
    dev: DevNo,
    at: Timestamp,
    superblock: Option<Superblock>,
}

impl Facts {
    /// The UUID of the filesystem on a block device.
    pub(crate) fn device_uuid(&self, name: &str) -> Option<&String> {
        let device = self.device(name)?;
        if device.has_udev_record || device.fs_uuid.is_some() {
            return device.fs_uuid.as_ref();
        }
        let reading = self.superblock_reading(name)?;
        Some(&reading.superblock.as_ref()?.uuid)
    }

    /// Whether nothing has named the filesystem on this device yet.
    pub(crate) fn awaits_superblock(&self, name: &str) -> bool {
        self.device(name).is_some_and(|device| {
            !device.has_udev_record && device.fs_uuid.is_none() && device.size_bytes > 0
        }) && self.superblock_reading(name).is_none()
    }

    /// What ext2 to ext4 on this device last wrote about its own state, and when it was read.
    pub(crate) fn ext_state(&self, name: &str) -> Option<(Timestamp, &ExtState)> {
        let reading = self.superblock_reading(name)?;
        Some((reading.at, reading.superblock.as_ref()?.ext.as_ref()?))
    }

    /// Devices with this filesystem, by name.
    pub(crate) fn devices_with_uuid(&self, uuid: &str) -> Vec<&String> {
        let devices = self.inventory().into_iter();
        devices
            .flat_map(|inventory| inventory.devices.keys())
            .filter(|name| self.device_uuid(name).is_some_and(|found| found == uuid))
            .collect()
    }

    fn superblock_reading(&self, name: &str) -> Option<&Reading> {
        let dev = self.device(name)?.dev;
        let reading = self.superblocks.by_device.get(name);
        reading.filter(|reading| reading.dev == dev)
    }

    /// A failed reading changes nothing: the former one holds.
    pub(super) fn apply_superblock(
        &mut self,
        device: String,
        dev: DevNo,
        seen: Observation<Option<Superblock>>,
        settings: &VolumeSettings,
        now: Timestamp,
    ) -> Urgency {
        let Observation::Ok {
            at,
            value: superblock,
        } = seen
        else {
            return Urgency::Nothing;
        };
        let reading = Reading {
            dev,
            at,
            superblock,
        };
        let old = self.superblocks.by_device.insert(device, reading.clone());
        if old.is_some_and(|old| old.dev == dev && old.superblock == reading.superblock) {
            return Urgency::Nothing;
        }
        self.update_volumes(settings, now);
        Urgency::Immediate
    }

    /// A check has read the superblock of an unmounted filesystem.
    pub(super) fn set_superblock_uuid(
        &mut self,
        device: &str,
        dev: DevNo,
        uuid: &str,
        at: Timestamp,
    ) {
        let is_known = self.device_uuid(device).is_some_and(|known| known == uuid);
        if is_known
            || self
                .device(device)
                .is_none_or(|device| device.has_udev_record)
        {
            return;
        }
        let superblock = Some(Superblock {
            fs_type: String::new(),
            uuid: uuid.to_owned(),
            ext: None,
        });
        let reading = Reading {
            dev,
            at,
            superblock,
        };
        self.superblocks
            .by_device
            .insert(device.to_owned(), reading);
    }

    /// Drops the readings of devices that are gone.
    pub(super) fn forget_superblocks(&mut self) {
        let Some(inventory) = self.inventory.value() else {
            return;
        };
        let devices = &inventory.devices;
        self.superblocks.by_device.retain(|name, reading| {
            devices
                .get(name)
                .is_some_and(|device| device.dev == reading.dev)
        });
    }

    /// Drops the readings of devices that were mounted since `before`: the filesystem may be a new
    /// one. The source reads them again.
    pub(super) fn forget_superblocks_of_new_mounts(&mut self, before: Option<&MountTable>) {
        let devices = |table: &MountTable| -> BTreeSet<DevNo> {
            table.mounts.iter().map(|mount| mount.dev).collect()
        };
        let (Some(before), Some(after)) = (before, self.mounts.value()) else {
            return;
        };
        let (before, after) = (devices(before), devices(after));
        self.superblocks
            .by_device
            .retain(|_, reading| before.contains(&reading.dev) || !after.contains(&reading.dev));
    }
}
